"""Rows of `torch_tpu/ops/matrix_exp.py`."""

import torch

from ops.row import Row, t

F, D, C, Z = torch.float32, torch.float64, torch.complex64, torch.complex128
ROWS = [
    # One norm for every polynomial, then two that need squaring.
    *(
        Row("aten::linalg_matrix_exp", (t(*s, dtype=d) * norm,))
        for norm in (1e-3, 0.05, 0.4, 3)
        for s, d in [((3, 3), F), ((2, 4, 4), D), ((3, 3), C), ((2, 2), Z)]
    ),
    Row("aten::linalg_matrix_exp", (torch.stack([t(3, 3) * 4, t(3, 3) / 100]),)),
    Row("aten::linalg_matrix_exp", (-10 * torch.eye(3) - t(3, 3),)),
    Row("aten::linalg_matrix_exp", (t(2, 1, 1),)),
    Row("aten::linalg_matrix_exp", (t(2, 0, 0),)),
    Row("aten::linalg_matrix_exp", (torch.eye(3).index_fill(0, torch.tensor(1), torch.nan),)),
    Row(
        "aten::linalg_matrix_exp",
        (t(3, 3).bfloat16(),),
        reference=lambda x: torch.linalg.matrix_exp(x.float()).bfloat16(),
        reason="the CPU's kernel gives numbers of no meaning for 16-bit floats",
    ),
]
