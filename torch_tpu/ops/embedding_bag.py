"""Embedding bags: rows of a table summed, averaged or maximised per bag, and their gradients.

A bag is a run of ``indices`` that starts at its entry of ``offsets``; `bag_of` turns offsets into
the bag of every index, after which everything is a scatter by bag. ``padding_idx`` (if not
negative) takes no part. The gradients are dense; csrc/device/sparse.cc has the sparse ones.

PyTorch's auxiliary results (``offset2bag``, ``bag_size``, ``max_indices``) have lengths that depend
on the device and path, so each is fitted to what `registry.expected` asks for.
"""

from __future__ import annotations

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import checks, same_dtype
from .index import check_table
from .scatter import count_indices, scatter_elements, scatter_slices

SUM, MEAN, MAX = 0, 1, 2


_SAME_WEIGHTS = same_dtype("weight", "per_sample_weights")


def bag_of(offsets: Value, count: int) -> Value:
    """The bag of each of ``count`` indices: how many offsets are at or before it, minus one."""
    starts = count_indices(offsets, count, torch.int32)
    return hlo.cumulative(starts, "add", 0) - 1


def _columns(x: Value, like: Value) -> Value:
    """A vector repeated along the second dim of ``like``."""
    return hlo.broadcast_in_dim(x, like.shape, [0])


def _keep(indices: Value, padding_idx: int) -> Value | None:
    return (
        None if padding_idx < 0 else hlo.compare(indices, hlo.full_like(indices, padding_idx), "NE")
    )


def _keep_in_bags(indices: Value, padding_idx: int, bags: Value, count: int) -> Value:
    """`_keep`, without the indices after the last bag (``include_last_offset``)."""
    inside = bags < count
    keep = _keep(indices, padding_idx)
    return inside if keep is None else inside & keep


def _masked(rows: Value, keep: Value | None, fill) -> Value:
    if keep is None:
        return rows
    return hlo.select(_columns(keep, rows), rows, hlo.full_like(rows, fill))


def _fit(x: Value, wanted) -> Value:
    """``x`` cut or zero-filled to the expected vector."""
    x = x.to(wanted.dtype)
    extra = wanted.shape[0] - x.shape[0]
    return hlo.pad(x, hlo.constant(0, x.dtype), [0], [extra])


def _largest(rows, bags, indices, keep, size, count):
    """(maximum of every bag, the index each came from), zeros for empty bags."""
    rows = _masked(rows, keep, hlo.lowest(rows.dtype))
    shape = (count, rows.shape[1])
    best = scatter_slices(
        hlo.constant(hlo.lowest(rows.dtype), rows.dtype, shape), 0, bags, rows, "maximum"
    )
    number = indices.shape[0]
    positions = hlo.iota(rows.shape, 0, torch.int32)
    hit = rows == hlo.take(best, bags, 0)
    if keep is not None:
        hit = hit & _columns(keep, rows)
    positions = hlo.select(hit, positions, hlo.full_like(positions, number))
    first = hlo.constant(number, torch.int32, shape)
    first = scatter_slices(first, 0, bags, positions, "minimum")
    source = hlo.take(indices, first, 0)
    filled = _columns(size > 0, best)
    best = hlo.select(filled, best, hlo.zeros_like(best))
    return best, hlo.select(filled, source, hlo.zeros_like(source))


@op(
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    check=checks(lambda weight, indices, **_: check_table(weight, indices), _SAME_WEIGHTS),
)
def embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=SUM,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    output, bag_meta, size_meta, index_meta = expected()
    count = output.shape[0]
    if 0 in (count, indices.shape[0]):
        return [hlo.constant(0, m.dtype, m.shape) for m in expected()]
    # A last offset before the end of the indices leaves those after it in no bag: their bag is
    # ``count``, which scatters drop.
    bags = bag_of(hlo.slice_dim(offsets, 0, 0, count + int(include_last_offset)), indices.shape[0])
    keep = _keep(indices, padding_idx)
    rows = hlo.take(weight, indices, 0).to(promote.compute_dtype(weight.dtype))
    if per_sample_weights is not None:
        rows = rows * _columns(per_sample_weights.to(rows.dtype), rows)
    size = hlo.constant(0, torch.int32, (count,))
    if mode != SUM:
        ones = hlo.full_like(bags, 1) if keep is None else keep.to(torch.int32)
        size = scatter_slices(size, 0, bags, ones, "add")
    largest = size
    if mode == MAX:
        out, largest = _largest(rows, bags, indices, keep, size, count)
    else:
        table = hlo.constant(0, rows.dtype, (count, rows.shape[1]))
        out = scatter_slices(table, 0, bags, _masked(rows, keep, 0), "add")
    if mode == MEAN:
        divisor = hlo.maximum(size, hlo.full_like(size, 1)).to(out.dtype)
        out = out / _columns(divisor, out)
    largest = largest.to(index_meta.dtype) if mode == MAX else _fit(largest, index_meta)
    bags = bags.to(bag_meta.dtype)
    bags = bags if bag_meta.shape[0] else hlo.slice_dim(bags, 0, 0, 0)
    return out.to(output.dtype), bags, _fit(size, size_meta), largest


# ---- gradients --------------------------------------------------------------------------------


def _max_backward(grad, bag_size, maximum_indices, num_weights):
    count = maximum_indices.shape[0]
    grad = hlo.slice_dim(grad, 0, 0, count)
    filled = hlo.slice_dim(bag_size, 0, 0, count) > 0
    # An index past the table is dropped: empty bags have no gradient.
    index = hlo.select(
        _columns(filled, grad), maximum_indices, hlo.full_like(maximum_indices, num_weights)
    )
    return scatter_elements(
        hlo.constant(0, grad.dtype, (num_weights, grad.shape[1])), 0, index, grad, "add"
    )


@op("aten::_embedding_bag_dense_backward", check=same_dtype("grad", "per_sample_weights"))
def embedding_bag_dense_backward(
    grad,
    indices,
    offset2bag,
    bag_size,
    maximum_indices,
    num_weights,
    scale_grad_by_freq,
    mode,
    per_sample_weights,
    padding_idx=-1,
):
    dtype, shape = grad.dtype, (num_weights, grad.shape[1])
    if not indices.shape[0] or not grad.numel:
        return hlo.constant(0, dtype, shape)
    grad = grad.to(promote.compute_dtype(dtype))
    if mode == MAX:
        return _max_backward(grad, bag_size, maximum_indices, num_weights).to(dtype)
    rows = hlo.take(grad, offset2bag, 0)
    if mode == MEAN:
        sizes = hlo.take(bag_size, offset2bag, 0)
        sizes = hlo.maximum(sizes, hlo.full_like(sizes, 1))
        rows = rows / _columns(sizes.to(rows.dtype), rows)
    if per_sample_weights is not None:
        rows = rows * _columns(per_sample_weights.to(rows.dtype), rows)
    if scale_grad_by_freq:
        counts = hlo.take(count_indices(indices, num_weights), indices, 0)
        rows = rows / _columns(counts.to(rows.dtype), rows)
    rows = _masked(rows, _keep_in_bags(indices, padding_idx, offset2bag, grad.shape[0]), 0)
    table = hlo.constant(0, rows.dtype, shape)
    return scatter_slices(table, 0, indices, rows, "add").to(dtype)


@op("aten::_embedding_bag_backward")
def embedding_bag_backward(
    grad,
    indices,
    offsets,
    offset2bag,
    bag_size,
    maximum_indices,
    num_weights,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    padding_idx=-1,
):
    if sparse:
        raise NotImplementedError(
            "aten::_embedding_bag_backward: a compiled program has no sparse gradients"
        )
    if offset2bag.shape[0] != indices.shape[0]:
        offset2bag = bag_of(offsets, indices.shape[0])
    return embedding_bag_dense_backward(
        grad,
        indices,
        offset2bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@op("aten::_embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    grad, weight, indices, offsets, offset2bag, mode, padding_idx=-1
):
    if offset2bag.shape[0] != indices.shape[0]:
        offset2bag = bag_of(offsets, indices.shape[0])
    work = promote.compute_dtype(grad.dtype)
    rows = hlo.take(weight, indices, 0).to(work) * hlo.take(grad, offset2bag, 0).to(work)
    rows = _masked(rows, _keep_in_bags(indices, padding_idx, offset2bag, grad.shape[0]), 0)
    return hlo.reduce(rows, "add", [1]).to(grad.dtype)
