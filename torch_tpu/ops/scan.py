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
from .reduce import index_dtype, widen


def _scan(x: Value, word, dim: int, dtype: torch.dtype, initial=None) -> Value:
    x = widen(x, dtype)
    if x.ndim:
        x = hlo.cumulative(x, word, dim % x.ndim, initial)
    return hlo.convert(x, dtype)


@op("aten::cumsum")
def cumsum(self, dim):
    return _scan(self, "add", dim, expected()[0].dtype)


@op("aten::cumprod")
def cumprod(self, dim):
    return _scan(self, "multiply", dim, expected()[0].dtype)


def _log_add_exp(a: Value, b: Value) -> Value:
    high = hlo.maximum(hlo.real(a), hlo.real(b))
    # Infinities are not subtracted: inf - inf would turn the result into NaN.
    infinite = hlo.compare(hlo.abs(high), hlo.full_like(high, math.inf), "EQ")
    base = hlo.select(infinite, hlo.zeros_like(high), high)
    result = hlo.log(hlo.exp(a - base) + hlo.exp(b - base)) + base
    if a.is_complex:
        return result
    return hlo.select(infinite | hlo.is_nan(high), high, result)


@op("aten::_logcumsumexp", "aten::logcumsumexp")
def logcumsumexp(self, dim):
    return _scan(self, _log_add_exp, dim, self.dtype, initial=-math.inf)


def _running_extreme(x: Value, word: str, dim: int) -> list[Value]:
    """Running extremes and where each was last met; a NaN, once met, stays."""
    if not x.ndim:
        return [x, hlo.constant(0, torch.int64)]
    dim %= x.ndim
    values = hlo.cumulative(x, word, dim)
    hit = hlo.compare(x, values, "EQ")
    if x.is_floating:
        hit = hit | hlo.is_nan(x)
    position = hlo.iota(x.shape, dim, index_dtype(x.shape[dim]))
    position = hlo.select(hit, position, hlo.zeros_like(position))
    return [values, hlo.convert(hlo.cumulative(position, "maximum", dim), torch.int64)]


@op("aten::cummax")
def cummax(self, dim):
    return _running_extreme(self, "maximum", dim)


@op("aten::cummin")
def cummin(self, dim):
    return _running_extreme(self, "minimum", dim)


@op("aten::_cummax_helper", writes=("values", "indices"))
def _cummax_helper(self, values, indices, dim):
    return _running_extreme(self, "maximum", dim)


@op("aten::_cummin_helper", writes=("values", "indices"))
def _cummin_helper(self, values, indices, dim):
    return _running_extreme(self, "minimum", dim)
