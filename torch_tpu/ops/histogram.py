"""Histograms: histc, histogram and the pieces of histogramdd.

Counts are scatter-additions into the bins; elements outside the range, and NaN, are sent to a bin
number past the last, which the scatter drops. An empty range given to the operator means that of
the data, found in the program. PyTorch refuses a non-finite data range; a program cannot, so such
a histogram comes out empty. `bincount`, whose size depends on data, is in `unique.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import op
from .common import undefined
from .reduce import widen
from .search import search

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def _count(bins: Value, size: int, weight: Value | None, dtype: torch.dtype) -> Value:
    """Sum of weights (or ones) per bin number; numbers outside [0, size) are dropped."""
    updates = hlo.constant(1, dtype, bins.shape) if weight is None else hlo.convert(weight, dtype)
    return hlo.scatter(
        hlo.constant(0, dtype, (size,)),
        hlo.unsqueeze(bins, 1),
        updates,
        "add",
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )


def _data_range(x: Value, margin: float) -> tuple[Value, Value]:
    """Smallest and largest element, moved apart by ``margin`` each if they are one."""
    if not x.numel:
        return hlo.constant(0, x.dtype), hlo.constant(1, x.dtype)
    low, high = hlo.reduce(x, "minimum", [0]), hlo.reduce(x, "maximum", [0])
    return _apart(low, high, margin)


def _apart(low: Value, high: Value, margin: float) -> tuple[Value, Value]:
    same = low == high
    return hlo.select(same, low - margin, low), hlo.select(same, high + margin, high)


def _check_histc(self, bins=100, min=0, max=0, out=None) -> None:  # noqa: A002
    """Integers are counted, as on other accelerators; ``min`` and ``max`` are looked at per key."""
    if bins <= 0:
        raise RuntimeError(f"torch.histc: bins must be > 0, but got {bins}")
    if not (math.isfinite(min) and math.isfinite(max)):
        raise RuntimeError(f"torch.histc: range of [{min}, {max}] is not finite")
    if min > max:
        raise RuntimeError(f"torch.histc: max must be larger than min, got [{min}, {max}]")
    if self.dtype in (torch.bool, *_UNSIGNED) or self.is_complex():
        undefined("histc", self.dtype)
    if out is not None and out.dtype is not self.dtype:
        raise RuntimeError(
            f"torch.histc: input tensor and hist tensor should have the same dtype, but got input "
            f"{self.dtype} and hist {out.dtype}"
        )


@op("aten::histc", check=_check_histc)
def histc(self, bins=100, min=0, max=0):
    x = hlo.flatten(widen(self) if self.is_floating else hlo.convert(self, torch.int64))
    low, high = (
        hlo.convert(v, x.dtype) if isinstance(v, Value) else hlo.constant(v, x.dtype)
        for v in (min, max)
    )
    if x.numel:
        given = low != high
        data = (hlo.reduce(x, word, [0]) for word in ("minimum", "maximum"))
        low, high = (hlo.select(given, v, d) for v, d in zip((low, high), data, strict=True))
    low, high = _apart(low, high, 1)
    low, high = hlo.expand(low, x.shape), hlo.expand(high, x.shape)
    # For integers this division truncates, which within the range is a floor.
    position = hlo.binary("divide", (x - low) * bins, high - low)
    inside = (x >= low) & (x <= high)
    position = hlo.convert(position, torch.int32)
    position = hlo.minimum(position, hlo.full_like(position, bins - 1))
    position = hlo.select(inside, position, hlo.full_like(position, bins))
    dtype = torch.float32 if x.is_floating and x.dtype is not torch.float64 else x.dtype
    return hlo.convert(_count(position, bins, None, dtype), self.dtype)


# ---- histogram and histogramdd ---------------------------------------------------------------


def _linear_edges(low: Value, high: Value, bins: int) -> Value:
    """``bins + 1`` edges, computed from either end as `torch.linspace` does."""
    shape = (bins + 1,)
    step = hlo.expand((high - low) / bins, shape)
    index = hlo.iota(shape, 0, low.dtype)
    near = hlo.expand(low, shape) + step * index
    far = hlo.expand(high, shape) - step * (bins - index)
    return hlo.select(index < (bins + 1) // 2, near, far)


def _columns(x: Value) -> list[Value]:
    """The last-dim columns of ``x`` [..., D], each flat."""
    rows, depth = x.numel // max(x.shape[-1], 1), x.shape[-1]
    x = hlo.reshape(x, (rows, depth))
    return [hlo.flatten(hlo.slice_dim(x, 1, d, d + 1)) for d in range(depth)]


def _edges_for(columns: Sequence[Value], bins: Sequence[int], range_) -> list[Value]:
    edges = []
    for d, (column, count) in enumerate(zip(columns, bins, strict=True)):
        if range_:
            low, high = (hlo.constant(v, column.dtype) for v in range_[2 * d : 2 * d + 2])
            low, high = _apart(low, high, 0.5)
        else:
            low, high = _data_range(column, 0.5)
        edges.append(_linear_edges(low, high, count))
    return edges


def _histogram(columns: Sequence[Value], edges: Sequence[Value], weight, density: bool) -> Value:
    """Counts, weighted and normalized if asked, over the grid the edges span."""
    dtype = columns[0].dtype
    shape = [e.shape[0] - 1 for e in edges]
    size = math.prod(shape)
    flat, inside = None, None
    for x, edge in zip(columns, edges, strict=True):
        bins = edge.shape[0] - 1
        low, high = (hlo.slice_dim(edge, 0, i, i + 1) for i in (0, bins))
        position = hlo.convert(search(edge, x, right=True) - 1, torch.int32)
        # Only the last bin holds its right edge.
        position = hlo.minimum(position, hlo.full_like(position, bins - 1))
        within = (x >= low) & (x <= high)
        flat = position if flat is None else flat * bins + position
        inside = within if inside is None else inside & within
    flat = hlo.select(inside, flat, hlo.full_like(flat, size))
    weight = None if weight is None else hlo.flatten(weight)
    counts = hlo.reshape(_count(flat, size, weight, dtype), shape)
    if not density:
        return counts
    counts = counts / hlo.reduce(counts, "add", list(range(counts.ndim)))
    for d, edge in enumerate(edges):
        widths = hlo.slice_dim(edge, 0, 1, shape[d] + 1) - hlo.slice_dim(edge, 0, 0, shape[d])
        counts = counts / hlo.broadcast_in_dim(widths, shape, [d])
    return counts


def _check_points(self, bins, range=None, weight=None) -> None:  # noqa: A002
    """What ATen's kernels demand of points in the last dim and their grid."""
    depth = self.shape[-1]
    if len(bins) != depth:
        raise RuntimeError(
            f"histogramdd: The size of bins must be equal to the innermost dimension of the input: "
            f"got {len(bins)} for input of shape {list(self.shape)}"
        )
    for d, bin_ in enumerate(bins):
        (_check_edges if isinstance(bin_, torch.Tensor) else _check_count)(self, bin_, d)
    if range and len(range) != 2 * depth:
        raise RuntimeError(
            f"torch.histogramdd: for a {depth}-dimensional histogram range should have {2 * depth} "
            f"elements, but got {len(range)}"
        )
    for low, high in zip(range[::2], range[1::2], strict=True) if range else ():
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"torch.histogramdd: range [{low}, {high}] is not finite")
        if low > high:
            raise RuntimeError(f"torch.histogramdd: min {low} should not exceed max {high}")
    if not self.is_floating_point():
        undefined("histogram", self.dtype)
    if weight is not None:
        _check_weight(self, weight)


def _check_weight(self, weight) -> None:
    if weight.shape != self.shape[:-1]:
        raise RuntimeError(
            f"torch.histogramdd: weight of shape {list(weight.shape)} should have the shape of the "
            f"input, {list(self.shape)}, excluding its innermost dimension"
        )
    if weight.dtype is not self.dtype:
        raise RuntimeError(
            f"torch.histogramdd: input and weight should have the same dtype, but got {self.dtype} "
            f"and {weight.dtype}"
        )


def _check_count(self, count: int, d: int) -> None:
    if count <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {count} for dim {d}")


def _check_edges(self, edges, d: int) -> None:
    if edges.ndim != 1 or edges.numel() == 0:
        raise RuntimeError(
            f"torch.histogramdd: bins should have one dimension and at least 1 element, but for "
            f"dimension {d} they have shape {list(edges.shape)}"
        )
    if edges.dtype is not self.dtype:
        raise RuntimeError(
            f"torch.histogramdd: input and bins should have the same dtype, but got {self.dtype} "
            f"and {edges.dtype} for dimension {d}"
        )


def _check_dd(self, bins, range=None, weight=None) -> None:  # noqa: A002
    if self.ndim < 2:
        raise RuntimeError(
            "torch.histogramdd: input tensor should have at least 2 dimensions, but has shape "
            f"{list(self.shape)}"
        )
    _check_points(self, bins, range, weight)
    if self.dtype.itemsize == 2:
        undefined("histogramdd", self.dtype)


def _check_1d(self, bins, range=None, weight=None) -> None:  # noqa: A002
    if weight is not None:
        weight = weight.reshape(-1)
    _check_points(self.reshape(-1, 1), [bins], range, weight)


@op("aten::histogram.bin_ct", check=_check_1d)
def histogram_bin_ct(self, bins=100, range=None, weight=None, density=False):
    x = hlo.flatten(self)
    [edges] = _edges_for([x], [bins], range)
    return _histogram([x], [edges], weight, density), edges


@op("aten::histogram.bins_tensor", check=_check_1d)
def histogram_bins_tensor(self, bins, weight=None, density=False):
    return _histogram([hlo.flatten(self)], [bins], weight, density), bins


def _bin_edges_meta(self, bins, **_) -> list:
    return [[self.new_empty((count + 1,)) for count in bins]]


@op("aten::_histogramdd_bin_edges", meta=_bin_edges_meta, check=_check_dd)
def _histogramdd_bin_edges(self, bins, range=None, weight=None, density=False):
    return _edges_for(_columns(self), bins, range)


@op("aten::_histogramdd_from_bin_cts", check=_check_dd)
def _histogramdd_from_bin_cts(self, bins, range=None, weight=None, density=False):
    columns = _columns(self)
    return _histogram(columns, _edges_for(columns, bins, range), weight, density)


@op("aten::_histogramdd_from_bin_tensors", check=_check_dd)
def _histogramdd_from_bin_tensors(self, bins, weight=None, density=False):
    return _histogram(_columns(self), bins, weight, density)
