"""Special functions built from CHLO words and short formulas: error, gamma, zeta, logit, entropy.

Bessel functions, Airy's and the others that rest on Chebyshev fits are in `bessel.py`, orthogonal
polynomials in `polynomials.py`. Everything computes in float32 or float64.
"""

from __future__ import annotations

import functools
import math

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import binary, op, unary
from .common import operands


def _chlo(name: str):
    return functools.partial(hlo.unary, f"chlo.{name}")


# ---- error function and gamma function -----------------------------------------------------


def _digamma(x: Value) -> Value:
    # The pole at zero has a side, which the sign of the zero picks.
    return hlo.select(x == 0, -1 / x, hlo.unary("chlo.digamma", x))


for _name, _word in {
    "erf": _chlo("erf"),
    "erfc": _chlo("erfc"),
    "erfinv": _chlo("erf_inv"),
    "lgamma": _chlo("lgamma"),
    "digamma": _digamma,
}.items():
    unary(f"aten::{_name}", _word)
_ = (binary, op, operands, math)
