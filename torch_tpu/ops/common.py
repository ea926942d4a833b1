"""Small helpers shared by the element-wise rule files (pointwise, unary, compare, activation...).

No rules live here. The helpers cover what `promote=` leaves to a body: Python numbers that stay
Python numbers (specialized arguments, rules run inside a graph), widening, the bits of floats, the
error function with the activation made of it, layouts of results, which dtypes operands and out=
arguments may have, and what is stored in which.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import overload

BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""The signed integer of the same width, for looking at the bits of a float."""


def same_dtype(*names: str):
    """A `Rule.check`: the tensors among these arguments must have one dtype, as on the CPU."""

    def check(**named) -> None:
        given = [named[name] for name in names if named.get(name) is not None]
        for other in given[1:]:
            if other.dtype is not given[0].dtype:
                raise RuntimeError(
                    f"expected scalar type {given[0].dtype} but found {other.dtype} "
                    f"({', '.join(names)} must have one dtype)"
                )

    return check


def common_dtype(*operands) -> torch.dtype:
    """What tensors and numbers promote to, dims considered."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
    return elementwise_dtypes(*operands, type_promotion_kind=kind)[1]


def storable(into: str, *names: str):
    """A `Rule.check`: what these arguments promote to can be stored in the dtype of ``into``."""

    def check(**named) -> None:
        given = [named[name] for name in (into, *names) if named.get(name) is not None]
        common, dtype = common_dtype(*given), given[0].dtype
        if not torch.can_cast(common, dtype):
            raise RuntimeError(
                f"result type {common} can't be cast to the desired output type {dtype} "
                f"(that of {into})"
            )

    return check


def checks(*every):
    """One `Rule.check` of several that take any arguments."""

    def check(**named) -> None:
        for one in every:
            one(**named)

    return check


def stored_as(name: str, argument: str) -> dict:
    """The `meta` of an operator whose only result has the dtype of ``argument``, as on the CPU,
    where PyTorch's meta kernel says what the operands promote to."""
    return {"meta": lambda **named: [overload(name)(**named).to(named[argument].dtype)]}


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


# ---- layouts of results ----------------------------------------------------------------------


def laid_out_as(result: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """``result``, a meta tensor, with channels last if one of ``inputs`` has them.

    CPU kernels of images and volumes do so; many of PyTorch's meta kernels do not.
    """
    from torch._prims_common import suggest_memory_format  # slow to import

    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(result.ndim)
    follows = any(suggest_memory_format(x) is last for x in inputs)
    return torch.empty_like(result, memory_format=last if follows else torch.contiguous_format)


def channels_last_kept(name: str) -> dict:
    """The `meta` of an operator whose only result has the layout of ``self``."""
    return {"meta": lambda self, **options: [laid_out_as(overload(name)(self, **options), self)]}


# ---- checks of out= arguments ----------------------------------------------------------------

PAIR = {"values": None, "indices": torch.int64}
"""Dtypes of the out= arguments of an operator that gives values and their places."""


def check_dtypes(name: str, x, given, **wanted) -> None:
    """Refuse out= arguments among ``given`` of another dtype than ``wanted`` (None: that of x)."""
    for argument, dtype in wanted.items():
        out, dtype = given.get(argument), dtype or x.dtype
        if out is not None and out.dtype is not dtype:
            raise RuntimeError(
                f"{name}: Expected {argument} tensor to have dtype {dtype}, but got {out.dtype}"
            )


def _kind(x) -> tuple[str, object]:
    """(complex, float, int or bool; the dtype or Python type) of a tensor, dtype or number."""
    dtype = x.dtype if isinstance(x, torch.Tensor) else x
    if not isinstance(dtype, torch.dtype):
        return type(x).__name__, type(x).__name__
    for kind in ("complex", "floating_point"):
        if getattr(dtype, f"is_{kind}"):
            return kind.removesuffix("ing_point"), dtype
    return "bool" if dtype is torch.bool else "int", dtype


def undefined(name: str, dtype, error: type[Exception] = NotImplementedError) -> None:
    """Raise what CPU PyTorch raises for a dtype that an operator is not defined for."""
    raise error(f"aten::{name} is not defined for {dtype}")


def refuse(name: str, *operands, **errors: type[Exception]) -> None:
    """Raise ``errors[kind]`` for an operand of that kind: complex, float, int or bool.

    The classes are those that CPU PyTorch raises, sometimes before it looks at anything else.
    """
    for operand in operands:
        kind, dtype = _kind(operand)
        if kind in errors:
            undefined(name, dtype, errors[kind])


FLOATS_ONLY = dict.fromkeys(("int", "bool"), NotImplementedError)
"""Errors of functions of floats that promote nothing (see `refuse`)."""
REALS_ONLY = {**FLOATS_ONLY, "complex": NotImplementedError}
"""Errors of functions of real floats."""
NUMBERS_ONLY = dict.fromkeys(("complex", "bool"), NotImplementedError)
"""Errors of functions of real numbers that know no bool."""


def refusing(name: str, *names: str, **errors: type[Exception]) -> dict:
    """The `check` of a function that is not defined for some kinds of operands (see `refuse`).

    ``names`` are its operands, if they are not called as most are.
    """

    def check(**named):
        refuse(name, *(named.get(n) for n in names or ("self", "x", "other")), **errors)

    return {"check": check}


def refuse_together(name: str, *operands, **errors: type[Exception]) -> None:
    """As `refuse`, by what the operands promote to: a bool beside an integer is an integer."""
    dtype = common_dtype(*(x for x in operands if x is not None))
    refuse(name, dtype, **errors)


def refusing_together(name: str, *names: str, **errors: type[Exception]) -> dict:
    """The `check` that is `refuse_together` of the arguments ``names``."""

    def check(**named):
        refuse_together(name, *(named.get(n) for n in names or ("self", "other")), **errors)

    return {"check": check}


def real_only(name: str, error: type[Exception] = NotImplementedError) -> dict:
    """The `check` of a function that is not defined for complex numbers."""
    return refusing(name, complex=error)


def exact_out(name: str, **dtypes) -> dict:
    """The `check` of an operator whose out= arguments have exactly ``dtypes``."""
    return {"check": lambda self, **given: check_dtypes(name, self, given, **dtypes)}
