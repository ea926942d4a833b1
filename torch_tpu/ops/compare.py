"""Comparisons, logic on truth values, and bitwise operators with shifts.

Comparisons promote like arithmetic but never widen 16-bit floats. The augmented forms of the shift
operators (``__lshift__``, ...) are operators of their own in ATen and share the rules here.
"""

from __future__ import annotations

import functools

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import binary, op, unary
from .common import is_unsigned, real_only, refusing, refusing_together


def _rows(names: str, word, kind: str | None, **options) -> None:
    """Register ``word`` for overloads; it gets values of one dtype (`promote` as ``kind``)."""
    for name in names.split():
        body = functools.partial(_on_values, word)
        binary(f"aten::{name}", body, promote=kind, **options)


def _on_values(word, a, b) -> Value:
    return word(*promote.together(a, b))


# ---- comparison ----------------------------------------------------------------------------


def _comparison(direction: str):
    return lambda a, b: hlo.compare(a, b, direction)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _check = {} if _name in ("eq", "ne") else real_only(_name)
    _rows(f"{_name}.Tensor {_name}.Scalar", _comparison(_name.upper()), "compare", **_check)


# ---- logic ---------------------------------------------------------------------------------


def _logical(word: str):
    # Each operand is taken for itself: no common dtype could lose a tiny value on the way.
    return lambda a, b: hlo.binary(word, *promote.broadcast([a.to(torch.bool), b.to(torch.bool)]))


for _name in ("and", "or", "xor"):
    binary(f"aten::logical_{_name}", _logical(_name), promote=None, layout=("self", "other"))


@op("aten::logical_not", overlap="partial")
def logical_not(self):
    return ~self.to(torch.bool)


# ---- bits ----------------------------------------------------------------------------------


def _of_integers(name: str) -> dict:
    return refusing(name, float=NotImplementedError, complex=NotImplementedError)


def _bitwise(word: str):
    return lambda a, b: hlo.binary(word, a, b)


def _shift_right(a: Value, b: Value) -> Value:
    word = "shift_right_logical" if is_unsigned(a.dtype) else "shift_right_arithmetic"
    return hlo.binary(word, a, b)


for _name in ("and", "or", "xor"):
    _family = f"bitwise_{_name}.Tensor bitwise_{_name}.Scalar bitwise_{_name}.Scalar_Tensor"
    _rows(_family, _bitwise(_name), "compare", **_of_integers(f"bitwise_{_name}"))
unary("aten::bitwise_not", hlo.not_, promote=None, **_of_integers("bitwise_not"))


def _shift_meta(shift, self, other) -> list[torch.Tensor]:
    return [shift(self, other)]


_NO_SHIFT = dict.fromkeys(("float", "complex", "bool"), NotImplementedError)

# Out of range amounts, also negative ones, shift everything out, both here and in ATen.
for _side, _mark, _body in (
    ("left", "l", _bitwise("shift_left")),
    ("right", "r", _shift_right),
):
    _family = " ".join(
        f"bitwise_{_side}_shift.{kind}" for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    )
    _check = refusing_together(f"bitwise_{_side}_shift", **_NO_SHIFT)
    _rows(_family, _body, "compare", **_check)
    # PyTorch's meta kernels of these refuse bool, which its CPU kernels promote.
    _meta = functools.partial(_shift_meta, getattr(torch, f"bitwise_{_side}_shift"))
    for _kind in ("Tensor", "Scalar"):
        _inplace = f"aten::__i{_mark}shift__.{_kind}"
        _rows(f"__{_mark}shift__.{_kind}", _body, "compare", inplace=_inplace, meta=_meta, **_check)
