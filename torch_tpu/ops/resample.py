"""Resizing: nearest, linear, cubic and their antialiased forms in 1, 2 and 3 dims, with backward.

Every mode is one sparse matrix per spatial dim, found while tracing: a row per output position
with the (input position, weight) pairs it takes. `_apply` multiplies a dim by such a matrix with
gathers, so the cost follows the entries, not size times size; backward applies the transposes.
Positions and weights are rounded step by step as ATen's compiled kernels do (float32 with fused
multiply-add, float64 for doubles): nearest sampling depends on the last bit. uint8 images follow
ATen's fixed-point form. Sampling at given coordinates is in `grid_sample.py`.
"""

from __future__ import annotations

import math
import struct

import torch

from ..lowering import hlo
from ..lowering.registry import expected, op, overload
from .common import widened

# More taps than this for one output are gathered at once, then reduced.
_UNROLL = 16

Row = list[tuple[int, float]]


# ---- the matrices --------------------------------------------------------------------------


def _rounder(dtype):
    """Round a Python float as ATen's arithmetic for ``dtype`` would."""
    if dtype is torch.float64:
        return float
    return lambda value: struct.unpack("f", struct.pack("f", value))[0]


def _scale(size, out, scale, align, fit):
    """Input positions per output position."""
    if align:
        return fit((size - 1) / (out - 1)) if out > 1 else 0.0
    return fit(1.0 / scale) if scale is not None and scale > 0 else fit(size / out)


def _nearest(size, out, scale, align, fit, half=0.0) -> list[Row]:
    step = _scale(size, out, scale, False, fit)
    return [[(min(math.floor(fit((i + half) * step)), size - 1), 1.0)] for i in range(out)]


def _nearest_exact(size, out, scale, align, fit) -> list[Row]:
    return _nearest(size, out, scale, align, fit, 0.5)


def _source(step, i, align, fit):
    return fit(step * i) if align else fit(step * (i + 0.5) - 0.5)


def _linear(size, out, scale, align, fit) -> list[Row]:
    if size == out:
        return [[(i, 1.0)] for i in range(out)]
    step = _scale(size, out, scale, align, fit)
    rows = []
    for i in range(out):
        at = max(_source(step, i, align, fit), 0.0)
        first = min(int(at), size - 1)
        weight = min(max(fit(at - first), 0.0), 1.0)
        rows.append([(first, fit(1.0 - weight)), (min(first + 1, size - 1), weight)])
    return rows


def _cubic_near(x, a, fit):
    """Keys' cubic kernel for distances up to 1."""
    return fit(fit(fit(fit(a + 2.0) * x - fit(a + 3.0)) * x) * x + 1.0)


def _cubic_far(x, a, fit):
    """Keys' cubic kernel for distances from 1 to 2."""
    return fit(fit(fit(a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a)


def _cubic(size, out, scale, align, fit) -> list[Row]:
    step = _scale(size, out, scale, align, fit)
    rows = []
    for i in range(out):
        at = _source(step, i, align, fit)
        first = min(math.floor(at), size - 1)
        part = min(max(fit(at - first), 0.0), 1.0)
        rest = fit(1.0 - part)
        weights = [
            _cubic_far(fit(part + 1.0), -0.75, fit),
            _cubic_near(part, -0.75, fit),
            _cubic_near(rest, -0.75, fit),
            _cubic_far(fit(rest + 1.0), -0.75, fit),
        ]
        positions = [min(max(first + tap, 0), size - 1) for tap in range(-1, 3)]
        rows.append(list(zip(positions, weights, strict=True)))
    return rows


def _antialiased(weight, width):
    """Matrix maker of a filter that widens with the reduction; ``width`` is its unscaled width."""

    def rows_of(size, out, scale, align, fit) -> list[Row]:
        step = _scale(size, out, scale, align, fit)
        support = fit(width / 2 * max(step, 1.0))
        inverse = fit(1.0 / max(step, 1.0))
        rows = []
        for i in range(out):
            center = fit(step * (i + 0.5))
            first = max(int(fit(fit(center - support) + 0.5)), 0)
            last = min(int(fit(fit(center + support) + 0.5)), size)
            taps, total = [], 0.0
            for j in range(first, last):
                taps.append(weight(fit(fit(fit(j - center) + 0.5) * inverse), fit))
                total = fit(total + taps[-1])
            rows.append([(first + j, fit(tap / total)) for j, tap in enumerate(taps)])
        return rows

    return rows_of


def _linear_filter(x, fit):
    return max(0.0, fit(1.0 - abs(x)))


def _cubic_filter(x, fit):
    x, a = abs(x), -0.5
    if x < 1.0:
        return _cubic_near(x, a, fit)
    return fit(fit(fit(fit(x - 5.0) * x + 8.0) * x - 4.0) * a) if x < 2.0 else 0.0


def _lanczos_filter(x, fit):
    if x == 0.0:
        return 1.0
    if not -3.0 <= x < 3.0:
        return 0.0
    angle = math.pi * x
    return fit(3.0 * math.sin(angle) * math.sin(angle / 3.0) / (angle * angle))


def _transposed(rows: list[Row], size) -> list[Row]:
    result: list[Row] = [[] for _ in range(size)]
    for i, row in enumerate(rows):
        for position, weight in row:
            result[position].append((i, weight))
    return result


# ---- applying them -------------------------------------------------------------------------


def _apply(x, dim, rows: list[Row]):
    """Multiply dim ``dim`` of ``x`` by the matrix ``rows``."""
    longest = max(map(len, rows))
    if longest > _UNROLL:
        return _apply_gathered(x, dim, rows, longest)
    total = None
    for j in range(longest):
        real = [len(row) > j for row in rows]
        taps = [row[j] if len(row) > j else (0, 0.0) for row in rows]
        part = _pick(x, dim, [position for position, _ in taps])
        weights = [weight for _, weight in taps]
        if any(weight != 1.0 for weight in weights):
            part = hlo.binary("multiply", part, _along(weights, x.dtype, part.shape, dim))
        if not all(real):
            # Missing taps must not turn an infinity elsewhere into NaN.
            mask = _along(real, torch.bool, part.shape, dim)
            part = hlo.select(mask, part, hlo.zeros_like(part))
        total = part if total is None else hlo.binary("add", total, part)
    return total


def _along(values, dtype, shape, dim):
    return hlo.broadcast_in_dim(hlo.array(values, dtype), shape, [dim])


def _apply_gathered(x, dim, rows, longest):
    flat = [tap for row in rows for tap in row + [(0, 0.0)] * (longest - len(row))]
    shape = (len(rows), longest)
    part = hlo.take(x, hlo.array([tap[0] for tap in flat], torch.int32, shape), dim)
    weight = hlo.array([tap[1] for tap in flat], x.dtype, shape)
    part = hlo.binary("multiply", part, hlo.broadcast_in_dim(weight, part.shape, [dim, dim + 1]))
    if any(len(row) < longest for row in rows):
        real = [j < len(row) for row in rows for j in range(longest)]
        mask = hlo.array(real, torch.bool, shape)
        mask = hlo.broadcast_in_dim(mask, part.shape, [dim, dim + 1])
        part = hlo.select(mask, part, hlo.zeros_like(part))
    return hlo.reduce(part, "add", [dim + 1])


def _pick(x, dim, positions):
    """Rows ``positions`` of dim ``dim``; repeats and even steps need no gather."""
    size, out = x.shape[dim], len(positions)
    if out % size == 0 and positions == [i // (out // size) for i in range(out)]:
        shape = (*x.shape[: dim + 1], out // size, *x.shape[dim + 1 :])
        x = hlo.broadcast_in_dim(x, shape, [i + (i > dim) for i in range(x.ndim)])
        return hlo.reshape(x, (*shape[:dim], out, *shape[dim + 2 :]))
    step = positions[1] - positions[0] if out > 1 else 1
    if step > 0 and positions == list(range(positions[0], positions[-1] + 1, step)):
        return hlo.slice_dim(x, dim, positions[0], positions[-1] + 1, step)
    return hlo.take(x, hlo.array(positions, torch.int32), dim)


# ---- uint8 images --------------------------------------------------------------------------


def _fixed_point(rows: list[Row]) -> tuple[list[Row], int]:
    """Weights as 16-bit integers with the most fractional bits that fit, and that number."""
    merged = []
    for row in rows:  # taps clamped to one position at a border become one before rounding
        taps: dict[int, float] = {}
        for at, weight in row:
            taps[at] = taps.get(at, 0.0) + weight
        merged.append(taps)
    largest = max(max(taps.values()) for taps in merged)
    bits = 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1

    def integer(weight):
        return int(weight * (1 << bits) + (0.5 if weight >= 0 else -0.5))

    return [[(at, integer(weight)) for at, weight in taps.items()] for taps in merged], bits


def _apply_bytes(x, dim, rows):
    """`_apply` to uint8 values held in int32, as ATen does it: rounded and clamped per dim."""
    rows, bits = _fixed_point(rows)
    total = _apply(x, dim, rows) + (1 << (bits - 1))
    total = hlo.binary("shift_right_arithmetic", total, hlo.full_like(total, bits))
    low, high = hlo.constant(0, torch.int32), hlo.constant(255, torch.int32)
    return hlo.clamp(low, total, high)


# ---- rules ---------------------------------------------------------------------------------


def _matrices(maker, sizes, outs, align, scales, dtype):
    picks = maker in (_nearest, _nearest_exact)
    # The fixed-point weights of bytes come from doubles.
    fit = _rounder(torch.float64 if dtype is torch.uint8 and not picks else dtype)
    numbers = zip(sizes, outs, scales, strict=True)
    return [maker(size, out, scale, align, fit) for size, out, scale in numbers]


def _scales(options):
    """The scale arguments, in the order of the dims; all other options are of no interest here."""
    return [value for name, value in options.items() if name.startswith("scales")]


def _check_elements(self, **_) -> None:
    """Only the batch may be empty."""
    if 0 in self.shape[1:]:
        raise RuntimeError(
            f"Non-empty {self.ndim}D data tensor expected but got a tensor with sizes "
            f"{list(self.shape)}"
        )


def _nearest_meta(name):
    """PyTorch's meta kernels of nearest sampling stumble over inputs without elements."""

    def meta(self, output_size, **options):
        function = overload(name)
        if self.numel():
            return [function(self, output_size, **options)]
        probe = function(self.new_empty((1, *self.shape[1:])), output_size, **options)
        return [probe[:0]]

    return meta


def _register(name, maker, spatial):
    picks = maker in (_nearest, _nearest_exact)

    @op(name, meta=_nearest_meta(name) if picks else None, check=_check_elements)
    def resample(self, output_size, align_corners=False, **options):
        outs = expected()[0].shape[-spatial:]
        sizes = self.shape[-spatial:]
        dims = range(self.ndim - spatial, self.ndim)
        rows = _matrices(maker, sizes, outs, align_corners, _scales(options), self.dtype)
        if picks:
            x, step = self, _apply
        elif self.dtype is torch.uint8:
            x, step = hlo.convert(self, torch.int32), _apply_bytes
        else:
            x, step = widened(self), _apply
        # The last dim first, as ATen's separable kernels do.
        for dim, matrix in reversed(list(zip(dims, rows, strict=True))):
            x = step(x, dim, matrix)
        return hlo.convert(x, self.dtype)

    @op(name + "_backward")
    def resample_backward(grad_output, output_size, input_size, align_corners=False, **options):
        sizes, outs = expected()[0].shape[-spatial:], grad_output.shape[-spatial:]
        dtype = grad_output.dtype
        rows = _matrices(maker, sizes, outs, align_corners, _scales(options), dtype)
        x = widened(grad_output)
        for i, (matrix, size) in enumerate(zip(rows, sizes, strict=True)):
            x = _apply(x, x.ndim - spatial + i, _transposed(matrix, size))
        return hlo.convert(x, dtype)


for _d in (1, 2, 3):
    _register(f"aten::upsample_nearest{_d}d", _nearest, _d)
    _register(f"aten::_upsample_nearest_exact{_d}d", _nearest_exact, _d)
    _register(f"aten::upsample_{('linear', 'bilinear', 'trilinear')[_d - 1]}{_d}d", _linear, _d)
_register("aten::upsample_bicubic2d", _cubic, 2)
_register("aten::_upsample_bilinear2d_aa", _antialiased(_linear_filter, 2), 2)
_register("aten::_upsample_bicubic2d_aa", _antialiased(_cubic_filter, 4), 2)
_register("aten::_upsample_lanczos2d_aa", _antialiased(_lanczos_filter, 6), 2)
