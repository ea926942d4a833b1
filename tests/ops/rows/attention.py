"""Rows of `torch_tpu/ops/attention.py`.

The overrideable attention slots have no CPU kernel to compare with; see `test_attention_rules.py`.
"""

import torch

from ops.row import Row, t

INF = float("inf")

ROWS = [
    Row("aten::_safe_softmax", (t(3, 4), -1)),
    Row("aten::_safe_softmax", (t(3, 4), 0)),
    Row("aten::_safe_softmax", (t(2, 3, 4, dtype=torch.bfloat16), 1)),
    Row("aten::_safe_softmax", (t(4, dtype=torch.float16), 0, torch.float32)),
    Row("aten::_safe_softmax", (t(4), 0, torch.float64)),
    Row("aten::_safe_softmax", (torch.full((2, 3), -INF), 1)),
    Row("aten::_safe_softmax", (torch.tensor([[-INF, 1.0, 2.0], [-INF, -INF, -INF]]), -1)),
    Row("aten::_safe_softmax", (torch.tensor([-INF, float("nan")]), 0)),
    Row("aten::_safe_softmax", (torch.tensor([INF, 1.0]), 0)),
    Row("aten::_safe_softmax", (torch.tensor(2.0), 0)),
]
