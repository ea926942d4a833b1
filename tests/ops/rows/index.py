"""Rows of `torch_tpu/ops/index.py`."""

import torch

from ops.row import Row, t

BF16, I32, I64, BOOL = torch.bfloat16, torch.int32, torch.int64, torch.bool
C64 = torch.complex64


def i(*values, shape=None, dtype=I64):
    x = torch.tensor(values, dtype=dtype)
    return x if shape is None else x.reshape(shape)


NONE = torch.zeros(0, dtype=I64)
X, PAIR = t(3, 4, 5), i(0, 2, 1, 1, shape=(2, 2))

ROWS = [
    Row("aten::index_select", (X, 1, i(3, 0, 0))),
    Row("aten::index_select", (t(3, 4, dtype=BF16), -1, i(1, dtype=I32))),
    Row("aten::index_select", (t(dtype=BOOL), 0, i(0))),
    Row("aten::index_select", (t(3, dtype=C64), 0, torch.tensor(2))),
    Row("aten::index_select", (t(3, 0, dtype=I64), 0, i(0, 1, 1))),
    Row("aten::embedding", (t(5, 3), i(0, 4, 2, 2, shape=(2, 2)))),
    Row("aten::embedding", (t(5, 3, dtype=BF16), torch.tensor(1, dtype=I32), 1)),
    Row("aten::take", (X, i(0, -1, 59, 7, shape=(2, 2)))),
    Row("aten::take", (t(dtype=I32), i(0, -1))),
    Row("aten::take", (X, NONE)),
    Row("aten::gather", (X, 1, t(3, 2, 5, dtype=I64, low=0, high=4))),
    Row("aten::gather", (X, -1, t(2, 3, 7, dtype=I64, low=0, high=5))),
    Row("aten::gather", (t(4, dtype=BOOL), 0, i(3, 3, 0))),
    Row("aten::gather", (t(), 0, i(0, 0))),
    Row("aten::gather", (t(4, dtype=BF16), 0, torch.tensor(2))),
    Row("aten::gather", (t(3, 4, dtype=C64), 0, t(1, 4, dtype=I64, low=0, high=3))),
    Row("aten::gather", (X, 0, torch.zeros(0, 4, 5, dtype=I64))),
    Row("aten::index.Tensor", (X, [i(2, -1, 0)])),
    Row("aten::index.Tensor", (X, [None, PAIR])),
    Row("aten::index.Tensor", (X, [PAIR, i(0, -3)])),
    Row("aten::index.Tensor", (X, [None, PAIR, torch.tensor(-1)])),
    Row("aten::index.Tensor", (X, [i(0, 2), None, i(1, 4)])),
    Row("aten::index.Tensor", (X, [PAIR, None, i(4, dtype=I32)])),
    Row("aten::index.Tensor", (X.bfloat16(), [torch.tensor(1), torch.tensor(2), torch.tensor(-1)])),
    Row("aten::index.Tensor", (t(2, 3, dtype=BOOL), [i(1), i(0, 2)])),
    Row("aten::index.Tensor", (X, [None, NONE])),
    Row("aten::index.Tensor", (t(2, 3, 2, 2), [None, i(0), None, i(1, 0)])),
    Row("aten::nonzero_static", (t(3, 4, dtype=BOOL),), {"size": 8}),
    Row("aten::nonzero_static", (t(3, 4, dtype=I64),), {"size": 3}),
    Row("aten::nonzero_static", (t(700) > 1,), {"size": 256, "fill_value": 5}),
    Row("aten::nonzero_static", (torch.zeros(2, 0),), {"size": 2}),
    Row("aten::masked_scatter", (t(3, 4), t(3, 4, dtype=BOOL), t(12, seed=1))),
    Row("aten::masked_scatter", (t(3, 4, dtype=I64), t(4, dtype=BOOL), t(6, 2, dtype=I64, seed=1))),
    Row(
        "aten::masked_scatter",
        (t(2, 3, dtype=BF16), torch.zeros(2, 3, dtype=BOOL), t(0, dtype=BF16)),
    ),
    Row("aten::masked_scatter_backward", (t(3, 4), t(3, 4, dtype=BOOL), [3, 5])),
    Row("aten::masked_scatter_backward", (t(3, 4, dtype=BF16), t(4, dtype=BOOL), [12])),
    Row("aten::masked_scatter_backward", (t(2, 2), torch.zeros(2, 2, dtype=BOOL), [])),
]
