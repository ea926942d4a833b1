"""Operators that place elements by position, along dims whose sizes calls decide.

Lookups by index, and what cuts, joins or shifts along a dim, with run-time positions. The others,
and the table of all, are in `padded_rules.py`.
"""

from __future__ import annotations

import sympy
import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from .padded import Call, Dims, Extent, is_dynamic, resized
from .padded_rules import axes_of, axis_of, handles, resolved

# ---- lookups -------------------------------------------------------------------------------------


@handles("embedding", "index_select")
def _lookup(call: Call):
    table = "weight" if call.rule.name == "aten::embedding" else "self"
    if table == "weight":
        call.require(not is_dynamic(call.dims(table)[1:]))
    return call.emit()


@handles("embedding_dense_backward")
def _lookup_gradient(call: Call):
    call.require(not call.named["scale_grad_by_freq"])
    rank = len(call.dims("indices"))
    call.require(call.dims("grad_output")[:rank] == call.dims("indices"))
    call.masked("grad_output", range(rank), 0)
    call.masked("indices", range(rank), 0)
    return call.emit()


def _indices(call: Call) -> tuple[list, Dims]:
    """Index tensors that count from the start, and the dims they have together."""
    found, together = [], []
    for d, given in enumerate(call.given["indices"]):
        if given is None:
            found.append(None)
            continue
        index = call.named["indices"][d]
        call.require(index.is_integral and index.dtype is not torch.uint8)
        size = hlo.expand(call.extent(call.dims("self")[d]), index.shape)
        index = hlo.convert(index, torch.int64)
        found.append(hlo.select(index < 0, index + size, index))
        together.append(call.dims_of(given))
    widest = max(together, key=len)
    for dims in together:
        pairs = zip(reversed(dims), reversed(widest), strict=False)
        call.require(all(a in (b, 1) for a, b in pairs), "with indices of several sizes")
    return found, widest


@handles("index.Tensor")
def _index(call: Call):
    return call.emit(indices=_indices(call)[0])


@handles("index_put")
def _index_put(call: Call):
    """Gradients of lookups: what is added beyond the extents is 0."""
    call.require(call.named["accumulate"] and call.given["indices"][0] is not None)
    call.require(all(i is not None for i in call.given["indices"]))
    indices, dims = _indices(call)
    values = call.dims("values")
    call.require(values[: len(dims)] == dims)
    call.require(not is_dynamic(call.dims("self")[len(indices) :]))
    given = call.given["indices"]
    indices = [
        call.mask(i, call.dims_of(n), range(i.ndim), 0) for i, n in zip(indices, given, strict=True)
    ]
    call.masked("values", range(len(dims)), 0)
    return call.emit(indices=indices)


@handles("gather")
def _gather(call: Call):
    dims, index = call.dims("self"), call.dims("index")
    axis = axis_of(call.named["dim"], len(dims))
    others = [d for d in range(len(dims)) if d != axis]
    call.require(all(dims[d] == index[d] for d in others))
    return call.emit()


# ---- positions along a dim -----------------------------------------------------------------------


@handles("cat")
def _cat(call: Call):
    nodes, parts = call.given["tensors"], call.named["tensors"]
    kept = [(call.dims_of(n), x) for n, x in zip(nodes, parts, strict=True)]
    kept = [(d, x) for d, x in kept if d != (0,)]
    axis = axis_of(call.named.get("dim", 0), len(call.result))
    for dims, _ in kept:
        others = [d for d in range(len(dims)) if d != axis]
        call.require(all(dims[d] == call.result[d] for d in others))
    if not any(not dims[axis].is_Integer for dims, _ in kept):
        return call.emit()
    # In order, so that each part covers the garbage after the one before.
    room = list(call.meta.shape)
    room[axis] = sum(x.shape[axis] for _, x in kept)
    joined = resized(hlo.convert(kept[0][1], call.meta.dtype), axis, room[axis])
    zero, start = hlo.constant(0, torch.int64), kept[0][0][axis]
    for dims, x in kept[1:]:
        starts = [call.extent(start) if d == axis else zero for d in range(len(room))]
        joined = hlo.dynamic_update_slice(joined, hlo.convert(x, call.meta.dtype), starts)
        start += dims[axis]
    return resized(joined, axis, call.meta.shape[axis])


def _start(call: Call, start, size: sympy.Expr) -> Value:
    """The first index that a Python slice takes, counted from the end if negative."""
    extent, zero = call.extent(size), hlo.constant(0, torch.int64)
    start = hlo.convert(promote.as_value(resolved(call, start or 0), torch.int64), torch.int64)
    start = hlo.select(start < 0, start + extent, start)
    return hlo.clamp(zero, start, extent)


@handles("slice.Tensor")
def _slice(call: Call):
    x, dims = call.named["self"], call.dims("self")
    axis = axis_of(call.named.get("dim", 0), len(dims))
    given = [call.named.get(n) for n in ("start", "end", "step")]
    start, _, step = given
    if isinstance(start, Value):
        raise call.refuse("starts where data says")
    start = start or 0
    plain = not any(isinstance(g, Extent) for g in given)
    if dims[axis].is_Integer and call.result[axis].is_Integer and plain:
        return call.emit()
    call.require(isinstance(step, int))
    if call.result[axis] == dims[axis] and step == 1:
        return x
    length = call.meta.shape[axis]
    if step == 1 and isinstance(start, int) and start >= 0:
        first = min(start, x.shape[axis])
        last = min(first + length, x.shape[axis])
        return resized(hlo.slice_dim(x, axis, first, last), axis, length)
    index = hlo.iota((length,), 0) * step + _start(call, start, dims[axis])
    return call.take(x, index, axis)


@handles("select.int")
def _select(call: Call):
    x, dims = call.named["self"], call.dims("self")
    axis, index = axis_of(call.named["dim"], len(dims)), call.named["index"]
    if dims[axis].is_Integer:
        return call.emit()
    index = promote.as_value(resolved(call, index), torch.int64)
    index = hlo.select(index < 0, index + call.extent(dims[axis]), index)
    return hlo.squeeze(call.take(x, hlo.reshape(index, (1,)), axis), axis)


@handles("split.Tensor", "split_with_sizes")
def _split(call: Call):
    x, dims = call.named["self"], call.dims("self")
    axis = axis_of(call.named.get("dim", 0), len(dims))
    parts, start = [], sympy.Integer(0)
    for sizes, meta in zip(call.results, call.meta, strict=True):
        length = meta.shape[axis]
        if start.is_Integer:
            first = min(int(start), x.shape[axis])
            last = min(first + length, x.shape[axis])
            part = resized(hlo.slice_dim(x, axis, first, last), axis, length)
        else:
            part = call.take(x, hlo.iota((length,), 0) + call.extent(start), axis)
        parts.append(part)
        start += sizes[axis]
    return parts


def _placed(call: Call, x: Value, axis: int, start: Value, count: sympy.Expr, step: int, fill):
    """``x`` at start, start + step, … of an axis as long as the result's; ``fill`` elsewhere."""
    length = call.meta.shape[axis]
    at = hlo.iota((length,), 0) - hlo.expand(start, (length,))
    steps = hlo.full_like(at, step)
    index = hlo.binary("divide", at, steps)
    inside = (at >= 0) & (index < call.extent(count))
    inside = inside & (hlo.binary("remainder", at, steps) == 0)
    moved = call.take(x, index, axis) if x.shape[axis] else None
    shape = [*x.shape[:axis], length, *x.shape[axis + 1 :]]
    rest = hlo.expand(promote.as_value(fill, x.dtype), shape)
    if moved is None:
        return rest
    return hlo.select(hlo.broadcast_in_dim(inside, shape, [axis]), moved, rest)


@handles("slice_backward")
def _slice_gradient(call: Call):
    size = call.result
    axis = axis_of(call.named["dim"], len(size))
    start = _start(call, call.named["start"], size[axis])
    grad, step = call.named["grad_output"], call.named["step"]
    call.require(isinstance(step, int))
    return _placed(call, grad, axis, start, call.dims("grad_output")[axis], step, 0)


@handles("select_backward")
def _select_gradient(call: Call):
    size = call.result
    axis = axis_of(call.named["dim"], len(size))
    index = promote.as_value(resolved(call, call.named["index"]), torch.int64)
    index = hlo.select(index < 0, index + call.extent(size[axis]), index)
    grad = hlo.unsqueeze(call.named["grad_output"], axis)
    return _placed(call, grad, axis, index, sympy.Integer(1), 1, 0)


@handles("constant_pad_nd")
def _pad(call: Call):
    x, dims = call.named["self"], list(call.dims("self"))
    amounts, fill = call.named["pad"], resolved(call, call.named.get("value", 0))
    for i in range(len(amounts) // 2):
        axis = len(dims) - 1 - i
        low, high = (call.number(a) for a in amounts[2 * i : 2 * i + 2])
        if low == 0 and high == 0:
            continue
        x = _placed(call, x, axis, call.extent(low), dims[axis], 1, fill)
    return x


@handles("flip")
def _flip(call: Call):
    x, dims = call.named["self"], call.dims("self")
    for axis in axes_of(call, dim="dims") if call.named["dims"] else []:
        if dims[axis].is_Integer:
            x = hlo.reverse(x, [axis])
        else:
            last = call.extent(dims[axis] - 1)
            index = hlo.expand(last, (x.shape[axis],)) - hlo.iota((x.shape[axis],), 0)
            x = call.take(x, index, axis)
    return x


@handles("roll")
def _roll(call: Call):
    x, dims, axes = call.named["self"], call.dims("self"), call.named["dims"]
    call.require(len(axes) > 0 or len(dims) == 1)
    for shift, axis in zip(call.named["shifts"], axes or [0], strict=True):
        axis = axis_of(axis, len(dims))
        at = hlo.iota((x.shape[axis],), 0) - call.extent(call.number(shift))
        x = call.take(x, _modulo(call, at, dims[axis]), axis)
    return x


def _modulo(call: Call, index: Value, size: sympy.Expr) -> Value:
    """Python's ``index % size``; sizes of nothing count as 1."""
    count = hlo.maximum(call.extent(size), hlo.constant(1, torch.int64))
    rest = hlo.binary("remainder", index, hlo.expand(count, index.shape))
    return hlo.select(rest < 0, rest + count, rest)


@handles("repeat")
def _repeat(call: Call):
    x, result = call.named["self"], call.result
    dims = (sympy.Integer(1),) * (len(result) - len(call.dims("self"))) + call.dims("self")
    x = hlo.reshape(x, call.sizes.capacities(dims))
    for axis, (old, new) in enumerate(zip(dims, result, strict=True)):
        if old != new:
            index = hlo.iota((call.meta.shape[axis],), 0)
            x = call.take(x, _modulo(call, index, old), axis)
    return x
