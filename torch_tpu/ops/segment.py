"""Reductions of consecutive runs of rows (`segment_reduce`) and their gradient.

Every row learns the number of its segment, after which everything is a scatter by segment. Batch
dims (all but the last of ``lengths`` or ``offsets``) are folded into the rows: segment numbers of
batch b start at b * segments, and rows of no segment get a number out of range.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import same_dtype
from .scatter import count_indices, scatter_slices

_INT = torch.int32
_WORDS = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1, "max": -math.inf, "min": math.inf}


@dataclasses.dataclass
class _Segments:
    """``rows`` of shape (batches * rows, elements), and where each belongs."""

    rows: Value
    segment: Value  # of each row
    sizes: Value  # of each segment
    shape: tuple[int, ...]  # of the reduced result

    def full(self, value) -> Value:
        """``value``, a number or a 0-d value, for every element of every segment."""
        shape = (self.sizes.shape[0], self.rows.shape[1])
        if isinstance(value, Value):
            return hlo.expand(hlo.convert(value, self.rows.dtype), shape)
        return hlo.constant(value, self.rows.dtype, shape)

    def scatter(self, start: Value, rows: Value, word: str) -> Value:
        return scatter_slices(start, 0, self.segment, rows, word)

    def gather(self, x: Value) -> Value:
        """The value of its segment for every row; anything for rows of no segment."""
        last = hlo.full_like(self.segment, max(self.sizes.shape[0] - 1, 0))
        return hlo.take(x, hlo.minimum(self.segment, last), 0)

    def sizes_like(self, x: Value) -> Value:
        return hlo.broadcast_in_dim(hlo.convert(self.sizes, x.dtype), x.shape, [0])


def _segments(data: Value, lengths: Value | None, offsets: Value | None) -> _Segments:
    bounds = lengths if offsets is None else offsets
    axis = bounds.ndim - 1
    batch, count = math.prod(data.shape[:axis]), data.shape[axis]
    inner = math.prod(data.shape[axis + 1 :])
    bounds = hlo.convert(hlo.reshape(bounds, (batch, bounds.shape[-1])), _INT)
    if offsets is None:
        ends = hlo.cumulative(bounds, "add", 1)
        starts = hlo.binary("subtract", ends, bounds)
    else:
        starts = hlo.slice_dim(bounds, 1, 0, bounds.shape[1] - 1)
        ends = hlo.slice_dim(bounds, 1, 1, bounds.shape[1])
    segments = ends.shape[1]
    return _Segments(
        hlo.reshape(data, (batch * count, inner)),
        _numbers(starts, ends, count),
        hlo.reshape(hlo.binary("subtract", ends, starts), (batch * segments,)),
        (*data.shape[:axis], segments, *data.shape[axis + 1 :]),
    )


def _numbers(starts: Value, ends: Value, count: int) -> Value:
    """The segment of each of ``count`` rows of each batch, as one vector."""
    batch, segments = ends.shape
    if not segments or not count:
        return hlo.constant(batch * segments, _INT, (batch * count,))
    shape = (batch, count + 1)
    limit = hlo.full_like(ends, count)
    place = hlo.clamp(hlo.zeros_like(ends), ends, limit)
    place = place + hlo.iota(ends.shape, 0, _INT) * (count + 1)
    ended = count_indices(hlo.flatten(place), batch * (count + 1), _INT)
    number = hlo.cumulative(hlo.reshape(ended, shape), "add", 1)
    first = hlo.expand(hlo.slice_dim(starts, 1, 0, 1), shape)
    inside = (number < segments) & (hlo.iota(shape, 1, _INT) >= first)
    number = number + hlo.iota(shape, 0, _INT) * segments
    number = hlo.select(inside, number, hlo.full_like(number, batch * segments))
    return hlo.flatten(hlo.slice_dim(number, 1, 0, count))


def _check_segments(data, lengths=None, offsets=None, axis=0, **gradient) -> None:
    name, bounds = ("offsets", offsets) if lengths is None else ("lengths", lengths)
    if bounds is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if bounds.dtype not in (torch.int32, torch.int64):
        raise NotImplementedError(
            f"segment_reduce(): {name} must be int32 or int64, got {bounds.dtype}"
        )
    last = axis + data.ndim if axis < 0 else axis
    if last != bounds.ndim - 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}."
        )
    if bounds.shape[:-1] != data.shape[:last]:
        raise RuntimeError(
            f"segment_reduce(): {name} of shape {list(bounds.shape)} do not have the dims before "
            f"axis {axis} of data of shape {list(data.shape)}"
        )
    same_dtype("data", "grad", "output")(data=data, **gradient)


@op("aten::segment_reduce", check=_check_segments)
def segment_reduce(
    data, reduce, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None
):
    if not expected()[0].shape or not math.prod(expected()[0].shape):
        return hlo.constant(0, data.dtype, expected()[0].shape)
    parts = _segments(data, lengths, offsets)
    start = parts.full(_NEUTRAL[reduce] if initial is None else initial)
    result = parts.scatter(start, parts.rows, _WORDS[reduce])
    if reduce == "mean":
        sizes = parts.sizes_like(result)
        empty = hlo.full_like(result, math.nan) if initial is None else result
        result = hlo.select(sizes > 0, hlo.binary("divide", result, sizes), empty)
    return hlo.reshape(result, parts.shape)


def _extremum_gradient(parts: _Segments, grad: Value, output: Value) -> Value:
    """PyTorch shares a positive gradient among equal elements, and gives each a negative one."""
    rows = parts.rows
    hit = hlo.is_nan(rows) | (rows == parts.gather(output))
    ones = hlo.convert(hit, rows.dtype)
    ties = parts.scatter(parts.full(0), ones, "add")
    shared = hlo.binary("divide", grad, hlo.maximum(ties, hlo.full_like(ties, 1)))
    grad = hlo.select(grad > 0, shared, grad)
    return hlo.select(hit, parts.gather(grad), hlo.zeros_like(rows))


def _product_gradient(parts: _Segments, grad: Value, output: Value, initial) -> Value:
    """grad * output / element; the product of the others where the element is 0 or NaN."""
    rows = parts.rows
    zero, nan = rows == 0, hlo.is_nan(rows)
    others = hlo.select(zero | nan, hlo.full_like(rows, 1), rows)
    product = parts.scatter(parts.full(1 if initial is None else initial), others, "multiply")

    def left(mask):
        """How many of the other elements of the segment are in ``mask``."""
        number = hlo.convert(mask, rows.dtype)
        return hlo.binary(
            "subtract", parts.gather(parts.scatter(parts.full(0), number, "add")), number
        )

    product = parts.gather(product)
    product = hlo.select(left(zero) > 0, hlo.zeros_like(rows), product)
    product = hlo.select(left(nan) > 0, hlo.full_like(rows, math.nan), product)
    direct = hlo.binary("divide", parts.gather(hlo.binary("multiply", grad, output)), rows)
    return hlo.select(zero | nan, hlo.binary("multiply", parts.gather(grad), product), direct)


@op("aten::_segment_reduce_backward", check=_check_segments)
def _segment_reduce_backward(
    grad, output, data, reduce, lengths=None, offsets=None, axis=0, initial=None
):
    if not data.numel or not output.numel:
        return hlo.zeros_like(data)
    parts = _segments(data, lengths, offsets)
    shape = (parts.sizes.shape[0], parts.rows.shape[1])
    grad, output = hlo.reshape(grad, shape), hlo.reshape(output, shape)
    if reduce in ("max", "min"):
        result = _extremum_gradient(parts, grad, output)
    elif reduce == "prod":
        result = _product_gradient(parts, grad, output, initial)
    else:
        if reduce == "mean":
            grad = hlo.binary("divide", grad, parts.sizes_like(grad))
        result = parts.gather(grad)
    inside = parts.segment < shape[0]
    inside = hlo.broadcast_in_dim(inside, result.shape, [0])
    return hlo.reshape(hlo.select(inside, result, hlo.zeros_like(result)), data.shape)
