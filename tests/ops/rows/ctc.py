"""Rows of `torch_tpu/ops/ctc.py`."""

import torch

from ops.row import ANY, Row, t

CTC = torch.ops.aten._ctc_loss
TARGETS = torch.tensor([[1, 2, 1], [2, 2, 3], [4, 1, 3]])
FULL = ([6, 6, 6], [3, 3, 3])
RAGGED = ([6, 4, 5], [3, 3, 1])
CONCATENATED = torch.tensor([1, 2, 1, 2, 2, 3, 4])
IMPOSSIBLE = ([6, 2, 5], [3, 3, 2])
EMPTY = ([6, 3, 0], [2, 0, 0])


def log_probs(dtype=torch.float32):
    return t(6, 3, 5, dtype=dtype, seed=3).log_softmax(-1)


def losses(*args, **options):
    return CTC(*args, **options)[0], ANY


def forward(targets, lengths, name="_ctc_loss"):
    if name.endswith("Tensor"):
        lengths = [torch.tensor(v) for v in lengths]
    return Row(
        f"aten::{name}",
        (log_probs(), targets, *lengths),
        reference=losses,
        reason="log_alpha past the end of a sample is uninitialized in PyTorch",
    )


def backward(targets, lengths, name="_ctc_loss_backward", dtype=torch.float32, zero=False, blank=0):
    x = log_probs(dtype)
    loss, alpha = CTC(x, targets, *lengths, blank)
    alpha = torch.nan_to_num(alpha)
    if name.endswith("Tensor"):
        lengths = [torch.tensor(v) for v in lengths]
    grad = t(3, dtype=dtype, low=0.5, high=2)
    return Row(f"aten::{name}", (grad, x, targets, *lengths, loss, alpha, blank, zero))


ROWS = [
    Row("aten::_ctc_loss", (log_probs(), TARGETS, *FULL)),
    Row("aten::_ctc_loss", (log_probs(torch.float64), TARGETS, *FULL)),
    Row("aten::_ctc_loss", (log_probs(), TARGETS - 1, *FULL), {"blank": 4}),
    forward(TARGETS, RAGGED),
    forward(TARGETS.to(torch.int32), RAGGED),
    forward(CONCATENATED, RAGGED),
    forward(TARGETS, IMPOSSIBLE),
    forward(TARGETS, EMPTY),
    Row("aten::_ctc_loss.Tensor", (log_probs(), TARGETS, *map(torch.tensor, FULL))),
    forward(CONCATENATED, RAGGED, "_ctc_loss.Tensor"),
    backward(TARGETS, FULL),
    backward(TARGETS, FULL, dtype=torch.float64),
    backward(TARGETS, RAGGED),
    backward(CONCATENATED, RAGGED),
    backward(TARGETS, IMPOSSIBLE, zero=True),
    backward(TARGETS, EMPTY),
    backward(TARGETS - 1, FULL, blank=4),
    backward(TARGETS, RAGGED, "_ctc_loss_backward.Tensor"),
    backward(CONCATENATED, RAGGED, "_ctc_loss_backward.Tensor"),
]
