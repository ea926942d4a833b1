"""Pairwise distances: cdist and pdist, forward and backward.

The p-norm of a difference is reduced without materializing the differences (XLA fuses them into
the reduction). As in ATen, large Euclidean problems go through a matrix product instead. CPU
PyTorch has no 16-bit kernels here; these compute such inputs in float32.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.promote import broadcast_shapes
from ..lowering.registry import expected, op
from .common import same_dtype
from .reduce import vector_norm, widen

# ATen's threshold: with more rows than this on either side, p = 2 uses a matrix product.
_MATMUL_ROWS = 25


def _differences(x1: Value, x2: Value) -> Value:
    """[..., P, 1, M] - [..., 1, R, M], with the batch dims broadcast."""
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    x1 = hlo.expand(x1, (*batch, *x1.shape[-2:]))
    x2 = hlo.expand(x2, (*batch, *x2.shape[-2:]))
    n = len(batch)
    return hlo.unsqueeze(x1, n + 1) - hlo.unsqueeze(x2, n)


def _distance(difference: Value, p: float) -> Value:
    return vector_norm(difference, p, [difference.ndim - 1], keepdim=False)


def _slope(difference: Value, distance: Value, p: float) -> Value:
    """d distance / d difference, element-wise; zero where the distance is zero."""
    zero = hlo.zeros_like(difference)
    if p == 0:
        return zero
    sign, size = hlo.unary("sign", difference), hlo.abs(difference)
    if p == 1:
        return sign
    distance = hlo.expand(hlo.unsqueeze(distance, distance.ndim), difference.shape)
    if math.isinf(p):
        return hlo.select(size == distance, sign, zero)
    flat = distance == 0
    if p == 2:
        return hlo.select(flat, zero, difference / distance)
    if p < 1:
        flat = flat | (difference == 0)
    return hlo.select(flat, zero, sign * size ** (p - 1) / distance ** (p - 1))


def _rounded(x: Value) -> Value:
    return hlo.convert(x, expected()[0].dtype)


def _by_product(x1: Value, x2: Value) -> Value:
    """Euclidean distances as sqrt(|x1|^2 - 2 x1.x2 + |x2|^2)."""
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    x1 = hlo.expand(x1, (*batch, *x1.shape[-2:]))
    x2 = hlo.expand(x2, (*batch, *x2.shape[-2:]))
    n = len(batch)
    lead = list(range(n))
    product = hlo.dot_general(x1, x2, ([n + 1], [n + 1]), (lead, lead))
    squares1 = hlo.unsqueeze(hlo.reduce(x1 * x1, "add", [n + 1]), n + 1)
    squares2 = hlo.unsqueeze(hlo.reduce(x2 * x2, "add", [n + 1]), n)
    square = squares1 + squares2 - product * 2
    return hlo.sqrt(hlo.maximum(square, hlo.zeros_like(square)))


@op("aten::_cdist_forward", check=same_dtype("x1", "x2"))
def _cdist_forward(x1, x2, p, compute_mode=None):
    x1, x2 = widen(x1), widen(x2)
    rows = max(x1.shape[-2], x2.shape[-2])
    wanted = rows > _MATMUL_ROWS if not compute_mode else compute_mode == 1
    if p == 2 and wanted:
        return _rounded(_by_product(x1, x2))
    return _rounded(_distance(_differences(x1, x2), p))


@op("aten::_euclidean_dist")
def _euclidean_dist(x1, x2):
    return _rounded(_by_product(widen(x1), widen(x2)))


@op("aten::_cdist_backward", check=same_dtype("grad", "x1", "x2", "cdist"))
def _cdist_backward(grad, x1, x2, p, cdist):
    grad, x1, x2, cdist = map(widen, (grad, x1, x2, cdist))
    slope = _slope(_differences(x1, x2), cdist, p)
    grad = hlo.expand(hlo.unsqueeze(grad, grad.ndim), slope.shape)
    result = hlo.reduce(grad * slope, "add", [slope.ndim - 2])
    return _rounded(hlo.reshape(result, expected()[0].shape))


# ---- pdist: the strict upper triangle, row by row --------------------------------------------


def _first_pair(n: int, row: Value) -> Value:
    return row * (2 * n - 1 - row) / 2


def _pair_rows(n: int) -> tuple[Value, Value]:
    """Row and column of each of the n(n-1)/2 pairs i < j, computed rather than stored."""
    k = hlo.iota((n * (n - 1) // 2,), 0)
    exact = hlo.convert(k, torch.float64)
    row = hlo.floor((2 * n - 1 - hlo.sqrt((2 * n - 1) ** 2 - exact * 8)) / 2)
    # The square root may round across an integer.
    row = hlo.select(_first_pair(n, row) > exact, row - 1, row)
    row = hlo.select(_first_pair(n, row + 1) <= exact, row + 1, row)
    column = exact - _first_pair(n, row) + row + 1
    return hlo.convert(row, torch.int64), hlo.convert(column, torch.int64)


@op("aten::_pdist_forward")
def _pdist_forward(self, p=2.0):
    x = widen(self)
    i, j = _pair_rows(x.shape[0])
    return _rounded(_distance(hlo.take(x, i, 0) - hlo.take(x, j, 0), p))


@op("aten::_pdist_backward", check=same_dtype("grad", "self", "pdist"))
def _pdist_backward(grad, self, p, pdist):
    grad, x, pdist = map(widen, (grad, self, pdist))
    i, j = _pair_rows(x.shape[0])
    slope = _slope(hlo.take(x, i, 0) - hlo.take(x, j, 0), pdist, p)
    flow = hlo.expand(hlo.unsqueeze(grad, 1), slope.shape) * slope
    rows = hlo.concatenate([i, j], 0)
    return _rounded(
        hlo.scatter(
            hlo.zeros_like(x),
            hlo.unsqueeze(rows, 1),
            hlo.concatenate([flow, hlo.neg(flow)], 0),
            "add",
            window_dims=[1],
            inserted=[0],
            index_map=[0],
            index_vector_dim=1,
        )
    )
