"""Sorting and what is read off a sorted array: sort, topk, kthvalue, median, nanmedian, mode.

Sorting is always stable, also where PyTorch does not promise it, and counts NaN as larger than
everything, so equal elements keep their order. Indices are int64 but are carried as int32.
Searching in sorted arrays is in `search.py`, distinct values in `unique.py`.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value, current
from ..lowering.registry import op
from .common import PAIR, check_dtypes, refuse, refusing
from .reduce import choosing, index_dtype
from .shape import wrap


def _sorted_pair(x: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    """(values, narrow indices) along a non-negative ``dim``."""
    return hlo.argsort(x, dim, descending, index_dtype(x.shape[dim]))


def _along_last(x: Value, dim: int) -> tuple[Value, list[int]]:
    """``x`` with ``dim`` moved to the end, and the permutation that moves it back."""
    dim = wrap(dim, x.ndim)
    order = [d for d in range(x.ndim) if d != dim] + [dim]
    return hlo.transpose(x, order), [order.index(d) for d in range(x.ndim)]


def _scalar_pair(x: Value) -> list[Value]:
    """What every (values, indices) operator gives for a 0-dim tensor."""
    return [x, hlo.constant(0, torch.int64)]


def _check_sort(self, **given) -> None:
    refuse("sort", self, complex=RuntimeError)
    check_dtypes("sort", self, given, **PAIR)


@op("aten::sort.stable", "aten::sort", check=_check_sort)
def sort_stable(self, dim=-1, descending=False, stable=None):
    dim = wrap(dim, self.ndim)
    if not self.ndim:
        return _scalar_pair(self)
    values, indices = _sorted_pair(self, dim, descending)
    return values, hlo.convert(indices, torch.int64)


# ---- topk ----------------------------------------------------------------------------------


def _top_word(x: Value, k: int) -> list[Value]:
    """(values, int32 indices) of the ``k`` largest along the last dim of a float32 ``x``."""
    shape = (*x.shape[:-1], k)
    results = [(shape, x.dtype), (shape, torch.int32)]
    return current().emit("chlo.top_k", [x], results, f"k = {k} : i64")


def _top_sorted(x: Value, k: int, largest: bool) -> list[Value]:
    last = x.ndim - 1
    pair = hlo.argsort(x, last, largest, torch.int32)
    return [hlo.slice_dim(v, last, 0, k) for v in pair]


def _top(x: Value, k: int, largest: bool) -> list[Value]:
    """The ``k`` first along the last dim. XLA selects without sorting, but only float32."""
    if x.dtype in (torch.float16, torch.bfloat16):
        values, indices = _top(hlo.convert(x, torch.float32), k, largest)
        return [hlo.convert(values, x.dtype), indices]
    if x.dtype is not torch.float32 or 0 in (*x.shape, k):
        return _top_sorted(x, k, largest)
    nan = hlo.is_nan(x)
    if largest:
        # XLA orders by bits, where a NaN with its sign set is the smallest of all.
        return _top_word(hlo.select(nan, hlo.full_like(x, math.nan), x), k)

    def negated():
        values, indices = _top_word(hlo.neg(x), k)
        return [hlo.neg(values), indices]

    some_nan = hlo.reduce(nan, "or", list(range(x.ndim)))
    shape = (*x.shape[:-1], k)
    results = [(shape, x.dtype), (shape, torch.int32)]
    return hlo.conditional(some_nan, lambda: _top_sorted(x, k, largest), negated, results)


@op("aten::topk", **refusing("topk", complex=RuntimeError, bool=RuntimeError))
def topk(self, k, dim=-1, largest=True, sorted=True):
    if not self.ndim:
        return _scalar_pair(self)  # also for k = 0
    x, back = _along_last(self, dim)
    values, indices = _top(x, k, largest)
    return hlo.transpose(values, back), hlo.convert(hlo.transpose(indices, back), torch.int64)


# ---- order statistics ----------------------------------------------------------------------


def _pick(x: Value, position: Value, dim: int) -> Value:
    """The element of ``x`` at ``position`` (``x``'s shape with ``dim`` 1) along ``dim``, kept."""
    here = hlo.iota(x.shape, dim, position.dtype) == hlo.expand(position, x.shape)
    return hlo.reduce(hlo.select(here, x, hlo.zeros_like(x)), "add", [dim], keepdim=True)


def _kept(values: Value, indices: Value, dim: int, keepdim: bool) -> list[Value]:
    pair = [values, hlo.convert(indices, torch.int64)]
    return pair if keepdim else [hlo.squeeze(v, dim) for v in pair]


_NUMBERS = {"complex": NotImplementedError, "bool": NotImplementedError}
"""What an order statistic is refused for: complex numbers and, as ATen has it, truth values."""


def _choosing_unless_0d(name: str, kinds: dict) -> dict:
    """`choosing`, but a 0-dim tensor is what is chosen, whatever its dtype is."""

    def check(self, dim=-1, **given):
        choosing(name, kinds if self.ndim else {}, **PAIR)["check"](self, dim, **given)

    return {"check": check}


@op("aten::kthvalue", **_choosing_unless_0d("kthvalue", _NUMBERS))
def kthvalue(self, k, dim=-1, keepdim=False):
    if not self.ndim:
        return _scalar_pair(self)
    dim = wrap(dim, self.ndim)
    pair = (hlo.slice_dim(v, dim, k - 1, k) for v in _sorted_pair(self, dim, False))
    return _kept(*pair, dim, keepdim)


def _median(x: Value, dim: int, skip_nan: bool) -> tuple[Value, Value]:
    """Lower median and its position; the first NaN, if there is one and it is not skipped."""
    size = x.shape[dim]
    values, indices = _sorted_pair(x, dim, False)
    if not x.is_floating:
        return tuple(
            hlo.slice_dim(v, dim, (size - 1) // 2, (size + 1) // 2) for v in (values, indices)
        )
    valid = hlo.convert(hlo.not_(hlo.is_nan(x)), indices.dtype)
    count = hlo.reduce(valid, "add", [dim], keepdim=True)
    if skip_nan:
        last = hlo.maximum(count - 1, hlo.zeros_like(count))
        position = hlo.binary("divide", last, hlo.full_like(last, 2))
    else:
        middle = hlo.full_like(count, (size - 1) // 2)
        position = hlo.select(count < size, count, middle)
    return _pick(values, position, dim), _pick(indices, position, dim)


def _of_nothing(dtype: torch.dtype):
    """ATen: NaN, which an integer tensor holds as its smallest value and a bool as True."""
    if dtype is torch.bool:
        return True
    inexact = dtype.is_floating_point or dtype.is_complex
    return math.nan if inexact else hlo.lowest(dtype)


def _median_of_all(x: Value, skip_nan: bool) -> Value:
    if not x.numel:
        return hlo.constant(_of_nothing(x.dtype), x.dtype)
    return hlo.reshape(_median(hlo.flatten(x), 0, skip_nan)[0], ())


def _median_dim(x: Value, dim: int, keepdim: bool, skip_nan: bool) -> list[Value]:
    if not x.ndim:
        return _scalar_pair(x)
    dim = wrap(dim, x.ndim)
    return _kept(*_median(x, dim, skip_nan), dim, keepdim)


def _check_median(self) -> None:
    if self.numel():
        refuse("median", self, **_NUMBERS)


@op("aten::median", check=_check_median)
def median(self):
    return _median_of_all(self, skip_nan=False)


@op("aten::nanmedian", check=_check_median)
def nanmedian(self):
    return _median_of_all(self, skip_nan=True)


@op("aten::median.dim", **choosing("median", _NUMBERS, **PAIR))
def median_dim(self, dim, keepdim=False):
    return _median_dim(self, dim, keepdim, skip_nan=False)


@op("aten::nanmedian.dim", **choosing("nanmedian", _NUMBERS, **PAIR))
def nanmedian_dim(self, dim, keepdim=False):
    return _median_dim(self, dim, keepdim, skip_nan=True)


@op("aten::mode", **_choosing_unless_0d("mode", {"complex": NotImplementedError}))
def mode(self, dim=-1, keepdim=False):
    if not self.ndim:
        return _scalar_pair(self)
    dim = wrap(dim, self.ndim)
    size = self.shape[dim]
    values, indices = _sorted_pair(self, dim, False)
    position = hlo.iota(values.shape, dim, indices.dtype)
    # Length so far of each run of equal values; the first longest run wins, at its last element.
    before = hlo.slice_dim(values, dim, 0, size - 1)
    new = hlo.compare(hlo.slice_dim(values, dim, 1, size), before, "NE")
    low, high = [0] * new.ndim, [0] * new.ndim
    low[dim] = 1
    new = hlo.pad(new, hlo.constant(True, torch.bool), low, high)
    start = hlo.cumulative(hlo.select(new, position, hlo.zeros_like(position)), "maximum", dim)
    length = position - start
    longest = hlo.reduce(length, "maximum", [dim], keepdim=True)
    hit = length == hlo.expand(longest, length.shape)
    at = hlo.select(hit, position, hlo.full_like(position, size))
    at = hlo.reduce(at, "minimum", [dim], keepdim=True)
    return _kept(_pick(values, at, dim), _pick(indices, at, dim), dim, keepdim)
