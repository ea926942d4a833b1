"""The matrix exponential: a Taylor polynomial, with scaling and squaring for large norms.

The polynomial's degree is chosen inside the program by the largest 1-norm of the batch; above the
last limit matrices are halved until they are below it and their exponentials squared as often.
Each limit keeps the relative error of the truncated series under the unit roundoff of the dtype
(Bader, Blanes and Casas, 2019, table 1).
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.registry import op
from .matrix import flat, identity, matmul, spread

# (degree, block): Paterson and Stockmeyer's scheme takes block - 1 + degree / block - 1 products.
_SCHEMES = ((4, 2), (9, 3), (16, 4))
_LIMITS = {torch.float32: (5.1e-2, 5.8e-1, 2.4), torch.float64: (3.4e-4, 5.0e-2, 7.8e-1)}


def _scaled(x, number: float):
    return hlo.binary("multiply", x, hlo.full_like(x, number))


def _add(*terms):
    total = terms[0]
    for term in terms[1:]:
        total = hlo.binary("add", total, term)
    return total


def _taylor(a, degree: int, block: int):
    """The sum of a^k / k! up to ``degree``, a multiple of ``block``: Horner in a^block."""
    powers = [identity(a.shape, a.dtype), a]
    while len(powers) <= block:
        powers.append(matmul(powers[-1], a))
    total = _scaled(powers[block], 1 / math.factorial(degree))
    for low in range(degree - block, -1, -block):
        terms = (_scaled(powers[i], 1 / math.factorial(low + i)) for i in range(block))
        total = _add(total, *terms)
        if low:
            total = matmul(total, powers[block])
    return total


def _norm(a):
    return hlo.reduce(hlo.reduce(hlo.abs(a), "add", [1]), "maximum", [1])


def _any(mask):
    return hlo.reduce(mask, "or", [0])


def _half(a, norm, limit):
    """(matrices halved until their norm is below ``limit``, how often each was)."""
    times = hlo.constant(0, torch.int32, norm.shape)

    def step(a, norm, times):
        large = norm > limit
        return (
            hlo.select(spread(large, a, 0), _scaled(a, 0.5), a),
            hlo.select(large, _scaled(norm, 0.5), norm),
            hlo.select(large, times + 1, times),
        )

    result = hlo.while_loop(lambda a, norm, times: _any(norm > limit), step, [a, norm, times])
    return result[0], result[2]


def _square(x, times):
    def step(i, x):
        squared = hlo.select(spread(times > i, x, 0), matmul(x, x), x)
        return i + 1, squared

    start = [hlo.constant(0, torch.int32), x]
    return hlo.while_loop(lambda i, x: _any(times > i), step, start)[1]


def _exponential(a):
    """Of matrices (B, n, n) of a dtype that has limits; NaN where an element is not finite."""
    norm = _norm(a)
    limits = _LIMITS[norm.dtype]
    finite = hlo.is_finite(norm)
    # The loop that halves would never end for an infinite norm.
    norm = hlo.select(finite, norm, hlo.zeros_like(norm))
    largest = hlo.reduce(norm, "maximum", [0])

    def choose(level: int):
        degree, block = _SCHEMES[level]
        if level + 1 == len(_SCHEMES):
            halved, times = _half(a, norm, limits[level])
            return [_square(_taylor(halved, degree, block), times)]
        return hlo.conditional(
            largest <= limits[level],
            lambda: [_taylor(a, degree, block)],
            lambda: choose(level + 1),
            [(a.shape, a.dtype)],
        )

    nan = hlo.full_like(a, math.nan)
    return hlo.select(spread(finite, a, 0), choose(0)[0], nan)


@op("aten::linalg_matrix_exp")
def linalg_matrix_exp(self):
    if not self.numel:
        return self
    if self.shape[-1] == 1:
        return hlo.exp(self)
    a = self.to(promote.compute_dtype(self.dtype))
    return hlo.reshape(_exponential(flat(a)), self.shape).to(self.dtype)
