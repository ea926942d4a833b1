"""Rows of `torch_tpu/ops/polynomials.py`."""

import torch

from ops.row import Row, t

KINDS = [
    *(f"chebyshev_polynomial_{k}" for k in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{k}" for k in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]
X = torch.cat([t(12, low=-1.5, high=1.5), torch.tensor([1.0, -1.0, 0.0])])
DEGREES = torch.tensor([-1, 0, 1, 2, 3, 5, 8, 9, 12])

ROWS = [
    row
    for kind in KINDS
    for row in [
        # Above degree 5 float32 itself loses more than 1e-5, in ATen as here.
        Row(f"aten::special_{kind}", (X[:, None].contiguous(), DEGREES[:6])),
        Row(f"aten::special_{kind}", (X.double()[:, None].contiguous(), DEGREES)),
        Row(f"aten::special_{kind}", (torch.tensor([1, -1, 2]), torch.tensor(3))),
        Row(f"aten::special_{kind}.n_scalar", (X, 4)),
        Row(f"aten::special_{kind}.x_scalar", (0.3, DEGREES)),
    ]
]
