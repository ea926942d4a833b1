"""Builds the entry for a key that was not found: rule, trace, module.

`build_entry` is the only function the core calls (csrc/dispatch/miss.cc), with the GIL, once per
key. It reads as the life of a miss. Arguments arrive described as tuples (see `_symbolic`); the
entry goes back as a tuple that miss.cc unpacks, or as a callable when the call must run in Python
(fallback).
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import math
from collections.abc import Mapping
from typing import Any

import torch

from .. import _core
from ..lowering import hlo, layout, registry
from ..lowering.builder import Builder, Value, building
from ..lowering.places import Place
from ..lowering.registry import Meta, meta_of, overload, split_arguments
from ..program import module
from ..program.lowered import Lowered
from . import fallback, reasons, views


@dataclasses.dataclass
class Call:
    """One call to lower: the overload, its rule's name and its described arguments."""

    name: str
    functional: str
    variant: str  # "functional", "inplace" or "out"
    arguments: list
    targets: list[int]  # arguments that results are written to
    new_results: int

    @property
    def label(self) -> str:
        """What people call it; all graphs have one schema, and so one name."""
        return self.functional if self.name == "torch_tpu::graph" else self.name

    @property
    def op(self) -> torch._ops.OpOverload:
        return overload(self.name)

    @property
    def schema(self):
        return self.op._schema

    @property
    def out(self) -> str:
        """How the rule treats ``out=`` (`Rule.out`); "" for calls without."""
        rule = registry.RULES.get(self.functional)
        return rule.out if rule is not None and self.variant == "out" else ""

    def named(self, values: list) -> dict[str, Any]:
        """Values by argument name, without the out= arguments."""
        pairs = zip(self.schema.arguments, values, strict=True)
        if self.variant == "out":
            return {a.name: v for a, v in pairs if not _written(a)}
        return {a.name: v for a, v in pairs}


def build_entry(name, functional, variant, arguments, targets, new_results):
    """The entry of one operator call; see csrc/dispatch/entry.h for what it holds."""
    call = Call(name, functional, variant, arguments, targets, new_results)
    rule = registry.RULES.get(functional or name)
    if rule is None:
        return fallback.without_rule(call)
    if rule.check is not None:
        registry.run_check(rule.check, _meta_arguments(call))
    with _understood(call):
        expected = results_of(call, rule)
    try:
        body = lambda values, rng: registry.call(rule, values, expected, rng)  # noqa: E731
        return lower(call, expected, body, rule.options)
    except NotImplementedError as error:
        return fallback.to_cpu(call, str(error))


def lower(call: Call, expected: list, body, options: Mapping | None = None):
    """Trace ``body(named values, rng)`` for the call and return the entry.

    ``options`` are XLA options by name.
    """
    builder = Builder()
    with building(builder):
        values, parameters = _symbolic(builder, call)
        rng = builder.parameter((2,), torch.uint64)
        with builder.at(Place(call.label, line=_core.source_line())):
            with _understood(call):
                produced = body(call.named(values), rng)
            outputs, groups, constants = _outputs(call, expected, produced, values)
    computed = [o for o in outputs if o is not None and o.computed]
    donate = _donations(call, parameters, outputs, computed)
    fields = [o and o.fields() for o in outputs]
    if not computed:
        return None, [], [], fields, groups, constants
    results = [o.value for o in computed]
    finished = module.finish(builder, results, _among(donate, computed), call.name)
    program = Lowered(finished, call.label, lambda: reasons.of_call(call), options)
    return program, finished.kept, list(finished.donate), fields, groups, constants


@contextlib.contextmanager
def _understood(call: Call):
    """Turn a stumble of a rule over arguments that nobody refused into an error a user can read.

    What a rule, or PyTorch, raises on purpose (with ``raise``) is left alone.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if _raised_on_purpose(error):
            raise
        raise RuntimeError(
            f"{call.name} cannot take these arguments: {_shown(call.arguments)} ({error})"
        ) from error


def _raised_on_purpose(error: BaseException) -> bool:
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    word = dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    if not last.tb_frame.f_globals.get("__name__", "").startswith("torch_tpu."):
        # PyTorch's C++ complains through a call; its Python stumbles over an index or operator.
        return word.startswith(("RAISE", "CALL", "PRECALL"))
    return word == "RAISE_VARARGS"


_MOST_SHOWN = 16  # of a list: an optimiser's are as long as a model has parameters


def _shown(argument) -> str:
    if isinstance(argument, list):
        shown = [_shown(a) for a in argument[:_MOST_SHOWN]]
        if len(argument) > _MOST_SHOWN:
            shown.append(f"... {len(argument) - _MOST_SHOWN} more")
        return "[" + ", ".join(shown) + "]"
    if not _described(argument):
        return str(argument)
    if argument[0] == "number":
        return str(argument[1])
    return f"{argument[1]}{list(argument[2]) if argument[0] != 'scalar' else '[]'}"


def _among(donate, computed) -> dict[int, int]:
    return {p: next(i for i, c in enumerate(computed) if c is o) for p, o in donate.items()}


# ---- arguments -----------------------------------------------------------------------------


def _described(argument) -> bool:
    return isinstance(argument, tuple) and bool(argument) and isinstance(argument[0], str)


def _symbolic(builder: Builder, call: Call) -> tuple[list, dict]:
    """Every argument as its rule sees it, and the array parameter of each whole tensor.

    Parameters are made in the order in which the core collects operands.
    """
    whole: dict[tuple, int] = {}

    def one(argument, path):
        if argument is None:
            return None
        if isinstance(argument, list):
            return [one(a, (*path, i)) for i, a in enumerate(argument)]
        if not _described(argument):
            return argument
        kind = argument[0]
        if kind == "tensor":
            return _tensor(builder, argument, path, whole)
        if kind == "empty":
            _, dtype, sizes, _ = argument
            return hlo.constant(0, dtype, sizes)
        if kind == "scalar":
            _, dtype, weak, _ = argument
            return builder.parameter((), dtype, weak)
        if kind == "number":
            return builder.parameter((), _number_dtype(argument[1]), weak=True)
        # A target is never read; the rule may ask its shape and dtype.
        return Value(builder, "%unread", argument[2], argument[1])

    values = [one(argument, (i,)) for i, argument in enumerate(call.arguments)]
    for i, argument in enumerate(call.schema.arguments):
        # ScalarType arguments arrive as numbers.
        if "ScalarType" in str(argument.real_type) and isinstance(values[i], int):
            values[i] = views.SCALAR_TYPES[values[i]]
    return values, whole


def _tensor(builder: Builder, argument, path, whole) -> Value:
    _, dtype, sizes, strides, dims, plan, conj, neg = argument
    array = builder.parameter(dims, dtype)
    if plan is None:
        if dims == sizes and not (conj or neg):
            whole[path] = len(builder.parameters) - 1
        value = views.prefix(array, sizes)
    else:
        *fields, start_count = plan
        starts = builder.parameter((start_count,), torch.int64)
        value = views.read(array, sizes, strides, views.Plan(*fields), starts)
    value.contiguous = strides == views.contiguous_strides(sizes)
    if conj:
        value = hlo.complex(hlo.real(value), hlo.neg(hlo.imag(value)))
    return hlo.neg(value) if neg else value


def _number_dtype(number) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64 if number < 2**63 else torch.uint64
    return torch.complex128 if isinstance(number, complex) else torch.float64


# ---- results: what PyTorch says ------------------------------------------------------------


def _meta_argument(argument, schema_argument=None):
    """An argument for PyTorch's meta kernels."""
    if isinstance(argument, list):
        return [_meta_argument(a, schema_argument) for a in argument]
    if not _described(argument):
        if (
            schema_argument is not None
            and "ScalarType" in str(schema_argument.real_type)
            and isinstance(argument, int)
        ):
            return views.SCALAR_TYPES[argument]
        if schema_argument is not None and str(schema_argument.real_type) == "Device":
            return torch.device("meta")
        return argument
    kind = argument[0]
    if kind == "scalar":
        # A 0-dim CPU tensor may mix with device tensors; on meta both sides are alike.
        return argument[3].item() if argument[2] else argument[3].to("meta")
    if kind == "number":
        return argument[1]
    dtype, sizes, strides = argument[1], argument[2], argument[3]
    return torch.empty_strided(sizes, strides, dtype=dtype, device="meta")


def _written(schema_argument) -> bool:
    return schema_argument.alias_info is not None and schema_argument.alias_info.is_write


def _meta_arguments(call: Call) -> dict[str, Any]:
    """All arguments of the call for meta kernels, by name."""
    pairs = zip(call.schema.arguments, call.arguments, strict=True)
    return {a.name: _meta_argument(argument, a) for a, argument in pairs}


def _call_on_meta(call: Call):
    """The overload of the call on meta tensors."""
    return _on_meta(call.op, _meta_arguments(call))


def _on_meta(op, named: dict[str, Any]):
    """``op`` on meta arguments; PyTorch's meta kernels assert where its kernels check."""
    positional, keyword = split_arguments(op, named)
    try:
        return op(*positional, **keyword)
    except AssertionError as error:
        raise RuntimeError(str(error)) from error


def results_of(call: Call, rule) -> list:
    """Metadata of the results the rule must give, one per return of the functional schema.

    Raises what PyTorch raises for wrong arguments: its meta kernels check them.
    """
    if rule.meta is not None:
        named = call.named([_meta_argument(a) for a in call.arguments])
        results = [meta_of(r) for r in rule.meta(**named)]
        if call.variant == "inplace" and not rule.writes:
            _check_fits(call, results)
        return [_laid_out(call, rule, r) for r in results] if rule.layout else results
    if call.variant == "inplace":
        check_inplace(call, rule)
        if rule.writes and rule.name == call.name:
            results = _call_on_meta(call) if call.new_results else ()
            return _returns(results, call.new_results)
        if rule.overwrites:
            return [meta_of(_meta_argument(call.arguments[0]))]
    if call.variant == "out" and rule.out != "any":
        check_variant(call)
    try:
        results = functional_results(call, rule.name)
        if call.variant == "inplace":
            _check_fits(call, results)
            return results
        return [_laid_out(call, rule, result) for result in results]
    except NotImplementedError:
        # Some operators have no meta kernel; their rules know their results.
        return [None] * len(overload(rule.name)._schema.returns)


def functional_results(call: Call, name: str) -> list:
    """What the functional overload ``name`` gives for the call's arguments, on meta tensors."""
    op = overload(name)
    named = _meta_arguments(call)
    wanted = {a.name for a in op._schema.arguments}
    if "dtype" in wanted:
        named.setdefault("dtype", _result_dtype(call))
    if "device" in wanted:
        named["device"] = torch.device("meta")
    if "generator" in wanted:
        named["generator"] = None
    for name_only in ("pin_memory", "layout"):
        named.pop(name_only, None)
    if call.out == "decides" and named.get("dtype") is None:
        named["dtype"] = _result_dtype(call)
    return _returns(_on_meta(op, named), len(op._schema.returns))


def _laid_out(call: Call, rule, result):
    """The result of an elementwise rule with the strides of PyTorch's kernels (`Rule.layout`)."""
    if rule.layout == "meta" or not isinstance(result, Meta) or not (rule.promote or rule.layout):
        return result
    if rule.layout == "contiguous":
        return dataclasses.replace(result, strides=views.contiguous_strides(result.shape))
    named = _meta_arguments(call)
    tensors = [a.name for a in overload(rule.name)._schema.arguments if "Tensor" in str(a.type)]
    operands = [named[n] for n in rule.layout or tensors if named[n] is not None]
    if len(operands) == 1 and not rule.layout:
        return result  # here, meta kernels are right
    like = layout.elementwise(rule.promote or "arith", operands)
    if like is None or like.shape != result.shape:  # of a reduction, say
        return result
    return dataclasses.replace(result, strides=tuple(like.stride()))


def _result_dtype(call: Call):
    """Dtype of the first out= argument: that of factories whose out form has no dtype."""
    target = call.arguments[call.targets[0]] if call.targets else None
    return target[1] if _described(target) else None


def check_inplace(call: Call, rule) -> None:
    """Let PyTorch's meta kernel of the in-place overload raise for results that do not fit."""
    if not (rule.writes or rule.overwrites):
        check_variant(call)


def _check_fits(call: Call, results: list) -> None:
    """In place, operands may broadcast to ``self`` but not ``self`` to them."""
    target = call.arguments[0]
    if not _described(target) or not results or not isinstance(results[0], Meta):
        return
    if results[0].shape != tuple(target[2]):
        raise RuntimeError(
            f"{call.name}: output with shape {list(target[2])} doesn't match the broadcast shape "
            f"{list(results[0].shape)}"
        )


def check_variant(call: Call) -> None:
    """Let PyTorch's meta kernel of the overload that was called raise for wrong arguments."""
    try:
        _call_on_meta(call)
    except NotImplementedError:
        # No meta kernel for this form: the functional one is asked next and the result must fit
        # the target.
        return


def _returns(results, count: int) -> list:
    if count == 0:
        return []
    if count == 1:
        return [meta_of(results)]
    return [meta_of(r) for r in results]


# ---- results: what the program gives -------------------------------------------------------


@dataclasses.dataclass(eq=False)
class Output:
    """One result of the entry. ``value`` is in the order of the array, ``dims``."""

    value: Value
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    path: tuple | None = None  # the argument it is written to

    @property
    def computed(self) -> bool:
        return self.value.numel > 0

    def fields(self) -> tuple:
        nbytes = self.value.numel * self.dtype.itemsize
        return self.dtype, self.sizes, self.strides, self.value.shape, self.computed, nbytes


def _layout(meta: Meta) -> list[int] | None:
    """Permutation from logical to storage order if ``meta`` is dense, else None."""
    order = sorted(range(len(meta.shape)), key=lambda d: (-meta.strides[d], d))
    sizes = [meta.shape[d] for d in order]
    strides = [meta.strides[d] for d in order]
    dense = views.contiguous_strides(sizes)
    for size, stride, wanted in zip(sizes, strides, dense, strict=True):
        if size > 1 and stride != wanted:
            return None
    return order


def _new(value: Value | None, meta: Meta | None) -> Output | None:
    if value is None:
        return None
    if meta is None:
        meta = Meta(value.shape, value.dtype, views.contiguous_strides(value.shape))
    order = _layout(meta) if value.numel else []
    if order is None:
        return _spread(value, meta)
    if not value.numel:
        return Output(value, value.dtype, value.shape, meta.strides)
    return Output(hlo.transpose(value, order), value.dtype, value.shape, meta.strides)


def _spread(value: Value, meta: Meta) -> Output:
    """A result with gaps between its elements, as clones that keep strides have them."""
    extent = 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.strides, strict=True))
    if extent > _MOST_SPREAD * value.numel or _overlaps(meta):
        return Output(value, value.dtype, value.shape, views.contiguous_strides(value.shape))
    array = hlo.constant(0, value.dtype, (extent,))
    start = hlo.constant(0, torch.int64, (1,))
    array = views.write(array, value, meta.strides, views.Plan(views.GATHER), start)
    return Output(array, value.dtype, meta.shape, meta.strides)


_MOST_SPREAD = 16  # times the elements; beyond, memory matters more than strides


def _overlaps(meta: Meta) -> bool:
    reach = 0
    for stride, size in sorted(zip(meta.strides, meta.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _outputs(call: Call, expected: list, produced: list, values: list):
    """Outputs in the order the core hands them out, group sizes, and integer results."""
    outputs: list[Output | None] = []
    groups: list[int] = []
    constants: list[int] = []
    for meta, value in zip(expected[: call.new_results], produced, strict=False):
        if isinstance(value, int):
            groups.append(-2)
            constants.append(value)
        elif isinstance(value, list):
            groups.append(len(value))
            outputs += [_new(v, m) for v, m in zip(value, meta, strict=True)]
        else:
            groups.append(-1)
            outputs.append(_new(value, meta))
    written = produced[call.new_results :]
    metas = dict(zip(((t,) for t in call.targets), expected[call.new_results :], strict=False))
    for target, value in zip(call.targets, written, strict=True):
        argument = call.arguments[target]
        many = isinstance(argument, list)
        groups.append(len(argument) if many else -1)
        pairs = zip(argument, value, strict=True) if many else [(argument, value)]
        for i, (element, result) in enumerate(pairs):
            path = (target, i) if many else (target,)
            before = values[target][i] if many else values[target]
            # A rule leaves an argument alone by returning None or the value it was given.
            result = None if result is before else result
            outputs.append(_write(call, element, result, path, metas.get(path)))
    return outputs, groups, constants


def _write(call: Call, target, value: Value | None, path, meta) -> Output | None:
    if target is None or value is None:
        return None
    dtype = target[1]
    if not torch.can_cast(value.dtype, dtype) and call.out != "any":
        raise RuntimeError(
            f"{call.name}: result type {value.dtype} can't be cast to the desired output type "
            f"{dtype}"
        )
    value = hlo.convert(value, dtype)
    if call.variant != "out" and value.shape != target[2]:
        value = hlo.expand(value, target[2])
    strides = views.contiguous_strides(value.shape)
    kept = call.variant == "out" and call.out != "copies"
    if kept and isinstance(meta, Meta) and meta.shape == value.shape:
        strides = meta.strides if _layout(meta) is not None else strides
    return Output(value, dtype, value.shape, strides, path)


def _donations(call: Call, parameters: dict, outputs, computed) -> dict[int, Output]:
    """Array parameters whose memory the result that replaces them may take."""
    donate = {}
    for output in computed:
        parameter = parameters.get(output.path)
        if parameter is None:
            continue
        target = call.arguments[output.path[0]]
        if len(output.path) > 1:
            target = target[output.path[1]]
        if target[0] == "tensor" and math.prod(output.sizes) == math.prod(target[2]):
            donate[parameter] = output
    return donate
