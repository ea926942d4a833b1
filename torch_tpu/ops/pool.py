"""Pooling: maximum (with indices), average, adaptive, fractional, unpooling; all with backward.

All rules work on (..., *spatial): the leading dims, batched or not, are never looked at. A pool is
one pass per spatial dim over a `Windows`, which says what positions of the input each output sees.
Maxima follow the CPU kernels: the first of equal elements, but the last NaN, and an index even
where all elements are -inf. Backward of maximum pools is one scatter (measured on XLA:CPU, 3x3
stride 2: 1.7 ms, against 6 ms for comparing indices at every position); average pools have none.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from ..lowering import hlo
from ..lowering.builder import current
from ..lowering.registry import expected, op
from .common import channels_last_kept, same_dtype, widened

# Up to this many elements of a window are combined one by one: XLA makes one vector loop of it.
_UNROLL = 16


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows along one dim of ``size`` elements: output o sees the positions
    o * stride - padding + j * dilation or, where windows are irregular, ``table[o]``."""

    size: int
    out: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    table: tuple[tuple[int, ...], ...] | None = None

    @property
    def positions(self) -> list[list[int]]:
        """The input positions that each output sees."""
        if self.table is not None:
            return [list(row) for row in self.table]
        rows = []
        for o in range(self.out):
            start = o * self.stride - self.padding
            row = range(start, start + self.dilation * (self.kernel - 1) + 1, self.dilation)
            rows.append([i for i in row if 0 <= i < self.size])
        return rows

    @property
    def tiled(self) -> bool:
        """Windows that lie side by side from the start."""
        return self.table is None and (self.stride, self.padding, self.dilation) == (
            self.kernel,
            0,
            1,
        )

    def padded(self, x, dim, fill):
        """``x`` with just the elements that the windows see; regular windows only."""
        span = (self.out - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        low, high = [0] * x.ndim, [0] * x.ndim
        low[dim], high[dim] = self.padding, span - self.size - self.padding
        return hlo.pad(x, hlo.constant(fill, x.dtype), low, high)

    def columns(self, x, dim, fill):
        """For each j, the j-th element of every window: ``x`` with ``out`` in place of ``size``."""
        if self.table is not None:
            for j in range(self.kernel):
                at = [row[min(j, len(row) - 1)] for row in self.table]
                yield hlo.take(x, hlo.array(at, torch.int32), dim)
            return
        x = self.padded(x, dim, fill)
        for j in range(self.kernel):
            start = j * self.dilation
            stop = start + (self.out - 1) * self.stride + 1
            yield hlo.slice_dim(x, dim, start, stop, self.stride)

    def gathered(self, x, dim):
        """(``x`` with dim ``size`` replaced by dims (out, kernel), mask of the real elements)."""
        rows = self.positions
        longest = max(map(len, rows))
        flat, real = [], []
        for row in rows:
            missing = longest - len(row)
            flat += row + (row[-1:] or [0]) * missing
            real += [True] * len(row) + [False] * missing
        index = hlo.array(flat, torch.int32, (self.out, longest))
        mask = None if all(real) else hlo.array(real, torch.bool, (self.out, longest))
        return hlo.take(x, index, dim), mask


def _regular(shape, out, kernel, stride, padding, dilation=None):
    count = len(out)
    kernel, padding, dilation = (_each(v, count) for v in (kernel, padding, dilation or [1]))
    stride = _each(stride, count) if stride else kernel
    numbers = (shape[len(shape) - count :], out, kernel, stride, padding, dilation)
    return [Windows(*each) for each in zip(*numbers, strict=True)]


def _each(values, count):
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    return values * count if len(values) == 1 else values


def _adaptive(shape, out):
    return [_adaptive_dim(n, m) for n, m in zip(shape[len(shape) - len(out) :], out, strict=True)]


def _adaptive_dim(size, out):
    if size % out == 0:
        return Windows(size, out, size // out, size // out)
    table = tuple(tuple(range(o * size // out, -(-(o + 1) * size // out))) for o in range(out))
    return Windows(size, out, max(map(len, table)), table=table)


# ---- maximum -------------------------------------------------------------------------------


def _max_pool(x, windows):
    """(maxima, their flat positions in the input's spatial dims as int64)."""
    sizes = [w.size for w in windows]
    seen = [list(range(size)) for size in sizes]
    value, index = x, _flat_positions(seen, sizes, x.shape)
    # The last dim goes first, so that of equal maxima the first in row-major order is kept.
    for i, w in reversed(list(enumerate(windows))):
        dim = x.ndim - len(windows) + i
        seen[i] = [row[0] for row in w.positions]
        if w.kernel > _UNROLL:
            value, index = _max_reduced(value, index, dim, w)
        else:
            first = _flat_positions(seen, sizes, _resized(value.shape, dim, w.out))
            value, index = _max_unrolled(value, index, dim, w, first)
    return value, hlo.convert(index, torch.int64)


def _flat_positions(seen, sizes, shape):
    """Flat positions in a plane of ``sizes``, where each spatial dim shows the rows ``seen``."""
    kind = torch.int32 if math.prod(sizes) < 2**31 else torch.int64
    terms = []
    for i, row in enumerate(seen):
        weight = math.prod(sizes[i + 1 :])
        term = hlo.array([position * weight for position in row], kind)
        terms.append(hlo.broadcast_in_dim(term, shape, [len(shape) - len(seen) + i]))
    return _total(terms)


def _resized(shape, dim, size):
    return (*shape[:dim], size, *shape[dim + 1 :])


def _dims(x, windows):
    return range(x.ndim - len(windows), x.ndim)


def _max_unrolled(value, index, dim, w, at):
    # Padding holds the lowest value: it is never greater, so ``at`` stays at a real element.
    lowest = hlo.lowest(value.dtype)
    best = hlo.constant(lowest, value.dtype, at.shape)
    values, indices = w.columns(value, dim, lowest), w.columns(index, dim, 0)
    for candidate, position in zip(values, indices, strict=True):
        beats = hlo.compare(candidate, best, "GT")
        if value.is_floating:
            beats = hlo.binary("or", beats, hlo.is_nan(candidate))
        best, at = hlo.select(beats, candidate, best), hlo.select(beats, position, at)
    return best, at


def _max_reduced(value, index, dim, w):
    """For long windows: gather them, then reduce; repeated elements of short ones do no harm."""
    return _reduce_max(w.gathered(value, dim)[0], w.gathered(index, dim)[0], dim + 1)


def _reduce_max(value, index, dim):
    last = torch.iinfo(index.dtype).max

    def better(best, at, candidate, position):
        earlier = hlo.binary("and", hlo.compare(candidate, best, "EQ"), position < at)
        beats = hlo.binary("or", hlo.compare(candidate, best, "GT"), earlier)
        if value.is_floating:
            newer = hlo.binary("or", hlo.not_(hlo.is_nan(best)), at < position)
            # A number never beats NaN: comparisons with NaN are false.
            beats = hlo.binary("or", beats, hlo.binary("and", hlo.is_nan(candidate), newer))
        return hlo.select(beats, candidate, best), hlo.select(beats, position, at)

    starts = [hlo.constant(hlo.lowest(value.dtype), value.dtype), hlo.constant(last, index.dtype)]
    return hlo.reduce_many([value, index], starts, [dim], better)


def _scatter_planes(index, values, shape, spatial, combine):
    """Zeros of ``shape`` with ``values`` put at flat positions in each plane of the last dims."""
    planes, numel = (
        math.prod(shape[: len(shape) - spatial]),
        math.prod(shape[len(shape) - spatial :]),
    )
    index = hlo.reshape(index, (planes, index.numel // max(planes, 1)))
    inside = hlo.binary("and", index >= 0, index < numel)
    index = hlo.select(inside, hlo.iota(index.shape, 0) * numel + index, hlo.full_like(index, -1))
    result = hlo.scatter(
        hlo.constant(0, values.dtype, (planes * numel,)),
        hlo.reshape(index, (index.numel, 1)),
        hlo.flatten(values),
        combine,
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )
    return hlo.reshape(result, shape)


def _max_backward(grad, shape, indices, spatial):
    """Gradients go where the maxima were; 16-bit sums are rounded once."""
    return hlo.convert(_scatter_planes(indices, widened(grad), shape, spatial, "add"), grad.dtype)


def _register_max(spatial):
    name = f"aten::max_pool{spatial}d_with_indices"

    @op(name)
    def max_pool_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode):
        out = expected()[0].shape[-spatial:]
        return _max_pool(self, _regular(self.shape, out, kernel_size, stride, padding, dilation))

    @op(name + "_backward")
    def max_pool_with_indices_backward(
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
    ):
        return _max_backward(grad_output, self.shape, indices, spatial)

    @op(f"aten::adaptive_max_pool{spatial}d")
    def adaptive_max_pool(self, output_size):
        if not math.prod(expected()[0].shape):
            return [hlo.constant(0, e.dtype, e.shape) for e in expected()]
        return _max_pool(self, _adaptive(self.shape, expected()[0].shape[-spatial:]))

    @op(f"aten::adaptive_max_pool{spatial}d_backward")
    def adaptive_max_pool_backward(grad_output, self, indices):
        return _max_backward(grad_output, self.shape, indices, spatial)

    @op(f"aten::fractional_max_pool{spatial}d")
    def fractional_max_pool(self, kernel_size, output_size, random_samples):
        kernel = _each(kernel_size, spatial)
        return _fractional_max_pool(self, kernel, expected()[0].shape[-spatial:], random_samples)

    @op(f"aten::fractional_max_pool{spatial}d_backward")
    def fractional_max_pool_backward(grad_output, self, kernel_size, output_size, indices):
        return _max_backward(grad_output, self.shape, indices, spatial)


for _spatial in (2, 3):
    _register_max(_spatial)


@op("aten::max_unpool2d", **channels_last_kept("aten::max_unpool2d"))
def max_unpool2d(self, indices, output_size):
    return _scatter_planes(indices, self, expected()[0].shape, 2, "set")


@op("aten::max_unpool3d")
def max_unpool3d(self, indices, output_size, stride, padding):
    return _scatter_planes(indices, self, expected()[0].shape, 3, "set")


# ---- fractional maximum --------------------------------------------------------------------


def _rounded(x):
    """Keep the precision of 16-bit intermediates, which XLA may widen inside one fused loop."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return x
    exponent, mantissa = (5, 10) if x.dtype is torch.float16 else (8, 7)
    attributes = f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32"
    return current().emit("stablehlo.reduce_precision", [x], [(x.shape, x.dtype)], attributes)[0]


def _starts(sample, size, out, kernel):
    """Pseudo-random window starts (planes, out) of one dim, in the arithmetic of ``sample``."""
    planes, dtype = sample.shape[0], sample.dtype
    last = hlo.constant(size - kernel, torch.int32, (planes, 1))
    if out == 1:
        return last
    step = _rounded(hlo.constant(size - kernel, dtype) / (out - 1))
    shape = (planes, out - 1)
    sample = hlo.broadcast_in_dim(sample, shape, [0])
    step = hlo.expand(step, shape)
    at = _rounded(hlo.iota(shape, 1, dtype) + sample)
    first = hlo.convert(_rounded(at * step), torch.int32)
    first = hlo.binary("subtract", first, hlo.convert(_rounded(sample * step), torch.int32))
    return hlo.concatenate([first, last], 1)


def _fractional_max_pool(x, kernel, out, samples):
    spatial = len(out)
    sizes, lead = x.shape[-spatial:], x.shape[:-spatial]
    planes = math.prod(lead)
    # There may be samples for more batches than the input has.
    samples = hlo.slice_dim(samples, 0, 0, math.prod(lead[:-1]))
    samples = hlo.reshape(samples, (planes, spatial))
    window = (planes, *out, *kernel)
    index = hlo.constant(0, torch.int32, window)
    for i in range(spatial):
        # In 2-d the first sample belongs to the width, in 3-d to the depth: so do ATen's kernels.
        column = spatial - 1 - i if spatial == 2 else i
        sample = hlo.squeeze(hlo.slice_dim(samples, 1, column, column + 1), 1)
        start = _starts(sample, sizes[i], out[i], kernel[i])
        start = hlo.broadcast_in_dim(start, window, [0, 1 + i])
        at = hlo.binary("add", start, hlo.iota(window, 1 + spatial + i, torch.int32))
        index = index * sizes[i] + at
    index = hlo.reshape(index, (planes, *out, math.prod(kernel)))
    flat = hlo.convert(index, torch.int64) + hlo.iota(index.shape, 0) * math.prod(sizes)
    value = hlo.take(hlo.flatten(x), flat, 0)
    value, index = _reduce_max(value, index, index.ndim - 1)
    shape = (*lead, *out)
    return hlo.reshape(value, shape), hlo.convert(hlo.reshape(index, shape), torch.int64)


# ---- average -------------------------------------------------------------------------------


def _sum(x, windows):
    for dim, w in zip(_dims(x, windows), windows, strict=True):
        x = _sum_dim(x, dim, w)
    return x


def _sum_dim(x, dim, w):
    if w.table is not None:
        x, mask = w.gathered(x, dim)
        return _sum_masked(x, mask, dim)
    if w.tiled:
        x = w.padded(x, dim, 0)
        x = hlo.reshape(x, (*x.shape[:dim], w.out, w.kernel, *x.shape[dim + 1 :]))
        return hlo.reduce(x, "add", [dim + 1])
    if w.kernel <= _UNROLL:
        return _total(w.columns(x, dim, 0))
    x = w.padded(x, dim, 0)
    return _reduce_window(x, dim, w.kernel, w.stride, w.dilation)


def _sum_masked(x, mask, dim):
    if mask is not None:
        mask = hlo.broadcast_in_dim(mask, x.shape, [dim, dim + 1])
        x = hlo.select(mask, x, hlo.zeros_like(x))
    return hlo.reduce(x, "add", [dim + 1])


def _total(terms):
    terms = iter(terms)
    total = next(terms)
    for term in terms:
        total = hlo.binary("add", total, term)
    return total


def _reduce_window(x, dim, kernel, stride, dilation):
    window, strides, dilations = [1] * x.ndim, [1] * x.ndim, [1] * x.ndim
    window[dim], strides[dim], dilations[dim] = kernel, stride, dilation
    return hlo.reduce_window(x, "add", window, strides, window_dilation=dilations)


def _spread(x, windows):
    """The transpose of `_sum`: every input position receives all the windows that see it."""
    for dim, w in zip(_dims(x, windows), windows, strict=True):
        x = _spread_dim(x, dim, w)
    return x


def _spread_dim(x, dim, w):
    if w.table is not None:
        seen_by = [[] for _ in range(w.size)]
        for o, row in enumerate(w.table):
            for i in row:
                seen_by[i].append(o)
        back = Windows(w.out, w.size, 0, table=tuple(map(tuple, seen_by)))
        x, mask = back.gathered(x, dim)
        return _sum_masked(x, mask, dim)
    low, high, gaps = [0] * x.ndim, [0] * x.ndim, [0] * x.ndim
    zero = hlo.constant(0, x.dtype)
    if w.tiled:
        shape = (*x.shape[: dim + 1], w.kernel, *x.shape[dim + 1 :])
        x = hlo.broadcast_in_dim(x, shape, [i if i <= dim else i + 1 for i in range(x.ndim)])
        x = hlo.reshape(x, (*shape[:dim], w.out * w.kernel, *shape[dim + 2 :]))
        high[dim] = w.size - w.out * w.kernel
        return hlo.pad(x, zero, low, high)
    gaps[dim] = w.stride - 1
    low[dim] = w.kernel - 1 - w.padding
    high[dim] = w.size + w.padding - (w.out - 1) * w.stride - 1
    x = hlo.pad(x, zero, low, high, gaps)
    if w.kernel <= _UNROLL:
        return _total(hlo.slice_dim(x, dim, j, j + w.size) for j in range(w.kernel))
    return _reduce_window(x, dim, w.kernel, 1, 1)


def _divide(x, windows, include_padding=False, divisor=None):
    """Divide by the number of elements of each window (integers: towards zero, as C does)."""
    lengths = [[divisor] if divisor else [1]]
    if divisor is None:
        lengths = [_lengths(w, include_padding) for w in windows]
    if all(len(set(each)) == 1 for each in lengths):
        count = hlo.constant(math.prod(each[0] for each in lengths), x.dtype, x.shape)
        return hlo.binary("divide", x, count)
    count = hlo.constant(1, x.dtype, x.shape)
    for dim, each in zip(_dims(x, windows), lengths, strict=True):
        each = hlo.broadcast_in_dim(hlo.array(each, x.dtype), x.shape, [dim])
        count = hlo.binary("multiply", count, each)
    return hlo.binary("divide", x, count)


def _lengths(w, include_padding):
    if not include_padding:
        return [max(len(row), 1) for row in w.positions]
    starts = (o * w.stride - w.padding for o in range(w.out))
    return [min(start + w.kernel, w.size + w.padding) - start for start in starts]


def _register_average(spatial):
    @op(f"aten::avg_pool{spatial}d")
    def avg_pool(
        self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    ):
        windows = _regular(self.shape, expected()[0].shape[-spatial:], kernel_size, stride, padding)
        total = _sum(widened(self), windows)
        mean = _divide(total, windows, count_include_pad, divisor_override)
        return hlo.convert(mean, self.dtype)

    @op(f"aten::avg_pool{spatial}d_backward", check=same_dtype("self", "grad_output"))
    def avg_pool_backward(
        grad_output,
        self,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    ):
        out = grad_output.shape[-spatial:]
        windows = _regular(self.shape, out, kernel_size, stride, padding)
        share = _divide(widened(grad_output), windows, count_include_pad, divisor_override)
        return hlo.convert(_spread(share, windows), self.dtype)

    @op(f"aten::_adaptive_avg_pool{spatial}d")
    def _adaptive_avg_pool(self, output_size):
        result = expected()[0]
        if not math.prod(result.shape):
            return hlo.constant(0, result.dtype, result.shape)
        windows = _adaptive(self.shape, result.shape[-spatial:])
        return hlo.convert(_divide(_sum(widened(self), windows), windows), self.dtype)

    @op(f"aten::_adaptive_avg_pool{spatial}d_backward")
    def _adaptive_avg_pool_backward(grad_output, self):
        windows = _adaptive(self.shape, grad_output.shape[-spatial:])
        share = _divide(widened(grad_output), windows)
        return hlo.convert(_spread(share, windows), self.dtype)


for _spatial in (2, 3):
    _register_average(_spatial)
