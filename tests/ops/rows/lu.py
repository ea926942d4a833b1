"""Rows of `torch_tpu/ops/lu.py`."""

import torch

from ops.row import Row, t

F, D, C, Z = torch.float32, torch.float64, torch.complex64, torch.complex128
LOOSE = {"rtol": 3e-5, "atol": 1e-5, "reason": "condition numbers up to 30"}


def well(*shape, dtype=F, seed=3):
    """Well conditioned, but not without exchanges: the rows of a dominant matrix turned."""
    x = t(*shape, dtype=dtype, seed=seed)
    n = min(shape[-2:])
    x[..., :n, :n] += 4 * torch.eye(n, dtype=dtype)
    return x.roll(1, -2).contiguous()


def factors(*shape, dtype=F):
    return torch.ops.aten.linalg_lu_factor_ex(well(*shape, dtype=dtype))[:2]


SINGULAR = torch.stack([torch.tensor([[1.0, 2], [2, 4]]), torch.tensor([[0.0, 2], [0, 4]])])
ZERO = torch.zeros(2, 3, 3)
SHAPES = [
    ((4, 4), F),
    ((2, 3, 5, 5), F),
    ((3, 5), F),
    ((2, 5, 3), F),
    ((3, 3), D),
    ((2, 4, 4), C),
    ((4, 3), Z),
    ((1, 1), F),
    ((70, 75), D),
    ((150, 130), D),
]
SQUARE = [case for case in SHAPES if case[0][-1] == case[0][-2]] + [((70, 70), D)]
# A, B, left
SYSTEMS = [
    ((4, 4), (4, 2), True, F),
    ((4, 4), (4,), True, F),
    ((2, 3, 3), (2, 3), True, F),
    ((3, 3), (5, 3, 2), True, F),
    ((2, 3, 3), (4, 3), False, F),
    ((2, 1, 3, 3), (5, 3, 2), True, C),
    ((3, 3), (2, 3), False, Z),
    ((66, 66), (66, 2), True, D),
]

ROWS = [
    *(Row("aten::linalg_lu_factor_ex", (well(*s, dtype=d),), **LOOSE) for s, d in SHAPES),
    Row("aten::linalg_lu_factor_ex", (t(2, 6, 6, dtype=D),)),
    Row("aten::linalg_lu_factor_ex", (SINGULAR,)),
    Row("aten::linalg_lu_factor_ex", (ZERO,)),
    Row("aten::linalg_lu_factor_ex", (t(2, 3, 0),)),
    *(Row("aten::linalg_lu", (well(*s, dtype=d),), **LOOSE) for s, d in SHAPES[:7]),
    Row("aten::linalg_lu", (t(3, 0),)),
    *(Row("aten::lu_unpack", factors(*s, dtype=d), **LOOSE) for s, d in SHAPES[:7]),
    Row("aten::lu_unpack", factors(4, 4), {"unpack_data": False}),
    Row("aten::lu_unpack", factors(4, 4), {"unpack_pivots": False}),
    *(
        Row("aten::_linalg_solve_ex", (well(*a, dtype=d), t(*b, dtype=d)), {"left": left}, **LOOSE)
        for a, b, left, d in SYSTEMS
    ),
    *(
        Row(
            "aten::linalg_lu_solve",
            (*factors(*a, dtype=d), t(*(b if len(b) > 1 else (4, 1)), dtype=d)),
            {"left": left, "adjoint": turned},
            **LOOSE,
        )
        for a, b, left, d in SYSTEMS
        if a != (2, 3, 3) or not left
        for turned in (False, True)
    ),
    *(Row("aten::linalg_inv_ex", (well(*s, dtype=d),), **LOOSE) for s, d in SQUARE),
    Row("aten::linalg_inv_ex", (t(2, 0, 0),)),
    *(Row("aten::_linalg_det", (well(*s, dtype=d),), views="strides", **LOOSE) for s, d in SQUARE),
    Row("aten::_linalg_det", (ZERO,)),
    Row("aten::_linalg_det", (t(2, 0, 0),)),
    *(
        Row("aten::_linalg_slogdet", (well(*s, dtype=d),), views="strides", **LOOSE)
        for s, d in SQUARE
    ),
    Row("aten::_linalg_slogdet", (ZERO,)),
    Row("aten::_linalg_slogdet", (t(2, 0, 0),)),
]
