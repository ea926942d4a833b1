"""Rows of `torch_tpu/ops/qr.py`."""

import torch

from ops.row import Row, t

F, D, C, Z = torch.float32, torch.float64, torch.complex64, torch.complex128
LOOSE = {"rtol": 2e-5, "atol": 1e-5, "reason": "products of orthogonal matrices in float32"}
SHAPES = [
    ((4, 4), F),
    ((2, 3, 5, 3), F),
    ((3, 5), F),
    ((4, 3), C),
    ((2, 3, 4), Z),
    ((6, 2), D),
    ((1, 1), F),
    ((1, 1), C),
]


def raw(*shape, dtype=F):
    return torch.ops.aten.geqrf(t(*shape, dtype=dtype))


ROWS = [
    *(Row("aten::geqrf", (t(*s, dtype=d),), **LOOSE) for s, d in SHAPES),
    Row("aten::geqrf", (torch.eye(3),)),
    Row("aten::geqrf", (torch.zeros(2, 3, 2),)),
    *(
        Row("aten::linalg_qr", (t(*s, dtype=d), mode), **LOOSE)
        for s, d in SHAPES
        for mode in ("reduced", "complete", "r")
    ),
    Row("aten::linalg_qr", (torch.zeros(3, 2),)),
    Row("aten::linalg_qr", (t(2, 3, 0), "complete")),
    *(
        Row("aten::linalg_householder_product", raw(*s, dtype=d), **LOOSE)
        for s, d in SHAPES
        if s[-2] >= s[-1]
    ),
    Row("aten::linalg_householder_product", (t(2, 4, 3), t(2, 2, seed=1)), **LOOSE),
    Row("aten::linalg_householder_product", (t(4, 3), t(0))),
    *(
        Row("aten::ormqr", (*raw(*s, dtype=d), t(*other, dtype=d, seed=2), left, turn), **LOOSE)
        for s, other, left, d in [
            ((4, 3), (4, 2), True, F),
            ((4, 3), (2, 4), False, F),
            ((2, 3, 3), (2, 3, 5), True, D),
            ((4, 2), (4, 3), True, C),
            ((4, 2), (3, 4), False, Z),
        ]
        for turn in (False, True)
    ),
]
