"""Special functions built from CHLO words and short formulas: error, gamma, zeta, logit, entropy.

Bessel functions, Airy's and the others that rest on Chebyshev fits are in `bessel.py`, orthogonal
polynomials in `polynomials.py`. `lgamma` and the incomplete gamma functions compute in float64,
because their formulas subtract large logarithms.
"""

from __future__ import annotations

import functools
import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import binary, op, unary
from .common import erf, is_infinite, operands, real_only


def _chlo(name: str):
    return functools.partial(hlo.unary, f"chlo.{name}")


def _log1p(x: Value) -> Value:
    return hlo.unary("log_plus_one", x)


# ---- one operand ---------------------------------------------------------------------------


def _lgamma(x: Value) -> Value:
    return hlo.unary("chlo.lgamma", x.to(torch.float64)).to(x.dtype)


def _digamma(x: Value) -> Value:
    # The pole at zero has a side, which the sign of the zero picks.
    return hlo.select(x == 0, -1 / x, hlo.unary("chlo.digamma", x))


def _entropy(x: Value) -> Value:
    value = hlo.where(x == 0, 0.0, -x * hlo.log(x))
    return hlo.where(x < 0, -math.inf, value)


def _sinc(x: Value) -> Value:
    angle = x * math.pi
    at_zero = x == 0
    ratio = hlo.unary("sine", angle) / hlo.select(at_zero, hlo.full_like(x, 1), angle)
    return hlo.select(at_zero, hlo.full_like(x, 1), ratio)


for _name, _word in {
    "erf": erf,
    "erfc": _chlo("erfc"),
    "erfinv": _chlo("erf_inv"),
    "lgamma": _lgamma,
    "digamma": _digamma,
    "special_entr": _entropy,
}.items():
    unary(f"aten::{_name}", _word, **real_only(_name))
unary("aten::sinc", _sinc)


@op("aten::polygamma", promote="float")
def polygamma(n, self):
    if n == 0:
        return _digamma(self)
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}")
    x = self.to(torch.float64)
    factor = (1 if n % 2 else -1) * float(math.factorial(n))
    value = _zeta(hlo.full_like(x, n + 1), x) * factor
    if n == 1:
        value = hlo.where(is_infinite(x), hlo.where(x > 0, 0.0, math.nan), value)
    return value.to(self.dtype)


# ---- logit ---------------------------------------------------------------------------------


@op("aten::logit", promote="float", **real_only("logit"))
def logit(self, eps=None):
    if eps is not None:
        low, high = hlo.full_like(self, eps), hlo.full_like(self, 1 - eps)
        self = hlo.minimum(hlo.maximum(self, low), high)
    return hlo.log(self / (1 - self))


@op("aten::logit_backward", promote="float")
def logit_backward(grad_output, self, eps=None):
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    outside = math.nan if eps is None else 0.0
    slope = grad_output / (self * (1 - self))
    return hlo.where((self < low) | (self > high), outside, slope)


# ---- two operands --------------------------------------------------------------------------


_ZETA_TERMS = 10
# B(2j) / (2j)! of the Euler-Maclaurin formula.
_ZETA_TAIL = tuple(
    numerator / denominator / math.factorial(2 * j)
    for j, (numerator, denominator) in enumerate(
        ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)), 1
    )
)


def _zeta_series(x: Value, q: Value) -> Value:
    """Hurwitz's zeta function for q > 0 and x > 1: a few terms, the rest by Euler and Maclaurin."""
    power = functools.partial(hlo.binary, "power")
    # A loop, because XLA takes long to compile many powers.
    total, end = hlo.while_loop(
        lambda k, *_: k < _ZETA_TERMS,
        lambda k, total, at: [k + 1, total + power(at, -x), at + 1],
        [hlo.constant(0, torch.int32), hlo.zeros_like(q), q],
    )[1:]
    last = power(end, -x)
    tail = hlo.full_like(x, _ZETA_TAIL[-1])
    for j in reversed(range(1, len(_ZETA_TAIL))):
        tail = _ZETA_TAIL[j - 1] + tail * ((x + (2 * j - 1)) / end) * ((x + 2 * j) / end)
    return total + last * (end / (x - 1) + 0.5 + tail * (x / end))


def _zeta(x: Value, q: Value) -> Value:
    """Hurwitz's zeta function, with its limits and poles where ATen has them; in float64, as there.

    For q < 0 the terms that count are those on either side of zero, and with d = -q - floor(-q),
    zeta(x, q) = zeta(x, 1 - d) + (-1)^x (zeta(x, d) - zeta(x, 1 - q)).
    """
    dtype = x.dtype
    x, q = x.to(torch.float64), q.to(torch.float64)
    negative = q < 0
    distance = hlo.where(negative, -q - hlo.floor(-q), 0.5)
    starts = (hlo.select(negative, 1 - distance, q), distance)
    starts += (hlo.select(negative, 1 - q, distance),)
    every = hlo.concatenate([hlo.unsqueeze(start, 0) for start in starts], 0)
    every = _zeta_series(hlo.expand(x, every.shape), every)
    above, below, beyond = (hlo.squeeze(hlo.slice_dim(every, 0, k, k + 1), 0) for k in range(3))
    odd = hlo.floor(x / 2) * 2 != x
    value = hlo.select(odd, above - below + beyond, above + below - beyond)
    value = hlo.select(negative, value, above)
    # A power of a negative number has a value for whole exponents only.
    value = hlo.where(negative & (x != hlo.floor(x)), math.nan, value)
    limit = hlo.where(q == 1, 1.0, math.inf)
    value = hlo.where(is_infinite(x) & (q <= 1), limit, value)
    pole = ((q <= 0) & (q == hlo.floor(q))) | (x == 1)
    value = hlo.where(pole, math.inf, value)
    return hlo.where(x < 1, math.nan, value).to(dtype)


def _xlog1py(a: Value, b: Value) -> Value:
    product = hlo.select(a == 0, hlo.zeros_like(a), a * _log1p(b))
    return hlo.select(hlo.is_nan(b), b, product)


def _register(name: str, word, *overloads: str) -> None:
    for suffix in ("", *overloads):
        binary(f"aten::{name}{suffix}", lambda a, b: word(*operands(a, b)), promote="float")


_SCALARS = (".self_scalar", ".other_scalar")
_register("special_xlog1py", _xlog1py, *_SCALARS)
_register("special_zeta", _zeta, *_SCALARS)


# ---- incomplete gamma functions ------------------------------------------------------------

_MOST_STEPS = 10_000
_EPSILON = 1e-16


def _lower_series(a: Value, x: Value) -> Value:
    """sum of x^k / ((a + 1) ... (a + k)): converges fast for x <= a + 1."""

    def unfinished(k, term, total):
        active = hlo.reduce(term > total * _EPSILON, "or", range(a.ndim))
        return active & (k < _MOST_STEPS)

    def step(k, term, total):
        term = term * (x / (a + k))
        return [k + 1, term, total + term]

    one = hlo.full_like(a, 1)
    return hlo.while_loop(unfinished, step, [hlo.constant(1.0, a.dtype), one, one])[2]


def _upper_fraction(a: Value, x: Value) -> Value:
    """Lentz's evaluation of the continued fraction of Q(a, x), for x > a + 1."""

    def unfinished(k, c, d, value, change):
        active = hlo.reduce(hlo.abs(change - 1) > 2 * _EPSILON, "or", range(a.ndim))
        return active & (k < _MOST_STEPS)

    def step(k, c, d, value, change):
        numerator = (a - k) * k
        denominator = x - a + (2 * k + 1)
        d = 1 / (denominator + numerator * d)
        c = denominator + numerator / c
        change = c * d
        return [k + 1, c, d, value * change, change]

    first = 1 / (x - a + 1)
    start = [hlo.constant(1.0, a.dtype), hlo.full_like(a, 1e300), first, first]
    return hlo.while_loop(unfinished, step, [*start, hlo.full_like(a, 2)])[3]


def _incomplete_gamma(a: Value, x: Value, upper: bool) -> Value:
    dtype = a.dtype
    a, x = a.to(torch.float64), x.to(torch.float64)
    ordinary = (a > 0) & (x > 0) & hlo.is_finite(a) & hlo.is_finite(x)
    by_fraction = ordinary & (x > a + 1)
    by_series = ordinary & ~by_fraction
    # Elements that take the other way get arguments that converge at once.
    lower = _lower_series(hlo.where(by_series, a, 1.0), hlo.where(by_series, x, 0.0))
    rest = _upper_fraction(hlo.where(by_fraction, a, 1.0), hlo.where(by_fraction, x, 10.0))
    safe_a, safe_x = hlo.where(ordinary, a, 1.0), hlo.where(ordinary, x, 1.0)
    power = safe_a * hlo.log(safe_x) - safe_x
    lower = lower * hlo.exp(power - hlo.unary("chlo.lgamma", safe_a + 1))
    rest = rest * hlo.exp(power - hlo.unary("chlo.lgamma", safe_a))
    value = hlo.select(by_fraction, 1 - rest, lower)
    if upper:
        value = hlo.select(by_fraction, rest, 1 - lower)
    value = hlo.where(hlo.is_nan(a) | hlo.is_nan(x), math.nan, value)
    all_of_it = ((a == 0) & (x > 0)) | is_infinite(x)
    value = hlo.where(all_of_it, 0.0 if upper else 1.0, value)
    none_of_it = (x == 0) | is_infinite(a)
    value = hlo.where(none_of_it & ~all_of_it, 1.0 if upper else 0.0, value)
    undefined = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (is_infinite(a) & is_infinite(x))
    return hlo.where(undefined, math.nan, value).to(dtype)


_register("igamma", lambda a, x: _incomplete_gamma(a, x, upper=False))
_register("igammac", lambda a, x: _incomplete_gamma(a, x, upper=True))
