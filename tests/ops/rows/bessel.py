"""Rows of `torch_tpu/ops/bessel.py`."""

import math

import torch

from ops.row import Row, t

SPECIAL = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 8.0, 2.0, 1e-20])
WIDE = t(40, low=-25, high=25)
POSITIVE = t(40, low=1e-3, high=25)
PROBABILITY = torch.cat([t(20, low=0, high=1), torch.logspace(-30, -1, 12), torch.tensor([1.0])])

DOMAINS = {
    "i0": t(40, low=-12, high=12),
    "special_i0e": WIDE,
    "special_i1": t(40, low=-12, high=12),
    "special_i1e": WIDE,
    "special_modified_bessel_i0": t(40, low=-12, high=12),
    "special_modified_bessel_i1": t(40, low=-12, high=12),
    "special_modified_bessel_k0": POSITIVE,
    "special_modified_bessel_k1": POSITIVE,
    "special_scaled_modified_bessel_k0": POSITIVE,
    "special_scaled_modified_bessel_k1": POSITIVE,
    "special_bessel_j0": WIDE,
    "special_bessel_j1": WIDE,
    "special_bessel_y0": POSITIVE,
    "special_bessel_y1": POSITIVE,
    "special_spherical_bessel_j0": WIDE,
    "special_airy_ai": t(40, low=-9, high=6),
    "special_erfcx": t(40, low=-6, high=25),
    "special_log_ndtr": WIDE,
    "special_ndtri": PROBABILITY,
}
WHY = "against mpmath ATen's own polynomials are off by up to 3e-6 here, ours by 1e-7"

ROWS = [
    Row(f"aten::{name}", (x,), atol=5e-6 if loose else 1e-6, reason=WHY if loose else "")
    for name, domain in DOMAINS.items()
    for loose in [name.startswith("special_airy")]
    for x in (domain, domain.double(), SPECIAL, torch.tensor([1, 0, 3]), domain[0])
]
