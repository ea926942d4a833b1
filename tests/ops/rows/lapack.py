"""Rows of `torch_tpu/ops/lapack.py`."""

import torch

from ops.row import Row, t
from ops.rows.lu import well

F, D, C, Z = torch.float32, torch.float64, torch.complex64, torch.complex128
LOOSE = {"rtol": 5e-5, "atol": 2e-5, "reason": "condition numbers up to 30"}
SQUARE = [((4, 4), F), ((2, 3, 3), D), ((2, 3, 3), C), ((3, 3), Z), ((1, 1), F), ((2, 0, 0), F)]
SHAPES = [((4, 3), F), ((3, 5), D), ((2, 4, 3), C), ((3, 3), Z), ((0, 3), F), ((2, 3, 0), F)]
DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def hermitian(*shape, dtype=F):
    x = t(*shape, dtype=dtype)
    return x + x.mH


def factors(*shape, dtype=F, turned=False):
    return torch.ops.aten.linalg_ldl_factor_ex(hermitian(*shape, dtype=dtype), hermitian=turned)[:2]


# Of rank 2, beside one of full rank.
LACKING = torch.stack([torch.tensor([[1.0, 2, 2], [0, 1, 1], [3, 1, 1], [1, 0, 0]]), t(4, 3)])

ROWS = [
    *(Row("aten::_linalg_eigh", (hermitian(*s, dtype=d),)) for s, d in SQUARE),
    Row("aten::_linalg_eigh", (hermitian(3, 3), "U", False)),
    Row("aten::_linalg_eigh", (t(3, 3, dtype=C), "U")),
    *(Row("aten::_linalg_eigvals", (well(*s, dtype=d),)) for s, d in SQUARE),
    *(Row("aten::linalg_eig", (well(*s, dtype=d),)) for s, d in SQUARE),
    *(
        Row("aten::_linalg_svd", (t(*s, dtype=d), full))
        for s, d in SHAPES
        for full in (False, True)
    ),
    Row("aten::_linalg_svd", (t(3, 4), False, False)),
    *(Row("aten::linalg_ldl_factor_ex", (hermitian(*s, dtype=d),)) for s, d in SQUARE),
    Row("aten::linalg_ldl_factor_ex", (hermitian(4, 4, dtype=Z),), {"hermitian": True}),
    *(
        Row("aten::linalg_ldl_solve", (*factors(*s, dtype=d), t(*s[:-1], 2, dtype=d)), **LOOSE)
        for s, d in SQUARE
    ),
    Row(
        "aten::linalg_ldl_solve",
        (*factors(4, 4, dtype=C, turned=True), t(4, 1, dtype=C)),
        {"hermitian": True},
        **LOOSE,
    ),
    *(
        Row(
            "aten::linalg_lstsq",
            (t(*s, dtype=d), t(*s[:-1], 2, dtype=d, seed=4)),
            {"driver": driver},
            **LOOSE,
        )
        for driver in DRIVERS
        for s, d in SHAPES
    ),
    Row("aten::linalg_lstsq", (t(4, 3), t(4, seed=2)), **LOOSE),
    Row("aten::linalg_lstsq", (t(1, 4, 3), t(2, 4, 1, seed=2)), **LOOSE),
    Row("aten::linalg_lstsq", (t(1, 4, 3), t(4, 2, seed=2)), **LOOSE),
    Row("aten::linalg_lstsq", (t(2, 1, 4, 3), t(1, 3, 4, 2, seed=2)), **LOOSE),
    Row("aten::linalg_lstsq", (torch.zeros(4, 3), t(4, 1)), {"driver": "gels"}, **LOOSE),
    Row("aten::linalg_lstsq", (LACKING[0], t(4, 2, seed=3)), {"driver": "gelsy"}, **LOOSE),
    Row(
        "aten::linalg_lstsq",
        (torch.diag_embed(torch.tensor([1.0, 0.5, 0.1])), t(3, 2)),
        {"rcond": 0.3, "driver": "gelsd"},
        **LOOSE,
    ),
]

# The out= form of eigenvalues is the only one of its composite with a kernel of its own.
ROWS += [
    Row("aten::linalg_eigvals.out", (t(3, 3),), {"out": t(3, dtype=torch.complex64)}),
    Row("aten::linalg_eigvals.out", (t(2, 3, 3),), {"out": t(2, 3, dtype=torch.complex128)}),
]
