"""Rows of `torch_tpu/ops/create.py`."""

import torch

from ops.row import Row, t

BF16, F16, I32, I64, U8 = torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8
ARANGE, LINSPACE, LOGSPACE = "aten::arange.start_step", "aten::linspace", "aten::logspace"


def _dtype(dtype):
    return {"dtype": dtype}


TRIANGLES = [(3, 4, 0), (4, 3, 1), (4, 2, -2), (2, 5, 3), (5, 5, -3), (1, 1, 0), (6, 2, 4)]
TRIANGLES += [(3, 4, 7), (7, 1, -1), (2, 9, -1), (2, 9, 4)]

ROWS = [
    Row(ARANGE, (0, 5, 1)),
    Row(ARANGE, (7, -3, -2)),
    Row(ARANGE, (0.5, 2, 0.3)),
    Row(ARANGE, (0.5, 5.5, 1.5), _dtype(I64)),
    Row(ARANGE, (0, 3, 0.7), _dtype(BF16)),
    Row(ARANGE, (0, 30, 7), _dtype(U8)),
    Row(ARANGE, (0.0, 1.0, 0.1), _dtype(torch.float64)),
    Row(LINSPACE, (50, 1, 50), {"dtype": torch.int64}),
    Row(LINSPACE, (-3, 7, 11)),
    Row(LINSPACE, (0.5, 7.7, 1)),
    Row(LINSPACE, (5, -8.5, 6), _dtype(torch.float64)),
    *(Row(LINSPACE, (-3, 8, 7), _dtype(d)) for d in (BF16, F16, I64, I32, U8, torch.complex64)),
    Row(LINSPACE, (1 + 1j, 2 - 3j, 5)),
    Row(LINSPACE + ".Tensor_Tensor", (t(), t(seed=1), 5)),
    Row(LINSPACE + ".Tensor_Scalar", (t(dtype=I64), 7, 4)),
    Row(LINSPACE + ".Scalar_Tensor", (1, t(), 4), _dtype(BF16)),
    Row(LOGSPACE, (0, 2, 5)),
    Row(LOGSPACE, (0.5, 3.7, 6), _dtype(I64)),
    Row(LOGSPACE, (0, 9, 10), _dtype(I64)),
    Row(LOGSPACE, (0, 2, 5), _dtype(BF16)),
    Row(LOGSPACE, (0.0, 3.0, 4, 2.0)),
    Row(LOGSPACE, (-1, 3, 1, 3.0), _dtype(torch.float64)),
    Row(LOGSPACE + ".Tensor_Tensor", (t(), t(seed=1), 5)),
    Row(LOGSPACE + ".Tensor_Scalar", (t(dtype=I64), 2, 4)),
    Row(LOGSPACE + ".Scalar_Tensor", (1, t(), 4, 3.0)),
    Row("aten::_efficientzerotensor", ([2, 3],)),
    Row("aten::_efficientzerotensor", ([2],), _dtype(BF16)),
    Row("aten::eye", (3,)),
    Row("aten::eye", (2,), _dtype(torch.bool)),
    Row("aten::eye.m", (2, 4)),
    Row("aten::eye.m", (4, 2), _dtype(BF16)),
    Row("aten::eye.m", (1, 3), _dtype(I64)),
    *(Row(f"aten::tri{k}_indices", triple, _dtype(I64)) for triple in TRIANGLES for k in "lu"),
    Row("aten::tril_indices", (50, 40, 3), _dtype(I32)),
    Row("aten::triu_indices", (50, 64, -7), _dtype(I32)),
]
