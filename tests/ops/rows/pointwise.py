"""Rows of `torch_tpu/ops/pointwise.py`."""

import math

import torch

from ops.row import Row, t

INF, NAN = math.inf, math.nan
BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64
I32, I64, U8, I8, BOOL = torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool
C64, C128 = torch.complex64, torch.complex128


def ints(*shape, dtype=I64, seed=0, low=-9, high=9):
    return t(*shape, dtype=dtype, low=low, high=high, seed=seed)


def nonzero(*shape, dtype=I64, seed=0):
    x = ints(*shape, dtype=dtype, seed=seed, low=0 if dtype is U8 else -9)
    return torch.where(x == 0, torch.ones_like(x), x)


def pos(*shape, dtype=torch.float32, seed=0):
    return t(*shape, dtype=dtype, low=0.1, high=3.0, seed=seed)


X, Y = t(3, 4), t(4, seed=1)
XB, YB = t(3, 4, dtype=BF16), t(3, 4, dtype=BF16, seed=1)
XC, YC = t(3, 4, dtype=C64), t(3, 4, dtype=C64, seed=1)
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.5, -2.5])
PAIRS = (SPECIAL[:, None].contiguous(), SPECIAL[None, :].contiguous())

ROWS = [
    Row("aten::add.Tensor", (X, Y), {"alpha": 2}),
    Row("aten::add.Tensor", (X, 0.5)),
    Row("aten::add.Tensor", (t(3, 4, dtype=I32), t(3, 4, seed=1))),
    Row("aten::add.Tensor", (t(3, dtype=BOOL), t(3, dtype=BOOL, seed=1))),
    Row("aten::add.Tensor", (XB, YB), {"alpha": 0.3}),
    Row("aten::add.Tensor", (ints(3, dtype=I8), 120)),
    Row("aten::add.Tensor", (XC, Y), {"alpha": 1.5}),
    Row("aten::add.Tensor", (t(3, dtype=F16), t(dtype=F64))),
    Row("aten::add.Scalar", (ints(3), 2.5)),
    Row("aten::add.Scalar", (X, 2.5)),
    Row("aten::sub.Tensor", (X, Y), {"alpha": 3}),
    Row("aten::sub.Tensor", (t(3, dtype=U8, low=0, high=9), t(3, dtype=U8, low=0, high=9, seed=1))),
    Row("aten::sub.Scalar", (XB, 0.3)),
    Row("aten::rsub.Tensor", (X, Y), {"alpha": 2}),
    Row("aten::rsub.Scalar", (ints(3), 7, 2)),
    Row("aten::rsub.Scalar", (XB, 1)),
    Row("aten::mul.Tensor", (X, Y)),
    Row("aten::mul.Tensor", (t(3, dtype=BOOL), t(3, dtype=BOOL, seed=1))),
    Row("aten::mul.Tensor", (XC, YC)),
    Row("aten::mul.Tensor", (XB, 0.1)),
    Row("aten::mul.Tensor", (t(dtype=I64, low=1, high=9), t(2, dtype=BF16))),
    Row("aten::mul.Scalar", (ints(2), 1.5)),
    Row("aten::mul.Scalar", (X, 1.5)),
    Row("aten::addcmul", (X, Y, t(3, 4, seed=2)), {"value": 0.5}),
    Row("aten::addcmul", (ints(3), ints(3, seed=1), ints(3, seed=2)), {"value": 3}),
    Row("aten::addcmul", (ints(3), ints(3, seed=1), ints(3, seed=2)), {"value": -1.5}),
    Row("aten::addcmul", (XB, YB, XB)),
    # Scaling comes first: of a complex infinity, a factor would make NaNs.
    Row("aten::addcdiv", (t(3, dtype=C64), t(3, dtype=C64, seed=1), torch.zeros(3)), {"value": 3}),
    Row("aten::addcdiv", (X, Y, pos(3, 4, seed=2)), {"value": 0.5}),
    Row("aten::addcdiv", (XB, YB, pos(3, 4, dtype=BF16))),
    Row("aten::lerp.Scalar", (X, Y, 0.3)),
    Row("aten::lerp.Scalar", (XB, YB, 0.75)),
    Row("aten::lerp.Tensor", (X, Y, t(3, 4, seed=2))),
    Row("aten::lerp.Tensor", (XC, YC, t(3, 4, dtype=C64, seed=2))),
    Row("aten::div.Tensor", (X, Y)),
    Row("aten::div.Tensor", (ints(3, 4), nonzero(3, 4, seed=1))),
    Row("aten::div.Tensor", (XC, YC)),
    Row("aten::div.Tensor", (XB, 3)),
    Row("aten::div.Tensor", PAIRS),
    Row("aten::div.Tensor", (t(3, dtype=BOOL), 2)),
    Row("aten::div.Scalar", (ints(3), 4)),
    Row("aten::div.Scalar", (X, 4)),
    *[
        Row("aten::div.Tensor_mode", (a, b), {"rounding_mode": mode})
        for mode in (None, "trunc", "floor")
        for a, b in [
            (t(3, 4, low=-9, high=9), Y),
            (ints(3, 4), nonzero(3, 4, seed=1)),
            (ints(3, 4, dtype=U8, low=0), nonzero(3, 4, dtype=U8, seed=1)),
            (XB, YB),
            PAIRS,
        ]
    ],
    Row("aten::div.Scalar_mode", (ints(5), 4), {"rounding_mode": "floor"}),
    Row("aten::div.Scalar_mode", (ints(5), 2.5), {"rounding_mode": "trunc"}),
    Row("aten::floor_divide", (X, Y)),
    Row("aten::floor_divide", (torch.tensor([1.0, -1.0, 6.0]), torch.tensor([0.1, 0.1, 2.0]))),
    Row("aten::floor_divide", (ints(4, 4), nonzero(4, seed=1))),
    Row("aten::floor_divide", (t(3, dtype=F64), 0.25)),
    Row("aten::floor_divide.Scalar", (ints(4), -4)),
    *[
        Row(f"aten::{name}.Tensor", pair)
        for name in ("remainder", "fmod")
        for pair in [
            (t(3, 4, low=-9, high=9), Y),
            (ints(4, 4, dtype=I32), nonzero(4, dtype=I32, seed=1)),
            (ints(4, dtype=U8, low=0), nonzero(4, dtype=U8, seed=1)),
            (XB, YB),
            PAIRS,
        ]
    ],
    Row("aten::remainder.Scalar", (ints(5), -4)),
    Row("aten::remainder.Scalar", (X, 0.7)),
    Row("aten::remainder.Scalar_Tensor", (7, nonzero(5))),
    Row("aten::fmod.Scalar", (X, 0.7)),
    Row("aten::fmod.Scalar", (ints(5), 3)),
    Row(
        "aten::pow.Tensor_Tensor",
        (torch.tensor([0, -1, 2, 3, -3, 1, 2]), torch.tensor([100, -3, 64, 70, 65, -1, -2])),
    ),
    Row(
        "aten::pow.Tensor_Tensor",
        (torch.tensor([253, 2, 7], dtype=U8), torch.tensor([255, 3, 0], dtype=U8)),
    ),
    Row("aten::pow.Tensor_Tensor", (pos(3, 4), Y)),
    Row("aten::pow.Tensor_Tensor", PAIRS),
    Row("aten::pow.Tensor_Tensor", (ints(3, 4, low=-3, high=4), ints(3, 4, low=0, high=5, seed=1))),
    Row("aten::pow.Tensor_Tensor", (ints(6, low=-2, high=3), torch.tensor(-1))),
    Row("aten::pow.Tensor_Tensor", (pos(3, 4, dtype=BF16), YB)),
    Row("aten::pow.Tensor_Tensor", (XC, YC)),
    Row("aten::pow.Tensor_Tensor", (torch.zeros(3, dtype=C64), torch.tensor([3, 1, 2 + 1j]))),
    *[Row("aten::pow.Tensor_Scalar", (pos(3), e)) for e in (0, 0.5, 1, 2, 3, -0.5, -1, -2, 2.7)],
    Row("aten::pow.Tensor_Scalar", (X, 2.0)),
    *[Row("aten::pow.Tensor_Scalar", (X > 0, e)) for e in (True, False, 1, 2)],
    Row("aten::pow.Tensor_Scalar", (ints(4), 2)),
    Row("aten::pow.Tensor_Scalar", (ints(4, low=0), 0.5)),
    Row("aten::pow.Tensor_Scalar", (ints(4, low=0), 1.5)),
    Row("aten::pow.Tensor_Scalar", (ints(4), 5)),
    Row("aten::pow.Tensor_Scalar", (t(4, dtype=BOOL), 2)),
    Row("aten::pow.Tensor_Scalar", (XB, 3)),
    Row("aten::pow.Tensor_Scalar", (XC, 2)),
    Row("aten::pow.Scalar", (2.0, X)),
    Row("aten::pow.Scalar", (3, ints(4, low=0, high=6))),
    Row("aten::pow.Scalar", (2, XB)),
    Row("aten::ldexp.Tensor", (X, ints(4, dtype=I32, low=-4))),
    Row("aten::ldexp.Tensor", (ints(4), ints(4, low=-4, seed=1))),
    Row("aten::ldexp.Tensor", (t(4, dtype=F16), ints(4, low=-4, seed=1))),
    Row("aten::xlogy.Tensor", PAIRS),
    Row("aten::xlogy.Tensor", (pos(3, 4), pos(3, 4, seed=1))),
    Row("aten::xlogy.Tensor", (ints(4, low=0, high=2), ints(4, low=0, seed=1))),
    Row("aten::xlogy.Scalar_Self", (2, pos(3))),
    Row("aten::xlogy.Scalar_Other", (pos(3, dtype=BF16), 0.3)),
    Row("aten::logaddexp", (t(3, 4, low=-50, high=50), Y)),
    Row("aten::logaddexp", PAIRS),
    Row("aten::logaddexp", (XC * 30, YC[0])),
    Row(
        "aten::logaddexp",
        (
            torch.tensor([complex(-INF, 1), complex(INF, 0), complex(NAN, 0), complex(-INF, 0)]),
            torch.tensor([complex(-INF, 2), complex(INF, 0), 1 + 0j, 2 + 1j]),
        ),
    ),
    Row("aten::logaddexp2", (t(3, 4, low=-50, high=50), Y)),
    Row("aten::logaddexp2", (XB, YB)),
    *[
        Row(f"aten::{name}", pair)
        for name in ("maximum", "minimum", "fmax", "fmin")
        for pair in [
            PAIRS,
            (ints(3, 4), ints(4, seed=1)),
            (t(4, dtype=BOOL), t(4, dtype=BOOL, seed=1)),
            (XB, YB),
        ]
    ],
    Row("aten::clamp", (X, -0.5, 0.5)),
    Row("aten::clamp", (X, None, 0.5)),
    Row("aten::clamp", (X, 1.0, -1.0)),
    Row("aten::clamp", (ints(5), 0.5)),
    Row("aten::clamp", (ints(5, dtype=U8, low=0), 2, 5)),
    Row("aten::clamp", (XB, -0.3, 0.3)),
    Row("aten::clamp", (SPECIAL, -2, 2)),
    Row("aten::clamp", (SPECIAL, NAN, 2)),
    Row("aten::clamp.Tensor", (X, -pos(4), pos(3, 1))),
    Row("aten::clamp.Tensor", (X, None, ints(4))),
    Row("aten::clamp.Tensor", (*PAIRS,)),
    Row("aten::clamp_min", (X, 0.1)),
    Row("aten::clamp_min", (ints(4), 0)),
    Row("aten::clamp_min.Tensor", (X, Y)),
    Row("aten::clamp_max", (X, 0.1)),
    Row("aten::clamp_max.Tensor", (XB, YB)),
    Row("aten::atan2", PAIRS),
    Row("aten::atan2", (ints(4), ints(4, seed=1))),
    Row("aten::atan2", (XB, YB)),
    Row("aten::hypot", PAIRS),
    Row("aten::hypot", (X * 1e30, X)),
    Row("aten::hypot", (XB, YB)),
    Row("aten::copysign.Tensor", PAIRS),
    Row("aten::copysign.Tensor", (X, Y)),
    Row("aten::copysign.Tensor", (ints(4), ints(4, seed=1))),
    Row("aten::copysign.Scalar", (XB, -1.0)),
    Row("aten::nextafter", PAIRS),
    Row("aten::nextafter", (XB, YB)),
    Row("aten::nextafter", (t(3, dtype=F64), t(3, dtype=F64, seed=1))),
    Row("aten::gcd", (ints(4, 4, low=-90, high=90), ints(4, low=-90, high=90, seed=1))),
    Row("aten::gcd", (ints(4, dtype=U8, low=0, high=200), t(4, dtype=U8, low=0, high=200, seed=1))),
    Row("aten::gcd", (torch.tensor(12), torch.tensor(18))),
    Row("aten::lcm", (ints(9, dtype=I32), ints(9, dtype=I32, seed=1))),
    Row("aten::where.self", (t(3, 4, dtype=BOOL), X, Y)),
    Row("aten::where.self", (ints(3, 4, dtype=U8, low=0, high=2), X, Y)),
    Row("aten::where.self", (t(3, 1, dtype=BOOL), ints(4), Y)),
    Row("aten::where.self", (t(3, dtype=BOOL), t(3, dtype=BF16), torch.tensor(0.5))),
    Row("aten::where.self", (t(3, dtype=BOOL), XC[:, :3].contiguous(), t(3, dtype=F64))),
    Row("aten::masked_fill.Scalar", (X, t(4, dtype=BOOL), -INF)),
    Row("aten::masked_fill.Scalar", (ints(4), t(3, 4, dtype=BOOL), 7)),
    Row("aten::masked_fill.Scalar", (XB, t(4, dtype=BOOL), 0.3)),
    Row("aten::masked_fill.Tensor", (X, t(3, 4, dtype=BOOL), torch.tensor(2))),
]
