"""Householder factorizations: QR, its raw form (`geqrf`) and products with its Q.

The reflectors are those of LAPACK: H = 1 - tau v v^H with v[0] = 1, and the diagonal of R has the
opposite sign of the column it comes from. One loop makes them, one loop applies them.
"""

from __future__ import annotations

import torch

from ..lowering import hlo
from ..lowering.registry import expected, op
from .matrix import (
    adjoint,
    at,
    block,
    conjugated,
    flat,
    identity,
    numbers,
    of_lapack,
    spread,
    triangle,
)

_INT = torch.int32


def _reflector(column, i):
    """(v with zeros above row ``i``, beta, tau) for each column (B, m)."""
    rows = numbers(column, -1)
    alpha = at(column, 1, i)
    tail = hlo.select(rows > i, column, hlo.zeros_like(column))
    size = hlo.abs(tail)
    square = hlo.reduce(hlo.binary("multiply", size, size), "add", [1])
    real = hlo.real(alpha)
    norm = hlo.abs(alpha)
    norm = hlo.sqrt(hlo.binary("add", hlo.binary("multiply", norm, norm), square))
    # Nothing to eliminate: the reflector is the identity.
    idle = square == 0
    if alpha.is_complex:
        idle = hlo.binary("and", idle, hlo.imag(alpha) == 0)
    beta = hlo.select(real >= 0, hlo.neg(norm), norm)
    beta = hlo.convert(hlo.select(idle, real, beta), column.dtype)
    one = hlo.full_like(beta, 1)
    tau = hlo.binary("divide", hlo.binary("subtract", beta, alpha), hlo.select(idle, one, beta))
    tau = hlo.select(idle, hlo.zeros_like(tau), tau)  # also where alpha is NaN
    scale = hlo.select(idle, one, hlo.binary("subtract", alpha, beta))
    v = hlo.binary("divide", tail, spread(scale, tail, 0))
    return hlo.select(rows == i, hlo.full_like(v, 1), v), beta, tau


def _reflected(a, v, tau):
    """(1 - tau v v^H) a for each matrix (B, m, n), vector (B, m) and number (B)."""
    along = hlo.dot_general(conjugated(v), a, ([1], [1]), ([0], [0]))
    along = hlo.binary("multiply", along, spread(tau, along, 0))
    change = hlo.binary("multiply", spread(v, a, 0, 1), spread(along, a, 0, 2))
    return hlo.binary("subtract", a, change)


def _factor(a):
    """LAPACK's geqrf of (B, m, n): (R above the vectors, tau (B, k))."""
    batch, m, n = a.shape
    steps = min(m, n)
    rows, columns = numbers(a, -2), numbers(a, -1)

    def step(i, a, taus):
        column = at(a, 2, i)
        v, beta, tau = _reflector(column, i)
        inverse = conjugated(tau)
        reflected = hlo.select(columns > i, _reflected(a, v, inverse), a)
        below = hlo.select(numbers(v, -1) > i, v, column)
        here = hlo.select(numbers(v, -1) == i, spread(beta, v, 0), below)
        a = hlo.select(columns == i, spread(here, rows, 0, 1), reflected)
        return i + 1, a, hlo.select(numbers(taus, -1) == i, spread(tau, taus, 0), taus)

    start = [hlo.constant(0, _INT), a, hlo.constant(0, a.dtype, (batch, steps))]
    return hlo.while_loop(lambda i, *_: i < steps, step, start)[1:]


def _apply(vectors, taus, c, inverse=False):
    """Q c (or Q^H c) for Q = H_0 H_1 ... given as `_factor` gives it; all flat."""
    steps = taus.shape[1]

    def step(i, c):
        k = i if inverse else steps - 1 - i
        column, tau = at(vectors, 2, k), at(taus, 1, k)
        rows = numbers(column, -1)
        v = hlo.select(rows > k, column, hlo.zeros_like(column))
        v = hlo.select(rows == k, hlo.full_like(v, 1), v)
        return i + 1, _reflected(c, v, conjugated(tau) if inverse else tau)

    return hlo.while_loop(lambda i, _: i < steps, step, [hlo.constant(0, _INT), c])[1]


def _geqrf_meta(self) -> list:
    columns = torch.empty_like(self.mT, memory_format=torch.contiguous_format)
    return [columns.mT, self.new_empty((*self.shape[:-2], min(self.shape[-2:])))]


@op("aten::geqrf", meta=_geqrf_meta, check=of_lapack)
def geqrf(self):
    raw, tau = _factor(flat(self))
    return [hlo.reshape(v, meta.shape) for v, meta in zip((raw, tau), expected(), strict=True)]


@op("aten::linalg_householder_product", check=of_lapack)
def linalg_householder_product(input, tau):
    if not tau.numel:
        return identity(input.shape, input.dtype)
    vectors = flat(input)
    eye = identity(vectors.shape, input.dtype)
    return hlo.reshape(_apply(vectors, flat(tau, 1), eye), input.shape)


def _check_ormqr(self, input2, input3, left=True, transpose=False) -> None:
    # PyTorch looks at shapes before dtypes.
    torch.ormqr(self.float(), input2.float(), input3.float(), left, transpose)
    of_lapack(self)


@op("aten::ormqr", check=_check_ormqr)
def ormqr(self, input2, input3, left=True, transpose=False):
    vectors, taus, c = flat(self), flat(input2, 1), flat(input3)
    if not taus.numel:
        return input3
    if left:
        result = _apply(vectors, taus, c, inverse=transpose)
    else:
        result = adjoint(_apply(vectors, taus, adjoint(c), inverse=not transpose))
    return hlo.reshape(result, input3.shape)


@op("aten::linalg_qr", static=("mode",), check=of_lapack)
def linalg_qr(A, mode="reduced"):
    q_meta, r_meta = expected()
    empty_q = hlo.constant(0, A.dtype, q_meta.shape)
    if not A.numel:
        zeros = hlo.constant(0, A.dtype, r_meta.shape)
        return [identity(q_meta.shape, A.dtype) if mode == "complete" else empty_q, zeros]
    a = flat(A)
    raw, tau = _factor(a)
    r = triangle(raw, lower=False)
    m, n = a.shape[1:]
    r_rows = r_meta.shape[-2]
    r = hlo.reshape(block(r, (0, r_rows), (0, n)), r_meta.shape)
    if mode == "r":
        return [empty_q, r]
    eye = identity((a.shape[0], m, q_meta.shape[-1]), A.dtype)
    return [hlo.reshape(_apply(raw, tau, eye), q_meta.shape), r]
