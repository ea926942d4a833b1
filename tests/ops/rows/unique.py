"""Rows of `torch_tpu/ops/unique.py`."""

import math

import torch

from ops.row import Row, t

nan = math.nan
BF, F64 = torch.bfloat16, torch.float64
I8, I32, U8 = torch.int8, torch.int32, torch.uint8

NAN = torch.tensor([1.0, nan, 3.0, nan, 3.0, -math.inf])
RUNS = torch.tensor([[3, 1, 1], [1, 2, 2], [2, 2, 3]])
LINES = torch.tensor([[3, 1], [1, 1], [3, 1], [1, 0], [1, 1]])
WIDE = t(9, 5, dtype=I32, low=0, high=2)

_UNIQUE = [
    Row("aten::_unique2", (t(4, 5, dtype=I32, low=-3, high=3), True, True, True)),
    Row("aten::_unique2", (NAN, True, False, True)),
    Row("aten::_unique2", (t(3, 4, dtype=torch.bool), True, True, True)),
    Row("aten::_unique2", (t(9, dtype=BF).round(), True, True, False)),
    Row("aten::_unique2", (torch.tensor(3), True, True, True)),
    Row("aten::_unique2", (t(0, 3), True, True, True)),
    Row("aten::_unique2", (t(4, 5, dtype=U8, low=0, high=3),)),
    Row("aten::_unique", (RUNS, True, True)),
    Row("aten::_unique", (t(5, dtype=F64), True, False)),
    Row("aten::unique_consecutive", (RUNS, True, True)),
    Row("aten::unique_consecutive", (NAN, True, True)),
    Row("aten::unique_consecutive", (RUNS, False, False)),
    Row("aten::unique_consecutive", (t(0), True, True)),
    Row("aten::unique_consecutive", (LINES.repeat_interleave(2, 0), True, True, 0)),
    Row("aten::unique_consecutive", (LINES, False, False, 1)),
    Row("aten::unique_consecutive", (LINES[0], True, True, 0)),
    Row("aten::unique_dim", (LINES, 0)),
    Row("aten::unique_dim", (WIDE, 0, True, True, True)),
    Row("aten::unique_dim", (WIDE, -1, True, True, True)),
    Row("aten::unique_dim", (t(6, 2, 2).round(), 0, True, True, True)),
    Row("aten::unique_dim", (LINES[:, 0] > 1, 0, True, True, True)),
    Row("aten::unique_dim", (t(0, 3), 0, True, True, True)),
    Row("aten::unique_dim_consecutive", (LINES.repeat_interleave(2, 0), 0, True, True)),
    Row("aten::unique_dim_consecutive", (LINES, 1)),
]

_BINCOUNT = [
    Row("aten::bincount", (t(20, dtype=I32, low=0, high=7),)),
    Row("aten::bincount", (torch.tensor([1, 1], dtype=U8), t(2, dtype=BF), 4)),
    Row("aten::bincount", (torch.tensor([1, 5, 1]), t(3))),
    Row("aten::bincount", (torch.tensor([1, 5, 1]), t(3, dtype=I8), 2)),
    Row("aten::bincount", (t(0, dtype=I32), None, 3)),
    Row("aten::bincount", (t(0, dtype=I32), t(0), 3)),
]

ROWS = [*_UNIQUE, *_BINCOUNT]
