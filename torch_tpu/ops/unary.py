"""Element-wise functions of one operand: rounding, signs, exponentials, trigonometry, parts.

Mostly table rows. Activations (sigmoid, relu, ...) are in `activation.py`, the error, gamma and
Bessel functions in `special.py`, logical and bitwise not in `compare.py`.
"""

from __future__ import annotations

import functools
import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op, unary
from .common import (
    BITS,
    FLOATS_ONLY,
    checks,
    exact_out,
    is_infinite,
    is_unsigned,
    operands,
    real_only,
    refuse,
    refusing,
    sign_bit,
    undefined,
    widened,
)


def _word(name: str):
    return functools.partial(hlo.unary, name)


# ---- exact functions, computed in the dtype of the operand ---------------------------------


def _of_floats(word):
    """``word`` for floats; integers are already what it would make of them."""
    return lambda x: word(x) if x.is_floating else x


def _trunc(x: Value) -> Value:
    return hlo.select(x < 0, hlo.unary("ceil", x), hlo.floor(x))


def _sign(x: Value) -> Value:
    if x.dtype is torch.bool:
        return x
    positive = x > 0
    if is_unsigned(x.dtype):
        return positive.to(x.dtype)
    return positive.to(x.dtype) - (x < 0).to(x.dtype)


def _sgn(x: Value) -> Value:
    if not x.is_complex:
        return _sign(x)
    length = hlo.abs(x)
    at_zero = length == 0
    unit = x / hlo.complex(hlo.where(at_zero, 1.0, length), hlo.zeros_like(length))
    return hlo.select(at_zero, hlo.zeros_like(x), unit)


def _conjugate(x: Value) -> Value:
    return hlo.complex(hlo.real(x), -hlo.imag(x)) if x.is_complex else x


def _abs(x: Value) -> Value:
    length = hlo.abs(x)
    if not x.is_complex:
        return length
    # Beside an infinite part it does not matter that the other is NaN.
    infinite = is_infinite(hlo.real(x)) | is_infinite(hlo.imag(x))
    return hlo.select(infinite, hlo.full_like(length, math.inf), length)


_EXACT = {
    "neg": hlo.neg,
    "abs": _abs,
    "ceil": _of_floats(_word("ceil")),
    "floor": _of_floats(hlo.floor),
    "round": _of_floats(_word("round_nearest_even")),
    "trunc": _of_floats(_trunc),
    "frac": lambda x: x - _trunc(x),
    "sign": _sign,
    "sgn": _sgn,
}


def _check_abs_out(self, out=None, **_) -> None:
    """Of complex numbers, ``out`` may be complex, too, or of any real dtype that is wide enough;
    PyTorch's meta kernel refuses that."""
    if out is None or out.dtype is self.dtype:
        return
    real = self.is_complex() and not out.is_complex()
    if not real or not torch.can_cast(self.dtype.to_real(), out.dtype):
        raise RuntimeError(f"aten::abs: found dtype {out.dtype} of out, but expected {self.dtype}")


_REFUSED = {
    **dict.fromkeys(("abs", "ceil", "floor", "round", "trunc"), {"bool": NotImplementedError}),
    "frac": FLOATS_ONLY,
}
_COMPLEX_TOO = ("neg", "abs", "sgn", "isnan", "isinf")
for _name, _body in _EXACT.items():
    _check = dict(_REFUSED.get(_name, {}))
    if _name not in _COMPLEX_TOO:
        _check["complex"] = NotImplementedError
    _options = refusing(_name, **_check)
    if _name == "abs":
        _options = {"out": "any", "check": checks(_options["check"], _check_abs_out)}
    unary(f"aten::{_name}", _body, promote=None, **_options)
unary("aten::_conj_physical", _conjugate, promote=None, inplace="aten::conj_physical_")


@op("aten::round.decimals", promote="arith")
def round_decimals(self, decimals):
    if not self.is_floating:
        undefined("round.decimals", self.dtype)
    scale, nearest = 10.0 ** abs(decimals), _word("round_nearest_even")
    if decimals < 0:
        return nearest(self / scale) * scale
    return nearest(self * scale) / scale


# ---- questions -----------------------------------------------------------------------------


def _is_infinite(x: Value) -> Value:
    if x.is_complex:
        return is_infinite(hlo.real(x)) | is_infinite(hlo.imag(x))
    return is_infinite(x) if x.is_floating else hlo.constant(False, torch.bool, x.shape)


def _equals(number: float):
    return lambda x: x == number if x.is_floating else hlo.constant(False, torch.bool, x.shape)


_QUESTIONS = {
    "isnan": hlo.is_nan,
    "isinf": _is_infinite,
    "isposinf": _equals(math.inf),
    "isneginf": _equals(-math.inf),
    "signbit": sign_bit,
}
for _name, _body in _QUESTIONS.items():
    _error = NotImplementedError if _name == "signbit" else RuntimeError
    _check = {} if _name in _COMPLEX_TOO else real_only(_name, _error)
    unary(f"aten::{_name}", _body, promote=None, **_check)


# The meta kernel of the in-place form refuses complex numbers.
@op("aten::nan_to_num", overlap="partial", meta=lambda self, **_: [torch.empty_like(self)])
def nan_to_num(self, nan=None, posinf=None, neginf=None):
    if self.is_complex:
        real, imag = (_nan_to_num(p, nan, posinf, neginf) for p in (hlo.real(self), hlo.imag(self)))
        return hlo.complex(real, imag)
    return _nan_to_num(self, nan, posinf, neginf) if self.is_floating else self


def _nan_to_num(x: Value, nan, posinf, neginf) -> Value:
    largest = torch.finfo(x.dtype).max
    replacements = (
        (hlo.is_nan(x), 0 if nan is None else nan),
        (x == math.inf, largest if posinf is None else posinf),
        (x == -math.inf, -largest if neginf is None else neginf),
    )
    for mask, number in replacements:
        x = hlo.select(mask, hlo.full_like(x, number), x)
    return x


def _check_heaviside(self, values) -> None:
    refuse("heaviside", self, values, complex=RuntimeError)
    if self.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


@op("aten::heaviside", promote="compare", check=_check_heaviside)
def heaviside(self, values):
    self, values = operands(self, values)
    return hlo.select(self == 0, values, (self > 0).to(values.dtype))


# ---- real functions computed in floating point ---------------------------------------------


def _on_parts(function, x: Value) -> Value:
    """``function`` of a real number, of a complex one's parts each: a complex factor would mix
    them, and infinities become NaN."""
    if not x.is_complex:
        return function(x)
    return hlo.complex(function(hlo.real(x)), function(hlo.imag(x)))


def _exp2(x: Value) -> Value:
    if x.is_complex:
        return hlo.exp(_on_parts(lambda part: part * math.log(2), x))
    return hlo.full_like(x, 2) ** x


def _log_in_base(base: float):
    # A power of the base must give a whole number, so divide rather than multiply by 1/log(base).
    return lambda x: _on_parts(lambda part: part / math.log(base), hlo.log(x))


def _rsqrt(x: Value) -> Value:
    # XLA's complex one is a power; its rounding errors turn up in parts that are zero.
    return 1 / hlo.sqrt(x) if x.is_complex else hlo.rsqrt(x)


def _product(a: Value, b: Value) -> Value:
    """``a * b``, zero if a factor is zero and the other one infinite or NaN."""
    vanishes = (a == 0) | (b == 0)
    return hlo.select(vanishes & hlo.is_nan(a * b), hlo.zeros_like(a), a * b)


def _sine(x: Value) -> Value:
    # XLA's complex words subtract exponentials: an imaginary part of 1e-20 is lost.
    if not x.is_complex:
        return hlo.unary("sine", x)
    re, im = hlo.real(x), hlo.imag(x)
    real = _product(hlo.unary("sine", re), hlo.unary("chlo.cosh", im))
    return hlo.complex(real, _product(hlo.unary("cosine", re), hlo.unary("chlo.sinh", im)))


def _cosine(x: Value) -> Value:
    if not x.is_complex:
        return hlo.unary("cosine", x)
    re, im = hlo.real(x), hlo.imag(x)
    real = _product(hlo.unary("cosine", re), hlo.unary("chlo.cosh", im))
    return hlo.complex(real, -_product(hlo.unary("sine", re), hlo.unary("chlo.sinh", im)))


_FLOAT = {
    "exp": hlo.exp,
    "exp2": _exp2,
    "expm1": _word("exponential_minus_one"),
    "log": hlo.log,
    "log1p": _word("log_plus_one"),
    "log2": _log_in_base(2),
    "log10": _log_in_base(10),
    "sqrt": hlo.sqrt,
    "rsqrt": _rsqrt,
    "reciprocal": lambda x: 1 / x,
    "sin": _sine,
    "cos": _cosine,
    "tan": _word("tan"),
    "asin": _word("chlo.asin"),
    "acos": _word("chlo.acos"),
    "atan": _word("chlo.atan"),
    "sinh": _word("chlo.sinh"),
    "cosh": _word("chlo.cosh"),
    "tanh": hlo.tanh,
    "asinh": _word("chlo.asinh"),
    "acosh": _word("chlo.acosh"),
    "atanh": _word("chlo.atanh"),
    "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
}
for _name, _body in _FLOAT.items():
    unary(f"aten::{_name}", _body, promote="float")


# ---- complex parts, parts of floats --------------------------------------------------------


def _angles(self) -> list[torch.Tensor]:
    angles = torch.ops.aten.angle(self)
    # Those of complex numbers are written next to a copy of them.
    return [angles.contiguous() if self.is_complex() else angles]


@op("aten::angle", promote="float", meta=_angles)
def angle(self):
    if self.is_complex:
        return hlo.binary("atan2", hlo.imag(self), hlo.real(self))
    zero = hlo.zeros_like(self)
    angle = hlo.select(self < zero, hlo.full_like(self, math.pi), zero)
    return hlo.select(hlo.is_nan(self), self, angle)


_PARTS = {torch.float16: "Half", torch.float32: "Float", torch.float64: "Double"}
_WHOLES = {torch.complex32: "ComplexHalf", torch.complex64: "ComplexFloat"}
_WHOLES |= {torch.complex128: "ComplexDouble"}


def _check_parts(first, second, out) -> None:
    """Refuse parts of a complex number that CPU PyTorch refuses; its meta kernels do not."""
    for part in (first, second):
        if part.dtype not in _PARTS:
            raise RuntimeError(
                "Expected both inputs to be Half, Float or Double tensors but got "
                f"{first.dtype} and {second.dtype}"
            )
    if second.dtype is not first.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {_PARTS[first.dtype]} but got scalar type "
            f"{_PARTS[second.dtype]} for second argument"
        )
    whole = first.dtype.to_complex()
    if whole is torch.complex32:
        raise TypeError("XLA has no element type for complex32: take float32 parts")
    if out is not None and out.dtype is not whole:
        raise RuntimeError(
            f"Expected object of scalar type {_WHOLES[whole]} but got scalar type "
            f"{_WHOLES.get(out.dtype, out.dtype)} for argument 'out'"
        )


@op(
    "aten::complex",
    overlap="partial",
    layout=("real", "imag"),
    check=lambda real, imag, out=None: _check_parts(real, imag, out),
)
def complex_(real, imag):
    return hlo.complex(*operands(real, imag))


@op(
    "aten::polar",
    overlap="partial",
    layout=("abs", "angle"),
    check=lambda abs, angle, out=None: _check_parts(abs, angle, out),  # noqa: A006
)
def polar(abs, angle):  # noqa: A002 - the schema's names
    abs, angle = operands(abs, angle)  # noqa: A001
    return hlo.complex(abs * hlo.unary("cosine", angle), abs * hlo.unary("sine", angle))


_MANTISSA_BITS = {torch.float32: 23, torch.float64: 52}


@op("aten::frexp.Tensor", **exact_out("frexp", mantissa=None, exponent=torch.int32))
def frexp_Tensor(self):
    """Take the bits apart. All in integers, because XLA may flush subnormals to zero."""
    x = widened(self)
    dtype, width = BITS[x.dtype], _MANTISSA_BITS[x.dtype]
    all_ones = (1 << (8 * dtype.itemsize - 1 - width)) - 1
    bits = hlo.bitcast(x, dtype)
    fraction = bits & ((1 << width) - 1)
    shift_right = hlo.constant(width, dtype, x.shape)
    field = hlo.binary("shift_right_logical", bits, shift_right) & all_ones
    # A subnormal has no leading one: move its first set bit to where the leading one would be.
    gap = hlo.unary("count_leading_zeros", fraction) - (8 * dtype.itemsize - 1 - width)
    subnormal = field == 0
    fraction = hlo.select(subnormal, hlo.binary("shift_left", fraction, gap), fraction)
    exponent = hlo.select(subnormal, 1 - gap, field) - (all_ones // 2 - 1)
    sign = bits & (-1 << (8 * dtype.itemsize - 1))
    mantissa = sign | (fraction & ((1 << width) - 1)) | ((all_ones // 2 - 1) << width)
    as_is = (subnormal & (fraction == 0)) | (field == all_ones)
    mantissa = hlo.select(as_is, x, hlo.bitcast(mantissa, x.dtype))
    exponent = hlo.select(as_is, hlo.zeros_like(exponent), exponent)
    return mantissa.to(self.dtype), exponent.to(expected()[1].dtype)
