"""Rows of `torch_tpu/ops/embedding_bag.py`."""

import torch

from ops.row import ANY, Row, t

BF16, I32 = torch.bfloat16, torch.int32
FORWARD, DENSE = "aten::_embedding_bag", "aten::_embedding_bag_dense_backward"
BACKWARD, WEIGHTS = (
    "aten::_embedding_bag_backward",
    "aten::_embedding_bag_per_sample_weights_backward",
)
TABLE, INDEX, OFFSETS = t(6, 3), torch.tensor([0, 1, 4, 2, 2]), torch.tensor([0, 2, 2, 4])
LAST = torch.tensor([0, 2, 2, 5])


def _forward(mode, padding, weights=None, table=TABLE, last=False):
    offsets = LAST if last else OFFSETS
    return table, INDEX, offsets, False, mode, False, weights, last, padding


def _saved(mode, padding, weights=None):
    """The auxiliary results of the forward pass."""
    return torch.ops.aten._embedding_bag(*_forward(mode, padding, weights))[1:]


BAG = torch.tensor([0, 0, 2, 2, 3])
PAIRS, SIZES = torch.tensor([4, 1, 1, 4]), torch.tensor([2, 0, 2, 0])
CASES = [(mode, padding) for mode in range(3) for padding in (-1, 2)]


def _bags(*args):
    return torch.ops.aten._embedding_bag(*args)[0], ANY, ANY, ANY


ONLY_BAGS = {
    "reference": _bags,
    "reason": "what is saved for the gradient has device-dependent sizes; rows of it are below",
}

ROWS = [
    *(Row(FORWARD, _forward(m, p), **ONLY_BAGS) for m, p in CASES),
    *(Row(FORWARD, _forward(m, p, last=True), **ONLY_BAGS) for m, p in CASES),
    Row(FORWARD, _forward(0, -1, t(5)), **ONLY_BAGS),
    Row(FORWARD, _forward(0, 4, t(5, dtype=BF16), TABLE.to(BF16)), **ONLY_BAGS),
    Row(FORWARD, (TABLE, INDEX.to(I32), OFFSETS.to(I32), False, 1), **ONLY_BAGS),
    Row(FORWARD, (TABLE, INDEX[:0], torch.tensor([0, 0]), False, 1), **ONLY_BAGS),
    Row("aten::_embedding_bag_forward_only", _forward(1, 2), **ONLY_BAGS),
    Row("aten::_embedding_bag_forward_only", _forward(2, -1, last=True), **ONLY_BAGS),
    *(
        Row(DENSE, (t(4, 3, seed=1), INDEX, BAG, *_saved(m, p)[1:], 6, False, m, None, p))
        for m, p in CASES
    ),
    # CPU PyTorch divides by the frequency of another index than it should unless all are equally
    # frequent; the operator follows the documentation (and CUDA).
    *(
        Row(DENSE, (t(4, 3, seed=1), PAIRS, BAG[:4], SIZES, SIZES, 6, True, m, None, -1))
        for m in (0, 1)
    ),
    Row(DENSE, (t(4, 3, seed=1), INDEX, BAG, *_saved(0, 1, t(5))[1:], 6, False, 0, t(5), 1)),
    *(
        Row(BACKWARD, (t(4, 3), INDEX, OFFSETS, *_saved(m, p), 6, False, m, False, None, p))
        for m, p in CASES
    ),
    Row(WEIGHTS, (t(4, 3, seed=1), TABLE, INDEX, OFFSETS, BAG, 0)),
    Row(WEIGHTS, (t(4, 3, seed=1), TABLE, INDEX, OFFSETS, BAG, 0, 2)),
]
