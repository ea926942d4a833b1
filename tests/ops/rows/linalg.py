"""Rows of `torch_tpu/ops/linalg.py`."""

import torch

from ops.row import Row, t

F, D, C, Z = torch.float32, torch.float64, torch.complex64, torch.complex128
LOOSE = {"rtol": 2e-5, "atol": 1e-5, "reason": "condition numbers up to 20"}


def positive(*shape, dtype=F):
    x = t(*shape, dtype=dtype)
    return x @ x.mH + 2 * torch.eye(shape[-1], dtype=dtype)


def tri(*shape, dtype=F, upper=False):
    x = t(*shape, dtype=dtype, seed=7) / 2 + 2 * torch.eye(shape[-1], dtype=dtype)
    return x.triu() if upper else x.tril()


def full(*shape, dtype=F):
    """Nothing of the other triangle may be read."""
    return t(*shape, dtype=dtype, seed=7) / 2 + 2 * torch.eye(shape[-1], dtype=dtype)


BROKEN = torch.stack([torch.eye(3), torch.tensor([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])])
ROWS = [
    *(
        Row("aten::linalg_cholesky_ex", (positive(*s, dtype=d),), {"upper": u}, **LOOSE)
        for s, d, u in [
            ((4, 4), F, False),
            ((2, 3, 5, 5), F, True),
            ((3, 3), D, False),
            ((2, 4, 4), C, False),
            ((4, 4), Z, True),
            ((1, 1), F, False),
            ((2, 0, 0), F, False),
        ]
    ),
    Row("aten::linalg_cholesky_ex", (full(4, 4),)),
    Row("aten::linalg_cholesky_ex", (full(4, 4),), {"upper": True}),
    Row("aten::linalg_cholesky_ex", (BROKEN,)),
    Row("aten::linalg_cholesky_ex", (-BROKEN[0],)),
    Row("aten::cholesky", (positive(4, 4),), **LOOSE),
    Row("aten::cholesky", (positive(2, 3, 3, dtype=D), True), **LOOSE),
    *(
        Row("aten::cholesky_inverse", (full(*s, dtype=d), u), **LOOSE)
        for s, d, u in [((4, 4), F, False), ((2, 3, 3), F, True)]
    ),
    Row("aten::cholesky_inverse", (torch.linalg.cholesky(positive(3, 3, dtype=C)),), **LOOSE),
    Row(
        "aten::cholesky_inverse", (torch.linalg.cholesky(positive(3, 3, dtype=Z), upper=True), True)
    ),
    *(
        Row("aten::_cholesky_solve_helper", (t(*b, dtype=d), tri(*s, dtype=d, upper=u), u), **LOOSE)
        for b, s, d, u in [
            ((4, 2), (4, 4), F, False),
            ((2, 3, 1), (2, 3, 3), F, True),
            ((2, 3, 2), (2, 3, 3), Z, True),
            ((3, 2), (3, 3), C, False),
        ]
    ),
    *(
        Row(
            "aten::linalg_solve_triangular",
            (tri(*s, dtype=d, upper=u), t(*b, dtype=d)),
            {"upper": u, "left": left, "unitriangular": unit},
            **LOOSE,
        )
        for s, b, d, u, left, unit in [
            ((4, 4), (4, 2), F, False, True, False),
            ((4, 4), (2, 4), F, True, False, False),
            ((2, 1, 3, 3), (1, 4, 3, 2), F, True, True, True),
            ((3, 3), (2, 5, 3), C, False, False, True),
            ((3, 3), (3, 3), D, True, True, False),
        ]
    ),
    *(
        Row("aten::triangular_solve", (t(*b, dtype=d), full(*s, dtype=d), *flags), **LOOSE)
        for s, b, d, flags in [
            ((4, 4), (4, 2), F, (True, False, False)),
            ((2, 3, 3), (1, 3, 2), F, (False, True, False)),
            ((3, 3), (3, 2), C, (True, True, True)),
            ((3, 3), (3, 2), Z, (False, True, False)),
        ]
    ),
    Row("aten::linalg_cross", (t(4, 3), t(4, 3, seed=1))),
    Row("aten::linalg_cross", (t(1, 3, 2), t(5, 3, 2, seed=1)), {"dim": 1}),
    Row("aten::linalg_cross", (t(3, dtype=torch.int32), t(3, dtype=torch.int32, seed=1))),
    Row("aten::linalg_cross", (t(2, 3, dtype=C), t(2, 3, dtype=C, seed=1))),
    Row("aten::linalg_cross", (t(2, 3).bfloat16(), t(2, 3, seed=1).bfloat16())),
]
