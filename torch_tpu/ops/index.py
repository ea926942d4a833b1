"""Reading by index: selection, gathering, advanced indexing, embedding, positions of nonzeros.

Writing by index is in `scatter.py`; what depends on the number of true mask elements (boolean
masks, ``nonzero``, ``masked_select``) is in `masks.py`.

Advanced indexing, ``take`` and ``put`` count negative indices from the end, as torch does. An index
that is out of range is not noticed here: reads are clamped to the nearest element and writes are
dropped by XLA, where CPU PyTorch raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import check_dtypes, exact_out
from .shape import from_end, wrap


def at_least_1d(x: Value) -> Value:
    return x if x.ndim else hlo.reshape(x, (1,))


# ---- no index is in range of a dim of size 0: that needs no look at the data ---------------------


def is_unreachable(self, dim: int, index) -> bool:
    """Whether ``index`` has elements but ``dim`` has none."""
    dim = wrap(dim, self.ndim)
    return bool(self.ndim and not self.shape[dim] and index.numel())


def check_elements(self, dim, index) -> None:
    """For operators that take an index for every element, as gather and scatter."""
    if is_unreachable(self, dim, index):
        raise RuntimeError(f"index is out of bounds for dimension {dim} with size 0")


def check_same_dtype(self, values) -> None:
    """For writing by index, which never converts."""
    if values.dtype is not self.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{self.dtype} for the destination and {values.dtype} for the source."
        )


_INDEX_DTYPES = (torch.int64, torch.int32, torch.bool, torch.uint8)


def check_kinds(self, indices) -> None:
    """Refuse tensors that are no indices, and more of them than there are dims."""
    if any(i is not None and i.dtype not in _INDEX_DTYPES for i in indices):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    masks = [i for i in indices if i is not None and i.dtype in _INDEX_DTYPES[2:]]
    count = len(indices) + sum(i.ndim - 1 for i in masks)
    if count > self.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.ndim} (got {count})")


def check_indices(self, indices) -> None:
    """For advanced indexing; masks have rules of their own."""
    check_kinds(self, indices)
    given = [(n, i) for n, i in zip(self.shape, indices, strict=False) if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
        return
    try:
        promote.broadcast_shapes(*(i.shape for _, i in given))
    except RuntimeError:
        shapes = ", ".join(str(list(i.shape)) for _, i in given)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None
    if any(n == 0 for n, _ in given) and all(i.numel() for _, i in given):
        raise IndexError("index is out of bounds for dimension with size 0")


def check_index(name: str, self, dim, index, dtypes=(torch.int32, torch.int64)) -> None:
    """For operators that take one vector of indices along ``dim``."""
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got shape {list(index.shape)}"
        )
    if index.dtype not in dtypes:
        wanted = " or ".join(str(d) for d in dtypes)
        raise RuntimeError(f"{name}(): Expected dtype {wanted} for index, but got {index.dtype}")
    wrap(dim, self.ndim)


def _check_slices(self, dim, index, out=None) -> None:
    check_index("index_select", self, dim, index)
    check_dtypes("index_select", self, {"out": out}, out=None)
    if not self.ndim and index.numel() != 1:
        raise RuntimeError(
            f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)"
        )
    if is_unreachable(self, dim, index):
        raise RuntimeError(f"index_select(): dimension {dim} has no elements to select")


# ---- selection and gathering ------------------------------------------------------------------


@op("aten::index_select", overlap="any", check=_check_slices)
def index_select(self, dim, index):
    result = expected()[0]
    if 0 in result.shape:
        return hlo.constant(0, result.dtype, result.shape)
    taken = hlo.take(at_least_1d(self), hlo.flatten(index), wrap(dim, self.ndim))
    return hlo.reshape(taken, result.shape)


def check_table(weight, indices) -> None:
    """No index is a row of an empty table."""
    if weight.ndim == 2 and not weight.shape[0] and indices.numel():
        raise RuntimeError(
            f"embedding: indices of shape {list(indices.shape)} into a weight of shape "
            f"{list(weight.shape)}, which has no rows"
        )


@op("aten::embedding", check=check_table)
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if 0 in expected()[0].shape:
        return hlo.constant(0, weight.dtype, expected()[0].shape)
    return hlo.take(weight, indices, 0)


@op("aten::take", overlap="any", **exact_out("take", out=None))
def take(self, index):
    if not index.numel:
        return hlo.constant(0, self.dtype, index.shape)
    return hlo.take(hlo.flatten(self), from_end(index, self.numel), 0)


@op("aten::gather", check=check_elements, overlap="any")
def gather(self, dim, index, sparse_grad=False):
    result = expected()[0]
    if 0 in result.shape:
        return hlo.constant(0, result.dtype, result.shape)
    x, index, dim = at_least_1d(self), at_least_1d(index), wrap(dim, self.ndim)
    others = [d for d in range(x.ndim) if d != dim]
    limits = [x.shape[d] if d == dim else n for d, n in enumerate(index.shape)]
    gathered = hlo.gather(
        hlo.slice(x, [0] * x.ndim, limits),
        index,
        offset_dims=[],
        collapsed=[dim],
        index_map=[dim],
        index_vector_dim=x.ndim,
        slice_sizes=[1] * x.ndim,
        shape=index.shape,
        batching=others,
        index_batching=others,
    )
    return hlo.reshape(gathered, result.shape)


# ---- advanced indexing ------------------------------------------------------------------------


@dataclasses.dataclass
class Plan:
    """One advanced indexing expression, in the terms of XLA's gather and scatter.

    ``vectors`` holds an index into the indexed ``dims`` for every point; ``window`` are the
    result's dims that run along the unindexed dims of the operand.
    """

    vectors: Value
    dims: list[int]
    window: list[int]
    shape: tuple[int, ...]


def indexed_shape(shape: Sequence[int], indices) -> tuple[tuple[int, ...], list[int]]:
    """Shape of ``x[indices]``, and the dims in it that run along unindexed dims of ``x``.

    Indices broadcast together, and their dims stand where the first index stood, or in front if a
    slice separates them.
    """
    dims = [d for d, index in enumerate(indices) if index is not None]
    points = promote.broadcast_shapes(*(indices[d].shape for d in dims))
    rank = len(points)
    start = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = [n for d, n in enumerate(shape) if d not in dims]
    full = (*rest[:start], *points, *rest[start:])
    return full, [d for d in range(len(full)) if not start <= d < start + rank]


def plan(shape: Sequence[int], indices: Sequence[Value | None], where: str) -> Plan | None:
    """None when nothing is indexed."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    if not dims:
        return None
    chosen = [indices[d] for d in dims]
    if any(i.dtype in (torch.bool, torch.uint8) for i in chosen):
        raise NotImplementedError(
            f"{where}: a mask is an index of unknown length; see ops/masks.py"
        )
    dtype = chosen[0].dtype if len({i.dtype for i in chosen}) == 1 else torch.int64
    chosen = [from_end(i.to(dtype), shape[d]) for i, d in zip(chosen, dims, strict=True)]
    chosen = promote.broadcast(chosen)
    rank = chosen[0].ndim
    vectors = hlo.concatenate([hlo.unsqueeze(i, rank) for i in chosen], rank)
    full, window = indexed_shape(shape, indices)
    return Plan(vectors, dims, window, full)


def _with_masks(self, indices):
    from .masks import index_with_masks

    return index_with_masks(self, indices)


def _check_index(self, indices) -> None:
    if not indices:
        raise IndexError("at least one index must be provided")
    check_indices(self, indices)


@op("aten::index.Tensor", host=("indices",), masks=_with_masks, check=_check_index)
def index_Tensor(self, indices):
    result = expected()[0]
    if 0 in result.shape:
        return hlo.constant(0, result.dtype, result.shape)
    p = plan(self.shape, indices, "aten::index")
    if p is None:
        return self
    return hlo.gather(
        self,
        p.vectors,
        offset_dims=p.window,
        collapsed=p.dims,
        index_map=p.dims,
        index_vector_dim=p.vectors.ndim - 1,
        slice_sizes=[1 if d in p.dims else n for d, n in enumerate(self.shape)],
        shape=p.shape,
    )


# ---- positions of nonzeros --------------------------------------------------------------------

_BLOCK = 256


def running_count(mask: Value) -> Value:
    """How many of the elements up to and with each are true (int32, flat).

    Counts within blocks first, then over the blocks, so that all but eight of the doubling steps
    work on 1/256 of the elements.
    """
    size = mask.numel
    blocks = -(-size // _BLOCK)
    ones = hlo.flatten(mask).to(torch.int32)
    ones = hlo.pad(ones, hlo.constant(0, torch.int32), [0], [blocks * _BLOCK - size])
    within = hlo.cumulative(hlo.reshape(ones, (blocks, _BLOCK)), "add", 1)
    totals = hlo.squeeze(hlo.slice_dim(within, 1, _BLOCK - 1, _BLOCK), 1)
    before = hlo.cumulative(totals, "add", 0) - totals
    counts = within + hlo.broadcast_in_dim(before, within.shape, [0])
    return hlo.slice_dim(hlo.flatten(counts), 0, 0, size)


def compact(values: Value, mask: Value, size: int, fill) -> Value:
    """The first ``size`` of the flat ``values`` where ``mask`` holds, then ``fill``."""
    target = hlo.select(
        hlo.flatten(mask),
        running_count(mask) - 1,
        hlo.constant(size, torch.int32, (mask.numel,)),
    )
    return hlo.scatter(
        hlo.constant(fill, values.dtype, (size,)),
        target,
        hlo.flatten(values),
        "set",
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
    )


def check_positions(self, out=None) -> None:
    """For operators whose out= argument takes positions."""
    if out is not None and out.dtype is not torch.int64:
        raise RuntimeError(f"nonzero: Expected out tensor to have dtype int64, but got {out.dtype}")


def _static_results(self, size, fill_value=-1):
    # PyTorch's meta kernel has the strides of `nonzero`.
    return [torch.empty((size, self.ndim), dtype=torch.int64, device="meta")]


@op("aten::nonzero_static", meta=_static_results, check=check_positions)
def nonzero_static(self, size, fill_value=-1):
    result = expected()[0]
    if 0 in result.shape or not self.numel:
        return hlo.constant(fill_value, result.dtype, result.shape)
    flat = compact(hlo.iota((self.numel,), 0, torch.int32), self.to(torch.bool), size, -1)
    columns, stride = [], self.numel
    for n in self.shape:
        stride //= n
        column = hlo.binary("divide", flat, hlo.full_like(flat, stride))
        column = hlo.binary("remainder", column, hlo.full_like(flat, n))
        columns.append(hlo.unsqueeze(column, 1))
    found = hlo.concatenate(columns, 1).to(result.dtype)
    present = hlo.broadcast_in_dim(flat >= 0, found.shape, [0])
    return hlo.select(present, found, hlo.full_like(found, fill_value))


def _check_mask(mask) -> None:
    if mask.dtype is not torch.bool:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}"
        )


@op("aten::masked_scatter", check=_check_mask)
def masked_scatter(self, mask, source):
    result = expected()[0]
    self, mask = hlo.expand(self, result.shape), hlo.expand(mask, result.shape)
    if not source.numel or not self.numel:
        return self
    rank = running_count(mask) - 1
    values = hlo.take(hlo.flatten(source.to(self.dtype)), rank, 0)
    return hlo.select(mask.to(torch.bool), hlo.reshape(values, self.shape), self)


@op("aten::masked_scatter_backward", check=_check_mask)
def masked_scatter_backward(grad_output, mask, sizes):
    result = expected()[0]
    shape = promote.broadcast_shapes(grad_output.shape, mask.shape)
    if 0 in shape or 0 in result.shape:
        return hlo.constant(0, result.dtype, result.shape)
    grad, mask = hlo.expand(grad_output, shape), hlo.expand(mask, shape)
    count = hlo.constant(0, grad.dtype, sizes).numel
    return hlo.reshape(compact(grad, mask.to(torch.bool), count, 0), sizes)
