"""What depends on how many elements of a mask are true: one count is fetched from the device.

These are functions over real tensors. The core calls `index_with_masks` and `index_put_with_masks`
when an index is bool or uint8; the rest are registered procedures. A count differs from call to
call, so the programs work on the next power of two and the result is narrowed: one compilation per
doubling, not per count. Writing one value (or one row) under a mask needs no count at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..lowering.registry import procedure
from .index import check_kinds, check_positions, check_same_dtype

Indices = Sequence[torch.Tensor | None]
_MASKS = (torch.bool, torch.uint8)
_aten = torch.ops.aten


def bucket(count: int, most: int | None = None) -> int:
    """The program size for ``count`` elements: the next power of two, or ``most`` if less."""
    size = 1 << max(count - 1, 0).bit_length()
    return size if most is None else min(size, most)


def _is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in _MASKS


def _count(mask: torch.Tensor) -> int:
    return int(torch.count_nonzero(mask).item())


@procedure("aten::nonzero", check=check_positions)
def nonzero(self: torch.Tensor) -> torch.Tensor:
    count = _count(self)
    shape, strides = (count, self.ndim), (1, count)
    if count == 0 or self.ndim == 0:
        return torch.empty_strided(shape, strides, dtype=torch.int64, device=self.device)
    size = bucket(count, self.numel())
    found = _aten.nonzero_static(self, size=size)
    if self.ndim > 1:
        # ATen stores the result column by column. Here the columns are packed by a count that is
        # a run-time number, so that strides agree and no count needs a program of its own.
        place = torch.arange(size * self.ndim, device=self.device)
        column = (place // count).clamp(max=self.ndim - 1)
        found = _aten.index.Tensor(found, [place % count, column])
    return found.as_strided(shape, strides)


def _check_masked_select(self, mask, out=None) -> None:
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    if out is None:
        return
    if self.dtype is not out.dtype:
        raise RuntimeError(
            "masked_select(): self and result must have the same scalar type, "
            f"got {self.dtype} and {out.dtype}"
        )
    if any(_overlap(out, given) for given in (self, mask)):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory location. Please clone() the tensor before performing the "
            "operation."
        )


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors share an element; not known, and so False, where there are gaps."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    first, last = (x.storage_offset() * x.itemsize for x in (a, b))
    dense = a.is_contiguous() and b.is_contiguous()
    return dense and max(first, last) < min(first + a.nbytes, last + b.nbytes)


@procedure("aten::masked_select", check=_check_masked_select)
def masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    self, mask = torch.broadcast_tensors(self, mask)
    count = _count(mask)
    if count == 0:
        return torch.empty((0,), dtype=self.dtype, device=self.device)
    flat, size = mask.reshape(-1), bucket(count, mask.numel())
    places = _aten.nonzero_static(flat, size=size, fill_value=0).squeeze(1)
    return self.reshape(-1).index_select(0, places).narrow(0, 0, count)


@procedure("aten::repeat_interleave.Tensor")
def repeat_interleave(repeats: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    if repeats.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.numel() == 0:
        return torch.empty_like(repeats)
    ends = repeats.cumsum(0)
    if output_size is None:
        total, least = torch.stack((ends[-1], repeats.amin().to(ends.dtype))).tolist()
        if least < 0:
            raise RuntimeError("repeats can not be negative")
        size = bucket(total)
    else:
        total = size = output_size
    if total == 0:
        return repeats.new_empty((0,))
    places = torch.arange(size, device=repeats.device, dtype=ends.dtype)
    found = torch.searchsorted(ends, places, right=True)
    return found.to(repeats.dtype).narrow(0, 0, total)


# ---- masks among indices ----------------------------------------------------------------------


def _check_shapes(self: torch.Tensor, indices: Indices) -> None:
    check_kinds(self, indices)
    dim = 0
    for index in indices:
        if _is_mask(index):
            if tuple(index.shape) != tuple(self.shape[dim : dim + index.ndim]):
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {dim} does not match "
                    f"the shape of the indexed tensor {list(self.shape)} at index {dim}"
                )
            dim += index.ndim
        else:
            dim += 1


def expand_masks(indices: Indices) -> list[torch.Tensor | None]:
    """Replace every mask by the integer indices of its true elements, one per dim of the mask."""
    expanded: list[torch.Tensor | None] = []
    for index in indices:
        if _is_mask(index):
            expanded.extend(_aten.nonzero(index).unbind(1))
        else:
            expanded.append(index)
    return expanded


def _lone_mask(indices: Indices) -> int | None:
    """The position of the mask if it is the only index."""
    given = [i for i, index in enumerate(indices) if index is not None]
    return given[0] if len(given) == 1 and _is_mask(indices[given[0]]) else None


def index_with_masks(self: torch.Tensor, indices: Indices) -> torch.Tensor:
    """``self[indices]`` where some index is a mask (bool or uint8)."""
    _check_shapes(self, indices)
    position = _lone_mask(indices)
    if position is None or indices[position].ndim == 0:
        return _aten.index.Tensor(self, expand_masks(indices))
    mask = indices[position]
    count = _count(mask)
    size = bucket(count, mask.numel())
    places = _aten.nonzero_static(mask, size=size, fill_value=0).unbind(1)
    if count == 0:
        places = [p.narrow(0, 0, 0) for p in places]
    found = _aten.index.Tensor(self, [*indices[:position], *places])
    found = found.narrow(position, 0, count)
    return found if position == 0 else found.contiguous()


def _without_count(values: torch.Tensor, after: int, rank: int) -> bool:
    """Do ``values`` broadcast whatever the number of true elements?

    ``after`` dims follow the dim that counts them, out of ``rank`` in the result.
    """
    return values.ndim <= after or (values.ndim <= rank and values.shape[-1 - after] == 1)


def index_put_with_masks(
    self: torch.Tensor,
    indices: Indices,
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    """``self[indices] = values`` (or ``+=``) in place where some index is a mask."""
    _check_shapes(self, indices)
    position = _lone_mask(indices)
    if position is not None:
        mask = indices[position]
        after = self.ndim - position - mask.ndim
        # CPU PyTorch, too, writes one value wherever the mask is true, whatever its rank and dtype.
        fills = values.numel() == 1 and not accumulate
        if mask.ndim and (fills or _without_count(values, after, position + 1 + after)):
            return _put_everywhere(self, mask, position, after, values, accumulate)
    indices = expand_masks(indices)
    return _aten._index_put_impl_(self, indices, values, accumulate, unsafe)


def _put_everywhere(self, mask, position: int, after: int, values, accumulate: bool):
    lead = (1,) * position
    mask = mask.to(torch.bool).reshape(lead + tuple(mask.shape) + (1,) * after)
    if values.numel() == 1 and not accumulate:
        return self.masked_fill_(mask, values.reshape(()))
    check_same_dtype(self, values)
    if values.ndim > after:
        # The dim that counts (of size 1 here) becomes one dim for each dim of the mask.
        split = values.ndim - after - 1
        ones = (1,) * (self.ndim - position - after)
        values = values.reshape(*values.shape[:split], *ones, *values.shape[split + 1 :])
    written = self + values if accumulate else values.to(self.dtype)
    return _aten.where.self_out(mask, written, self, out=self)
