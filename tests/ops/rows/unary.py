"""Rows of `torch_tpu/ops/unary.py`."""

import math

import torch

from ops.row import Row, t

INF, NAN = math.inf, math.nan
BF16, F16, F64, C64 = torch.bfloat16, torch.float16, torch.float64, torch.complex64
I32, I64, U8, BOOL = torch.int32, torch.int64, torch.uint8, torch.bool
SPECIAL = torch.tensor([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1.0, -1.0, 1e-7, INF, -INF, NAN])
SMALL = torch.tensor([1e-40, -1e-45, 1e-38, 3e38, 0.5, -1.0, 8.0])


def rows(names: str, *inputs) -> list[Row]:
    return [Row(f"aten::{name}", (x,)) for name in names.split() for x in inputs]


# name -> the interval it is sampled in
FLOAT = {
    **dict.fromkeys("exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh".split(), (-3, 3)),
    **dict.fromkeys("deg2rad rad2deg".split(), (-3, 3)),
    **dict.fromkeys("log log1p log2 log10 sqrt rsqrt reciprocal".split(), (0.01, 9)),
    **dict.fromkeys("asin acos atanh".split(), (-0.99, 0.99)),
    "acosh": (1, 9),
}
REAL_ONLY = ("deg2rad", "rad2deg")

ROWS = [
    *[
        Row(f"aten::{name}", (x,))
        for name, (low, high) in FLOAT.items()
        for x in [
            t(3, 5, low=low, high=high),
            t(7, dtype=BF16, low=low, high=high),
            t(5, dtype=F64, low=low, high=high),
            t(dtype=I64, low=1, high=2),
            SPECIAL,
        ]
    ],
    *[Row(f"aten::{name}", (t(6, dtype=C64),)) for name in FLOAT if name not in REAL_ONLY],
    *rows("neg abs sgn sign", t(3, 4), t(3, dtype=BF16), t(3, dtype=I32), SPECIAL),
    *rows("abs sgn sign", t(5, dtype=U8, low=0, high=3)),
    *rows("sgn sign", t(3, dtype=BOOL)),
    *rows("neg abs sgn _conj_physical", t(5, dtype=C64), torch.zeros(2, dtype=C64)),
    *rows("_conj_physical", t(3)),
    *rows(
        "ceil floor round trunc", t(9, low=-5, high=5), t(9, dtype=BF16), t(3, dtype=I32), SPECIAL
    ),
    *rows("frac", t(9, low=-5, high=5), t(9, dtype=BF16), SPECIAL),
    *[
        Row("aten::round.decimals", (t(6, dtype=dtype, low=-99, high=99),), {"decimals": d})
        for d in (0, 1, -1)
        for dtype in (torch.float32, F64)
    ],
    *rows("isnan isinf", SPECIAL, t(3, dtype=I64), torch.tensor([1 + 1j, complex(NAN, INF)])),
    *rows(
        "isposinf isneginf signbit", SPECIAL, SPECIAL.to(BF16), t(3, dtype=I64), t(3, dtype=BOOL)
    ),
    Row("aten::nan_to_num", (SPECIAL,)),
    Row("aten::nan_to_num", (SPECIAL.to(BF16),)),
    Row("aten::nan_to_num", (SPECIAL.to(torch.complex64),)),
    Row("aten::nan_to_num", (SPECIAL.to(F64), 2.0, 3.0, -4.0)),
    Row("aten::nan_to_num", (t(3, dtype=I64),)),
    Row("aten::nan_to_num", (torch.tensor([complex(NAN, INF), complex(-INF, 1)]),)),
    Row("aten::heaviside", (SPECIAL, torch.tensor(0.3))),
    Row("aten::heaviside", (t(5, dtype=I64), torch.tensor(7))),
    Row("aten::angle", (SPECIAL,)),
    Row("aten::angle", (SPECIAL.double(),)),
    # Parts that a formula for the whole number loses: tiny ones, and zeros beside infinities.
    *rows("sin cos", torch.tensor([1 + 1e-20j, 1e-20j, complex(0, -INF), complex(INF, 0), -2.5j])),
    *rows("log2 log10 exp2", torch.tensor([0j, complex(INF, 0), complex(1, -INF), 8 + 0j])),
    Row("aten::rsqrt", (torch.tensor([-2.5 + 0j, 4 + 0j, -1j]),)),
    Row(
        "aten::abs",
        (torch.tensor([complex(INF, NAN), complex(NAN, -INF), complex(1, NAN), 3 + 4j]),),
    ),
    Row("aten::angle", (t(3, dtype=I64),)),
    Row("aten::angle", (t(5, dtype=C64),)),
    Row("aten::complex", (t(3, 1), t(3, 1, seed=1))),
    Row("aten::complex", (t(3, 1, dtype=F64), t(4, dtype=F64, seed=1))),
    Row("aten::polar", (t(3, 1), t(4, seed=1))),
    *rows("frexp.Tensor", SPECIAL, SMALL, t(5, dtype=BF16), t(5, dtype=F16), t(3, 4, dtype=F64)),
]
