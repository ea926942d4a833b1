"""Operators whose result size depends on data: the unique family and bincount.

Procedures over real tensors: device operators find everything at full size, one number is read
back, programs work on the next power of two (`masks.bucket`) and results are cut to the number.
Every NaN counts as a value of its own, as in ATen.
"""

from __future__ import annotations

import torch

from ..lowering.registry import procedure
from .common import refuse, undefined
from .masks import bucket
from .shape import wrap


def _groups(new: torch.Tensor) -> torch.Tensor:
    """Group number of each position, where ``new`` marks all but the first group's start."""
    first = new.new_zeros(1, dtype=torch.int64)
    return torch.cat([first, new.to(torch.int64).cumsum(0)])


def _starts(group: torch.Tensor) -> tuple[torch.Tensor, int]:
    """First position of each group, and the number of groups, which is read back.

    The positions fill a bucket: what follows the last group is the number of elements.
    """
    count = int(group[-1].item()) + 1
    size = bucket(count, group.shape[0])
    return torch.searchsorted(group, torch.arange(size, device=group.device)), count


def _at(x: torch.Tensor, dim: int, starts: torch.Tensor, count: int) -> torch.Tensor:
    """``x`` at the first ``count`` of ``starts`` along ``dim``, stored slice by slice."""
    slices = x.movedim(dim, 0)
    found = slices.index_select(0, starts.clamp(max=slices.shape[0] - 1))
    return found.narrow(0, 0, count).movedim(0, dim)


def _sizes(starts: torch.Tensor, count: int, total: int) -> torch.Tensor:
    return torch.cat([starts, starts.new_full((1,), total)]).diff().narrow(0, 0, count)


def _none(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.int64, device=like.device)


def _unsorted(order: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """``group``, listed in sorted order, back at the positions ``order`` came from."""
    return torch.empty_like(group).scatter_(0, order, group)


def _distinct(x: torch.Tensor, inverse: bool, counts: bool, sort: bool):
    """(values, inverse, counts) of the elements of ``x``, of equal neighbours unless ``sort``."""
    if not x.numel():
        where = _none(x).reshape(x.shape) if inverse else _none(x)
        return x.reshape(0), where, _none(x)
    flat = x.reshape(-1)
    values, order = flat.sort(stable=True) if sort else (flat, None)
    group = _groups(values[1:] != values[:-1])
    starts, count = _starts(group)
    where = group if order is None else _unsorted(order, group) if inverse else group
    return (
        _at(values, 0, starts, count),
        where.reshape(x.shape) if inverse else _none(x),
        _sizes(starts, count, flat.numel()) if counts else _none(x),
    )


def _check_unique(self, **options) -> None:
    refuse("unique", self, complex=NotImplementedError)


@procedure("aten::_unique2", check=_check_unique)
def _unique2(self, sorted=True, return_inverse=False, return_counts=False):
    return _distinct(self, return_inverse, return_counts, sort=True)


@procedure("aten::_unique", check=_check_unique)
def _unique(self, sorted=True, return_inverse=False):
    return _distinct(self, return_inverse, False, sort=True)[:2]


# ---- whole slices ----------------------------------------------------------------------------


def _ranks(x: torch.Tensor) -> torch.Tensor:
    """Dense rank of each element within its column of ``x`` [n, m]."""
    values, order = x.sort(dim=0, stable=True)
    new = (values[1:] != values[:-1]).to(torch.int64).cumsum(0)
    rank = torch.cat([new.new_zeros(1, x.shape[1]), new])
    return torch.empty_like(rank).scatter_(0, order, rank)


def _row_ranks(x: torch.Tensor) -> torch.Tensor:
    """Dense rank of each row of ``x`` [n, m] in lexicographic order, in log2(m) sorts."""
    ranks = _ranks(x)
    while ranks.shape[1] > 1:
        if ranks.shape[1] % 2:
            ranks = torch.nn.functional.pad(ranks, (0, 1))
        ranks = _ranks(ranks[:, 0::2] * x.shape[0] + ranks[:, 1::2])
    return ranks[:, 0]


def _rows_of(x: torch.Tensor, dim: int) -> torch.Tensor:
    """``x`` as [size of dim, everything else]."""
    if 0 in x.shape and x.shape[dim]:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    size = x.shape[dim]
    return x.movedim(dim, 0).reshape(size, x.numel() // max(size, 1))


@procedure("aten::unique_dim", check=_check_unique)
def unique_dim(self, dim, sorted=True, return_inverse=False, return_counts=False):
    rows = _rows_of(self, dim)
    if not rows.numel():
        return self.clone(), _none(self), _none(self)
    group, order = _row_ranks(rows).sort(stable=True)
    starts, count = _starts(group)
    kept = _at(self.index_select(dim, order), dim, starts, count)
    return kept, _unsorted(order, group), _sizes(starts, count, rows.shape[0])


@procedure("aten::unique_dim_consecutive", check=_check_unique)
def unique_dim_consecutive(self, dim, return_inverse=False, return_counts=False):
    rows = _rows_of(self, dim)
    if not rows.numel():
        return self.clone(), _none(self), _none(self)
    group = _groups((rows[1:] != rows[:-1]).any(dim=1))
    starts, count = _starts(group)
    kept = _at(self, dim, starts, count)
    return kept, group, _sizes(starts, count, rows.shape[0])


@procedure("aten::unique_consecutive", check=_check_unique)
def unique_consecutive(self, return_inverse=False, return_counts=False, dim=None):
    if dim is not None and not (self.ndim == 1 and wrap(dim, 1) == 0):
        return unique_dim_consecutive(self, dim, return_inverse, return_counts)
    return _distinct(self, return_inverse, return_counts, sort=False)


# ---- bincount --------------------------------------------------------------------------------


_COUNTABLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@procedure("aten::bincount")
def bincount(self, weights=None, minlength=0):
    if self.dtype not in _COUNTABLE:
        undefined("bincount", self.dtype)
    if minlength < 0:
        raise RuntimeError(f"bincount: minlength should be >= 0, got {minlength}")
    if self.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if not self.numel():
        return torch.zeros(minlength, dtype=torch.int64, device=self.device)
    low, high = torch.stack(self.aminmax()).to(torch.int64).tolist()
    if low < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        weights = torch.ones_like(self, dtype=torch.int64)
    elif weights.dtype is not torch.float32:
        weights = weights.to(torch.float64)
    length = max(high + 1, minlength)
    counts = torch.zeros(bucket(length), dtype=weights.dtype, device=self.device)
    return counts.scatter_add_(0, self.to(torch.int64), weights).narrow(0, 0, length)
