"""Forward and backward through autograd, for operators that save results for their backward.

Rows compare forward and backward by themselves; what counts here is that backward operators get
what they need, and that 16-bit gradients are as exact as 32-bit intermediates make them.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ops.row import t

BF16 = torch.bfloat16
TABLE, INDEX, OFFSETS = t(6, 3), torch.tensor([0, 1, 4, 2, 2]), torch.tensor([0, 2, 2, 4])
WEIGHT, BIAS = t(3, low=0.5, seed=3), t(3, seed=4)
MEAN, VAR = t(3, seed=5), t(3, low=0.5, seed=6)


def bags(mode, padding=None):
    def call(table, offsets):
        return F.embedding_bag(
            INDEX.to(table.device), table, offsets, mode=mode, padding_idx=padding
        )

    return call, (TABLE, OFFSETS)


def weighted_bags(table, weights):
    index, offsets = INDEX.to(table.device), OFFSETS.to(table.device)
    return F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weights)


def batch_norm(training, dtype=torch.float32):
    def call(x, weight, bias, mean, var):
        mean, var = mean.detach().clone(), var.detach().clone()
        return F.batch_norm(x, mean, var, weight, bias, training)

    return call, (t(4, 3, 5, dtype=dtype), *(v.to(dtype) for v in (WEIGHT, BIAS, MEAN, VAR)))


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (3,), weight, bias)


def ctc(x, targets):
    return F.ctc_loss(x.log_softmax(-1), targets, [6, 4, 5], [3, 3, 1], reduction="none")


def one_sample(loss):
    return lambda x, target: loss(x, target, reduction="none")


_PARAMETERS = (WEIGHT.to(BF16), BIAS.to(BF16))
CASES = {
    "sum of a bag": bags("sum"),
    "mean of a bag": bags("mean"),
    "maximum of a bag": bags("max"),
    "padded mean": bags("mean", 2),
    "padded maximum": bags("max", 2),
    "weighted bag": (weighted_bags, (TABLE, t(5, seed=2))),
    "batch norm": batch_norm(True),
    "batch norm evaluated": batch_norm(False),
    "batch norm bf16": batch_norm(True, BF16),
    "batch norm evaluated bf16": batch_norm(False, BF16),
    "layer norm bf16": (layer_norm, (t(4, 3, dtype=BF16), *_PARAMETERS)),
    "ctc": (ctc, (t(6, 3, 5), torch.tensor([[1, 2, 1], [2, 2, 3], [4, 1, 3]]))),
    "nll of bytes": (F.nll_loss, (t(6, 5), torch.tensor([0, 4, 2, 1, 1, 3], dtype=torch.uint8))),
    "margin of one sample": (one_sample(F.multi_margin_loss), (t(5), torch.tensor(1))),
    "labels of one sample": (
        one_sample(F.multilabel_margin_loss),
        (t(5), torch.tensor([3, 0, -1, 1, 1])),
    ),
}


def run(call, arguments, device):
    leaves = [x.clone().to(device).requires_grad_(x.is_floating_point()) for x in arguments]
    result = call(*leaves)
    # The same numbers in every dtype.
    result.backward(t(*result.shape, dtype=BF16, seed=9).to(result))
    return [result.detach(), *(x.grad for x in leaves if x.grad is not None)]


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    call, arguments = CASES[name]
    # CPU PyTorch rounds saved statistics to bfloat16 and is up to ten times less accurate.
    wide = [x.float() if x.dtype is BF16 else x for x in arguments]
    got = [x.cpu() for x in run(call, arguments, "tpu")]
    for mine, want in zip(got, run(call, wide, "cpu"), strict=True):
        tolerance = {"rtol": 1e-5, "atol": 2e-6}
        if mine.dtype is BF16:
            tolerance = {"rtol": 1.6e-2, "atol": 1e-3}
        torch.testing.assert_close(mine, want.to(mine.dtype), **tolerance)
