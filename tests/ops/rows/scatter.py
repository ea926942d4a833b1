"""Rows of `torch_tpu/ops/scatter.py`."""

import math

import torch

from ops.row import Row, t

BF16, I32, I64, BOOL = torch.bfloat16, torch.int32, torch.int64, torch.bool
C64 = torch.complex64


def i(*values, dtype=I64):
    return torch.tensor(values, dtype=dtype)


def _index(*shape, high):
    return t(*shape, dtype=I64, low=0, high=high, seed=7)


NONE = torch.zeros(0, dtype=I64)
X, PERM, SRC = t(4, 3), i((2, 0, 1), (0, 3, 2)), t(3, 3, seed=1)
NAN = torch.tensor([1.0, math.nan, 3.0, -math.inf])
KINDS = ("sum", "prod", "mean", "amax", "amin")

ROWS = [
    Row("aten::scatter.src", (X, 0, PERM, SRC)),
    Row("aten::scatter.src", (t(3, 5, dtype=I64), -1, i((4, 0), (1, 2)), t(2, 2, dtype=I64))),
    Row("aten::scatter.src", (t(4, dtype=BOOL), 0, i(2), t(1, dtype=BOOL))),
    Row("aten::scatter.src", (t(), 0, i(0), t(1, seed=1))),
    Row("aten::scatter.src", (t(4), 0, NONE, t(3, seed=1))),
    Row("aten::scatter.value", (X, 0, PERM, 7)),
    Row("aten::scatter.value", (t(2, 5, dtype=BF16), 1, i((4, 0, 1)), 0.3)),
    Row("aten::scatter.value", (t(4, dtype=BOOL), 0, torch.tensor(1), True)),
    Row("aten::scatter.value", (t(4, dtype=C64), 0, i(0, 2), 1 + 2j)),
    Row("aten::scatter.reduce", (X, 0, _index(3, 3, high=4), SRC), {"reduce": "add"}),
    Row("aten::scatter.reduce", (X, 1, _index(3, 3, high=3), SRC), {"reduce": "multiply"}),
    Row("aten::scatter.value_reduce", (X, 0, _index(3, 2, high=4), 2.5), {"reduce": "add"}),
    Row("aten::scatter.value_reduce", (t(4, dtype=I64), 0, i(1, 1), 3), {"reduce": "multiply"}),
    Row("aten::scatter_add", (X, 0, _index(3, 3, high=4), SRC)),
    Row("aten::scatter_add", (t(3, dtype=I64), 0, i(1, 1, 2), t(4, dtype=I64))),
    Row("aten::scatter_add", (t(3, dtype=BF16), 0, i(1, 1, 2), t(4, dtype=BF16))),
    Row("aten::scatter_add", (t(3, dtype=C64), 0, i(1, 1, 2), t(4, dtype=C64))),
    Row("aten::scatter_add", (t(3, dtype=BOOL), 0, i(1, 1, 2), t(4, dtype=BOOL))),
    *(
        Row(
            "aten::scatter_reduce.two",
            (x, 0, _index(*s.shape, high=4), s, kind),
            {"include_self": inside},
        )
        for kind in KINDS
        for inside in (True, False)
        for x, s in ((X, SRC), (t(4, dtype=I32, low=-9, high=9), t(6, dtype=I32, low=-9, high=9)))
    ),
    Row("aten::scatter_reduce.two", (NAN, 0, i(0, 1, 2, 3), t(4), "amax")),
    Row("aten::scatter_reduce.two", (t(4), 0, i(0, 0, 0, 3), NAN, "amin"), {"include_self": False}),
    Row("aten::scatter_reduce.two", (t(4, dtype=BF16), 0, i(0, 0, 0), t(3, dtype=BF16), "mean")),
    Row("aten::scatter_reduce.two", (t(4, dtype=BF16), 0, i(0, 0, 0), t(3, dtype=BF16), "prod")),
    Row("aten::index_add", (X, 0, i(0, 2, 0), SRC)),
    Row("aten::index_add", (X, 1, i(0, 2, dtype=I32), t(4, 2, seed=1)), {"alpha": 0.5}),
    Row("aten::index_add", (t(3, dtype=I64), 0, i(2, 2), t(2, dtype=I64)), {"alpha": 2}),
    Row("aten::index_add", (t(), 0, i(0), t(seed=1))),
    Row("aten::index_add", (t(3, dtype=BF16), -1, torch.tensor(1), t(1, dtype=BF16))),
    Row("aten::index_add", (t(3, dtype=BOOL), 0, i(1, 2), t(2, dtype=BOOL))),
    Row("aten::index_copy", (X, 0, i(3, 1, 0), SRC)),
    Row("aten::index_copy", (t(2, 3, dtype=I64), -1, i(2), t(2, 1, dtype=I64, seed=1))),
    Row("aten::index_copy", (t(dtype=BF16), 0, i(0), t(1, dtype=BF16, seed=1))),
    Row("aten::index_fill.int_Scalar", (X, 1, i(0, 2), 1.5)),
    Row("aten::index_fill.int_Scalar", (t(3, dtype=BOOL), 0, i(1), True)),
    Row("aten::index_fill.int_Scalar", (t(dtype=I64), 0, torch.tensor(0), 3)),
    Row("aten::index_fill.int_Tensor", (X, 0, i(3, 3), t(seed=1))),
    Row("aten::index_fill.int_Tensor", (t(3, 2, dtype=BF16), 0, NONE, t(dtype=BF16))),
    *(
        Row("aten::index_reduce", (x, 0, i(0, 2, 0), s, kind), {"include_self": inside})
        for kind in KINDS[1:]
        for inside in (True, False)
        for x, s in ((X, SRC), (t(3, dtype=I64, low=-9, high=9), t(3, dtype=I64, low=-9, high=9)))
    ),
    Row("aten::index_put", (t(3, 4, 5), [i(2, -1, 0)], t(3, 4, 5, seed=1))),
    Row("aten::index_put", (t(3, 4, 5), [None, i((0, 2), (1, -1))], t(5, seed=1))),
    Row("aten::index_put", (t(3, 4, 5), [i(0, 2), None, i(1, 4)], t(2, 4, seed=1))),
    Row("aten::index_put", (t(3, 4, 5), [i(0, 2, 0), None, i(1, 4, 1)], t(3, 4, seed=1), True)),
    Row("aten::index_put", (t(3, 4, dtype=I64), [None, i(1, 1, 0)], t(1, 3, dtype=I64), True)),
    Row("aten::index_put", (t(3, dtype=BF16), [i(1, 1)], t(dtype=BF16), True)),
    Row("aten::index_put", (t(3, dtype=BOOL), [i(1, dtype=I32)], t(dtype=BOOL))),
    Row("aten::index_put", (t(3, dtype=C64), [i(1)], t(1, dtype=C64), True)),
    Row("aten::_index_put_impl", (t(3, 2), [i(1, 0)], t(2, 2, seed=1), False, True)),
    Row("aten::put", (X, i((0, -1), (5, 3)), t(4, seed=1))),
    Row("aten::put", (t(4, dtype=I64), i(0, 0, 3), t(3, dtype=I64, seed=1), True)),
    Row("aten::put", (X, NONE, t(0))),
    Row("aten::embedding_dense_backward", (t(2, 3, 4), _index(2, 3, high=5), 5, -1, False)),
    Row("aten::embedding_dense_backward", (t(2, 3, 4), _index(2, 3, high=5), 5, 2, True)),
    Row("aten::embedding_dense_backward", (t(4, 2, dtype=BF16), i(1, 1, 0, 4), 5, 0, False)),
    Row("aten::embedding_dense_backward", (t(0, 2), NONE, 3, -1, True)),
    *(
        Row("aten::embedding_renorm", (t(5, 3), i(0, 2, 2), 1.0, p))
        for p in (1.0, 2.0, 2.5, math.inf)
    ),
]
