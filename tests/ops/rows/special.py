"""Rows of `torch_tpu/ops/special.py`."""

import math

import torch

from ops.row import Row, t

BF16, F64, C64 = torch.bfloat16, torch.float64, torch.complex64
SPECIAL = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -2.5, 0.5])
PAIRS = (SPECIAL[:, None].contiguous(), SPECIAL[None, :].contiguous())
WIDE, UNIT = t(40, low=-6, high=6), t(40, low=-0.99, high=0.99)
INNER = t(20, low=0.01, high=0.99)
AT_ENDS = torch.tensor([0.0, 1.0, -0.5, 1.5, 0.3, math.nan])


def pos(*shape, dtype=torch.float32, seed=0, high=9.0):
    return t(*shape, dtype=dtype, low=0.05, high=high, seed=seed)


def unary(name, domain):
    inputs = (domain, domain.double(), domain.to(BF16), SPECIAL, torch.tensor([1, 0, 3]), domain[0])
    return [Row(f"aten::{name}", (x,)) for x in inputs]


ROWS = [
    *unary("erf", WIDE),
    *unary("erfc", WIDE),
    *unary("erfinv", UNIT),
    *unary("lgamma", WIDE),
    *unary("digamma", WIDE),
    *unary("special_entr", WIDE),
    *unary("sinc", WIDE),
    Row("aten::sinc", (t(5, dtype=C64),)),
    *[
        Row("aten::polygamma", (n, x))
        for n in (0, 1, 2, 3, 6)
        for x in (pos(20), pos(20, dtype=F64), torch.tensor([1, 2, 5]))
    ],
    Row("aten::polygamma", (1, t(20, low=-4, high=1))),
    Row("aten::polygamma", (2, t(20, low=-4, high=1))),
    Row("aten::polygamma", (3, t(20, low=-4, high=1))),
    # Past the first few terms of the series the two sides of zero decide.
    *[Row("aten::polygamma", (n, torch.arange(9.0) * -7.3 - 0.4)) for n in (1, 2, 3, 4)],
    *[Row("aten::polygamma", (n, torch.arange(9.0, dtype=F64) * -7.3 - 0.4)) for n in (2, 3)],
    # At -1 ATen has 1e15, from the rounding of pi, for the pole.
    *[Row("aten::polygamma", (n, SPECIAL[SPECIAL != -1])) for n in (1, 2, 3)],
    *[
        Row("aten::logit", (x, eps))
        for x in (INNER, INNER.to(BF16), AT_ENDS)
        for eps in (None, 0.1)
    ],
    Row("aten::logit", (torch.tensor([0, 1]), 0.2)),
    *[
        Row("aten::logit_backward", (t(*x.shape, dtype=x.dtype, seed=3), x, eps))
        for x in (INNER, INNER.to(BF16), AT_ENDS)
        for eps in (None, 0.1)
    ],
    Row("aten::special_xlog1py", PAIRS),
    Row("aten::special_xlog1py", (torch.tensor([0, 1, 2]), pos(3))),
    Row("aten::special_xlog1py.self_scalar", (2, pos(3))),
    Row("aten::special_xlog1py.other_scalar", (pos(3), 0.7)),
    Row("aten::special_zeta", (pos(6, 1) + 1.1, pos(6, seed=1))),
    Row("aten::special_zeta", (pos(6, 1, dtype=F64) + 1.1, t(6, dtype=F64, low=-4, high=4))),
    Row("aten::special_zeta", PAIRS),
    Row("aten::special_zeta", (torch.tensor([2.0, 3, 8, 21]), torch.arange(7.0)[:, None] * -9.7)),
    Row("aten::special_zeta", (pos(4, 1, dtype=F64) + 1.1, pos(4, dtype=F64, high=1e5, seed=1))),
    Row("aten::special_zeta.self_scalar", (2, pos(4))),
    Row("aten::special_zeta.other_scalar", (pos(4) + 1.5, 1)),
    *[
        Row(f"aten::{name}", pair)
        for name in ("igamma", "igammac")
        for pair in [
            (pos(6, 1), pos(6, seed=1)),
            (pos(6, 1, high=300), pos(6, seed=1, high=300)),
            (pos(6, 1, dtype=F64, high=50), pos(6, dtype=F64, seed=1, high=50)),
            PAIRS,
            (pos(4, dtype=BF16), pos(4, dtype=BF16, seed=1)),
        ]
    ],
]
