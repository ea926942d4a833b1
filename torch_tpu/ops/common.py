"""Small helpers shared by the element-wise rule files (pointwise, unary, compare, activation...).

No rules live here. The helpers cover what `promote=` leaves to a body: Python numbers that stay
Python numbers (specialized arguments, rules run inside a graph), widening, the bits of floats, and
the error function with the activation made of it.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value

BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""The signed integer of the same width, for looking at the bits of a float."""


def plain(argument, *numbers) -> bool:
    """True if ``argument`` is a Python number, and one of ``numbers`` if any are given."""
    if isinstance(argument, Value) or argument is None:
        return False
    return not numbers or argument in numbers


def operands(*arguments) -> list[Value]:
    """All arguments, Python numbers included, as values of one (compute) dtype and one shape."""
    dtype = promote.compute_dtype(promote.result_dtype(arguments))
    return promote.together(*arguments, dtype=dtype)


def scaled(x, factor):
    """``x * factor``, free of charge when the factor is the number one."""
    return x if plain(factor, 1) else x * factor


def is_unsigned(dtype: torch.dtype) -> bool:
    return str(dtype).startswith("torch.uint")


def widened(x: Value) -> Value:
    """16-bit floats as float32, everything else as it is."""
    return x.to(promote.compute_dtype(x.dtype))


def sign_bit(x: Value) -> Value:
    """Bool: the sign bit of a float (also of -0.0 and NaN), ``x < 0`` for integers."""
    if x.dtype is torch.bool or is_unsigned(x.dtype):
        return hlo.constant(False, torch.bool, x.shape)
    return hlo.bitcast(x, BITS[x.dtype]) < 0 if x.is_floating else x < 0


def with_sign_of(magnitude: Value, sign: Value) -> Value:
    """``copysign`` of two floats."""
    magnitude = hlo.abs(magnitude)
    return hlo.select(sign_bit(sign), -magnitude, magnitude)


def erf(x: Value) -> Value:
    """The error function. XLA's float32 one levels off 2e-7 short of 1; gelu multiplies that."""
    result = hlo.unary("chlo.erf", x)
    if x.dtype is torch.float64:
        return result
    return hlo.select(hlo.abs(x) > 3.85, hlo.unary("sign", x), result)


def gelu(x: Value) -> Value:
    """The exact gelu of a float32 or float64 value."""
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def is_infinite(x: Value) -> Value:
    return hlo.compare(hlo.abs(x), hlo.full_like(x, float("inf")), "EQ")
