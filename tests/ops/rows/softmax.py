"""Rows of `torch_tpu/ops/softmax.py`."""

import math

import torch

from ops.row import Row, t

inf = math.inf
BF, F16, F64 = torch.bfloat16, torch.float16, torch.float64
HOLES = torch.tensor([[-inf, -inf, -inf], [-inf, 1.0, 2.0], [inf, 1.0, 0.0], [math.nan, 1.0, 2.0]])
PROB, LOG = torch.softmax(t(3, 4), 1), torch.log_softmax(t(3, 4), 1)

ROWS = [
    Row("aten::_softmax", (t(3, 4), 1, False)),
    Row("aten::_softmax", (t(3, 4, 5), -2, False)),
    Row("aten::_softmax", (HOLES, 1, False)),
    Row("aten::_softmax", (t(3, 40, dtype=BF), 1, False)),
    Row("aten::_softmax", (t(3, 4, low=-500, high=500), 0, False)),
    Row("aten::_softmax", (t(dtype=F64), 0, False)),
    Row("aten::_log_softmax", (t(3, 4), 1, False)),
    Row("aten::_log_softmax", (HOLES, 1, False)),
    Row("aten::_log_softmax", (t(3, 4, dtype=F16), 0, False)),
    Row("aten::_log_softmax", (t(3, 4, low=-500, high=500), 0, False)),
    Row("aten::_log_softmax", (t(), -1, False)),
    Row("aten::_softmax_backward_data", (t(3, 4, seed=1), PROB, 1, torch.float32)),
    Row("aten::_softmax_backward_data", (t(3, 4, seed=1).to(BF), PROB.to(BF), 1, BF)),
    Row("aten::_softmax_backward_data", (t(), torch.tensor(1.0), 0, torch.float32)),
    Row("aten::_log_softmax_backward_data", (t(3, 4, seed=1), LOG, 1, torch.float32)),
    Row("aten::_log_softmax_backward_data", (t(3, 4, seed=1).to(BF), LOG.to(BF), 1, BF)),
    Row("aten::_log_softmax_backward_data", (t(4, dtype=F64), t(4, dtype=F64), 0, F64)),
]
