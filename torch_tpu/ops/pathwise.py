"""How gamma and Dirichlet samples move with their parameters, for `rsample`.

With F the distribution function and p the density, a sample x moves by -(dF/da) / p(x). The
derivative of F is an integral over p from either end to x, whose integrand hardly changes its sign
if the end is chosen by the mean. Divided by p(x) and with the distance to x on a logarithmic scale,
that is an integral over [0, inf) that decays exponentially, which the double exponential rule
(Takahasi and Mori) gives to 1e-8 with `_NODES` terms. ATen's own approximations keep 3 digits.
"""

from __future__ import annotations

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import op
from .common import undefined

_NODES = 128
_FIRST = -4.5  # where the rule begins, on its own scale
_LAST = 4.2  # where it ends at the least
_NOTHING = 45.0  # exp(-45) adds nothing to 1
_WORK = torch.float64


def _expm1(x: Value) -> Value:
    return hlo.unary("exponential_minus_one", x)


def _digamma(x: Value) -> Value:
    return hlo.unary("chlo.digamma", x)


def _abscissas(scale: Value, last: Value) -> tuple[Value, Value]:
    """Places and weights of the rule for integrands of width ``scale``, in a new last dim."""
    step = (last - _FIRST) * (1 / (_NODES - 1))
    shape = (*scale.shape, _NODES)
    t = hlo.iota(shape, scale.ndim).to(_WORK) * _wide(step) + _FIRST
    place = _wide(scale) * hlo.exp(t - hlo.exp(-t))
    return place, place * (hlo.exp(-t) + 1.0) * _wide(step)


def _wide(x: Value) -> Value:
    """``x`` repeated for every node."""
    return hlo.expand(hlo.reshape(x, (*x.shape, 1)), (*x.shape, _NODES))


def _integral(density: Value, factor: Value, weight: Value) -> Value:
    """The sum of the products; no density means no term, however large its factor."""
    terms = hlo.select(density == 0.0, hlo.zeros_like(density), density * factor * weight)
    return hlo.reduce(terms, "add", [terms.ndim - 1])


def gamma_slope(x: Value, a: Value) -> Value:
    """dx/da of a standard gamma sample; float64."""
    below = x < a
    sign = hlo.select(below, hlo.full_like(x, 1), hlo.full_like(x, -1))
    scale = hlo.rsqrt((a - x) * (a - x) + x)
    w, weight = _abscissas(scale, hlo.full_like(x, _LAST))
    away = _wide(sign) * w
    density = hlo.exp(-_wide(a) * away - _wide(x) * _expm1(-away))
    offset = _wide(sign * (hlo.log(x) - _digamma(a)))
    return x * _integral(density, w - offset, weight)


def beta_slope(x: Value, a: Value, b: Value) -> Value:
    """dx/da / (1 - x) of a beta sample with parameters ``a`` and ``b``; float64.

    So the parts of a Dirichlet sample move: one by this times 1 - x, another by this times minus
    that other.
    """
    y = 1.0 - x
    below = x * (a + b) < a
    # From 0 to x, or with the roles of both ends exchanged.
    near, far = hlo.select(below, x, y), hlo.select(below, y, x)
    decay, other = hlo.select(below, a, b), hlo.select(below, b, a) - 1.0
    ratio = near / far
    tilt = decay - other * ratio
    scale = hlo.rsqrt(tilt * tilt + hlo.abs(other) * ratio / far + decay)
    last = hlo.log(_NOTHING / (decay * scale))
    w, weight = _abscissas(scale, hlo.maximum(last, hlo.full_like(last, _LAST)))
    bend = hlo.unary("log_plus_one", -_wide(ratio) * _expm1(-w))
    density = hlo.exp(_wide(other) * bend - _wide(decay) * w)
    offset = _wide(hlo.log(x) - _digamma(a) + _digamma(a + b))
    factor = hlo.select(_wide(below), w - offset, bend + offset)
    return hlo.select(below, ratio, hlo.full_like(x, 1)) * _integral(density, factor, weight)


def _check(name: str, *tensors: torch.Tensor) -> None:
    dtype, *others = (t.dtype for t in tensors)
    if not dtype.is_floating_point:
        undefined(name, dtype)
    for other in others:
        if other is not dtype:
            raise RuntimeError(f"{name} expects tensors of one dtype, got {dtype} and {other}")


def _result(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensors[0].new_empty(torch.broadcast_shapes(*(t.shape for t in tensors)))]


def _slope(rule, x: Value, *parameters: Value) -> Value:
    """What ``rule`` gives in float64; 0 for a sample of 0, whose logarithm says nothing."""
    wide = promote.together(x, *parameters, dtype=_WORK)
    slope = rule(*wide)
    return hlo.select(wide[0] == 0.0, hlo.zeros_like(slope), slope).to(x.dtype)


@op(
    "aten::_standard_gamma_grad",
    meta=lambda self, output: _result(self, output),
    check=lambda self, output: _check("_standard_gamma_grad", self, output),
    layout="contiguous",
)
def standard_gamma_grad(self, output):
    return _slope(gamma_slope, output, self)


@op(
    "aten::_dirichlet_grad",
    meta=lambda x, alpha, total: _result(x, alpha, total),
    check=lambda x, alpha, total: _check("_dirichlet_grad", x, alpha, total),
    layout="contiguous",
)
def dirichlet_grad(x, alpha, total):
    """Of one part of a Dirichlet sample, which has a beta distribution, by its own parameter."""
    return _slope(lambda x, a, total: beta_slope(x, a, total - a), x, alpha, total)
