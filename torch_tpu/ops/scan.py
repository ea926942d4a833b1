"""Running reductions along one dim: cumsum, cumprod, logcumsumexp, cummax and cummin.

All are windows over everything before an element (`hlo.cumulative`). 16-bit floats accumulate in
float32 and each result is rounded once, as ATen's CPU kernels do.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import PAIR, check_dtypes, is_infinite, refuse, refusing
from .index import at_least_1d
from .reduce import index_dtype, widen
from .shape import wrap


def _scan(x: Value, word, dim: int, dtype: torch.dtype, initial=None) -> Value:
    x = widen(x, dtype)
    dim = wrap(dim, x.ndim)
    if x.ndim:
        x = hlo.cumulative(x, word, dim, initial)
    return hlo.convert(x, dtype)


@op("aten::cumsum", overlap="partial", out="decides")
def cumsum(self, dim):
    return _scan(self, "add", dim, expected()[0].dtype)


@op("aten::cumprod", overlap="partial", out="decides")
def cumprod(self, dim):
    return _scan(self, "multiply", dim, expected()[0].dtype)


def _log_add_exp(a: Value, b: Value) -> Value:
    high = hlo.maximum(a, b)
    # Infinities are not subtracted: inf - inf would turn the result into NaN.
    infinite = is_infinite(high)
    base = hlo.select(infinite, hlo.zeros_like(high), high)
    result = hlo.log(hlo.exp(a - base) + hlo.exp(b - base)) + base
    return hlo.select(infinite | hlo.is_nan(high), high, result)


def _complex_log_add_exp(a: Value, b: Value) -> Value:
    """As ATen: the angle is that of the larger operand and how far the smaller one turns it."""
    swap = hlo.real(a) >= hlo.real(b)
    low, high = hlo.select(swap, b, a), hlo.select(swap, a, b)
    result = high + hlo.unary("log_plus_one", hlo.exp(low - high))
    top = hlo.real(high)
    both_infinite = is_infinite(top) & (hlo.real(low) == top)
    ends = hlo.select(top < 0, low, hlo.log(hlo.exp(low) + hlo.exp(high)))
    result = hlo.select(both_infinite, ends, result)
    undefined = hlo.is_nan(a) | hlo.is_nan(b)
    return hlo.select(undefined, hlo.full_like(a, complex(math.nan, math.nan)), result)


def _one_by_one(x: Value, word, dim: int, initial) -> Value:
    """Like `hlo.cumulative`, in order: angles of logarithms depend on it by turns of 2 pi."""
    sizes = [1 if d == dim else n for d, n in enumerate(x.shape)]
    zero = hlo.constant(0, torch.int64)

    def advance(k, last, result):
        starts = [k if d == dim else zero for d in range(x.ndim)]
        last = word(hlo.dynamic_slice(x, starts, sizes), last)
        return [k + 1, last, hlo.dynamic_update_slice(result, last, starts)]

    start = hlo.constant(initial, x.dtype, sizes)
    return hlo.while_loop(lambda k, *_: k < x.shape[dim], advance, [zero, start, x])[2]


@op(
    "aten::_logcumsumexp",
    "aten::logcumsumexp",
    overlap="partial",
    **refusing("logcumsumexp", int=NotImplementedError, bool=NotImplementedError),
)
def logcumsumexp(self, dim):
    dim = wrap(dim, self.ndim)
    if not self.is_complex:
        return _scan(self, _log_add_exp, dim, self.dtype, initial=-math.inf)
    x = at_least_1d(self)
    if not x.numel:
        return self
    return hlo.reshape(_one_by_one(x, _complex_log_add_exp, dim, -math.inf), self.shape)


def _running_extreme(x: Value, word: str, dim: int) -> list[Value]:
    """Running extremes and where each was last met; a NaN, once met, stays."""
    dim = wrap(dim, x.ndim)
    if not x.ndim:
        return [x, hlo.constant(0, torch.int64)]
    values = hlo.cumulative(x, word, dim)
    hit = hlo.compare(x, values, "EQ")
    if x.is_floating:
        hit = hit | hlo.is_nan(x)
    position = hlo.iota(x.shape, dim, index_dtype(x.shape[dim]))
    position = hlo.select(hit, position, hlo.zeros_like(position))
    return [values, hlo.convert(hlo.cumulative(position, "maximum", dim), torch.int64)]


def _running(name: str) -> dict:
    def check(self, **given):
        if self.ndim and self.numel():  # ATen looks at the dtype no sooner
            refuse(name, self, complex=NotImplementedError)
        check_dtypes(name, self, given, **PAIR)

    return {"check": check}


@op("aten::cummax", **_running("cummax"))
def cummax(self, dim):
    return _running_extreme(self, "maximum", dim)


@op("aten::cummin", **_running("cummin"))
def cummin(self, dim):
    return _running_extreme(self, "minimum", dim)


@op("aten::_cummax_helper", writes=("values", "indices"))
def _cummax_helper(self, values, indices, dim):
    return _running_extreme(self, "maximum", dim)


@op("aten::_cummin_helper", writes=("values", "indices"))
def _cummin_helper(self, values, indices, dim):
    return _running_extreme(self, "minimum", dim)
