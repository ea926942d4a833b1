"""Rows of `torch_tpu/ops/matmul.py`."""

import torch

from ops.row import Row, t

BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64
C64, C128, I8, I32, I64, U8 = (
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.uint8,
)
NAN = torch.full((3, 5), float("nan"))


def pair(a, b, dtype=torch.float32):
    return t(*a, dtype=dtype), t(*b, dtype=dtype, seed=1)


def triple(c, a, b, dtype=torch.float32):
    return (t(*c, dtype=dtype, seed=2), *pair(a, b, dtype))


def fp8(*shape, dtype=torch.float8_e4m3fn, seed=0):
    return t(*shape, seed=seed).to(dtype)


ROWS = [
    *(Row("aten::mm", pair((3, 4), (4, 5), d)) for d in (torch.float32, BF16, F16, F64, C64, C128)),
    *(Row("aten::mm", pair((3, 4), (4, 5), d)) for d in (I8, U8, I32, I64)),
    Row("aten::mm", pair((3, 300), (300, 5), BF16)),
    Row("aten::mm", pair((3, 0), (0, 5))),
    Row("aten::mm", pair((2, 0), (0, 2), I64)),
    Row("aten::mm", (t(4, 3).T, t(5, 4, seed=1).T)),
    Row("aten::mm", (t(1, 1, dtype=I8, low=100, high=127), t(1, 1, dtype=I8, low=100, high=127))),
    *(Row("aten::bmm", pair((2, 3, 4), (2, 4, 5), d)) for d in (torch.float32, BF16, C64, I64, I8)),
    Row("aten::bmm", pair((2, 3, 0), (2, 0, 5))),
    *(Row("aten::mv", pair((3, 4), (4,), d)) for d in (torch.float32, BF16, F16, I64, C64)),
    Row("aten::mv", pair((3, 0), (0,))),
    *(Row("aten::dot", pair((7,), (7,), d)) for d in (torch.float32, BF16, F16, I32, I8, C64)),
    Row("aten::dot", pair((0,), (0,))),
    Row("aten::dot", pair((3000,), (3000,), F64)),
    *(Row("aten::vdot", pair((7,), (7,), d)) for d in (torch.float32, I64, C64, C128)),
    Row("aten::_int_mm", pair((17, 8), (8, 16), I8)),
    Row("aten::_int_mm", (t(17, 8, dtype=I8, low=-128, high=127), t(8, 8, dtype=I8, seed=3))),
    *(
        Row("aten::addmm", triple((5,), (3, 4), (4, 5), d))
        for d in (torch.float32, BF16, F16, C64, I64)
    ),
    Row("aten::addmm", triple((3, 5), (3, 4), (4, 5)), {"beta": 0.5, "alpha": 2}),
    Row("aten::addmm", triple((3, 1), (3, 4), (4, 5), BF16), {"beta": 0.5, "alpha": 2.5}),
    Row("aten::addmm", triple((), (3, 4), (4, 5), I32), {"beta": 3, "alpha": -2}),
    Row("aten::addmm", (NAN, *pair((3, 4), (4, 5))), {"beta": 0}),
    Row("aten::addmm", (NAN, *pair((3, 4), (4, 5))), {"beta": 0.0, "alpha": 0.25}),
    Row("aten::addmm", triple((3, 5), (3, 4), (4, 5), C64), {"beta": 1j, "alpha": 2 - 1j}),
    Row("aten::addmm", triple((3, 5), (3, 0), (0, 5)), {"beta": 0.5}),
    # Times 0, NaN is NaN or not, depending on the kernel of the CPU.
    *(
        Row("aten::addmm", (*pair((3, 5), (3, 2), d), NAN[:2].to(d)), {"alpha": 0})
        for d in (torch.float32, F64, C64, BF16, F16)
    ),
    Row("aten::addmm", (*pair((3, 5), (3, 2)), NAN[:2]), {"beta": 0, "alpha": 0}),
    *(
        Row("aten::addmv", (t(3, dtype=d), NAN.to(d), t(5, dtype=d)), {"alpha": 0})
        for d in (torch.float32, C64, BF16)
    ),
    Row("aten::addbmm", (t(3, 3), NAN.expand(2, 3, 5), t(2, 5, 3)), {"alpha": 0}),
    Row("aten::baddbmm", (t(2, 3, 3), NAN.expand(2, 3, 5), t(2, 5, 3)), {"alpha": 0}),
    Row("aten::baddbmm", (t(2, 3, 40), NAN.expand(2, 3, 5), t(2, 5, 40)), {"alpha": 0}),
    Row("aten::addr", (t(3, 5), NAN[:, 0], t(5)), {"alpha": 0}),
    *(
        Row("aten::baddbmm", triple((2, 3, 5), (2, 3, 4), (2, 4, 5), d), {"beta": 2, "alpha": 3})
        for d in (torch.float32, BF16, I64, C64)
    ),
    Row("aten::baddbmm", triple((1, 5), (2, 3, 4), (2, 4, 5))),
    Row("aten::baddbmm", (NAN, *pair((2, 3, 4), (2, 4, 5))), {"beta": 0, "alpha": 0.125}),
    *(
        Row("aten::addbmm", triple((3, 5), (2, 3, 4), (2, 4, 5), d), {"beta": 2, "alpha": 3})
        for d in (torch.float32, BF16, I64)
    ),
    Row("aten::addbmm", triple((5,), (2, 3, 4), (2, 4, 5))),
    Row("aten::addbmm", triple((3, 5), (0, 3, 4), (0, 4, 5))),
    Row("aten::addbmm", (NAN, *pair((2, 3, 4), (2, 4, 5))), {"beta": 0}),
    *(Row("aten::addmv", triple((3,), (3, 4), (4,), d)) for d in (torch.float32, BF16, I64, C64)),
    Row("aten::addmv", triple((), (3, 4), (4,)), {"beta": 0.5, "alpha": 2}),
    Row("aten::addmv", (NAN[:, 0], *pair((3, 4), (4,))), {"beta": 0}),
    Row("aten::addmv", triple((3,), (3, 0), (0,)), {"beta": 2}),
    *(Row("aten::addr", triple((3, 4), (3,), (4,), d)) for d in (torch.float32, BF16, I64, C64)),
    Row("aten::addr", triple((4,), (3,), (4,)), {"beta": 0.5, "alpha": 2}),
    Row("aten::addr", (t(), t(3, dtype=F16), t(5, dtype=U8))),
    Row("aten::addr", (NAN, t(3), t(5))),
    Row("aten::addr", (NAN, t(3), t(5)), {"beta": 0}),
    Row("aten::addr", triple((3, 4), (3,), (4,), torch.bool)),
    Row("aten::addr", triple((3, 4), (3,), (4,), torch.bool), {"beta": False}),
    Row("aten::addr", triple((3, 4), (3,), (4,), torch.bool), {"beta": True, "alpha": False}),
    Row("aten::addr", (t(3, 4, dtype=I32), t(3), t(4, dtype=F64))),
    Row("aten::_addmm_activation", triple((5,), (3, 4), (4, 5))),
    Row("aten::_addmm_activation", triple((3, 5), (3, 4), (4, 5)), {"use_gelu": True, "beta": 0.5}),
    Row("aten::_addmm_activation", triple((5,), (3, 4), (4, 5), BF16), {"use_gelu": True}),
]

_A, _B = fp8(16, 16), fp8(16, 32, seed=1).T.contiguous().T
_S = torch.tensor(0.5)
_SCALED = [
    ((_A, _B, _S, _S * 3), BF16),
    ((_A, _B, _S, _S * 3, t(32).to(BF16)), BF16),
    ((_A, _B, _S, _S * 3), torch.float32),
    ((_A, _B, t(16, 1), t(1, 32, seed=2)), BF16),
    ((_A, _B, _S, _S * 3, None, _S), torch.float32),
    ((_A, _B, _S * 1e3, _S * 1e3), torch.float8_e4m3fn),  # saturates: it has no infinity
]
ROWS += [Row("aten::_scaled_mm", args, {"out_dtype": d}) for args, d in _SCALED]
