"""Element-wise arithmetic on two or three operands.

Here: add to xlogy, division and its roundings, powers, clamping, selection by mask. One-operand
functions are in `unary.py`; comparisons, logic and bits in `compare.py`. Integer division by zero
raises on the CPU; here, as on other accelerators, it yields an unspecified number (XLA's) and never
ends the process.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import binary, expected, op
from .common import (
    FLOATS_ONLY,
    NUMBERS_ONLY,
    REALS_ONLY,
    is_infinite,
    is_unsigned,
    operands,
    plain,
    real_only,
    refuse,
    refuse_together,
    refusing,
    refusing_together,
    scaled,
    with_sign_of,
)

_ALPHA = {"alpha": (1,)}


def _rows(names: str, word, promote: str = "arith", **options) -> None:
    """Register ``word`` for several overloads; Python numbers are made values for it."""
    for name in names.split():
        binary(f"aten::{name}", lambda a, b: word(*operands(a, b)), promote=promote, **options)


# ---- sums and products ---------------------------------------------------------------------


def _check_alpha(self, other, alpha=1) -> None:
    dtype = torch.result_type(self, other)
    inexact = dtype.is_floating_point or dtype.is_complex
    if isinstance(alpha, bool) and dtype is not torch.bool:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if not inexact and not isinstance(alpha, int):
        raise RuntimeError(f"alpha={alpha}: for integral tensors, alpha must be an integer")
    if not dtype.is_complex and isinstance(alpha, complex):
        raise RuntimeError(f"alpha={alpha}: for real tensors, alpha must not be complex")


@op(
    "aten::add.Tensor",
    "aten::add.Scalar",
    promote="arith",
    specialize=_ALPHA,
    check=_check_alpha,
)
def add_Tensor(self, other, alpha=1):
    return self + scaled(other, alpha)


def _check_difference(self, other, alpha=1) -> None:
    for operand in (self, other):
        if isinstance(operand, bool) or getattr(operand, "dtype", None) is torch.bool:
            raise RuntimeError(
                "Subtraction, the `-` operator, with a bool tensor is not supported. Invert a mask "
                "with `~` or `logical_not()`, and take a difference with `^`."
            )
    _check_alpha(self, other, alpha)


@op(
    "aten::sub.Tensor",
    "aten::sub.Scalar",
    promote="arith",
    specialize=_ALPHA,
    check=_check_difference,
)
def sub_Tensor(self, other, alpha=1):
    return self - scaled(other, alpha)


@op(
    "aten::rsub.Tensor",
    "aten::rsub.Scalar",
    promote="arith",
    specialize=_ALPHA,
    check=_check_difference,
    layout=("other", "self"),
)
def rsub_Tensor(self, other, alpha=1):
    return other - scaled(self, alpha)


@op("aten::addcmul", overlap="partial", specialize={"value": (1,)})
def addcmul(self, tensor1, tensor2, value=1):
    self, tensor1, tensor2 = operands(self, tensor1, tensor2)
    # ``value`` has no say in the dtype: among integers a float is truncated.
    if not plain(value, 1):
        value = hlo.expand(promote.as_value(value, self.dtype), self.shape)
    return (self + scaled(tensor1, value) * tensor2).to(expected()[0].dtype)


def check_addcdiv(tensor1, tensor2) -> None:
    if not any(x.is_floating_point() or x.is_complex() for x in (tensor1, tensor2)):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, got "
            f"{tensor1.dtype} and {tensor2.dtype}; make one of the tensors floating point"
        )


@op("aten::addcdiv", promote="arith", specialize={"value": (1,)}, check=check_addcdiv)
def addcdiv(self, tensor1, tensor2, value=1):
    return self + scaled(tensor1, value) / tensor2


@op(
    "aten::lerp.Scalar",
    "aten::lerp.Tensor",
    promote="arith",
    **refusing("lerp", "self", **FLOATS_ONLY),
)
def lerp_Tensor(self, end, weight):
    self, end, weight = operands(self, end, weight)
    distance = end - self
    # Starting from the nearer end keeps the result exact at both ends.
    near_end = end - distance * (1 - weight)
    return hlo.where(hlo.abs(weight) < 0.5, self + weight * distance, near_end)


_rows("mul.Tensor mul.Scalar", lambda a, b: a * b)


# ---- division ------------------------------------------------------------------------------


def _truncated(x: Value) -> Value:
    return hlo.select(x < 0, hlo.unary("ceil", x), hlo.floor(x)) if x.is_floating else x


def _signs_differ(remainder: Value, divisor: Value) -> Value:
    return (remainder != 0) & ((remainder < 0) ^ (divisor < 0))


def _divide_trunc(a: Value, b: Value) -> Value:
    return _truncated(hlo.binary("divide", a, b))


def _divide_floor(a: Value, b: Value) -> Value:
    remainder = a % b
    borrow = _signs_differ(remainder, b).to(a.dtype)
    if not a.is_floating:
        return hlo.binary("divide", a, b) - borrow
    # Python's floor division: the quotient of the exact multiple, so that 1 // 0.1 is 9.
    quotient = (a - remainder) / b - borrow
    floor = hlo.floor(quotient)
    floor = floor + (quotient - floor > 0.5).to(a.dtype)
    true_quotient = a / b
    floor = hlo.select(quotient == 0, with_sign_of(hlo.zeros_like(a), true_quotient), floor)
    return hlo.select(b == 0, true_quotient, floor)


def _python_remainder(a: Value, b: Value) -> Value:
    remainder = a % b
    return hlo.select(_signs_differ(remainder, b), remainder + b, remainder)


@op("aten::div.Tensor_mode", "aten::div.Scalar_mode", promote="arith")
def div_Tensor_mode(self, other, rounding_mode=None):
    if rounding_mode is None:
        return self / other
    divide = {"trunc": _divide_trunc, "floor": _divide_floor}[rounding_mode]
    return divide(*operands(self, other))


_rows("div.Tensor div.Scalar", lambda a, b: a / b, promote="float")
_rows(
    "floor_divide floor_divide.Scalar",
    _divide_floor,
    **refusing_together("floor_divide", **NUMBERS_ONLY),
)
_rows(
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor",
    _python_remainder,
    **refusing_together("remainder", **NUMBERS_ONLY),
)
_rows(
    "fmod.Tensor fmod.Scalar",
    lambda a, b: a % b,
    **refusing_together("fmod", **NUMBERS_ONLY),
)


# ---- powers --------------------------------------------------------------------------------


def _integer_power(base: Value, exponent: Value) -> Value:
    """By repeated squaring. XLA's own looks at six bits of the exponent only."""
    negative = exponent < 0
    everywhere = list(range(base.ndim))

    def unfinished(base, exponent, power):
        return hlo.reduce(exponent != 0, "or", everywhere)

    def step(base, exponent, power):
        half = hlo.binary("shift_right_logical", exponent, hlo.full_like(exponent, 1))
        return [base * base, half, hlo.select((exponent & 1) != 0, power * base, power)]

    # The inverse is a whole number for 1 and -1 only, where one bit of the exponent decides.
    start = [base, hlo.select(negative, exponent & 1, exponent), hlo.full_like(base, 1)]
    power = hlo.while_loop(unfinished, step, start)[2]
    whole = base == 1 if is_unsigned(base.dtype) else hlo.abs(base) == 1
    return hlo.select(negative & hlo.not_(whole), hlo.zeros_like(power), power)


def _power(self, exponent):
    self, exponent = operands(self, exponent)
    if self.is_integral:
        return _integer_power(self, exponent)
    power = self**exponent
    if not self.is_complex:
        return power
    # XLA goes through log(0) here; a zero base vanishes where the exponent's real part is positive.
    vanishes = (self == 0) & (hlo.real(exponent) > 0)
    return hlo.select(vanishes, hlo.zeros_like(power), power)


def _check_power(self, exponent) -> None:
    dtype = torch.result_type(self, exponent)
    if not isinstance(exponent, bool):  # True and False are no powers: x and 1 of any dtype
        refuse("pow", dtype, bool=NotImplementedError)
    inexact = dtype.is_floating_point or dtype.is_complex
    if isinstance(exponent, int) and exponent < 0 and not inexact:
        raise RuntimeError("Integers to negative integer powers are not allowed.")


op("aten::pow.Tensor_Tensor", promote="arith", check=_check_power)(_power)
op("aten::pow.Scalar", promote="arith", check=_check_power, layout="contiguous")(_power)

_SHORT_POWERS = {  # False and True are among them
    0: lambda x: hlo.full_like(x, 1),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: hlo.sqrt,
    -0.5: hlo.rsqrt,
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
}


@op(
    "aten::pow.Tensor_Scalar",
    promote="arith",
    specialize={"exponent": tuple(_SHORT_POWERS)},
    bounds={"exponent": "integer power"},
    # PyTorch's meta kernel takes True for the integer 1.
    meta=lambda self, exponent: [torch.mul(self, exponent)],
    check=_check_power,
)
def pow_Tensor_Scalar(self, exponent):
    if plain(exponent, *_SHORT_POWERS):
        x = self.to(promote.compute_dtype(expected()[0].dtype))
        return _SHORT_POWERS[exponent](x)
    return _power(self, exponent)


def _check_ldexp(self, other) -> None:
    if self.is_floating_point():
        refuse("ldexp", other, bool=NotImplementedError)


@op("aten::ldexp.Tensor", overlap="", check=_check_ldexp)
def ldexp_Tensor(self, other):
    # The power is real, also of a complex number: an infinite one must not be taken for complex.
    exponent = other.to(promote.float_dtype(other.dtype))
    return (self * hlo.full_like(exponent, 2) ** exponent).to(expected()[0].dtype)


def _xlogy(a: Value, b: Value) -> Value:
    product = hlo.select(a == 0, hlo.zeros_like(a), a * hlo.log(b))
    return hlo.select(hlo.is_nan(b), b, product)


_rows(
    "xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other",
    _xlogy,
    promote="float",
    **real_only("xlogy"),
)


def _log_sum(a: Value, b: Value, exponential, log_of_sum) -> Value:
    """log(exp(a) + exp(b)) without overflow; ``log_of_sum`` is log(1 + x) in the same base."""
    largest = hlo.maximum(a, b)
    total = largest + log_of_sum(exponential(-hlo.abs(a - b)))
    # inf - inf is NaN; equal infinities are their own sum.
    return hlo.select(is_infinite(a) & (a == b), a, total)


def _log1p(x: Value) -> Value:
    return hlo.unary("log_plus_one", x)


def _log_sum_exp(a: Value, b: Value) -> Value:
    if not a.is_complex:
        return _log_sum(a, b, hlo.exp, _log1p)
    smaller = hlo.real(a) < hlo.real(b)
    low, high = hlo.select(smaller, a, b), hlo.select(smaller, b, a)
    total = _log1p(hlo.exp(low - high)) + high
    # As in ATen: two exponentials of -inf are zero whatever their angles, those of inf add up.
    least, most = hlo.real(low), hlo.real(high)
    infinite = is_infinite(most) & (least == most)
    beyond = hlo.select(most < 0, low, hlo.log(hlo.exp(low) + hlo.exp(high)))
    total = hlo.select(infinite, beyond, total)
    nan = hlo.full_like(a, complex(math.nan, math.nan))
    return hlo.select(hlo.is_nan(a) | hlo.is_nan(b), nan, total)


_rows(
    "logaddexp",
    _log_sum_exp,
    promote="float",
    **refusing_together("logaddexp", **FLOATS_ONLY),
)
_rows(
    "logaddexp2",
    lambda a, b: _log_sum(
        a, b, lambda x: hlo.full_like(x, 2) ** x, lambda x: _log1p(x) * (1 / math.log(2))
    ),
    promote="float",
    **refusing_together("logaddexp2", **REALS_ONLY),
)


# ---- larger and smaller --------------------------------------------------------------------


def _extremum(word: str):
    def choose(a: Value, b: Value) -> Value:
        return hlo.binary(hlo.boolean_word(word, a.dtype), a, b)

    return choose


def _extremum_ignoring_nan(word: str):
    def choose(a: Value, b: Value) -> Value:
        chosen = _extremum(word)(a, b)
        if not a.is_floating:
            return chosen
        return hlo.select(hlo.is_nan(a), b, hlo.select(hlo.is_nan(b), a, chosen))

    return choose


_larger, _smaller = _extremum("maximum"), _extremum("minimum")
_rows("maximum", _larger, **real_only("maximum", RuntimeError))
_rows("minimum", _smaller, **real_only("minimum", RuntimeError))
_rows("fmax", _extremum_ignoring_nan("maximum"), **real_only("fmax", RuntimeError))
_rows("fmin", _extremum_ignoring_nan("minimum"), **real_only("fmin", RuntimeError))


def _check_clamp(self, min=None, max=None) -> None:  # noqa: A002 - the schema's names
    refuse_together("clamp", self, min, max, **NUMBERS_ONLY)


def _check_bound(self, min=None, max=None) -> None:  # noqa: A002 - the schema's names
    # Between two tensors these are maximum and minimum, which know bool.
    bound = max if min is None else min
    if isinstance(bound, torch.Tensor):
        refuse("clamp", self, bound, complex=NotImplementedError)
    else:
        _check_clamp(self, bound)


@op(
    "aten::clamp",
    "aten::clamp.Tensor",
    promote="arith",
    bounds={"min": "fits result", "max": "fits result"},
    check=_check_clamp,
)
def clamp(self, min=None, max=None):  # noqa: A002 - the schema's names
    # The upper bound wins when the bounds cross, and a NaN bound gives NaN.
    if min is not None:
        self = _larger(*operands(self, min))
    return self if max is None else _smaller(*operands(self, max))


@op(
    "aten::clamp_min",
    "aten::clamp_min.Tensor",
    promote="arith",
    bounds={"min": "fits result"},
    check=_check_bound,
)
def clamp_min(self, min):  # noqa: A002
    return _larger(*operands(self, min))


@op(
    "aten::clamp_max",
    "aten::clamp_max.Tensor",
    promote="arith",
    bounds={"max": "fits result"},
    check=_check_bound,
)
def clamp_max(self, max):  # noqa: A002
    return _smaller(*operands(self, max))


# ---- geometry and numbers ------------------------------------------------------------------


def _hypot(a: Value, b: Value) -> Value:
    a, b = hlo.abs(a), hlo.abs(b)
    large, small = hlo.maximum(a, b), hlo.minimum(a, b)
    ratio = small / hlo.select(large == 0, hlo.full_like(large, 1), large)
    length = large * hlo.sqrt(ratio * ratio + 1)
    infinite = is_infinite(a) | is_infinite(b)
    return hlo.select(infinite, hlo.full_like(a, math.inf), length)


_rows("atan2", lambda a, b: hlo.binary("atan2", a, b), promote="float", **real_only("atan2"))
_rows("hypot", _hypot, **refusing_together("hypot", **REALS_ONLY))
_rows("copysign.Tensor copysign.Scalar", with_sign_of, promote="float", **real_only("copysign"))


@op("aten::nextafter", promote="compare", **refusing_together("nextafter", **REALS_ONLY))
def nextafter(self, other):
    return hlo.binary("chlo.next_after", self, other)


def _gcd(a: Value, b: Value) -> Value:
    """Euclid's algorithm on all elements at once, until every remainder is zero."""
    everywhere = list(range(a.ndim))

    def unfinished(_, b):
        return hlo.reduce(b != 0, "or", everywhere)

    def step(a, b):
        # XLA's remainder by zero is the dividend, so finished elements are held by hand.
        finished = b == 0
        return [hlo.select(finished, a, b), hlo.select(finished, b, a % b)]

    return hlo.while_loop(unfinished, step, [hlo.abs(a), hlo.abs(b)])[0]


def _lcm(a: Value, b: Value) -> Value:
    divisor = _gcd(a, b)
    quotient = hlo.binary("divide", a, hlo.where(divisor == 0, 1, divisor).to(a.dtype))
    return hlo.abs(quotient * b)


# Of a NaN, Euclid's algorithm would find no end.
_NO_INTEGERS = {**NUMBERS_ONLY, "float": NotImplementedError}
_rows("gcd", _gcd, **refusing_together("gcd", **_NO_INTEGERS))
_rows("lcm", _lcm, **refusing_together("lcm", **_NO_INTEGERS))


# ---- selection by mask ---------------------------------------------------------------------


def _where_meta(condition, self, other) -> list:
    # Kernels still take a uint8 condition; PyTorch's meta kernel does not.
    condition = condition.bool() if condition.dtype is torch.uint8 else condition
    return [torch.ops.aten.where.self(condition, self, other)]


def _check_where(self, other, out=None) -> None:
    if out is not None and out.dtype is not torch.result_type(self, other):
        raise RuntimeError(
            f"Expected out type to be {torch.result_type(self, other)} but got {out.dtype}"
        )


@op("aten::where.self", overlap="partial", meta=_where_meta, check=_check_where)
def where_self(condition, self, other):
    dtype = expected()[0].dtype
    chosen = promote.as_value(self, dtype), promote.as_value(other, dtype)
    shape = expected()[0].shape
    on_true, on_false = (hlo.expand(v, shape) for v in chosen)
    return hlo.select(hlo.expand(condition.to(torch.bool), shape), on_true, on_false)


@op(
    "aten::masked_fill.Scalar",
    "aten::masked_fill.Tensor",
    overlap="partial",
    bounds={"value": "fits self"},
)
def masked_fill(self, mask, value):
    return where_self(mask, value, self)
