"""Torch's type promotion and broadcasting for symbolic values.

Rules say ``promote="arith"`` (common dtype), ``"float"`` (common dtype, integers become the
default float) or nothing; `apply` then prepares their arguments. Operators on `Value` come here
through `binary`. The rules are torch's (https://docs.pytorch.org/docs/stable/tensor_attributes.html
#type-promotion-doc): tensors with dimensions outrank 0-dim tensors, which outrank Python numbers,
unless the lower rank is of a higher category.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import hlo
from .builder import Value, current

Operand = Value | bool | int | float | complex

_NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def _category(dtype: torch.dtype) -> int:
    if dtype is torch.bool:
        return 0
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else 1


def number_dtype(number) -> torch.dtype:
    """Dtype torch gives a Python number when nothing outranks it."""
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64
    if isinstance(number, complex):
        return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    return torch.get_default_dtype()


def result_dtype(operands: Sequence[Operand]) -> torch.dtype:
    """`torch.result_type` over values and Python numbers."""
    ranks: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Value):
            rank = 2 if operand.weak else (1 if operand.ndim == 0 else 0)
            dtype = operand.dtype
            if operand.weak and dtype.is_floating_point:
                dtype = torch.get_default_dtype()
            elif operand.weak and dtype.is_complex:
                dtype = number_dtype(1j)
        else:
            rank, dtype = 2, number_dtype(operand)
        held = ranks[rank]
        ranks[rank] = dtype if held is None else torch.promote_types(held, dtype)
    result = ranks[0]
    for lower in ranks[1:]:
        if lower is None:
            continue
        if result is None or _category(lower) > _category(result):
            result = lower if result is None else _raise_category(result, lower)
    if result is None:
        raise ValueError("no operand to take a dtype from")
    return result


def _raise_category(higher: torch.dtype, lower: torch.dtype) -> torch.dtype:
    # A complex scalar beside a double tensor keeps the tensor's precision, as torch does.
    if lower.is_complex and higher.is_floating_point:
        return (
            torch.promote_types(higher, torch.complex64)
            if (higher is torch.float64 or lower is torch.complex64)
            else lower
        )
    return lower


def float_dtype(dtype: torch.dtype) -> torch.dtype:
    """``dtype`` itself if inexact, else torch's default float."""
    if dtype.is_floating_point or dtype.is_complex:
        return dtype
    return torch.get_default_dtype()


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype arithmetic runs in (torch's *opmath*): for floats of 8 and 16 bits float32."""
    return torch.float32 if dtype in _NARROW else dtype


def as_value(operand: Operand, dtype: torch.dtype) -> Value:
    """``operand`` as a value of ``dtype``; numbers become 0-dim constants."""
    if isinstance(operand, Value):
        return hlo.convert(operand, dtype)
    return current().constant(operand, dtype)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*map(tuple, shapes)))


def broadcast(values: Sequence[Value]) -> list[Value]:
    """Expand all values to their common shape, numpy-style."""
    shape = broadcast_shapes(*(v.shape for v in values))
    return [hlo.expand(v, shape) for v in values]


def together(*operands: Operand, dtype: torch.dtype | None = None) -> list[Value]:
    """Promote to a common dtype (or ``dtype``) and broadcast to a common shape."""
    dtype = dtype or result_dtype(operands)
    return broadcast([as_value(o, dtype) for o in operands])


_COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def binary(word: str, left: Operand, right: Operand) -> Value:
    dtype = result_dtype((left, right))
    if word == "divide":
        dtype = float_dtype(dtype)
    a, b = together(left, right, dtype=dtype)
    if word in _COMPARISONS:
        return hlo.compare(a, b, word)
    if dtype is torch.bool and word in ("add", "multiply"):
        word = "or" if word == "add" else "and"
    return hlo.binary(word, a, b)


def apply(kind: str, arguments: list, names: Sequence[str], skip: Sequence[str] = ()) -> list:
    """Promote the tensor and number arguments of one call as ``kind`` asks.

    ``kind`` is ``"arith"`` (common dtype), ``"float"`` (and integers to float), ``"wide"`` (as
    float, but only 16-bit floats change) or ``"compare"`` (common dtype without widening).
    16-bit floats compute in float32, since the CPU reference does; the result is rounded once at
    the end by the caller. Tensors are broadcast together.
    """
    chosen = [
        i
        for i, argument in enumerate(arguments)
        if isinstance(argument, Value) and names[i] not in skip
    ]
    if not chosen:
        return arguments
    dtype = result_dtype([arguments[i] for i in chosen])
    if kind == "float":
        dtype = float_dtype(dtype)
    if kind != "compare":
        dtype = compute_dtype(dtype)
    arguments = list(arguments)
    values = broadcast([as_value(arguments[i], dtype) for i in chosen])
    for i, value in zip(chosen, values, strict=True):
        arguments[i] = value
    return arguments
