"""Cholesky factors, triangular systems, cross products.

LU and what rests on it is in `lu.py`, Householder factorizations are in `qr.py`; matrix helpers
are in `matrix.py`. XLA's Cholesky gives NaN where it fails and does not say at which row, so the
row is looked for in a branch that runs only then.
"""

from __future__ import annotations

import torch

from ..lowering import hlo
from ..lowering.registry import expected, op, procedure
from .common import same_dtype
from .matrix import (
    adjoint,
    at,
    batched,
    checked,
    conjugated,
    flat,
    identity,
    matmul,
    numbers,
    of_lapack,
    solve_triangular,
    spread,
    transposed,
    triangle,
)


def _factor(a):
    """Lower Cholesky factor of the lower triangle; NaN where the matrix is not positive."""
    a = triangle(a, lower=True)
    # The imaginary part of a Hermitian diagonal is not read.
    if a.is_complex:
        real = hlo.convert(hlo.real(a), a.dtype)
        a = hlo.select(numbers(a, -1) == numbers(a, -2), real, a)
    below = triangle(a, lower=True, diagonal=-1)
    return triangle(hlo.cholesky(hlo.binary("add", a, adjoint(below))), lower=True)


def _partial(a):
    """What LAPACK leaves when it stops: (factor as far as it got, 1-based row where it failed)."""
    rows, columns = numbers(a, -2), numbers(a, -1)
    info = hlo.constant(0, torch.int32, (a.shape[0],))

    def step(i, a, info):
        column = at(a, 2, i)
        pivot = hlo.real(at(column, 1, i))
        failed = hlo.not_(pivot > 0)
        info = hlo.select(hlo.binary("and", failed, info == 0), spread(i + 1, info), info)
        root = hlo.convert(hlo.sqrt(pivot), a.dtype)
        divided = hlo.binary("divide", column, spread(root, column, 0))
        # Not by division on the diagonal: inf / inf is NaN.
        column = hlo.select(numbers(column, -1) == i, spread(root, column, 0), divided)
        product = hlo.binary(
            "multiply", spread(column, a, 0, 1), spread(conjugated(column), a, 0, 2)
        )
        later = hlo.binary("and", columns > i, rows >= columns)
        new = hlo.select(later, hlo.binary("subtract", a, product), a)
        here = hlo.binary("and", columns == i, rows >= columns)
        new = hlo.select(here, spread(column, a, 0, 1), new)
        return i + 1, hlo.select(spread(info == 0, a, 0), new, a), info

    start = hlo.constant(0, torch.int32)
    result = hlo.while_loop(lambda i, a, info: i < a.shape[2], step, [start, a, info])
    return result[1], result[2]


@op("aten::linalg_cholesky_ex", check=of_lapack)
def linalg_cholesky_ex(self, upper=False, check_errors=False):
    if check_errors:
        return checked("aten::linalg_cholesky_ex", self=self, upper=upper)
    if not self.numel:
        return [self, hlo.constant(0, torch.int32, expected()[1].shape)]
    a = flat(adjoint(self) if upper else self)
    factor = _factor(a)
    failed = hlo.reduce(hlo.is_nan(factor), "or", [0, 1, 2])
    info = hlo.constant(0, torch.int32, (a.shape[0],))
    factor, info = hlo.conditional(
        failed,
        lambda: _partial(triangle(a, lower=True)),
        lambda: (factor, info),
        [(factor.shape, factor.dtype), (info.shape, info.dtype)],
    )
    factor = hlo.reshape(factor, self.shape)
    return [adjoint(factor) if upper else factor, hlo.reshape(info, self.shape[:-2])]


def _check_cholesky(self, upper=False, out=None) -> None:
    if self.ndim < 2:
        raise RuntimeError(
            f"cholesky: The input tensor A must have at least 2 dimensions, got {self.ndim}"
        )
    if out is not None and not torch.can_cast(self.dtype, out.dtype):
        raise RuntimeError(
            f"cholesky: Expected result to be safely castable from {self.dtype} dtype, but got "
            f"result with dtype {out.dtype}"
        )


@procedure("aten::cholesky", check=_check_cholesky)
def cholesky(self, upper=False, out=None):
    if out is not None and out.shape != self.shape:
        out.resize_(self.shape)  # contiguous, which the factor is not
    if self.numel() == 0:
        return self.clone(memory_format=torch.contiguous_format)
    factor, info = torch.ops.aten.linalg_cholesky_ex(self, upper=upper)
    torch.ops.aten._linalg_check_errors(info, "cholesky", is_matrix=self.ndim == 2)
    return factor


@op("aten::cholesky_inverse", check=of_lapack)
def cholesky_inverse(self, upper=False):
    factor = adjoint(self) if upper else self
    inverse = solve_triangular(factor, identity(self.shape, self.dtype), lower=True)
    return matmul(adjoint(inverse), inverse)


@op("aten::_cholesky_solve_helper", check=of_lapack)
def _cholesky_solve_helper(self, A, upper):
    half = solve_triangular(A, self, lower=not upper, adjoint=upper)
    return solve_triangular(A, half, lower=not upper, adjoint=not upper)


@op("aten::linalg_solve_triangular", check=of_lapack)
def linalg_solve_triangular(self, B, upper, left=True, unitriangular=False):
    a, b = batched(self, B) if left else batched(transposed(self), transposed(B))
    lower = upper != left
    result = solve_triangular(a, b, lower=lower, unit=unitriangular)
    return result if left else transposed(result)


@op("aten::triangular_solve", check=of_lapack)
def triangular_solve(self, A, upper=True, transpose=False, unitriangular=False):
    a, b = batched(A, self)
    solution = solve_triangular(a, b, lower=not upper, unit=unitriangular, transpose=transpose)
    return [solution, a]


@op(
    "aten::linalg_cross",
    promote="compare",
    layout="contiguous",
    check=same_dtype("self", "other"),
)
def linalg_cross(self, other, dim=-1):
    dim %= self.ndim
    order = hlo.array([1, 2, 0], torch.int32), hlo.array([2, 0, 1], torch.int32)
    left, right = (
        hlo.binary("multiply", hlo.take(self, i, dim), hlo.take(other, j, dim))
        for i, j in (order, order[::-1])
    )
    return hlo.binary("subtract", left, right)
