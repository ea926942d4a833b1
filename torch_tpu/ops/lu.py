"""LU factorization with partial pivoting, and solving, inverting and determinants by it.

Blocked as in LAPACK: panels of at least `_PANEL` columns are factored by a loop of rank-1 updates,
the rest follows by triangular solves and matrix products. Pivots are LAPACK's 1-based row
exchanges; inside, they are applied as one permutation. `_linalg_det` and `_linalg_slogdet` factor
the transpose of real contiguous matrices, because PyTorch's derivatives use these factors so.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.registry import expected, op
from .matrix import (
    adjoint,
    at,
    block,
    checked,
    diagonal,
    flat,
    identity,
    matmul,
    numbers,
    of_lapack,
    solve_triangular,
    spread,
    take_rows,
    transposed,
    triangle,
)

_PANEL = 64
_MOST_PANELS = 4  # each is a loop of its own, of some 0.3 s to compile
_INT = torch.int32


def _magnitude(x):
    """What LAPACK compares to find a pivot."""
    return (
        hlo.binary("add", hlo.abs(hlo.real(x)), hlo.abs(hlo.imag(x)))
        if x.is_complex
        else (hlo.abs(x))
    )


def _largest(column, first):
    """Row of the largest element from row ``first`` on, for each matrix of ``column`` (B, m)."""
    rows = numbers(column, -1)
    size = _magnitude(column)
    # As in LAPACK a NaN is larger than nothing, but one on the diagonal stays where it is.
    at_nan = hlo.select(rows == first, hlo.full_like(size, math.inf), hlo.full_like(size, -1))
    size = hlo.select(hlo.is_nan(size), at_nan, size)
    size = hlo.select(rows >= first, size, hlo.full_like(size, -2))

    def better(best, at_best, new, at_new):
        tie = hlo.binary("and", new == best, at_new < at_best)
        takes = hlo.binary("or", new > best, tie)
        return hlo.select(takes, new, best), hlo.select(takes, at_new, at_best)

    start = [hlo.constant(-2, size.dtype), hlo.constant(column.shape[1], _INT)]
    return hlo.reduce_many([size, rows], start, [1], better)[1]


def _exchanged(x, i, row_i, p, row_p):
    """``x`` (B, m, ...) with rows ``i`` (0-d) and ``p`` (B) exchanged, given both rows."""
    rows = hlo.iota(x.shape, 1, _INT)
    dims = [0, *range(2, x.ndim)]
    is_p = rows == hlo.broadcast_in_dim(p, x.shape, [0])
    x = hlo.select(is_p, hlo.broadcast_in_dim(row_i, x.shape, dims), x)
    return hlo.select(rows == i, hlo.broadcast_in_dim(row_p, x.shape, dims), x)


def _row(x, p):
    """``x[b, p[b]]``."""
    return hlo.squeeze(take_rows(x, hlo.unsqueeze(p, 1)), 1)


def _panel(a):
    """(LU, permutation (B, m), 0-based exchanges (B, k), info (B)) of few columns, by a loop."""
    batch, m, n = a.shape
    steps = min(m, n)
    rows, columns = numbers(a, -2), numbers(a, -1)

    def step(i, a, permutation, pivots, info):
        p = _largest(at(a, 2, i), i)
        upper, lower = _row(a, p), at(a, 1, i)
        a = _exchanged(a, i, lower, p, upper)
        permutation = _exchanged(permutation, i, at(permutation, 1, i), p, _row(permutation, p))
        pivots = hlo.select(numbers(pivots, -1) == i, spread(p, pivots, 0), pivots)
        pivot = at(upper, 1, i)
        zero = pivot == 0
        info = hlo.select(hlo.binary("and", zero, info == 0), spread(i + 1, info), info)
        column = at(a, 2, i)
        scaled = hlo.binary("divide", column, spread(pivot, column, 0))
        column = hlo.select(spread(zero, column, 0), column, scaled)
        outer = hlo.binary("multiply", spread(column, a, 0, 1), spread(upper, a, 0, 2))
        below = rows > i
        new = hlo.select(columns > i, hlo.binary("subtract", a, outer), a)
        new = hlo.select(columns == i, spread(column, a, 0, 1), new)
        return i + 1, hlo.select(below, new, a), permutation, pivots, info

    start = [
        hlo.constant(0, _INT),
        a,
        hlo.iota((batch, m), 1, _INT),
        hlo.constant(0, _INT, (batch, steps)),
        hlo.constant(0, _INT, (batch,)),
    ]
    return hlo.while_loop(lambda i, *_: i < steps, step, start)[1:]


def _factor(a, w=0):
    """`_panel` of matrices (B, m, n) of any width, in panels of ``w`` columns."""
    m, n = a.shape[1:]
    w = w or max(_PANEL, -(-min(m, n) // _MOST_PANELS))
    if min(m, n) <= w:
        return _panel(a)
    left, order, pivots, info = _panel(block(a, (0, m), (0, w)))
    right = take_rows(block(a, (0, m), (w, n)), order)
    upper = solve_triangular(
        block(left, (0, w), (0, w)), block(right, (0, w), (0, n - w)), lower=True, unit=True
    )
    low = block(left, (w, m), (0, w))
    rest = hlo.binary("subtract", block(right, (w, m), (0, n - w)), matmul(low, upper))
    rest, order_rest, pivots_rest, info_rest = _factor(rest, w)
    top = hlo.concatenate([block(left, (0, w), (0, w)), upper], 2)
    bottom = hlo.concatenate([take_rows(low, order_rest), rest], 2)
    kept, moved = hlo.slice_dim(order, 1, 0, w), hlo.slice_dim(order, 1, w, m)
    later = hlo.binary("and", info == 0, info_rest > 0)
    return (
        hlo.concatenate([top, bottom], 1),
        hlo.concatenate([kept, take_rows(moved, order_rest)], 1),
        hlo.concatenate([pivots, pivots_rest + w], 1),
        hlo.select(later, info_rest + w, info),
    )


def _permutation(pivots, m):
    """The row order (B, m) that 1-based exchanges (B, k) amount to."""

    def step(i, order):
        p = at(pivots, 1, i) - 1
        return i + 1, _exchanged(order, i, at(order, 1, i), p, _row(order, p))

    start = [hlo.constant(0, _INT), hlo.iota((pivots.shape[0], m), 1, _INT)]
    return hlo.while_loop(lambda i, _: i < pivots.shape[1], step, start)[1]


def _inverse(order):
    columns = hlo.iota((*order.shape, order.shape[1]), 1, _INT)
    hits = columns == hlo.broadcast_in_dim(order, columns.shape, [0, 2])
    where = hlo.select(hits, hlo.iota(columns.shape, 2, _INT), hlo.zeros_like(columns))
    return hlo.reduce(where, "add", [2])


def _solve(lu, order, b, transpose):
    """``A x = b`` given the factors of A, or of its adjoint if ``transpose``; all flat."""
    if transpose:
        half = solve_triangular(lu, b, lower=False, adjoint=True)
        half = solve_triangular(lu, half, lower=True, unit=True, adjoint=True)
        return take_rows(half, _inverse(order))
    half = solve_triangular(lu, take_rows(b, order), lower=True, unit=True)
    return solve_triangular(lu, half, lower=False)


def _solve_side(lu, order, b, left, transpose):
    if left:
        return _solve(lu, order, b, transpose)
    return adjoint(_solve(lu, order, adjoint(b), not transpose))


def _transposed_first(a):
    """Whether PyTorch's derivatives expect the factors of the transpose (see the docstring).

    ``contiguous`` is set by the core on arguments that are strided views.
    """
    return not a.is_complex and getattr(a, "contiguous", True)


# ---- rules ---------------------------------------------------------------------------------


def _empty_factors(a, metas):
    """Results of a factorization of no elements: metas name LU, pivots, then info if any."""
    zeros = [hlo.constant(0, meta.dtype, meta.shape) for meta in metas[1:]]
    return [hlo.reshape(a, metas[0].shape), *zeros]


@op("aten::linalg_lu_factor_ex", check=of_lapack)
def linalg_lu_factor_ex(A, pivot=True, check_errors=False):
    if check_errors:
        return checked("aten::linalg_lu_factor_ex", A=A, pivot=pivot)
    _only_pivoting(pivot)
    if not A.numel:
        return _empty_factors(A, expected())
    lu, _, pivots, info = _factor(flat(A))
    return [_shaped(v, meta) for v, meta in zip((lu, pivots + 1, info), expected(), strict=True)]


def _only_pivoting(pivot):
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the tpu")


def _shaped(x, meta):
    return hlo.reshape(x, meta.shape)


def _unpacked(lu):
    m, n = lu.shape[-2:]
    k = min(m, n)
    low = block(lu, (0, m), (0, k))
    low = hlo.binary("add", triangle(low, True, -1), identity(low.shape, low.dtype))
    return low, triangle(block(lu, (0, k), (0, n)), lower=False)


def _permutation_matrix(order, dtype):
    """P (B, m, m) with ``A = P L U``: column r has its one in row order[r]."""
    shape = (*order.shape, order.shape[1])
    ones = hlo.iota(shape, 1, _INT) == hlo.broadcast_in_dim(order, shape, [0, 2])
    return hlo.convert(ones, dtype)


@op("aten::linalg_lu", check=of_lapack)
def linalg_lu(A, pivot=True):
    _only_pivoting(pivot)
    metas = expected()
    if not A.numel:
        low = identity(metas[1].shape, A.dtype)
        return [identity(metas[0].shape, A.dtype), low, hlo.constant(0, A.dtype, metas[2].shape)]
    lu, order, _, _ = _factor(flat(A))
    results = (_permutation_matrix(order, A.dtype), *_unpacked(lu))
    return [_shaped(v, meta) for v, meta in zip(results, metas, strict=True)]


@op("aten::lu_unpack")
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    results = [hlo.constant(0, meta.dtype, meta.shape) for meta in expected()]
    if unpack_pivots and results[0].numel:
        order = _permutation(flat(LU_pivots, 1), LU_data.shape[-2])
        results[0] = _shaped(_permutation_matrix(order, LU_data.dtype), expected()[0])
    if unpack_data:
        results[1:] = _unpacked(LU_data)
    return results


@op("aten::_linalg_solve_ex", check=of_lapack)
def _linalg_solve_ex(A, B, left=True, check_errors=False):
    if check_errors:
        return checked("aten::_linalg_solve_ex", A=A, B=B, left=left)
    metas = expected()
    if not A.numel:
        return [hlo.constant(0, B.dtype, metas[0].shape), *_empty_factors(A, metas[1:])]
    lu, order, pivots, info = _factor(flat(A))
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    b = hlo.unsqueeze(B, B.ndim) if vector else B
    batch = metas[0].shape[: -1 if vector else -2]
    b = flat(hlo.expand(b, (*batch, *b.shape[-2:])))
    lus, orders = _broadcast(lu, order, A.shape[:-2], batch)
    solution = _solve_side(lus, orders, b, left or vector, False)
    results = (solution, lu, pivots + 1, info)
    return [_shaped(v, meta) for v, meta in zip(results, metas, strict=True)]


def _broadcast(lu, order, lead, batch):
    """Flat factors of batch ``lead`` repeated for ``batch``."""
    if tuple(lead) == tuple(batch):
        return lu, order
    lu = hlo.expand(hlo.reshape(lu, (*lead, *lu.shape[1:])), (*batch, *lu.shape[1:]))
    order = hlo.reshape(order, (*lead, order.shape[1]))
    return flat(lu), flat(hlo.expand(order, (*batch, order.shape[-1])), 1)


@op("aten::linalg_lu_solve", check=of_lapack)
def linalg_lu_solve(LU, pivots, B, left=True, adjoint=False):
    batch = expected()[0].shape[:-2]
    order = _permutation(flat(pivots, 1), LU.shape[-1])
    lu, order = _broadcast(flat(LU), order, LU.shape[:-2], batch)
    b = flat(hlo.expand(B, (*batch, *B.shape[-2:])))
    return _shaped(_solve_side(lu, order, b, left, adjoint), expected()[0])


@op("aten::linalg_inv_ex", check=of_lapack)
def linalg_inv_ex(A, check_errors=False):
    if check_errors:
        return checked("aten::linalg_inv_ex", A=A)
    if not A.numel:
        return [A, hlo.constant(0, _INT, expected()[1].shape)]
    a = flat(A)
    lu, order, _, info = _factor(a)
    inverse = _solve(lu, order, identity(a.shape, a.dtype), False)
    return [_shaped(inverse, expected()[0]), _shaped(info, expected()[1])]


def _parity(pivots):
    """-1 for every exchange of two different rows (0-based pivots), multiplied up."""
    moved = pivots != numbers(pivots, -1)
    signs = hlo.select(moved, hlo.full_like(pivots, -1), hlo.full_like(pivots, 1))
    return hlo.reduce(signs, "multiply", [1])


def _determinant_factors(A):
    return _factor(flat(transposed(A) if _transposed_first(A) else A))


@op("aten::_linalg_det", check=of_lapack)
def _linalg_det(A):
    metas = expected()
    if not A.numel:
        return [hlo.constant(1, A.dtype, metas[0].shape), *_empty_factors(A, metas[1:])]
    lu, _, pivots, _ = _determinant_factors(A)
    product = hlo.reduce(diagonal(lu), "multiply", [1])
    result = hlo.binary("multiply", product, hlo.convert(_parity(pivots), A.dtype))
    results = (result, lu, pivots + 1)
    return [_shaped(v, meta) for v, meta in zip(results, metas, strict=True)]


def _sign(x):
    """x / |x|, and 0 for 0 and for a real NaN."""
    if not x.is_complex:
        return hlo.select(hlo.is_nan(x), hlo.zeros_like(x), hlo.unary("sign", x))
    size = hlo.convert(hlo.abs(x), x.dtype)
    return hlo.select(x == 0, x, hlo.binary("divide", x, size))


@op("aten::_linalg_slogdet", check=of_lapack)
def _linalg_slogdet(A):
    metas = expected()
    if not A.numel:
        first = [hlo.constant(1, A.dtype, metas[0].shape)]
        first.append(hlo.constant(0, metas[1].dtype, metas[1].shape))
        return [*first, *_empty_factors(A, metas[2:])]
    lu, _, pivots, _ = _determinant_factors(A)
    diag = diagonal(lu)
    sign = hlo.reduce(_sign(diag), "multiply", [1])
    sign = hlo.binary("multiply", sign, hlo.convert(_parity(pivots), A.dtype))
    size = hlo.reduce(hlo.log(hlo.abs(diag)), "add", [1])
    results = (sign, size, lu, pivots + 1)
    return [_shaped(v, meta) for v, meta in zip(results, metas, strict=True)]
