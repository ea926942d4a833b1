"""Rows of `torch_tpu/ops/search.py`."""

import math

import torch

from ops.row import Row, t

nan, inf = math.nan, math.inf
BF, F64 = torch.bfloat16, torch.float64
I8, I32, I64, U8 = torch.int8, torch.int32, torch.int64, torch.uint8

EDGES = torch.tensor([-1.0, 0.0, 0.0, 0.5, 1.5])
HARD = torch.tensor([nan, -inf, -1.0, 0.0, 0.25, 1.5, 9.0, inf])
NAN_EDGES = torch.tensor([1.0, 2.0, nan])
BATCH = t(2, 3, 7).sort(-1)[0]
SHUFFLED = torch.tensor([0.5, -1.0, 1.5, 0.0])
MANY = t(40, dtype=I32, low=-30, high=30)

_SEARCHES = [
    Row("aten::searchsorted.Tensor", (EDGES, HARD)),
    Row("aten::searchsorted.Tensor", (EDGES, HARD), {"right": True}),
    Row("aten::searchsorted.Tensor", (EDGES, t(3, 4)), {"side": "right", "out_int32": True}),
    Row("aten::searchsorted.Tensor", (NAN_EDGES, HARD)),
    Row("aten::searchsorted.Tensor", (NAN_EDGES, HARD), {"right": True}),
    Row("aten::searchsorted.Tensor", (BATCH, t(2, 3, 4, seed=1))),
    Row("aten::searchsorted.Tensor", (SHUFFLED, HARD), {"sorter": SHUFFLED.argsort()}),
    Row(
        "aten::searchsorted.Tensor",
        (BATCH.flip(-1), t(2, 3, 4, seed=1)),
        {"sorter": torch.arange(6, -1, -1).expand(2, 3, 7).contiguous()},
    ),
    Row("aten::searchsorted.Tensor", (torch.tensor([1, 2, 3]), HARD)),
    Row("aten::searchsorted.Tensor", (EDGES.to(BF), t(5, dtype=BF))),
    Row("aten::searchsorted.Tensor", (torch.arange(5, dtype=U8), torch.tensor(3, dtype=I8))),
    Row("aten::searchsorted.Tensor", (t(0), t(3))),
    Row("aten::searchsorted.Scalar", (EDGES, 0.25)),
    Row("aten::searchsorted.Scalar", (torch.tensor([1, 2, 3]), 2), {"right": True}),
    Row("aten::bucketize.Tensor", (HARD, EDGES)),
    Row("aten::bucketize.Tensor", (t(3, 4, dtype=F64), EDGES), {"right": True}),
    Row("aten::bucketize.Tensor", (t(dtype=I32), EDGES), {"out_int32": True}),
    Row("aten::bucketize.Scalar", (2.5, torch.tensor([1, 2, 3]))),
    Row("aten::bucketize.Scalar", (2, torch.tensor([1, 2, 3])), {"right": True}),
]

_MEMBERS = [
    Row("aten::isin.Tensor_Tensor", (t(3, 4, dtype=I32, low=-5, high=5), torch.tensor([1, -3]))),
    Row("aten::isin.Tensor_Tensor", (t(3, 4, dtype=I32, low=-30, high=30), MANY)),
    Row("aten::isin.Tensor_Tensor", (t(3, 4, dtype=U8, low=0, high=30), MANY), {"invert": True}),
    Row("aten::isin.Tensor_Tensor", (HARD, torch.tensor([nan, 0.0, 1.5]))),
    Row("aten::isin.Tensor_Tensor", (HARD, torch.cat([HARD, HARD + 1, HARD - 1]))),
    Row("aten::isin.Tensor_Tensor", (torch.tensor([1, 2]), torch.tensor([1.5, 2.0]))),
    Row("aten::isin.Tensor_Tensor", (t(3), t(0))),
    Row("aten::isin.Tensor_Tensor", (torch.tensor(2), torch.tensor([[2, 3]]))),
    Row("aten::isin.Tensor_Scalar", (MANY, 3)),
    Row("aten::isin.Tensor_Scalar", (EDGES, 0.5), {"invert": True}),
    Row("aten::isin.Scalar_Tensor", (2, MANY)),
    Row("aten::isin.Scalar_Tensor", (0.5, EDGES)),
]

ROWS = [*_SEARCHES, *_MEMBERS]
