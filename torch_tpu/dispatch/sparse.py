"""Sparse COO tensors: the operators that ATen writes for each device by hand.

A sparse tensor is two dense ones, indices ``[sparse dims, entries]`` and values ``[entries, dense
dims]``, and everything here is composed of dense operators on them, so it runs as programs like any
other call. The operators that are metadata or compositions in ATen itself are registered in
csrc/device/sparse.cc; what is in neither place PyTorch's dispatcher refuses by name.

The number of entries that are left after duplicates were summed depends on data: it is fetched from
the device, programs work on the next power of two, and results are cut (`ops.masks.bucket`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ..ops.masks import bucket

Tensor = torch.Tensor
_aten = torch.ops.aten
_kernels: dict[str, Callable] = {}
_libraries: list[torch.library.Library] = []  # a library takes its kernels along when it goes


def _kernel(name: str) -> Callable[[Callable], Callable]:
    """Make the function the sparse kernel of an overload, e.g. ``"aten::add.out"``."""

    def decorate(body: Callable) -> Callable:
        _kernels[name] = body
        return body

    return decorate


def register() -> None:
    """Hand the kernels to PyTorch's dispatcher; once, inside `import torch`."""
    libraries = {}
    for name, body in _kernels.items():
        space, _, rest = name.partition("::")
        if space not in libraries:
            libraries[space] = torch.library.Library(space, "IMPL", "SparsePrivateUse1")
        libraries[space].impl(rest, body)
    _libraries.extend(libraries.values())


# ---- entries and their positions -----------------------------------------------------------------


def _sparse(indices: Tensor, values: Tensor, size: Sequence[int], coalesced: bool | None) -> Tensor:
    """The sparse tensor over these two, without copies or checks. What is coalesced for None has
    fewer than two entries."""
    return _aten._sparse_coo_tensor_with_dims_and_tensors(
        indices.shape[0],
        values.ndim - 1,
        size,
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=coalesced,
    )


def _keys(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """The row-major position of each entry among dims of ``sizes``."""
    if not sizes:
        return indices.new_zeros(indices.shape[1])
    first, *others = indices.unbind(0)
    for index, size in zip(others, sizes[1:], strict=True):
        first = first * size + index
    return first


def _keys_of(x: Tensor) -> Tensor:
    return _keys(x._indices(), x.shape[: x.sparse_dim()])


def _across(flags: Tensor, values: Tensor) -> Tensor:
    """One flag per entry, shaped to broadcast over ``values``."""
    return flags.reshape(-1, *(1,) * (values.ndim - 1))


def _sum_groups(values: Tensor, group: Tensor, count: int) -> Tensor:
    """Sums of the entries of each of ``count`` groups; the sum of booleans is whether any is."""
    dtype = torch.int32 if values.dtype is torch.bool else values.dtype
    sums = torch.zeros((count, *values.shape[1:]), dtype=dtype, device=values.device)
    return sums.index_add_(0, group, values.to(dtype)).to(values.dtype)


def _find(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(position in the sorted ``keys``, not empty, of each wanted one, whether it is there)."""
    place = torch.searchsorted(keys, wanted).clamp(max=keys.shape[0] - 1)
    return place, keys.index_select(0, place) == wanted


@_kernel("aten::_coalesce")
def coalesce(self: Tensor) -> Tensor:
    nnz, indices, values = self._nnz(), self._indices(), self._values()
    if nnz < 2:
        return self.clone()._coalesced_(True)
    keys, order = _keys_of(self).sort(stable=True)
    distinct, group, _ = _aten.unique_consecutive(keys, return_inverse=True)
    count = distinct.shape[0]
    size = bucket(count, nnz)
    starts = torch.searchsorted(group, torch.arange(size, device=group.device)).clamp(max=nnz - 1)
    indices = indices.index_select(1, order.index_select(0, starts))
    values = _sum_groups(values.index_select(0, order), group, size)
    return _sparse(indices.narrow(1, 0, count), values.narrow(0, 0, count), self.shape, True)


# ---- results -------------------------------------------------------------------------------------


def _check_device(name: str, self: Tensor, other: Tensor) -> None:
    if self.device != other.device:
        raise RuntimeError(
            f"{name}: Expected all tensors to be on the same device, but found {self.device} and "
            f"{other.device}"
        )


def _check_alike(name: str, self: Tensor, other: Tensor) -> None:
    _check_device(name, self, other)
    if self.shape != other.shape:
        raise RuntimeError(
            f"{name}: expected tensors of one size, got {list(self.shape)} and "
            f"{list(other.shape)}; sparse tensors do not broadcast here"
        )


def _common_dtype(name: str, self: Tensor, other: Tensor, out: Tensor) -> torch.dtype:
    dtype = torch.promote_types(self.dtype, other.dtype)
    if not torch.can_cast(dtype, out.dtype):
        raise RuntimeError(f"{name}: can't convert result type {dtype} to output {out.dtype}")
    return dtype


def _factor(name: str, number, dtype: torch.dtype):
    """A number as the CPU's kernels take it: in the dtype that they compute in."""
    if dtype.is_complex:
        return number
    if isinstance(number, complex):
        raise RuntimeError(f"{name}: the complex number {number} does not fit {dtype} tensors")
    if dtype.is_floating_point:
        return number
    return bool(number) if dtype is torch.bool else int(number)


def _scaled(values: Tensor, factor) -> Tensor:
    return values if factor == 1 else values * factor


def _write(out: Tensor, result: Tensor) -> Tensor:
    return out if out is result else out.copy_(result)


# ---- sums ----------------------------------------------------------------------------------------


@_kernel("aten::add.out")
def add(self: Tensor, other: Tensor, *, alpha=1, out: Tensor) -> Tensor:
    # PyTorch gives Python the numbers of `1 - x` and `x.add_(1)` as numbers.
    self, other = (
        x if isinstance(x, Tensor) else torch.tensor(x, device=out.device) for x in (self, other)
    )
    if not self.is_sparse:
        return _add_to_dense(self, other, alpha, out)
    if not other.is_sparse:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _check_alike("add", self, other)
    dtype = _common_dtype("add", self, other, out)
    alpha = _factor("add", alpha, dtype)
    if not other._nnz():
        return _write(out, self)
    added = _scaled(other._values().to(dtype), alpha)
    if not self._nnz():
        return _write(out, _sparse(other._indices(), added, self.shape, other.is_coalesced()))
    if self.sparse_dim() != other.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same density, but 'self' has "
            f"{self.sparse_dim()} sparse dimensions while 'other' has {other.sparse_dim()}"
        )
    indices = torch.cat((self._indices(), other._indices()), 1)
    values = torch.cat((self._values().to(dtype), added))
    result = _sparse(indices, values, self.shape, False)
    # Sums of coalesced tensors are coalesced; others are where there are surely duplicates, or they
    # would grow for ever by being added to.
    places = math.prod(self.shape[: self.sparse_dim()])
    if (self.is_coalesced() and other.is_coalesced()) or result._nnz() > places:
        result = coalesce(result)
    return _write(out, result)


def _add_to_dense(self: Tensor, other: Tensor, alpha, out: Tensor) -> Tensor:
    _check_alike("add", self, other)
    dtype = _common_dtype("add", self, other, out)
    alpha = _factor("add", alpha, dtype)
    if out is self and out.dtype is dtype:
        return _accumulate(out, other, alpha)
    total = _accumulate(self.to(dtype, copy=True), other, alpha)
    if out.shape != self.shape:
        out.resize_(self.shape)
    return out.copy_(total)


def _accumulate(total: Tensor, x: Tensor, alpha) -> Tensor:
    """``total += alpha * x`` in place, duplicates included: they need not be summed before."""
    if not x._values().numel():
        return total
    if total.dtype is torch.bool:
        x = x.coalesce()
    values, places = x._values().to(total.dtype), list(x._indices().unbind(0))
    if not places:
        return total.add_(_sum_groups(values, torch.zeros_like(_keys_of(x)), 1)[0], alpha=alpha)
    if total.dtype is torch.bool:
        values = _aten.index.Tensor(total, places) | (values & alpha)
        return _aten.index_put_(total, places, values)
    if len(places) == 1:
        return total.index_add_(0, places[0], values, alpha=alpha)
    return _aten.index_put_(total, places, _scaled(values, alpha), True)


# ---- elementwise products and masks --------------------------------------------------------------


@_kernel("torch_tpu::mul_sparse.out")
def mul(self: Tensor, other: Tensor, *, out: Tensor) -> Tensor:
    """Both operands are sparse; csrc/device/sparse.cc serves the other products."""
    if not (self.ndim and other.ndim):
        scalar, factor = (other, self) if self.ndim else (self, other)
        return _aten.mul.out(factor, scalar.to_dense(), out=out)
    _check_alike("mul", self, other)
    dtype = _common_dtype("mul", self, other, out)
    self, other = self.coalesce(), other.coalesce()
    if self.sparse_dim() != other.sparse_dim():
        raise RuntimeError(
            f"mul: expected tensors of the same number of sparse dimensions, got "
            f"{self.sparse_dim()} and {other.sparse_dim()}"
        )
    if not (self._nnz() and other._nnz()):
        return out.copy_(torch.zeros_like(self, dtype=out.dtype))
    place, hit = _find(_keys_of(other), _keys_of(self))
    both = hit.nonzero().squeeze(1)
    there = place.index_select(0, both)
    ours = self._values().index_select(0, both).to(dtype)
    theirs = other._values().index_select(0, there).to(dtype)
    indices = self._indices().index_select(1, both)
    return out.copy_(_sparse(indices, ours * theirs, self.shape, True))


@_kernel("aten::sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    if not mask.is_sparse:
        raise RuntimeError("sparse_mask: expected the mask to be sparse COO, got a dense tensor")
    _check_alike("sparse_mask", self, mask)
    if self is mask:
        return self
    if not mask._nnz() or not mask.numel():
        return mask.clone().to(self.dtype)
    indices = mask._indices()
    if self.is_sparse:
        values = _looked_up(self.coalesce(), mask)
    elif indices.shape[0]:
        values = _aten.index.Tensor(self, list(indices.unbind(0)))
    else:
        values = self.unsqueeze(0).expand(mask._values().shape).contiguous()
    return _sparse(indices, values, mask.shape, mask.is_coalesced())


def _check_dims(name: str, self: Tensor, mask: Tensor) -> None:
    if self.sparse_dim() != mask.sparse_dim():
        raise RuntimeError(
            f"{name}: the mask has {mask.sparse_dim()} sparse dimensions, self {self.sparse_dim()}"
        )


def _looked_up(self: Tensor, mask: Tensor) -> Tensor:
    """The values of the coalesced ``self`` at the entries of ``mask``, zeros where it has none."""
    _check_dims("sparse_mask", self, mask)
    values = self._values()
    if not self._nnz():
        return values.new_zeros((mask._nnz(), *values.shape[1:]))
    place, hit = _find(_keys_of(self), _keys_of(mask))
    found = values.index_select(0, place)
    return torch.where(_across(hit, found), found, torch.zeros_like(found))


@_kernel("aten::_sparse_mask_projection")
def sparse_mask_projection(self: Tensor, mask: Tensor, accumulate_matches=False) -> Tensor:
    """``self`` with zeros where the mask has no entry, times the number of its entries if asked."""
    _check_alike("_sparse_mask_projection", self, mask)
    _check_dims("_sparse_mask_projection", self, mask)
    values = self._values()
    keys, wanted = _keys_of(mask).sort().values, _keys_of(self)
    hits = torch.searchsorted(keys, wanted, right=True) - torch.searchsorted(keys, wanted)
    kept = values * _across(hits, values).to(values.dtype) if accumulate_matches else values
    kept = torch.where(_across(hits > 0, kept), kept, torch.zeros_like(kept))
    return _sparse(self._indices(), kept, self.shape, self.is_coalesced())


# ---- sparse @ dense ------------------------------------------------------------------------------


def _check_matrices(name: str, dims: int, sparse: Tensor, dense: Tensor) -> None:
    """Checks a product of matrices (``dims`` = 2) or batches of them (3)."""
    if not sparse.is_sparse or dense.is_sparse:
        raise NotImplementedError(
            f"aten::{name}: on tpu the first matrix must be sparse COO and the second dense, got "
            f"{sparse.layout} and {dense.layout}"
        )
    _check_device(name, sparse, dense)
    if sparse.sparse_dim() != dims or sparse.dense_dim() or dense.ndim != dims:
        raise RuntimeError(
            f"{name}: matrices expected, got {sparse.sparse_dim()} sparse and "
            f"{sparse.dense_dim()} dense dimensions, and {dense.ndim}D"
        )
    if sparse.shape[-1] != dense.shape[-2] or sparse.shape[:-2] != dense.shape[:-2]:
        raise RuntimeError(
            f"{name}: cannot multiply {list(sparse.shape)} by {list(dense.shape)}: sizes differ"
        )
    if sparse.dtype is torch.bool and sparse._nnz():
        raise NotImplementedError(f"aten::{name} is not implemented for sparse torch.bool matrices")
    if sparse.dtype is not dense.dtype:
        raise RuntimeError(f"{name}: expected one dtype, got {sparse.dtype} and {dense.dtype}")


def _add_product(total: Tensor, places: Sequence[Tensor], values, dense: Tensor, alpha=1) -> Tensor:
    """``total += alpha * sparse @ dense`` in place, for entries at ``places`` (row, column)."""
    if not (values.numel() and total.numel()):
        return total
    rows, columns = places
    terms = values.unsqueeze(1) * dense.index_select(0, columns)
    return total.index_add_(0, rows, terms, alpha=alpha)


@_kernel("aten::addmm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta=1, alpha=1) -> Tensor:
    _check_matrices("addmm", 2, mat1, mat2)
    if self.is_sparse:
        raise NotImplementedError("aten::addmm: on tpu the sum of a sparse product must be dense")
    if self.dtype is not mat1.dtype:
        raise RuntimeError(f"addmm: expected one dtype, got {self.dtype} and {mat1.dtype}")
    shape = (mat1.shape[0], mat2.shape[1])
    beta, alpha = _factor("addmm", beta, self.dtype), _factor("addmm", alpha, self.dtype)
    total = self.new_zeros(shape) if beta == 0 else _scaled(self, beta).expand(shape).clone()
    return _add_product(total, mat1._indices().unbind(0), mat1._values(), mat2, alpha)


@_kernel("aten::addmm.out")
def addmm_out(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta=1, alpha=1, out: Tensor) -> Tensor:
    result = addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


@_kernel("aten::addmm_")
def addmm_inplace(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta=1, alpha=1) -> Tensor:
    shape = [mat1.shape[0], mat2.shape[-1]]
    if list(self.shape) != shape:
        raise RuntimeError(f"addmm_: self has size {list(self.shape)}, the product has {shape}")
    return self.copy_(addmm(self, mat1, mat2, beta=beta, alpha=alpha))


@_kernel("aten::bmm")
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    _check_matrices("bmm", 3, self, mat2)
    (count, height, width), last = self.shape, mat2.shape[2]
    batch, rows, columns = self._indices().unbind(0)
    places = (batch * height + rows, batch * width + columns)
    total = self._values().new_zeros((count * height, last))
    total = _add_product(total, places, self._values(), mat2.reshape(count * width, last))
    return total.reshape(count, height, last)


# ---- one entry with many -------------------------------------------------------------------------


def _pairs(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """All (i, j) with ``keys[i] == wanted[j]``, by j and then i."""
    if not (keys.numel() and wanted.numel()):
        none = keys.new_empty(0, dtype=torch.int64)
        return none, none
    keys, order = keys.sort(stable=True)
    starts = torch.searchsorted(keys, wanted)
    ends = (torch.searchsorted(keys, wanted, right=True) - starts).cumsum(0)
    count = int(ends[-1].item())
    numbers = torch.arange(bucket(count), device=keys.device)
    second = torch.searchsorted(ends, numbers, right=True).clamp(max=wanted.shape[0] - 1)
    before = torch.cat((ends.new_zeros(1), ends)).index_select(0, second)
    place = starts.index_select(0, second) + numbers - before
    first = order.index_select(0, place.clamp(max=keys.shape[0] - 1))
    return first.narrow(0, 0, count), second.narrow(0, 0, count)


def _check_index(self: Tensor, dim: int, index: Tensor) -> None:
    _check_device("index_select", self, index)
    if not -self.ndim <= dim < self.ndim:
        raise IndexError(f"index_select(): dim {dim} is out of range for a {self.ndim}D tensor")
    if index.ndim != 1 or index.dtype not in (torch.int32, torch.int64):
        raise IndexError(
            f"index_select(): the index must be 1D and int32 or int64, got {index.ndim}D "
            f"{index.dtype}"
        )
    low, high = torch.stack(index.aminmax()).tolist() if index.numel() else (0, -1)
    length = self.shape[dim]
    if low < -length or high >= length:
        raise IndexError(f"index_select(): index out of range for dim {dim} of size {length}")


@_kernel("aten::index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    _check_index(self, dim, index)
    dim %= self.ndim
    index = index.to(torch.int64) % max(self.shape[dim], 1)
    shape = (*self.shape[:dim], index.shape[0], *self.shape[dim + 1 :])
    indices, values = self._indices(), self._values()
    if dim >= self.sparse_dim():
        values = values.index_select(dim - self.sparse_dim() + 1, index)
        return _sparse(indices, values, shape, self.is_coalesced())
    first, second = _pairs(indices[dim], index)
    indices = indices.index_select(1, first)
    indices[dim] = second
    return _sparse(indices, values.index_select(0, first), shape, None)


@_kernel("aten::_sparse_sparse_matmul")
def matmul(self: Tensor, other: Tensor) -> Tensor:
    _check_device("sparse_matmul", self, other)
    if self.ndim != 2 or other.ndim != 2 or self.dense_dim() or other.dense_dim():
        raise RuntimeError(
            f"sparse_matmul: matrices expected, got {list(self.shape)} and {list(other.shape)} "
            f"with {self.dense_dim()} and {other.dense_dim()} dense dimensions"
        )
    if self.shape[1] != other.shape[0]:
        raise RuntimeError(
            f"sparse_matmul: cannot multiply {list(self.shape)} by {list(other.shape)}: the inner "
            "sizes differ"
        )
    if self.dtype is not other.dtype:
        raise RuntimeError(f"sparse_matmul: expected one dtype, got {self.dtype}, {other.dtype}")
    if not (self.is_floating_point() or self.is_complex()):
        raise NotImplementedError(
            f"aten::_sparse_sparse_matmul is not implemented for {self.dtype}"
        )
    (rows, inner), (others, columns) = self._indices().unbind(0), other._indices().unbind(0)
    right, left = _pairs(others, inner)
    indices = torch.stack((rows.index_select(0, left), columns.index_select(0, right)))
    values = self._values().index_select(0, left) * other._values().index_select(0, right)
    return _sparse(indices, values, (self.shape[0], other.shape[1]), False).coalesce()


# ---- sums over dims ------------------------------------------------------------------------------


@_kernel("aten::_sparse_sum_backward")
def sparse_sum_backward(grad: Tensor, self: Tensor, dim: Sequence[int]) -> Tensor:
    """Every entry of ``self`` gets the gradient of the sum that it went into."""
    self = self.coalesce()
    sparse_dim, indices, values = self.sparse_dim(), self._indices(), self._values()
    summed = {d % self.ndim for d in dim}
    kept = [d for d in range(sparse_dim) if d not in summed]
    if kept:
        grad = grad.coalesce()
        sizes = [self.shape[d] for d in kept]
        found = grad._values()
        if len(kept) < sparse_dim and grad._nnz():
            wanted = _keys(torch.stack([indices[d] for d in kept]), sizes)
            place, hit = _find(_keys(grad._indices(), sizes), wanted)
            found = found.index_select(0, place)
            found = torch.where(_across(hit, found), found, torch.zeros_like(found))
        elif not grad._nnz():
            found = found.new_zeros((values.shape[0], *found.shape[1:]))
    else:
        found = grad.unsqueeze(0)
    for d in sorted(d for d in summed if d >= sparse_dim):
        found = found.unsqueeze(d + 1 - sparse_dim)
    return _sparse(indices, found.expand(values.shape).contiguous(), self.shape, True)
