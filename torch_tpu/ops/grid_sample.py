"""Sampling at given coordinates: `grid_sampler_2d` and `grid_sampler_3d` with backward.

Per spatial dim a coordinate becomes a few taps, each a position with a weight and the weight's
derivative; samples are sums over the product of the dims' taps. Values are gathered, and gradients
scattered, as rows of all channels. Everything runs in float32 or float64 and is rounded once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import same_dtype, widened

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


@dataclasses.dataclass
class Tap:
    """One input position (a whole number in floating point) per sample along one dim."""

    position: Value
    weight: Value
    slope: Value


def _clip(x, size):
    """Clip to the plane; the slope is 0 on the border itself, as in ATen. NaN becomes 0."""
    last = hlo.full_like(x, size - 1)
    zero = hlo.zeros_like(x)
    inside = hlo.binary("and", hlo.compare(x, zero, "GT"), hlo.compare(x, last, "LT"))
    clipped = hlo.minimum(hlo.select(hlo.compare(x, zero, "GT"), x, zero), last)
    return clipped, hlo.select(inside, hlo.full_like(x, 1), zero)


def _reflect(x, size, align):
    """Fold at the centers (``align``) or the outer edges of the border elements."""
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span == 0:
        return hlo.zeros_like(x), hlo.zeros_like(x)
    one = hlo.full_like(x, 1)
    distance = x - low
    sign = hlo.select(distance < 0, hlo.neg(one), one)
    distance = hlo.abs(distance)
    rest = hlo.binary("remainder", distance, hlo.full_like(x, span))
    flips = hlo.floor(distance / span)
    even = flips - hlo.floor(flips / 2) * 2 == 0
    folded = hlo.select(even, rest + low, hlo.full_like(x, span) - rest + low)
    return folded, hlo.select(even, sign, hlo.neg(sign))


def _pad(x, size, padding, align):
    """Apply the padding mode to a position: (new position, slope)."""
    if padding == _ZEROS:
        return x, hlo.full_like(x, 1)
    slope = hlo.full_like(x, 1)
    if padding == _REFLECTION:
        x, slope = _reflect(x, size, align)
    x, inside = _clip(x, size)
    return x, hlo.binary("multiply", slope, inside)


def _taps(coordinate, size, mode, padding, align):
    factor = (size - 1) / 2 if align else size / 2
    x = (coordinate + 1) * factor
    x = x if align else x - 0.5
    if mode == _BICUBIC:
        return _cubic_taps(x, factor, size, padding, align)
    x, slope = _pad(x, size, padding, align)
    slope = slope * factor
    if mode == _NEAREST:
        one = hlo.full_like(x, 1)
        return [Tap(hlo.unary("round_nearest_even", x), one, hlo.zeros_like(x))]
    first = hlo.floor(x)
    part = x - first
    return [Tap(first, 1 - part, hlo.neg(slope)), Tap(first + 1, part, slope)]


def _cubic_taps(x, factor, size, padding, align):
    # Here the padding mode applies to each tap; its slope does not enter the gradient.
    a = -0.75
    first = hlo.floor(x)
    part = x - first

    def far(u):
        return ((u * a - 5 * a) * u + 8 * a) * u - 4 * a, (u * (3 * a) - 10 * a) * u + 8 * a

    def near(u):
        return (u * (a + 2) - (a + 3)) * u * u + 1, (u * (3 * (a + 2)) - 2 * (a + 3)) * u

    taps = []
    for i, (kernel, distance) in enumerate(
        [(far, part + 1), (near, part), (near, 1 - part), (far, 2 - part)]
    ):
        weight, slope = kernel(distance)
        position, _ = _pad(first + (i - 1), size, padding, align)
        taps.append(Tap(position, weight, slope * (factor if i < 2 else -factor)))
    return taps


class _Sampler:
    """The taps of one call, over ``points`` = all output positions of one image."""

    def __init__(self, x, grid, mode, padding, align):
        spatial = x.ndim - 2
        self.sizes, self.batch, self.channels = x.shape[2:], x.shape[0], x.shape[1]
        self.out = grid.shape[1:-1]
        self.points = math.prod(self.out)
        self.places = math.prod(self.sizes)
        self.index_dtype = torch.int32 if self.batch * self.places < 2**31 else torch.int64
        grid = hlo.reshape(grid, (self.batch, self.points, spatial))
        self.taps = []
        for i, size in enumerate(self.sizes):
            column = spatial - 1 - i  # the grid's last dim is (x, y, z)
            coordinate = hlo.squeeze(hlo.slice_dim(grid, 2, column, column + 1), 2)
            self.taps.append(_taps(coordinate, size, mode, padding, align))

    def rows(self, x):
        """(N, C, *) as rows of channels (N * places, C)."""
        return hlo.reshape(_channels_last(x), (self.batch * self.places, self.channels))

    def corners(self):
        """Every combination of taps: (taps, row index (N, points), mask of those inside)."""
        for taps in itertools.product(*self.taps):
            inside = index = None
            for tap, size in zip(taps, self.sizes, strict=True):
                real = hlo.binary("and", tap.position >= 0, tap.position <= size - 1)
                inside = real if inside is None else hlo.binary("and", inside, real)
                at = hlo.select(real, tap.position, hlo.zeros_like(tap.position))
                at = hlo.convert(at, self.index_dtype)
                index = at if index is None else index * size + at
            index = index + hlo.iota(index.shape, 0, self.index_dtype) * self.places
            yield taps, index, inside

    def per_channel(self, x):
        """(N, points) repeated for the channels."""
        return hlo.broadcast_in_dim(x, (self.batch, self.points, self.channels), [0, 1])

    def values(self, rows, index, inside):
        value = hlo.take(rows, index, 0)
        return hlo.select(self.per_channel(inside), value, hlo.zeros_like(value))


def _channels_last(x):
    return hlo.transpose(x, [0, *range(2, x.ndim), 1])


def _channels_first(x, batch, channels, sizes):
    x = hlo.reshape(x, (batch, *sizes, channels))
    return hlo.transpose(x, [0, x.ndim - 1, *range(1, x.ndim - 1)])


def _product(factors):
    total = factors[0]
    for factor in factors[1:]:
        total = hlo.binary("multiply", total, factor)
    return total


@op("aten::grid_sampler_2d", "aten::grid_sampler_3d", check=same_dtype("input", "grid"))
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    sampler = _Sampler(
        widened(input), widened(grid), interpolation_mode, padding_mode, align_corners
    )
    rows = sampler.rows(widened(input))
    total = None
    for taps, index, inside in sampler.corners():
        weight = sampler.per_channel(_product([tap.weight for tap in taps]))
        term = hlo.binary("multiply", sampler.values(rows, index, inside), weight)
        total = term if total is None else hlo.binary("add", total, term)
    result = _channels_first(total, sampler.batch, sampler.channels, sampler.out)
    return hlo.convert(result, expected()[0].dtype)


@op(
    "aten::grid_sampler_2d_backward",
    "aten::grid_sampler_3d_backward",
    check=same_dtype("input", "grid", "grad_output"),
)
def grid_sampler_backward(
    grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    sampler = _Sampler(
        widened(input), widened(grid), interpolation_mode, padding_mode, align_corners
    )
    rows = sampler.rows(widened(input))
    shape = (sampler.batch, sampler.points, sampler.channels)
    grad = hlo.reshape(_channels_last(widened(grad_output)), shape)
    to_input = hlo.zeros_like(rows)
    to_grid = [None] * len(sampler.sizes)
    for taps, index, inside in sampler.corners():
        weight = _product([tap.weight for tap in taps])
        if output_mask[0]:
            to_input = _scatter_rows(to_input, index, inside, grad, sampler.per_channel(weight))
        value = sampler.values(rows, index, inside)
        along = hlo.reduce(hlo.binary("multiply", grad, value), "add", [2])
        for i in range(len(taps)):
            factors = [tap.slope if i == j else tap.weight for j, tap in enumerate(taps)]
            term = _product([along, *factors])
            to_grid[i] = term if to_grid[i] is None else hlo.binary("add", to_grid[i], term)
    columns = [hlo.unsqueeze(column, 2) for column in reversed(to_grid)]
    to_grid = hlo.reshape(hlo.concatenate(columns, 2), grid.shape)
    image = _channels_first(to_input, sampler.batch, sampler.channels, sampler.sizes)
    return [
        hlo.convert(image, input.dtype) if output_mask[0] else None,
        hlo.convert(to_grid, grid.dtype),
    ]


def _scatter_rows(rows, index, inside, grad, weight):
    """Add ``grad * weight`` to the indexed rows; samples outside go nowhere."""
    index = hlo.select(inside, index, hlo.full_like(index, -1))
    return hlo.scatter(
        rows,
        hlo.reshape(index, (index.numel, 1)),
        hlo.reshape(hlo.binary("multiply", grad, weight), (index.numel, grad.shape[2])),
        "add",
        window_dims=[1],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )
