"""Helpers for matrices, shared by the linear algebra rule files; no rules live here.

A matrix is the last two dims of a value. Loops work on one batch dim (`flat`), keep their arrays
whole and select by row and column number, since StableHLO has no ragged shapes.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, host, promote
from ..lowering.registry import expected


def flat(x, dims=2):
    """``x`` with all but its last ``dims`` dims made one."""
    lead = x.shape[: x.ndim - dims]
    return hlo.reshape(x, (math.prod(lead), *x.shape[x.ndim - dims :]))


def transposed(x):
    return hlo.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def conjugated(x):
    return hlo.complex(hlo.real(x), hlo.neg(hlo.imag(x))) if x.is_complex else x


def adjoint(x):
    return conjugated(transposed(x))


def matmul(a, b):
    """Product of two stacks of matrices with equal batch dims."""
    batch = range(a.ndim - 2)
    return hlo.dot_general(a, b, ([a.ndim - 1], [b.ndim - 2]), (batch, batch))


def numbers(x, dim):
    """int32 index along ``dim`` (negative) at every element of ``x``."""
    return hlo.iota(x.shape, x.ndim + dim, torch.int32)


def triangle(x, lower, diagonal=0):
    """The lower or upper triangle up to the ``diagonal``-th, zeros elsewhere."""
    across = numbers(x, -1) - numbers(x, -2)
    keep = across <= diagonal if lower else across >= diagonal
    return hlo.select(keep, x, hlo.zeros_like(x))


def identity(shape, dtype):
    eye = hlo.constant(1, dtype, shape)
    return hlo.select(numbers(eye, -1) == numbers(eye, -2), eye, hlo.zeros_like(eye))


def diagonal(x):
    """The main diagonal of square matrices."""
    masked = hlo.select(numbers(x, -1) == numbers(x, -2), x, hlo.zeros_like(x))
    return hlo.reduce(masked, "add", [x.ndim - 1])


def block(x, rows, columns):
    """``x[..., rows[0]:rows[1], columns[0]:columns[1]]``."""
    x = hlo.slice_dim(x, x.ndim - 2, *rows)
    return hlo.slice_dim(x, x.ndim - 1, *columns)


def at(x, dim, index):
    """``x[:, index]`` or ``x[:, :, index]`` for a 0-d run-time index: that dim is dropped."""
    dim %= x.ndim
    sizes = [1 if i == dim else s for i, s in enumerate(x.shape)]
    zero = hlo.constant(0, index.dtype)
    starts = [index if i == dim else zero for i in range(x.ndim)]
    return hlo.squeeze(hlo.dynamic_slice(x, starts, sizes), dim)


def spread(x, like, *dims):
    """Repeat ``x``, whose dims are the given dims of ``like``, to the shape of ``like``."""
    return hlo.broadcast_in_dim(x, like.shape, [d % like.ndim for d in dims])


def take_rows(x, index):
    """``x[b, index[b, r], :]``: rows of flat matrices picked for each matrix on its own."""
    size = x.shape[1]
    index = index + hlo.iota(index.shape, 0, torch.int32) * size
    rows = hlo.reshape(x, (x.shape[0] * size, *x.shape[2:]))
    return hlo.take(rows, index, 0)


def batched(a, b):
    """Two stacks of matrices, their batch dims broadcast together."""
    batch = promote.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return hlo.expand(a, (*batch, *a.shape[-2:])), hlo.expand(b, (*batch, *b.shape[-2:]))


def solve_triangular(a, b, *, lower, unit=False, adjoint=False, transpose=False):
    """``op(a)^-1 b`` for triangular ``a`` with the batch dims of ``b``."""
    if not b.numel or not a.numel:
        return hlo.zeros_like(b)
    word = "ADJOINT" if adjoint else "TRANSPOSE" if transpose else "NO_TRANSPOSE"
    return hlo.triangular_solve(a, b, left=True, lower=lower, unit=unit, transpose=word)


def of_lapack(A=None, self=None, LU=None, input=None) -> None:  # noqa: A002, N803
    """A `Rule.check`: the matrix, as schemas call it, is of a dtype that LAPACK has."""
    matrix = next(x for x in (A, self, LU, input) if x is not None)
    if matrix.dtype not in _LAPACK_DTYPES:
        raise NotImplementedError(
            f"linear algebra on matrices of {matrix.dtype} is not implemented; use float or "
            "double, or complex"
        )


_LAPACK_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def checked(name, **arguments):
    """A call with ``check_errors=True``: programs cannot raise, ATen's kernel in one can."""
    return host.aten_call(name, (), {**arguments, "check_errors": True}, expected())
