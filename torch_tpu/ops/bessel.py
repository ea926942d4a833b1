"""Bessel functions, Airy's function and the scaled or inverse error functions, from Chebyshev fits.

Each function is cut into a few ranges; every range is a fit (`chebyshev.py`) of what is left after
the growth, the decay, the logarithm or the phase has been taken out. All ranges are computed and
one is selected, so arguments are first moved into the range of each fit.
"""

from __future__ import annotations

import math

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import op
from . import chebyshev as fits
from .chebyshev import chebyshev
from .common import is_infinite, real_only

_HALF_ROOT = math.sqrt(0.5)


def _at_most(x: Value, bound: float) -> Value:
    return hlo.minimum(x, hlo.full_like(x, bound))


def _at_least(x: Value, bound: float) -> Value:
    return hlo.maximum(x, hlo.full_like(x, bound))


# ---- modified Bessel functions -------------------------------------------------------------


def _scaled_i(x: Value, small_fit, large_fit) -> Value:
    """exp(-x) I(x), or exp(-x) I(x) / x below 8, for x >= 0; t = x/4 - 1, then 16/x - 1."""
    near, far = _at_most(x, 8), _at_least(x, 8)
    small = chebyshev(near / 4 - 1, small_fit)
    if small_fit is fits.I1E_SMALL:
        small = small * near
    large = chebyshev(16 / far - 1, large_fit) * hlo.rsqrt(far)
    return hlo.select(x <= 8, small, large)


def _i0e(x: Value) -> Value:
    return _scaled_i(hlo.abs(x), fits.I0E_SMALL, fits.I0E_LARGE)


def _i1e(x: Value) -> Value:
    scaled = _scaled_i(hlo.abs(x), fits.I1E_SMALL, fits.I1E_LARGE)
    return hlo.select(x < 0, -scaled, scaled)


def _i0(x: Value) -> Value:
    return hlo.exp(hlo.abs(x)) * _i0e(x)


def _i1(x: Value) -> Value:
    return hlo.exp(hlo.abs(x)) * _i1e(x)


def _k0(x: Value, scaled: bool) -> Value:
    """K0, or exp(x) K0, for x > 0; t = x²/2 - 1, then 4/x - 1."""
    near, far = _at_most(x, 2), _at_least(x, 2)
    small = chebyshev(near * near / 2 - 1, fits.K0_SMALL) - hlo.log(near / 2) * _i0(near)
    large = chebyshev(4 / far - 1, fits.K0E_LARGE) * hlo.rsqrt(far)
    return _decaying(x, small, large, scaled)


def _k1(x: Value, scaled: bool) -> Value:
    near, far = _at_most(x, 2), _at_least(x, 2)
    small = chebyshev(near * near / 2 - 1, fits.K1_SMALL) / near + hlo.log(near / 2) * _i1(near)
    large = chebyshev(4 / far - 1, fits.K1E_LARGE) * hlo.rsqrt(far)
    return _decaying(x, small, large, scaled)


def _decaying(x: Value, small: Value, large: Value, scaled: bool) -> Value:
    if scaled:
        small = small * hlo.exp(_at_most(x, 2))
    else:
        large = large * hlo.exp(-x)
    value = hlo.select(x <= 2, small, large)
    value = hlo.where(x == 0, math.inf, value)
    return hlo.where(x < 0, math.nan, value)


# ---- Bessel functions ----------------------------------------------------------------------


def _waves(x: Value, order: int) -> tuple[Value, Value]:
    """(J, Y) for x >= 8: amplitude and phase; t = 128/x² - 1.

    cos and sin of x - (2 order + 1) pi/4 come from those of x, which loses no digits of x.
    """
    inverse = 8 / x
    t = 2 * inverse * inverse - 1
    p_fit, q_fit = ((fits.PHASE0_P, fits.PHASE0_Q), (fits.PHASE1_P, fits.PHASE1_Q))[order]
    p, q = chebyshev(t, p_fit), chebyshev(t, q_fit) / x
    cosine, sine = hlo.unary("cosine", x) * _HALF_ROOT, hlo.unary("sine", x) * _HALF_ROOT
    turned = (cosine + sine, sine - cosine), (sine - cosine, -(sine + cosine))
    cosine, sine = turned[order]
    amplitude = hlo.rsqrt(x) * math.sqrt(2 / math.pi)
    return amplitude * (p * cosine - q * sine), amplitude * (p * sine + q * cosine)


def _near_square(x: Value) -> tuple[Value, Value]:
    """(x moved into [0, 8], t = x²/32 - 1)."""
    near = _at_most(x, 8)
    return near, near * near / 32 - 1


def _j0(x: Value) -> Value:
    x = hlo.abs(x)
    small = chebyshev(_near_square(x)[1], fits.J0_SMALL)
    return hlo.select(x <= 8, small, _waves(_at_least(x, 8), 0)[0])


def _j1(x: Value) -> Value:
    size = hlo.abs(x)
    near, t = _near_square(size)
    value = hlo.select(
        size <= 8, near * chebyshev(t, fits.J1_SMALL), _waves(_at_least(size, 8), 1)[0]
    )
    return hlo.select(x < 0, -value, value)


def _y0(x: Value) -> Value:
    near, t = _near_square(x)
    logarithm = (2 / math.pi) * hlo.log(near)
    small = chebyshev(t, fits.Y0_SMALL) + logarithm * chebyshev(t, fits.J0_SMALL)
    return _second_kind(x, small, 0)


def _y1(x: Value) -> Value:
    near, t = _near_square(x)
    logarithm = (2 / math.pi) * hlo.log(near)
    small = near * (chebyshev(t, fits.Y1_SMALL) + logarithm * chebyshev(t, fits.J1_SMALL))
    return _second_kind(x, small - (2 / math.pi) / near, 1)


def _second_kind(x: Value, small: Value, order: int) -> Value:
    value = hlo.select(x <= 8, small, _waves(_at_least(x, 8), order)[1])
    value = hlo.where(x == 0, -math.inf, value)
    return hlo.where(x < 0, math.nan, value)


def _spherical_j0(x: Value) -> Value:
    value = hlo.where(x == 0, 1.0, hlo.unary("sine", x) / x)
    return hlo.where(is_infinite(x), 0.0, value)


_AIRY_TURN = 2 / 3 * 2**1.5  # (2/3) 2^(3/2): where the middle fit ends


def _airy_ai(x: Value) -> Value:
    """Middle: t = x/2. Outside, with z = (2/3)|x|^(3/2): t = 2 turn/z - 1, then 2 (turn/z)² - 1."""
    size = _at_least(hlo.abs(x), 2)
    root = hlo.sqrt(size)
    phase = size * root * (2 / 3)
    inverse = _AIRY_TURN / phase
    amplitude = hlo.rsqrt(root) * math.sqrt(1 / math.pi)
    decaying = chebyshev(2 * inverse - 1, fits.AIRY_POSITIVE) * amplitude * hlo.exp(-phase) / 2
    square = 2 * inverse * inverse - 1
    f, g = (
        chebyshev(square, fits.AIRY_NEGATIVE_F),
        chebyshev(square, fits.AIRY_NEGATIVE_G) / phase,
    )
    cosine, sine = hlo.unary("cosine", phase), hlo.unary("sine", phase)
    # sin and cos of phase + pi/4.
    waving = amplitude * _HALF_ROOT * ((sine + cosine) * f - (cosine - sine) * g)
    middle = chebyshev(
        hlo.clamp(hlo.full_like(x, -1), x / 2, hlo.full_like(x, 1)), fits.AIRY_MIDDLE
    )
    value = hlo.select(x > 2, decaying, hlo.select(x < -2, waving, middle))
    return hlo.where(is_infinite(x), math.nan, value)


# ---- error functions -----------------------------------------------------------------------


def erfcx(x: Value) -> Value:
    """exp(x²) erfc(x); t = (x - 15/4) / (x + 15/4) for x >= 0, by reflection below."""
    size = hlo.abs(x)
    finite = _at_most(size, 1e18)
    fit = chebyshev((finite - 3.75) / (finite + 3.75), fits.ERFCX) / (1 + 2 * size)
    return hlo.select(x < 0, 2 * hlo.exp(x * x) - fit, fit)


def _log_ndtr(x: Value) -> Value:
    scaled = x * _HALF_ROOT
    tail = hlo.log(erfcx(-scaled) / 2) - scaled * scaled
    body = hlo.unary("log_plus_one", hlo.unary("chlo.erfc", scaled) / -2)
    return hlo.select(x < -1, tail, body)


_CENTRAL = math.exp(-2)  # r = 2, where the tail fits begin


def _ndtri(p: Value) -> Value:
    """Quantile of the normal distribution; in the tails by r = sqrt(-2 log p), z = 1/r."""
    tail = hlo.minimum(p, 1 - p)
    r = hlo.sqrt(-2 * hlo.log(_at_most(tail, _CENTRAL)))
    z = hlo.clamp(hlo.full_like(r, 1 / 64), 1 / r, hlo.full_like(r, 0.5))
    near = chebyshev((_at_least(z, 1 / 8) - 5 / 16) * (16 / 3), fits.NDTRI_NEAR)
    far = chebyshev((_at_most(z, 1 / 8) - 9 / 128) * (128 / 7), fits.NDTRI_FAR)
    size = r - hlo.log(r) / r - hlo.select(z >= 1 / 8, near, far) / r
    size = hlo.where(tail == 0, math.inf, size)
    middle = math.sqrt(2) * hlo.unary("chlo.erf_inv", 2 * p - 1)
    outer = hlo.select(p < 0.5, -size, size)
    value = hlo.select(tail < _CENTRAL, outer, middle)
    return hlo.where((p < 0) | (p > 1), math.nan, value)


def _register(name: str, word) -> None:
    """The schemas call the operand ``self`` or ``x``."""

    @op(f"aten::{name}", promote="float", **real_only(name))
    def body(self=None, x=None):
        return word(x if self is None else self)


for _name, _word in {
    "i0": _i0,
    "special_i0e": _i0e,
    "special_i1": _i1,
    "special_i1e": _i1e,
    "special_modified_bessel_i0": _i0,
    "special_modified_bessel_i1": _i1,
    "special_modified_bessel_k0": lambda x: _k0(x, scaled=False),
    "special_modified_bessel_k1": lambda x: _k1(x, scaled=False),
    "special_scaled_modified_bessel_k0": lambda x: _k0(x, scaled=True),
    "special_scaled_modified_bessel_k1": lambda x: _k1(x, scaled=True),
    "special_bessel_j0": _j0,
    "special_bessel_j1": _j1,
    "special_bessel_y0": _y0,
    "special_bessel_y1": _y1,
    "special_spherical_bessel_j0": _spherical_j0,
    "special_airy_ai": _airy_ai,
    "special_erfcx": erfcx,
    "special_log_ndtr": _log_ndtr,
    "special_ndtri": _ndtri,
}.items():
    _register(_name, _word)
