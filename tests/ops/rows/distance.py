"""Rows of `torch_tpu/ops/distance.py`."""

import math

import torch

from ops.row import Row, t

POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)
F64 = torch.float64
X1, X2 = t(3, 4), torch.cat([t(3, 4)[:1], t(4, 4, seed=1)])
BATCH1, BATCH2 = t(2, 1, 3, 4), t(6, 5, 4, seed=1)
DOUBLED = torch.cat([t(5, 3), t(5, 3)[2:3]])


def _cdist_backward(x1, x2, p):
    distance = torch.ops.aten._cdist_forward(x1, x2, p, None)
    return Row("aten::_cdist_backward", (t(*distance.shape, dtype=x1.dtype), x1, x2, p, distance))


def _pdist_backward(x, p):
    distance = torch.ops.aten._pdist_forward(x, p)
    args = t(*distance.shape), x, p, distance
    return Row("aten::_pdist_backward", args, views="refused")


ROWS = [
    *(Row("aten::_cdist_forward", (X1, X2, p, None)) for p in POWERS),
    Row("aten::_cdist_forward", (BATCH1, BATCH2, 2.0, None)),
    Row("aten::_cdist_forward", (t(30, 4), t(7, 4, seed=1), 2.0, None)),
    Row("aten::_cdist_forward", (t(30, 4, dtype=F64), t(7, 4, dtype=F64, seed=1), 2.0, 2)),
    Row("aten::_cdist_forward", (t(3, 4, dtype=F64), t(7, 4, dtype=F64, seed=1), 2.0, 1)),
    Row("aten::_cdist_forward", (t(3, 0), t(2, 0), 2.0, None)),
    Row("aten::_euclidean_dist", (t(3, 4, dtype=F64), t(5, 4, dtype=F64, seed=1))),
    *(_cdist_backward(X1, X2, p) for p in POWERS),
    _cdist_backward(BATCH1, BATCH2, 2.0),
    _cdist_backward(t(2, 3, dtype=F64), t(4, 3, dtype=F64, seed=1), 1.0),
    *(Row("aten::_pdist_forward", (DOUBLED, p), views="refused") for p in POWERS),
    Row("aten::_pdist_forward", (t(40, 2, dtype=F64), 2.0), views="refused"),
    Row("aten::_pdist_forward", (t(3, 0), 2.0), views="refused"),
    *(_pdist_backward(DOUBLED, p) for p in POWERS),
]
