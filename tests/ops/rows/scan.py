"""Rows of `torch_tpu/ops/scan.py`."""

import math

import torch

from ops.row import Row, t

nan, inf = math.nan, math.inf
BF, F16, F64 = torch.bfloat16, torch.float16, torch.float64
I8, I32, I64, U8, B = torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool
C64 = torch.complex64

NAN = torch.tensor([[1.0, 3.0, 3.0, nan, 5.0], [-inf, -inf, 2.0, inf, 2.0]])
TIES = torch.tensor([[3, 1, 3, 1], [0, 0, 0, 0], [-1, 5, 5, -1]])


def _helper(x, dim):
    return (x, torch.zeros_like(x), torch.zeros(x.shape, dtype=I64), dim)


ENDS = torch.tensor(
    [[-math.inf, 1 + 2j, math.inf], [0.5j, math.inf, math.inf], [complex(0, math.nan), 1, 2]]
).to(C64)

ROWS = [
    Row("aten::cumsum", (t(3, 4), 1)),
    Row("aten::cumsum", (t(3, 4, 5), -2)),
    Row("aten::cumsum", (t(3, 4, dtype=B), 0)),
    Row("aten::cumsum", (t(3, 4, dtype=U8, low=0, high=250), 0)),
    Row("aten::cumsum", (t(3, 40, dtype=BF), 1)),
    Row("aten::cumsum", (t(3, 4, dtype=I32), 1), {"dtype": torch.float32}),
    Row("aten::cumsum", (t(3, 4, dtype=C64), 0)),
    Row("aten::cumsum", (t(), 0)),
    Row("aten::cumsum", (t(2000, low=0), 0)),
    Row("aten::cumsum", (t(2, 300, dtype=F64), 1)),
    Row("aten::cumsum", (NAN, 1)),
    Row("aten::cumprod", (t(3, 4), 1)),
    Row("aten::cumprod", (t(3, 4, dtype=I8, low=1, high=4), 0)),
    Row("aten::cumprod", (t(3, 20, dtype=F16), -1)),
    Row("aten::cumprod", (t(3, 40, dtype=C64), 1)),
    Row("aten::_logcumsumexp", (t(3, 4), 1)),
    Row("aten::_logcumsumexp", (NAN, 1)),
    Row("aten::_logcumsumexp", (t(3, 40, dtype=BF), 1)),
    Row("aten::_logcumsumexp", (t(3, 100, low=80, high=100), 1)),
    Row("aten::logcumsumexp", (t(3, 40, dtype=F64), 1)),
    Row("aten::logcumsumexp", (t(), 0)),
    Row("aten::logcumsumexp", (t(3, 30, dtype=C64), 0)),
    # Angles beyond pi: the CPU's logarithm is not the principal one.
    Row("aten::logcumsumexp", (t(3, 30, dtype=C64) * 8, 1)),
    Row("aten::logcumsumexp", (t(dtype=C64), 0)),
    Row("aten::logcumsumexp", (ENDS, 1)),
    Row("aten::cummax", (t(3, 40), 1)),
    Row("aten::cummax", (NAN, 1)),
    Row("aten::cummax", (TIES, -1)),
    Row("aten::cummax", (t(), 0)),
    Row("aten::cummax", (TIES > 0, 1)),
    Row("aten::cummin", (NAN, 1)),
    Row("aten::cummin", (t(40, 3, dtype=BF), 0)),
    Row("aten::cummin", (TIES.to(U8), 0)),
    Row("aten::_cummax_helper", _helper(NAN, 1)),
    Row("aten::_cummax_helper", _helper(TIES, 0)),
    Row("aten::_cummin_helper", _helper(NAN, 1)),
    Row("aten::_cummin_helper", _helper(t(3, 50, dtype=F16), 1)),
]
