"""Operators that rearrange elements: joining, flipping, repeating, triangles, diagonals, copies.

Every result element is an element of an input or a constant, so nothing here computes beyond a
dtype cast. Views (``view``, ``expand``) are not here: the core makes those without a program.
Padding, sliding windows and pixel shuffles are in `padding.py`.

A start, index or diagonal that a loop may change is a run-time argument, so it costs no recompile;
what only fixes the result's shape (``end``) is declared run-time too and then never read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import common_dtype


def wrap(dim: int, rank: int) -> int:
    """A non-negative dim; 0-dim tensors have one virtual dim. Not every meta kernel checks it."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
            f"but got {dim})"
        )
    return dim % rank


def move_dim(x: Value, source: int, target: int) -> Value:
    """Move one dim; both positions are non-negative."""
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return hlo.transpose(x, order)


def from_end(index: Value | int, size: int):
    """``index`` counted from the end if negative (a run-time value or a number)."""
    if not isinstance(index, Value):
        return index + size if index < 0 else index
    return hlo.select(index < 0, index + hlo.constant(size, index.dtype), index)


def place(base: Value, update: Value, dim: int, start) -> Value:
    """``base`` with ``update`` written at ``start`` (run-time, not negative) along ``dim``."""
    if 0 in update.shape:
        return base
    start = promote.as_value(start, torch.int64)
    zero = hlo.constant(0, torch.int64)
    return hlo.dynamic_update_slice(
        base, update, [start if d == dim else zero for d in range(base.ndim)]
    )


# ---- joining and repeating --------------------------------------------------------------------


@op("aten::cat", overlap="any")
def cat(tensors, dim=0):
    result = expected()[0]
    # Torch still accepts (and skips) 1-d empty tensors beside tensors of any rank.
    parts = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    parts = [x.to(result.dtype) for x in parts]
    return hlo.concatenate(parts, wrap(dim, parts[0].ndim))


def _check_chunks(tensors, dim, num_chunks) -> None:
    # PyTorch looks for the dims of 0-dim tensors where there are none, and crashes.
    if any(x.ndim == 0 for x in tensors):
        raise RuntimeError("_chunk_cat expects tensors of at least 1 dim, got a 0-dim tensor")


@op("aten::_chunk_cat", check=_check_chunks)
def _chunk_cat(tensors, dim, num_chunks):
    """Every tensor padded and cut into ``num_chunks`` rows, which are laid side by side."""
    result = expected()[0]
    dim, rows = wrap(dim, tensors[0].ndim), []
    for x in tensors:
        high = [0] * x.ndim
        high[dim] = -x.shape[dim] % num_chunks
        padded = hlo.pad(x.to(result.dtype), hlo.constant(0, result.dtype), [0] * x.ndim, high)
        lead = (*x.shape[:dim], num_chunks)
        rows.append(hlo.reshape(padded, (*lead, padded.numel // math.prod(lead))))
    return hlo.concatenate(rows, dim + 1)


@op("aten::stack")
def stack(tensors, dim=0):
    result = expected()[0]
    dim = wrap(dim, len(result.shape))
    return hlo.concatenate([hlo.unsqueeze(x.to(result.dtype), dim) for x in tensors], dim)


def _block_diag_meta(tensors) -> list[torch.Tensor]:
    # PyTorch's meta kernel forgets that tensors without dims give way to others.
    return [torch.ops.aten.block_diag(tensors).to(common_dtype(*tensors))]


@op("aten::block_diag", meta=_block_diag_meta)
def block_diag(tensors):
    result = expected()[0]
    zero = hlo.constant(0, result.dtype)
    rows, column = [], 0
    for x in tensors:
        x = x.to(result.dtype)
        x = hlo.reshape(x, (1,) * (2 - x.ndim) + x.shape)
        after = result.shape[1] - column - x.shape[1]
        rows.append(hlo.pad(x, zero, (0, column), (0, after)))
        column += x.shape[1]
    return hlo.concatenate(rows, 0)


@op("aten::flip")
def flip(self, dims):
    return hlo.reverse(self, sorted({wrap(d, self.ndim) for d in dims})) if self.ndim else self


def _rolled(self, shifts, dims=()):
    """What the CPU does, whose last `cat` decides the strides."""
    result = torch.ops.aten.roll(self, shifts, dims)
    if not self.numel() or not dims:
        return [result]
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        start = -shift % size
        self = torch.cat([self.narrow(dim, start, size - start), self.narrow(dim, 0, start)], dim)
    return [self]


@op("aten::roll", meta=_rolled)
def roll(self, shifts, dims=()):
    if not dims:
        return hlo.reshape(_roll(hlo.flatten(self), shifts[0], 0), self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = _roll(self, shift, wrap(dim, self.ndim))
    return self


def _roll(x: Value, shift: int, dim: int) -> Value:
    size = x.shape[dim]
    shift = shift % size if size else 0
    if not shift:
        return x
    tail = hlo.slice_dim(x, dim, size - shift, size)
    return hlo.concatenate([tail, hlo.slice_dim(x, dim, 0, size - shift)], dim)


@op("aten::rot90")
def rot90(self, k=1, dims=(0, 1)):
    first, second = (wrap(d, self.ndim) for d in dims)
    k %= 4
    if k == 2:
        return hlo.reverse(self, sorted((first, second)))
    if k == 0:
        return self
    order = list(range(self.ndim))
    order[first], order[second] = second, first
    return hlo.reverse(hlo.transpose(self, order), [first if k == 1 else second])


@op("aten::repeat")
def repeat(self, repeats):
    sizes = (1,) * (len(repeats) - self.ndim) + self.shape
    pairs = [n for pair in zip(repeats, sizes, strict=True) for n in pair]
    x = hlo.broadcast_in_dim(hlo.reshape(self, sizes), pairs, range(1, len(pairs), 2))
    return hlo.reshape(x, [r * s for r, s in zip(repeats, sizes, strict=True)])


# ---- triangles and diagonals ------------------------------------------------------------------

_COMMON_DIAGONALS = {"diagonal": (-1, 0, 1)}


def _offsets(shape: Sequence[int], row: int, column: int) -> Value:
    """Column minus row index of every element."""
    return hlo.iota(shape, column) - hlo.iota(shape, row)


def _triangle(x: Value, diagonal, direction: str) -> Value:
    offset = _offsets(x.shape, x.ndim - 2, x.ndim - 1)
    bound = hlo.expand(promote.as_value(diagonal, torch.int64), x.shape)
    return hlo.select(hlo.compare(offset, bound, direction), x, hlo.zeros_like(x))


@op("aten::tril", runtime=("diagonal",), specialize=_COMMON_DIAGONALS)
def tril(self, diagonal=0):
    return _triangle(self, diagonal, "LE")


@op("aten::triu", runtime=("diagonal",), specialize=_COMMON_DIAGONALS)
def triu(self, diagonal=0):
    return _triangle(self, diagonal, "GE")


@op("aten::trace")
def trace(self):
    dtype = expected()[0].dtype
    x = self.to(promote.compute_dtype(dtype))
    on_diagonal = _offsets(x.shape, 0, 1) == 0
    kept = hlo.select(on_diagonal, x, hlo.zeros_like(x))
    return hlo.reduce(kept, "add", (0, 1)).to(dtype)


def _put_diagonal(base: Value, diagonal: Value, offset: int, dim1: int, dim2: int) -> Value:
    """``base`` with its (dim1, dim2) diagonal replaced; ``diagonal`` has it as last dim."""
    dim1, dim2 = dim1 % base.ndim, dim2 % base.ndim
    before = max(0, -offset)
    low, high = [0] * diagonal.ndim, [0] * diagonal.ndim
    low[-1], high[-1] = before, base.shape[dim1] - before - diagonal.shape[-1]
    # A row index selects the element of the diagonal, so it spreads along the columns.
    rows = hlo.pad(diagonal, hlo.constant(0, diagonal.dtype), low, high)
    kept = [d for d in range(base.ndim) if d != dim2]
    rows = move_dim(rows, rows.ndim - 1, kept.index(dim1))
    rows = hlo.broadcast_in_dim(rows, base.shape, kept)
    return hlo.select(_offsets(base.shape, dim1, dim2) == offset, rows, base)


@op("aten::diag_embed")
def diag_embed(self, offset=0, dim1=-2, dim2=-1):
    result = expected()[0]
    return _put_diagonal(hlo.constant(0, self.dtype, result.shape), self, offset, dim1, dim2)


@op("aten::diagonal_backward")
def diagonal_backward(grad_output, input_sizes, offset, dim1, dim2):
    base = hlo.constant(0, grad_output.dtype, input_sizes)
    return _put_diagonal(base, grad_output, offset, dim1, dim2)


def fits_slice(src, region) -> None:
    """Refuse a ``src`` that is not the shape of the part it replaces; meta kernels do not look."""
    if src.shape != region.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. "
            f"src size = {list(src.shape)}, slice size = {list(region.shape)}"
        )


def _check_diagonal(self, src, offset=0, dim1=0, dim2=1):
    fits_slice(src, torch.diagonal(self, offset, dim1, dim2))


@op("aten::diagonal_scatter", check=_check_diagonal)
def diagonal_scatter(self, src, offset=0, dim1=0, dim2=1):
    return _put_diagonal(self, src.to(self.dtype), offset, dim1, dim2)


# ---- slices: their gradients and their functional assignment ----------------------------------


@op("aten::select_backward", runtime=("index",))
def select_backward(grad_output, input_sizes, dim, index):
    dim = wrap(dim, len(input_sizes))
    base = hlo.constant(0, grad_output.dtype, input_sizes)
    return place(base, hlo.unsqueeze(grad_output, dim), dim, from_end(index, input_sizes[dim]))


def _check_select(self, src, dim, index):
    fits_slice(src, torch.select(self, dim, index))


@op("aten::select_scatter", runtime=("index",), check=_check_select)
def select_scatter(self, src, dim, index):
    dim = wrap(dim, self.ndim)
    src = hlo.unsqueeze(src.to(self.dtype), dim)
    return place(self, src, dim, from_end(index, self.shape[dim]))


def _slice_start(start, size: int):
    """The first index a Python slice takes: negative from the end, clamped to [0, size]."""
    if start is None:
        return 0
    start = from_end(promote.as_value(start, torch.int64), size)
    return hlo.clamp(hlo.constant(0, torch.int64), start, hlo.constant(size, torch.int64))


def _spread(x: Value, dim: int, step: int) -> Value:
    """Put ``step - 1`` zeros between the elements along ``dim``."""
    none, gaps = [0] * x.ndim, [0] * x.ndim
    gaps[dim] = step - 1
    return hlo.pad(x, hlo.constant(0, x.dtype), none, none, gaps)


@op("aten::slice_backward", runtime=("start", "end"))
def slice_backward(grad_output, input_sizes, dim, start, end, step):
    dim = wrap(dim, len(input_sizes))
    base = hlo.constant(0, grad_output.dtype, input_sizes)
    start = _slice_start(start, input_sizes[dim])
    return place(base, _spread(grad_output, dim, step), dim, start)


def _check_slice(self, src, dim=0, start=None, end=None, step=1):
    fits_slice(src, torch.ops.aten.slice.Tensor(self, dim, start, end, step))


@op("aten::slice_scatter", runtime=("start", "end"), check=_check_slice)
def slice_scatter(self, src, dim=0, start=None, end=None, step=1):
    dim = wrap(dim, self.ndim)
    start = _slice_start(start, self.shape[dim])
    src = src.to(self.dtype)
    if step == 1:
        return place(self, src, dim, start)
    ones = hlo.constant(True, torch.bool, src.shape)
    mask = hlo.constant(False, torch.bool, self.shape)
    mask = place(mask, _spread(ones, dim, step), dim, start)
    values = place(hlo.zeros_like(self), _spread(src, dim, step), dim, start)
    return hlo.select(mask, values, self)


def _check_narrow(self, dim, start, length) -> None:
    if dim >= self.ndim:
        raise RuntimeError(f"narrow_copy: dimension {dim} of a tensor of {self.ndim} dimensions")
    torch.narrow(self, dim, start, length)


@op("aten::narrow_copy", runtime=("start",), check=_check_narrow)
def narrow_copy(self, dim, start, length):
    dim = wrap(dim, self.ndim)
    sizes = list(self.shape)
    sizes[dim] = length
    start = from_end(promote.as_value(start, torch.int64), self.shape[dim])
    zero = hlo.constant(0, torch.int64)
    starts = [start if d == dim else zero for d in range(self.ndim)]
    return hlo.dynamic_slice(self, starts, sizes)


@op("aten::split_with_sizes_copy")
def split_with_sizes_copy(self, split_sizes, dim=0):
    dim, start, parts = wrap(dim, self.ndim), 0, []
    for size in split_sizes:
        parts.append(hlo.slice_dim(self, dim, start, start + size))
        start += size
    return parts


# ---- copies and fills -------------------------------------------------------------------------


@op("aten::clone")
def clone(self):
    return self


@op("aten::copy", overlap="partial", overwrites=True, inplace="aten::copy_")
def copy(self, src):
    return hlo.expand(src.to(self.dtype), self.shape)


def _check_fill(value) -> None:
    if isinstance(value, torch.Tensor) and value.ndim:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} "
            "dimensions."
        )


@op(
    "aten::fill.Scalar",
    "aten::fill.Tensor",
    bounds={"value": "fits self"},
    check=_check_fill,
    overwrites=True,
)
def fill(self, value):
    return hlo.expand(promote.as_value(value, self.dtype), self.shape)


@op("aten::zero", overwrites=True)
def zero(self):
    return hlo.zeros_like(self)
