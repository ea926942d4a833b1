"""Padding, sliding windows and pixel rearrangements (part of the shape family).

Padding works dim by dim with slices, reversals and concatenations; its gradient is the transpose
of that, so the padded parts are folded back. Windows (``im2col``, ``unfold`` and their gradients)
are separable: one strided slice per kernel offset and dim, never per offset pair, and when windows
tile the input exactly they are a reshape.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import channels_last_kept
from .shape import move_dim, wrap


def _pairs(rank: int, padding: Sequence[int]) -> list[tuple[int, int, int]]:
    """(dim, low, high) for torch's flat padding list, which starts at the last dim."""
    return [(rank - 1 - i, padding[2 * i], padding[2 * i + 1]) for i in range(len(padding) // 2)]


@op("aten::constant_pad_nd", bounds={"value": "fits self"})
def constant_pad_nd(self, pad, value=0):
    low, high = [0] * self.ndim, [0] * self.ndim
    for dim, before, after in _pairs(self.ndim, pad):
        low[dim], high[dim] = before, after
    return hlo.pad(self, promote.as_value(value, self.dtype), low, high)


# ---- reflection and replication ---------------------------------------------------------------


def _edge(x: Value, dim: int, count: int, at_end: bool, reflect: bool) -> Value:
    """The ``count`` elements that padding adds at one end of ``dim``."""
    size = x.shape[dim]
    if reflect:
        start = size - 1 - count if at_end else 1
        return hlo.reverse(hlo.slice_dim(x, dim, start, start + count), [dim])
    border = hlo.slice_dim(x, dim, size - 1 if at_end else 0, size if at_end else 1)
    shape = list(x.shape)
    shape[dim] = count
    return hlo.broadcast_in_dim(border, shape, range(x.ndim))


def _extend(x: Value, dim: int, low: int, high: int, reflect: bool) -> Value:
    parts = [x]
    if low > 0:
        parts.insert(0, _edge(x, dim, low, False, reflect))
    if high > 0:
        parts.append(_edge(x, dim, high, True, reflect))
    x = hlo.concatenate(parts, dim)
    # Negative padding crops after the other end was padded from the whole input.
    return hlo.slice_dim(x, dim, max(0, -low), x.shape[dim] - max(0, -high))


def _fold_edge(part: Value, dim: int, size: int, at_end: bool, reflect: bool) -> Value:
    """The transpose of `_edge`: gradients of padded elements at the places they came from."""
    low, high = [0] * part.ndim, [0] * part.ndim
    count = part.shape[dim]
    if reflect:
        part = hlo.reverse(part, [dim])
        low[dim] = size - 1 - count if at_end else 1
    else:
        part = hlo.reduce(part, "add", [dim], keepdim=True)
        count, low[dim] = 1, size - 1 if at_end else 0
    high[dim] = size - count - low[dim]
    return hlo.pad(part, hlo.constant(0, part.dtype), low, high)


def _fold(grad: Value, dim: int, size: int, low: int, high: int, reflect: bool) -> Value:
    before, after = [0] * grad.ndim, [0] * grad.ndim
    before[dim], after[dim] = max(0, -low), max(0, -high)
    grad = hlo.pad(grad, hlo.constant(0, grad.dtype), before, after)
    low, high, length = max(0, low), max(0, high), grad.shape[dim]
    x = hlo.slice_dim(grad, dim, low, length - high)
    if low:
        x = x + _fold_edge(hlo.slice_dim(grad, dim, 0, low), dim, size, False, reflect)
    if high:
        part = hlo.slice_dim(grad, dim, length - high, length)
        x = x + _fold_edge(part, dim, size, True, reflect)
    return x


def _pad(x: Value, padding: Sequence[int], reflect: bool) -> Value:
    for dim, low, high in _pairs(x.ndim, padding):
        x = _extend(x, dim, low, high, reflect)
    return x


def _pad_backward(grad: Value, shape: Sequence[int], padding: Sequence[int], reflect: bool):
    dtype = grad.dtype
    grad = grad.to(promote.compute_dtype(dtype))
    for dim, low, high in reversed(_pairs(grad.ndim, padding)):
        grad = _fold(grad, dim, shape[dim], low, high, reflect)
    return grad.to(dtype)


def reflection_pad(self, padding):
    return _pad(self, padding, reflect=True)


def replication_pad(self, padding):
    return _pad(self, padding, reflect=False)


for _body in (reflection_pad, replication_pad):
    for _n in (1, 2, 3):
        _name = f"aten::{_body.__name__}{_n}d"
        op(_name, **channels_last_kept(_name))(_body)


@op(*(f"aten::reflection_pad{n}d_backward" for n in (1, 2, 3)))
def reflection_pad_backward(grad_output, self, padding):
    return _pad_backward(grad_output, self.shape, padding, reflect=True)


@op(*(f"aten::replication_pad{n}d_backward" for n in (1, 2, 3)))
def replication_pad_backward(grad_output, self, padding):
    return _pad_backward(grad_output, self.shape, padding, reflect=False)


# ---- pixels and channels ----------------------------------------------------------------------


@op("aten::channel_shuffle", **channels_last_kept("aten::channel_shuffle"))
def channel_shuffle(self, groups):
    batch, channels, *rest = self.shape
    x = hlo.reshape(self, (batch, groups, channels // groups, *rest))
    return hlo.reshape(move_dim(x, 1, 2), self.shape)


@op("aten::pixel_shuffle", **channels_last_kept("aten::pixel_shuffle"))
def pixel_shuffle(self, upscale_factor):
    r = upscale_factor
    *lead, channels, height, width = self.shape
    k = len(lead)
    x = hlo.reshape(self, (*lead, channels // (r * r), r, r, height, width))
    x = hlo.transpose(x, [*range(k), k, k + 3, k + 1, k + 4, k + 2])
    return hlo.reshape(x, (*lead, channels // (r * r), height * r, width * r))


@op("aten::pixel_unshuffle", **channels_last_kept("aten::pixel_unshuffle"))
def pixel_unshuffle(self, downscale_factor):
    r = downscale_factor
    *lead, channels, height, width = self.shape
    k = len(lead)
    x = hlo.reshape(self, (*lead, channels, height // r, r, width // r, r))
    x = hlo.transpose(x, [*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return hlo.reshape(x, (*lead, channels * r * r, height // r, width // r))


# ---- sliding windows --------------------------------------------------------------------------


def windows(x: Value, dim: int, size: int, stride: int, dilation: int, count: int) -> Value:
    """Replace ``dim`` by (size, count): element (k, n) is ``x[n * stride + k * dilation]``."""
    if stride == size and dilation == 1:
        tiled = hlo.slice_dim(x, dim, 0, count * size)
        shape = (*x.shape[:dim], count, size, *x.shape[dim + 1 :])
        return move_dim(hlo.reshape(tiled, shape), dim + 1, dim)
    parts = []
    for k in range(size):
        start = k * dilation
        part = hlo.slice_dim(x, dim, start, start + (count - 1) * stride + 1, stride)
        parts.append(hlo.unsqueeze(part, dim))
    return hlo.concatenate(parts, dim)


def overlap_add(x: Value, dim: int, stride: int, dilation: int, length: int) -> Value:
    """The transpose of `windows`: (size, count) at ``dim`` are summed into ``length`` elements."""
    size, count = x.shape[dim], x.shape[dim + 1]
    lead, trail = x.shape[:dim], x.shape[dim + 2 :]
    zero = hlo.constant(0, x.dtype)
    if dilation == 1:
        # Each run of ``stride`` offsets covers consecutive elements: one shifted add per run.
        runs = -(-size // stride)
        x = _pad_dim(x, dim, zero, 0, runs * stride - size)
        x = move_dim(x, dim, dim + 1)
        parts = [hlo.slice_dim(x, dim + 1, r * stride, (r + 1) * stride) for r in range(runs)]
        parts = [hlo.reshape(p, (*lead, count * stride, *trail)) for p in parts]
        starts, gap = [r * stride for r in range(runs)], 0
    else:
        parts = [hlo.squeeze(hlo.slice_dim(x, dim, k, k + 1), dim) for k in range(size)]
        starts, gap = [k * dilation for k in range(size)], stride - 1
    total = None
    for part, start in zip(parts, starts, strict=True):
        covered = part.shape[dim] + max(0, part.shape[dim] - 1) * gap
        part = _pad_dim(part, dim, zero, start, length - start - covered, gap)
        total = part if total is None else total + part
    return total


def _pad_dim(x: Value, dim: int, value: Value, low: int, high: int, gap: int = 0) -> Value:
    before, after, between = [0] * x.ndim, [0] * x.ndim, [0] * x.ndim
    before[dim], after[dim], between[dim] = low, high, gap
    return hlo.pad(x, value, before, after, between)


@op("aten::unfold_backward")
def unfold_backward(grad_in, input_sizes, dim, size, step):
    if not input_sizes:
        return hlo.reduce(grad_in, "add", range(grad_in.ndim))
    dim = wrap(dim, len(input_sizes))
    if 0 in grad_in.shape:
        return hlo.constant(0, grad_in.dtype, input_sizes)
    x = move_dim(grad_in, grad_in.ndim - 1, dim).to(promote.compute_dtype(grad_in.dtype))
    return overlap_add(x, dim, step, 1, input_sizes[dim]).to(grad_in.dtype)


def _counts(sizes, kernel_size, dilation, padding, stride) -> list[int]:
    """How many windows fit along each spatial dim."""
    return [
        (sizes[i] + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]


@op("aten::im2col")
def im2col(self, kernel_size, dilation, padding, stride):
    batch = self.shape[:-3]
    channels, *sizes = self.shape[-3:]
    counts = _counts(sizes, kernel_size, dilation, padding, stride)
    around = [0] * (self.ndim - 2) + list(padding)
    x = hlo.pad(self, hlo.constant(0, self.dtype), around, around)
    row = self.ndim - 2
    x = windows(x, row, kernel_size[0], stride[0], dilation[0], counts[0])
    x = windows(x, row + 2, kernel_size[1], stride[1], dilation[1], counts[1])
    x = move_dim(x, row + 2, row + 1)
    rows = channels * kernel_size[0] * kernel_size[1]
    return hlo.reshape(x, (*batch, rows, counts[0] * counts[1]))


@op("aten::col2im")
def col2im(self, output_size, kernel_size, dilation, padding, stride):
    result = expected()[0]
    batch = self.shape[:-2]
    counts = _counts(output_size, kernel_size, dilation, padding, stride)
    channels = self.shape[-2] // (kernel_size[0] * kernel_size[1])
    x = self.to(promote.compute_dtype(self.dtype))
    x = hlo.reshape(x, (*batch, channels, *kernel_size, *counts))
    row = len(batch) + 1
    x = move_dim(x, row + 1, row + 2)
    padded = [output_size[i] + 2 * padding[i] for i in range(2)]
    x = overlap_add(x, row + 2, stride[1], dilation[1], padded[1])
    x = overlap_add(x, row, stride[0], dilation[0], padded[0])
    for i, dim in enumerate((row, row + 1)):
        x = hlo.slice_dim(x, dim, padding[i], padding[i] + output_size[i])
    return hlo.reshape(x.to(result.dtype), result.shape)
