"""`_foreach_*`: one program over a list of tensors, each element by its single operator's rule.

The rules are made from a table, so that promotion, rounding and NaNs are those of `pointwise.py`,
`unary.py` and `reduce.py`; nothing element-wise is written here. PyTorch's own kernels loop over
the list, one dispatch a tensor, which is where a training step would spend its time. `_foreach_mm`
stays with that loop: products gain nothing from sharing a program. Fused optimizers: `optim.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from ..lowering import hlo, promote, registry
from ..lowering.builder import Value
from ..lowering.registry import RULES, Rule, expected, op
from . import activation, pointwise, reduce, special, unary  # noqa: F401 - called by rule name

# As PyTorch's errors spell them.
_DTYPE_NAMES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}

_POWERS = RULES["aten::pow.Tensor_Scalar"].specialize["exponent"]


# ---- one element ---------------------------------------------------------------------------


def _check_castable(rule: Rule, arguments: Mapping, wanted: torch.dtype) -> None:
    """In-place forms are told the dtype of ``self``; raise as torch does if the result is wider."""
    operands = [a for a in arguments.values() if isinstance(a, Value)]
    if rule.name == "aten::abs" and wanted.is_complex:
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    if not rule.promote or rule.name == "aten::abs":
        return
    dtype = promote.result_dtype(operands)
    if rule.promote == "float":
        dtype = promote.float_dtype(dtype)
    if not torch.can_cast(dtype, wanted):
        names = [_DTYPE_NAMES.get(d, str(d)) for d in (dtype, wanted)]
        raise RuntimeError(
            f"result type {names[0]} can't be cast to the desired output type {names[1]}"
        )


def _element(name: str, wanted, arguments: Mapping) -> Value:
    rule = RULES[name]
    _check_castable(rule, arguments, wanted.dtype)
    return registry.call(rule, arguments, [wanted])[0]


def _each(name: str, columns: Mapping) -> list[Value]:
    """Rule ``name`` on every row of ``columns``; what is not a list is the same for all."""
    return [
        _element(name, wanted, {k: v[i] if isinstance(v, list) else v for k, v in columns.items()})
        for i, wanted in enumerate(expected()[0])
    ]


def _register(name: str, element: str, names: Mapping[str, str], **options) -> None:
    """``_foreach_<name>`` is ``aten::<element>`` of the arguments renamed by ``names``."""

    def body(**arguments):
        return _each(f"aten::{element}", {names[k]: v for k, v in arguments.items() if k in names})

    def check(**arguments) -> None:
        columns = {names[k]: v for k, v in arguments.items() if k in names}
        lengths = [len(v) for v in columns.values() if isinstance(v, list)]
        for i in range(min(lengths)):
            row = {k: v[i] if isinstance(v, list) else v for k, v in columns.items()}
            registry.run_check(rule.check, row)

    rule = RULES[f"aten::{element}"]
    if rule.check is not None:
        options["check"] = check
    options["bounds"] = {k: rule.bounds[v] for k, v in names.items() if v in rule.bounds}
    body.__name__ = f"foreach_{name}".replace(".", "_")
    registry.register(Rule(name=f"aten::_foreach_{name}", body=body, **options))


# ---- tables --------------------------------------------------------------------------------

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 "
    "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc max"
)
for _name in _UNARY.split():
    _register(_name, _name, {"self": "self"})

# Name → element for a number and for a tensor on the right, the right operand's name there, and
# the overloads there are.
_BINARY = {
    "add": ("add.Scalar", "add.Tensor", "other", "List Tensor Scalar ScalarList"),
    "sub": ("sub.Scalar", "sub.Tensor", "other", "List Scalar ScalarList"),
    "mul": ("mul.Scalar", "mul.Tensor", "other", "List Tensor Scalar ScalarList"),
    "div": ("div.Scalar", "div.Tensor", "other", "List Tensor Scalar ScalarList"),
    "maximum": ("clamp_min", "clamp_min.Tensor", "min", "List Scalar ScalarList"),
    "minimum": ("clamp_max", "clamp_max.Tensor", "max", "List Scalar ScalarList"),
    "clamp_min": ("clamp_min", "clamp_min.Tensor", "min", "List Scalar ScalarList"),
    "clamp_max": ("clamp_max", "clamp_max.Tensor", "max", "List Scalar ScalarList"),
    "pow": ("pow.Tensor_Scalar", "pow.Tensor_Tensor", "exponent", "List Scalar ScalarList"),
}
for _name, (_with_number, _with_tensor, _right, _overloads) in _BINARY.items():
    for _overload in _overloads.split():
        _number = _overload.startswith("Scalar")
        # ``other``, ``scalar`` or ``scalars``; pow says ``exponent`` in all of them.
        _source = {"Scalar": "scalar", "ScalarList": "scalars"}.get(_overload, "other")
        _names = {"self": "self", "exponent" if _name == "pow" else _source: _right}
        _special: dict[str, tuple] = {}
        if _name in ("add", "sub") and not _number:
            _names["alpha"], _special = "alpha", {"alpha": (1,)}
        elif _name == "pow" and _number:
            _special = {"exponent": _POWERS}
        _register(
            f"{_name}.{_overload}",
            _with_number if _number else _with_tensor,
            _names,
            specialize=_special,
        )

_register("pow.ScalarAndTensor", "pow.Scalar", {"self": "self", "exponent": "exponent"})

_ENDS = {"self": "self", "tensors1": "end"}
_register("lerp.List", "lerp.Tensor", {**_ENDS, "weights": "weight"})
_register("lerp.Scalar", "lerp.Scalar", {**_ENDS, "weight": "weight"})
_register("lerp.ScalarList", "lerp.Scalar", {**_ENDS, "weight": "weight"})

_THREE = {"self": "self", "tensor1": "tensor1", "tensor2": "tensor2"}


def _addcdiv(self, tensor1, tensor2):
    pointwise.check_addcdiv(tensor1, tensor2)
    return torch.addcdiv(self, tensor1, tensor2)


_TERNARY = {"addcmul": torch.addcmul, "addcdiv": _addcdiv}


def _ternary_meta(element: Callable) -> Callable:
    """Metadata by element. PyTorch's own kernels want ``scalars`` on the CPU, where no meta tensor
    is, and let a float ``value`` make floats of integers, which its CPU kernels do not."""
    return lambda self, tensor1, tensor2, **_: [
        [element(*three) for three in zip(self, tensor1, tensor2, strict=True)]
    ]


for _name, _like in _TERNARY.items():
    _meta, _special = _ternary_meta(_like), {"value": (1,)}
    _scalar, _list = {**_THREE, "value": "value"}, {**_THREE, "scalars": "value"}
    _register(f"{_name}.Scalar", _name, _scalar, specialize=_special, meta=_meta)
    _register(f"{_name}.ScalarList", _name, _list, meta=_meta)


# ---- those that are more than their element --------------------------------------------------


def _numbers(scalars: Value) -> list[Value]:
    """The elements of a 1-d tensor as wrapped numbers, which is what torch makes of them."""
    parts = [hlo.reshape(hlo.slice_dim(scalars, 0, i, i + 1), ()) for i in range(scalars.shape[0])]
    return [Value(p.builder, p.name, p.shape, p.dtype, weak=True) for p in parts]


def _register_ternary_with_tensor(name: str) -> None:
    def body(self, tensor1, tensor2, scalars):
        columns = {"self": self, "tensor1": tensor1, "tensor2": tensor2}
        return _each(f"aten::{name}", {**columns, "value": _numbers(scalars)})

    meta = _ternary_meta(_TERNARY[name])
    op(f"aten::_foreach_{name}.Tensor", host=("scalars",), meta=meta)(body)


for _name in _TERNARY:
    _register_ternary_with_tensor(_name)


@op("aten::_foreach_norm.Scalar", static=("ord",))
def _foreach_norm_Scalar(self, ord=2):
    fixed = {"ord": ord, "dim": None, "keepdim": False}
    return _each("aten::linalg_vector_norm", {"self": self, **fixed})


@op("aten::_foreach_powsum.Scalar", static=("ord",))
def _foreach_powsum_Scalar(self, ord=2):
    """The sum of ``abs(x) ** ord``: a norm without its root, also where a norm has none."""
    sums = []
    for x, wanted in zip(self, expected()[0], strict=True):
        x = hlo.abs(x).to(promote.compute_dtype(wanted.dtype))
        powers = x * x if ord == 2 else x ** float(ord)
        sums.append(hlo.reduce(powers, "add", range(x.ndim)).to(wanted.dtype))
    return sums


@op("aten::_foreach_clone")
def _foreach_clone(self):
    return self


@op("aten::_foreach_copy", overwrites=True, host=("src",))
def _foreach_copy(self, src):
    return [hlo.expand(x.to(w.dtype), w.shape) for x, w in zip(src, expected()[0], strict=True)]


@op("aten::_foreach_zero", overwrites=True)
def _foreach_zero(self):
    return [hlo.constant(0, w.dtype, w.shape) for w in expected()[0]]
