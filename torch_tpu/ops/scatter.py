"""Writing by index: scatter, index_put and its relatives, gradients of embedding.

Duplicate indices: accumulating forms add every occurrence; assigning forms keep one of them, which
one is unspecified (as in PyTorch). 16-bit floats accumulate in float32 and are rounded once. How
indices are read, and what happens out of range, is said in `index.py`.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import op
from .index import (
    at_least_1d,
    check_elements,
    check_index,
    check_indices,
    check_same_dtype,
    indexed_shape,
    is_unreachable,
    plan,
)
from .shape import from_end, wrap

_WORDS = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "multiply",
    "multiply": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}
_NEUTRAL = {
    "add": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "maximum": hlo.lowest,
    "minimum": hlo.highest,
}


# ---- the two kinds of scatter -----------------------------------------------------------------


def scatter_elements(x: Value, dim: int, index: Value, updates: Value, combine: str) -> Value:
    """Element-wise scatter along ``dim``: ``updates`` has the shape of ``index``."""
    if not index.numel:
        return x
    others = [d for d in range(x.ndim) if d != dim]
    limits = [x.shape[d] if d == dim else n for d, n in enumerate(index.shape)]
    part = hlo.scatter(
        hlo.slice(x, [0] * x.ndim, limits),
        index,
        updates,
        combine,
        window_dims=[],
        inserted=[dim],
        index_map=[dim],
        index_vector_dim=x.ndim,
        batching=others,
        index_batching=others,
    )
    if part.shape == x.shape:
        return part
    return hlo.dynamic_update_slice(x, part, [hlo.constant(0, torch.int64)] * x.ndim)


def scatter_slices(x: Value, dim: int, index: Value, updates: Value, combine: str) -> Value:
    """Slice-wise scatter: slice k of ``updates`` along ``dim`` goes to ``index[k]``."""
    if not updates.numel:
        return x
    return hlo.scatter(
        x,
        index,
        updates,
        combine,
        window_dims=[d for d in range(x.ndim) if d != dim],
        inserted=[dim],
        index_map=[dim],
        index_vector_dim=1,
    )


def _floor_divide(a: Value, b: Value) -> Value:
    """For a positive ``b``."""
    if a.is_floating or a.is_complex:
        return a / b
    quotient, rest = hlo.binary("divide", a, b), hlo.binary("remainder", a, b)
    return quotient - (rest < 0).to(a.dtype)


def reduce_into(write, x: Value, updates: Value, reduce: str, include_self: bool) -> Value:
    """Combine ``updates`` into ``x`` with ``write(base, updates, word)``, one of the scatters."""
    word, dtype = _WORDS[reduce], x.dtype
    work = promote.compute_dtype(dtype)
    x, updates = x.to(work), updates.to(work)
    if not include_self:
        touched = hlo.constant(False, torch.bool, x.shape)
        touched = write(touched, hlo.constant(True, torch.bool, updates.shape), "set")
        x = hlo.select(touched, hlo.full_like(x, _NEUTRAL[word](work)), x)
    out = write(x, updates, word)
    if reduce == "mean":
        # Counted in int64, since narrow integers and floats would miscount large groups.
        count = hlo.constant(1 if include_self else 0, torch.int64, x.shape)
        count = write(count, hlo.constant(1, torch.int64, updates.shape), "add")
        count = hlo.maximum(count, hlo.full_like(count, 1))
        if x.is_integral:
            out = _floor_divide(out.to(torch.int64), count)
        else:
            out = out / count.to(work)
    return out.to(dtype)


# ---- scatter ----------------------------------------------------------------------------------


def _scatter(self: Value, dim: int, index: Value, src, reduce: str, include_self=True) -> Value:
    """``src`` is a value at least as large as ``index`` or a run-time number."""
    x, index = at_least_1d(self), at_least_1d(index)
    dim = wrap(dim, self.ndim)
    if not index.numel:
        return self
    if isinstance(src, Value) and not src.weak:
        src = hlo.slice(at_least_1d(src), [0] * index.ndim, index.shape).to(x.dtype)
    else:
        src = hlo.expand(promote.as_value(src, x.dtype), index.shape)

    def write(base, updates, word):
        return scatter_elements(base, dim, index, updates, word)

    out = (
        write(x, src, "set")
        if reduce == "set"
        else reduce_into(write, x, src, reduce, include_self)
    )
    return hlo.reshape(out, self.shape)


@op("aten::scatter.src", overlap="any", check=check_elements)
def scatter_src(self, dim, index, src):
    return _scatter(self, dim, index, src, "set")


@op("aten::scatter.value", overlap="any", check=check_elements, bounds={"value": "fits self"})
def scatter_value(self, dim, index, value):
    return _scatter(self, dim, index, value, "set")


@op("aten::scatter.reduce", overlap="any", check=check_elements)
def scatter_reduce(self, dim, index, src, reduce):
    return _scatter(self, dim, index, src, reduce)


@op(
    "aten::scatter.value_reduce",
    overlap="any",
    check=check_elements,
    bounds={"value": "fits self"},
)
def scatter_value_reduce(self, dim, index, value, reduce):
    return _scatter(self, dim, index, value, reduce)


@op("aten::scatter_add", overlap="any", check=check_elements)
def scatter_add(self, dim, index, src):
    return _scatter(self, dim, index, src, "add")


@op("aten::scatter_reduce.two", overlap="any", check=check_elements)
def scatter_reduce_two(self, dim, index, src, reduce, include_self=True):
    return _scatter(self, dim, index, src, reduce, include_self)


# ---- index_add and its relatives --------------------------------------------------------------


def _slices(self: Value, dim: int, index: Value, source: Value):
    """(x, writer, source) with at least one dim each; ``source`` matches the indexed slices."""
    x, index, dim = at_least_1d(self), hlo.flatten(index), wrap(dim, self.ndim)
    shape = (*x.shape[:dim], index.numel, *x.shape[dim + 1 :])
    source = (
        hlo.reshape(source, shape)
        if source.numel == math.prod(shape)
        else (hlo.expand(source, shape))
    )

    def write(base, updates, word):
        return scatter_slices(base, dim, index, updates, word)

    return x, write, source.to(x.dtype)


def _check_source(name: str, self, source) -> None:
    if source.dtype is not self.dtype:
        raise RuntimeError(
            f"{name}(): self and source expected to have the same dtype, but got {self.dtype} and "
            f"{source.dtype}"
        )


def _check_shapes(self, dim, source) -> None:
    """Meta kernels compare fewer dims of ``source`` than the kernels do."""
    shapes, dim = [list(x.shape) for x in (self, source)], wrap(dim, self.ndim)
    if self.ndim and source.ndim:
        shapes = [s[:dim] + s[dim + 1 :] for s in shapes]
    if shapes[0] != shapes[1]:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(self.shape)} source.shape = {list(source.shape)}"
        )


def _check_unreachable(self, dim, index) -> None:
    if is_unreachable(self, dim, index) and 0 not in self.shape[:dim] + self.shape[dim:][1:]:
        raise RuntimeError(f"index is out of bounds for dimension {dim} with size 0")


def _check_add(self, dim, index, source) -> None:
    check_index("index_add_", self, dim, index)
    _check_source("index_add_", self, source)
    _check_shapes(self, dim, source)


def _check_copy(self, dim, index, source) -> None:
    check_index("index_copy_", self, dim, index, (torch.int64,))
    _check_source("index_copy_", self, source)
    if source.ndim and index.numel() != source.shape[wrap(dim, source.ndim)]:
        raise IndexError(
            f"index_copy_(): Number of indices ({index.numel()}) should be equal to source.size"
            f"(dim) ({source.shape[dim]})"
        )
    _check_unreachable(self, dim, index)


def _check_fill(self, dim, index, value) -> None:
    if isinstance(value, torch.Tensor) and value.is_complex() and not self.is_complex():
        raise RuntimeError(f"index_fill_(): a value of {value.dtype} does not fit {self.dtype}")
    if index.dtype is not torch.int64:
        raise IndexError(f"index_fill_(): Expected dtype int64 for index, but got {index.dtype}")
    _check_unreachable(self, dim, index)


def _check_reduce(self, dim, index, source) -> None:
    check_index("index_reduce_", self, dim, index)
    _check_source("index_reduce_", self, source)
    _check_shapes(self, dim, source)
    if is_unreachable(self, dim, index):
        raise IndexError(f"index is out of bounds for dimension {dim} with size 0")


@op("aten::index_add", overlap="any", check=_check_add, bounds={"alpha": "fits self"})
def index_add(self, dim, index, source, alpha=1):
    x, write, source = _slices(self, dim, index, source)
    work = promote.compute_dtype(x.dtype)
    source = source.to(work) * promote.as_value(alpha, work)
    return hlo.reshape(write(x.to(work), source, "add").to(x.dtype), self.shape)


@op("aten::index_copy", overlap="any", check=_check_copy)
def index_copy(self, dim, index, source):
    x, write, source = _slices(self, dim, index, source)
    return hlo.reshape(write(x, source, "set"), self.shape)


@op(
    "aten::index_fill.int_Scalar",
    "aten::index_fill.int_Tensor",
    check=_check_fill,
    bounds={"value": "fits self"},
)
def index_fill(self, dim, index, value):
    value = hlo.reshape(promote.as_value(value, self.dtype), ())
    size = hlo.full_like(index, self.shape[dim] if self.ndim else 1)
    index = hlo.select(index < 0, hlo.binary("add", index, size), index)
    x, write, source = _slices(self, dim, index, value)
    return hlo.reshape(write(x, source, "set"), self.shape)


@op("aten::index_reduce", overlap="any", check=_check_reduce)
def index_reduce(self, dim, index, source, reduce, include_self=True):
    x, write, source = _slices(self, dim, index, source)
    return hlo.reshape(reduce_into(write, x, source, reduce, include_self), self.shape)


# ---- index_put --------------------------------------------------------------------------------


def _put_with_masks(self, indices, values, accumulate=False, unsafe=False):
    from .masks import index_put_with_masks

    return index_put_with_masks(self, indices, values, accumulate, unsafe)


def _is_expandable(shape, target) -> bool:
    ends = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(n in (1, wanted) for n, wanted in ends)


def _check_index_put(self, indices, values) -> None:
    check_indices(self, indices)
    if all(i is None for i in indices):
        return
    check_same_dtype(self, values)
    shape, _ = indexed_shape(self.shape, indices)
    if not _is_expandable(values.shape, shape):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}"
        )


@op(
    "aten::index_put",
    "aten::_index_put_impl",
    overlap="any",
    host=("indices",),
    masks=_put_with_masks,
    check=_check_index_put,
)
def index_put(self, indices, values, accumulate=False, unsafe=False):
    p = plan(self.shape, indices, "aten::index_put")
    if p is None:
        values = hlo.expand(values, self.shape)
        return self + values if accumulate else values
    if 0 in p.shape:
        return self
    work = promote.compute_dtype(self.dtype) if accumulate else self.dtype
    out = hlo.scatter(
        self.to(work),
        p.vectors,
        hlo.expand(values, p.shape).to(work),
        "add" if accumulate else "set",
        window_dims=p.window,
        inserted=p.dims,
        index_map=p.dims,
        index_vector_dim=p.vectors.ndim - 1,
    )
    return out.to(self.dtype)


def _check_put(self, index, source) -> None:
    if index.dtype is not torch.int64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {index.dtype}")
    _check_source("put_", self, source)
    if source.numel() != index.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    if index.numel() and not self.numel():
        raise IndexError("put_(): Tried to put elements into an empty tensor")


@op("aten::put", overlap="any", check=_check_put)
def put(self, index, source, accumulate=False):
    if not index.numel:
        return self
    work = promote.compute_dtype(self.dtype) if accumulate else self.dtype
    out = scatter_elements(
        hlo.flatten(self).to(work),
        0,
        hlo.flatten(from_end(index, self.numel)),
        hlo.flatten(source).to(work),
        "add" if accumulate else "set",
    )
    return hlo.reshape(out.to(self.dtype), self.shape)


# ---- embedding tables -------------------------------------------------------------------------


def count_indices(indices: Value, size: int, dtype: torch.dtype = torch.int64) -> Value:
    """How often each of ``range(size)`` occurs in ``indices``."""
    ones = hlo.constant(1, dtype, (indices.numel,))
    return scatter_slices(hlo.constant(0, dtype, (size,)), 0, hlo.flatten(indices), ones, "add")


def _check_rows(indices) -> None:
    if indices.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"embedding: indices must be int32 or int64, not {indices.dtype}")


@op("aten::embedding_dense_backward", check=_check_rows)
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    width = grad_output.shape[-1]
    if not grad_output.numel:
        return hlo.constant(0, grad_output.dtype, (num_weights, width))
    work = promote.compute_dtype(grad_output.dtype)
    index = hlo.flatten(indices)
    rows = hlo.reshape(grad_output, (index.numel, width)).to(work)
    if scale_grad_by_freq:
        counts = hlo.take(count_indices(index, num_weights), index, 0)
        scale = (1 / counts.to(torch.float64)).to(work)
        rows = rows * hlo.broadcast_in_dim(scale, rows.shape, [0])
    if padding_idx >= 0:
        # XLA drops updates that are out of range.
        dropped = hlo.full_like(index, num_weights)
        index = hlo.select(index == padding_idx, dropped, index)
    table = hlo.constant(0, work, (num_weights, width))
    return scatter_slices(table, 0, index, rows, "add").to(grad_output.dtype)


def _check_renorm(self, indices) -> None:
    _check_rows(indices)
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"embedding_renorm: norms of {self.dtype} are not defined")


@op("aten::embedding_renorm", runtime=("max_norm",), check=_check_renorm)
def embedding_renorm(self, indices, max_norm, norm_type):
    work = promote.compute_dtype(self.dtype)
    table = self.to(work)
    if norm_type == math.inf:
        norm = hlo.reduce(hlo.abs(table), "maximum", [1])
    elif norm_type == 2:
        norm = hlo.sqrt(hlo.reduce(table * table, "add", [1]))
    elif norm_type == 1:
        norm = hlo.reduce(hlo.abs(table), "add", [1])
    else:
        power = hlo.binary("power", hlo.abs(table), hlo.full_like(table, norm_type))
        norm = hlo.reduce(power, "add", [1])
        norm = hlo.binary("power", norm, hlo.full_like(norm, 1 / norm_type))
    limit = hlo.expand(promote.as_value(max_norm, work), norm.shape)
    looked_up = count_indices(indices, self.shape[0], torch.int32) > 0
    too_long = looked_up & (norm > limit)
    scale = hlo.select(too_long, limit / (norm + 1e-7), hlo.full_like(norm, 1))
    return (table * hlo.broadcast_in_dim(scale, table.shape, [0])).to(self.dtype)
