"""Orthogonal polynomials of `torch.special`: Chebyshev (all kinds), Hermite, Laguerre, Legendre.

The degree is data, so each is its three-term recurrence in one loop up to the largest degree; every
element keeps the value at its own. Inside (-1, 1) Chebyshev polynomials of a degree above 8 use
their trigonometric form and at ±1 their values, so that their loops stay short.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import op
from .common import operands

_LOOP_DEGREE = 8


def _recurrence(x: Value, degree: Value, wanted: Value, first, step) -> Value:
    """p_degree(x) where ``wanted``; ``step(k, x, p_(k-1), p_(k-2))`` is the k-th polynomial."""
    top = hlo.reduce(hlo.where(wanted, degree, 0).to(torch.int32), "maximum", range(degree.ndim))
    one, linear = hlo.full_like(x, 1), first(x)
    result = hlo.select(degree == 0, one, linear)

    def advance(k, before, last, result):
        now = step(k.to(x.dtype), x, last, before)
        return [k + 1, last, now, hlo.select(degree == k, now, result)]

    start = hlo.constant(2, torch.int32)
    return hlo.while_loop(lambda k, *_: k <= top, advance, [start, one, linear, result])[3]


def _prepare(x, n) -> tuple[Value, Value]:
    """(x, whole degree), of one shape."""
    x, n = operands(x, n)
    return x, n.to(torch.int32)


def _register(name: str, body) -> None:
    overloads = (f"aten::special_{name}{suffix}" for suffix in ("", ".x_scalar", ".n_scalar"))

    @op(*overloads, promote="float")
    def rule(x, n):
        x, degree = _prepare(x, n)
        value = body(x, degree)
        return hlo.select(degree < 0, hlo.zeros_like(value), value)


# ---- Chebyshev -----------------------------------------------------------------------------


def _cosine(x: Value) -> Value:
    return hlo.unary("cosine", x)


def _sine(x: Value) -> Value:
    return hlo.unary("sine", x)


# kind -> (p1, trigonometric form at angle a and degree n, value at 1); at -1 the sign alternates,
# and kinds 3 and 4 trade places.
_CHEBYSHEV = {
    "t": (lambda x: x, lambda a, n: _cosine(n * a), lambda n: hlo.full_like(n, 1)),
    "u": (lambda x: 2 * x, lambda a, n: _sine((n + 1) * a) / _sine(a), lambda n: n + 1),
    "v": (
        lambda x: 2 * x - 1,
        lambda a, n: _cosine((n + 0.5) * a) / _cosine(a / 2),
        lambda n: hlo.full_like(n, 1),
    ),
    "w": (
        lambda x: 2 * x + 1,
        lambda a, n: _sine((n + 0.5) * a) / _sine(a / 2),
        lambda n: 2 * n + 1,
    ),
}
_MIRROR = {"t": "t", "u": "u", "v": "w", "w": "v"}


def _chebyshev(kind: str, shifted: bool):
    first, by_angle, at_one = _CHEBYSHEV[kind]
    at_minus_one = _CHEBYSHEV[_MIRROR[kind]][2]

    def body(x: Value, degree: Value) -> Value:
        x = 2 * x - 1 if shifted else x
        n = degree.to(x.dtype)
        size = hlo.abs(x)
        inside, at_end = (size < 1) & (degree > _LOOP_DEGREE), size == 1
        value = _recurrence(
            x, degree, ~(inside | at_end), first, lambda k, x, last, before: 2 * x * last - before
        )
        angle = hlo.unary("chlo.acos", hlo.where(inside, x, 0.0).to(x.dtype))
        value = hlo.select(inside, by_angle(angle, n), value)
        alternating = hlo.where((degree & 1) == 0, 1.0, -1.0).to(x.dtype)
        end = hlo.select(x > 0, at_one(n), alternating * at_minus_one(n))
        return hlo.select(at_end, end, value)

    return body


for _kind in _CHEBYSHEV:
    _register(f"chebyshev_polynomial_{_kind}", _chebyshev(_kind, shifted=False))
    _register(f"shifted_chebyshev_polynomial_{_kind}", _chebyshev(_kind, shifted=True))


# ---- Hermite, Laguerre, Legendre -----------------------------------------------------------


def _plain(first, step):
    return lambda x, degree: _recurrence(x, degree, degree >= 0, first, step)


def _hermite(first, step):
    def body(x: Value, degree: Value) -> Value:
        # PyTorch gives up where the values leave the dtype.
        limit = 128 if x.dtype is torch.float32 else 512
        value = _recurrence(x, degree, degree <= limit, first, step)
        return hlo.where(degree > limit, math.nan, value)

    return body


def _laguerre_step(k, x, last, before):
    return ((2 * k - 1 - x) * last - (k - 1) * before) / k


def _legendre_step(k, x, last, before):
    return ((2 * k - 1) * x * last - (k - 1) * before) / k


_register(
    "hermite_polynomial_h",
    _hermite(lambda x: 2 * x, lambda k, x, last, before: 2 * (x * last - (k - 1) * before)),
)
_register(
    "hermite_polynomial_he",
    _hermite(lambda x: x, lambda k, x, last, before: x * last - (k - 1) * before),
)
_register("laguerre_polynomial_l", _plain(lambda x: 1 - x, _laguerre_step))
_register("legendre_polynomial_p", _plain(lambda x: x, _legendre_step))
