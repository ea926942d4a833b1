"""Rows of `torch_tpu/ops/sort.py`."""

import math

import torch

from ops.row import Row, t

nan, inf = math.nan, math.inf
BF, F16, F64 = torch.bfloat16, torch.float16, torch.float64
I8, I32, I64, U8, B = torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool

NAN = torch.tensor([[1.0, nan, 3.0, -inf, inf], [4.0, -2.0, nan, nan, 0.0]])
SIGNED_NAN = torch.tensor([1.0, -nan, 3.0, inf]).copysign(torch.tensor([1.0, -1.0, 1.0, 1.0]))
ALL_NAN = torch.full((2, 3), nan)
TIES = torch.tensor([[3, 1, 3, 1], [0, 0, 0, 0], [-1, 5, 5, -1]])
ZEROS = torch.tensor([0.0, -0.0, 1.0, 0.0, -0.0])


def _unsorted(x, k, **keywords):
    """topk in any order: the set of values must be right and the indices must point at them."""
    want = x.topk(k, **keywords)[0].sort()[0]

    def check(got):
        values, indices = got
        return torch.equal(values.sort()[0], want) and torch.equal(x.gather(-1, indices), values)

    keywords["sorted"] = False
    return Row("aten::topk", (x, k), keywords, random=True, check=check)


_SORTS = [
    Row("aten::sort.stable", (t(3, 5),), {"stable": True}),
    Row("aten::sort.stable", (NAN,), {"stable": True, "descending": True}),
    Row("aten::sort.stable", (NAN,), {"stable": None, "dim": 1}),
    Row("aten::sort.stable", (TIES,), {"stable": True, "dim": -1, "descending": True}),
    Row("aten::sort.stable", (TIES.to(U8),), {"stable": True, "dim": 0}),
    Row("aten::sort.stable", (ZEROS,), {"stable": True, "descending": True}),
    Row("aten::sort.stable", (t(3, 5, dtype=B),), {"stable": True}),
    Row("aten::sort", (t(4, 5, dtype=BF), 0)),
    Row("aten::sort", (t(4, 3, 5), 1, True)),
    Row("aten::sort", (t(),)),
    Row("aten::sort", (t(2, 1, dtype=F64),)),
    Row("aten::topk", (t(3, 9), 4)),
    Row("aten::topk", (t(3, 9, 2), 4, 1, False)),
    Row("aten::topk", (t(9, 3, seed=4), 3, 0)),
    Row("aten::topk", (NAN, 3)),
    Row("aten::topk", (SIGNED_NAN, 2)),
    Row("aten::topk", (NAN[:1], 5, -1, False)),
    Row("aten::topk", (torch.randperm(30).to(I32).reshape(3, 10), 4)),
    Row("aten::topk", (torch.randperm(20).to(I8).reshape(2, 10), 4, -1, False)),
    Row("aten::topk", (torch.arange(12.0).flip(0).reshape(3, 4).to(BF), 2)),
    Row("aten::topk", (torch.arange(12.0).reshape(3, 4).to(F16), 2, 0, False)),
    Row("aten::topk", (t(4, 6, dtype=F64), 6)),
    Row("aten::topk", (t(), 1)),
    Row("aten::topk", (t(5), 1)),
    _unsorted(t(3, 9), 4),
    _unsorted(TIES, 2, largest=False),
    _unsorted(TIES, 3),
]

_STATISTICS = [
    Row("aten::kthvalue", (t(3, 5), 2)),
    Row("aten::kthvalue", (t(5, 3, 2, seed=3), 5, 0, True)),
    Row("aten::kthvalue", (NAN[:1], 5)),
    Row("aten::kthvalue", (torch.randperm(10).to(I32), 3)),
    Row("aten::kthvalue", (t(5, dtype=BF), 3)),
    Row("aten::kthvalue", (t(), 1)),
    Row("aten::median", (t(3, 5),)),
    Row("aten::median", (t(4, 2),)),
    Row("aten::median", (NAN,)),
    Row("aten::median", (TIES,)),
    Row("aten::median", (t(0),)),
    Row("aten::median", (t(7, dtype=BF),)),
    Row("aten::nanmedian", (NAN,)),
    Row("aten::nanmedian", (ALL_NAN,)),
    Row("aten::nanmedian", (torch.randperm(9),)),
    Row("aten::median.dim", (t(4, 3, 5), 0)),
    Row("aten::median.dim", (NAN, 1, True)),
    Row("aten::median.dim", (torch.randperm(10).reshape(2, 5).to(U8), -1)),
    Row("aten::median.dim", (t(), 0)),
    Row("aten::median.dim", (t(3, 4, dtype=BF), 1)),
    Row("aten::nanmedian.dim", (NAN, 1)),
    Row("aten::nanmedian.dim", (ALL_NAN, 1, True)),
    Row("aten::nanmedian.dim", (t(5, 4, dtype=F64), 0)),
    Row("aten::mode", (TIES, 1)),
    Row("aten::mode", (TIES.to(torch.float32), 0, True)),
    Row("aten::mode", (t(4, 15, dtype=I8, low=0, high=5), -1)),
    Row("aten::mode", (t(3, 9, dtype=B), 1)),
    Row("aten::mode", (t(3, 8).round().to(BF), 1)),
    Row("aten::mode", (t(), 0)),
    Row("aten::mode", (t(3, 1), 1)),
]

ROWS = [*_SORTS, *_STATISTICS]
