"""The table of lowerings: one `Rule` per functional ATen overload.

`@op` registers a rule body, `unary`/`binary` register table rows, `@procedure` registers an
operator whose result shape depends on data and which is therefore written over real tensors.
In-place and ``out=`` forms are never registered: the core finds them from the schemas. Registering
a name twice, or an in-place or ``out=`` name without `writes`, raises at import.
"""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from . import hlo, promote as _promote
from .builder import Value, current

# Arguments that only say what the result is made of; the result's metadata already reflects them.
RESULT_ONLY = frozenset(
    {"dtype", "layout", "device", "pin_memory", "memory_format", "generator", "out_dtype"}
    | {"non_blocking", "requires_grad"}
)


@dataclasses.dataclass(frozen=True)
class Rule:
    """How one operator is lowered.

    Attributes:
      name: qualified functional overload, e.g. ``"aten::add.Tensor"``.
      body: the function that emits it; called with the schema's argument names.
      promote: None, ``"arith"``, ``"float"`` or ``"compare"`` (see `promote.apply`).
      runtime: ``int``/``float`` arguments passed at run time. ``Scalar`` arguments always are,
        unless named in ``static``.
      static: arguments that enter the key by value although they are ``Scalar``.
      specialize: argument → values that deserve a program of their own (``x ** 2``).
      writes: arguments the operator mutates beside its results; the body returns their new
        values after the schema's results.
      overwrites: the in-place form never reads ``self`` (``fill_``, ``normal_``).
      inplace: the in-place overload when its name does not follow from ``name``.
      random: the body takes ``rng``, a uint64[2] (key, counter) value, fresh for every call.
      range: ``start``, ``end`` and ``step`` are run-time numbers of which only the number of steps
        decides the result's shape; the core puts that number into the key.
      host: tensor arguments that may live on the CPU with any shape (index tensors).
      bounds: run-time argument → what its value must be: ``"> 0"``, ``">= 0"``, ``"in (0, 1)"``,
        ``"in [0, 1]"``, ``"fits self"`` (the dtype of ``self`` can hold it), ``"fits result"``
        (the promoted dtype can) or ``"integer power"`` (not negative if all are integers); checked
        on every call, RuntimeError otherwise.
      out: how ``out=`` is treated where it is not simply given the result: "decides" (its dtype is
        computed in when none is named), "any" (filled whatever its dtype is) or "copies" (it gets a
        copy of the finished result, so that a resized one is contiguous).
      overlap: which sharing of memory between what is written (in place or as ``out=``) and what is
        read is refused, as PyTorch's kernel does: "partial" (anything but the whole tensor; the
        default of rules that promote, which are elementwise), "any" or "" (none).
      layout: where the result is laid out otherwise than PyTorch's kernels lay out those of their
        tensor arguments: the names of these in the order in which the kernel looks at them,
        "contiguous", or "meta" (as the meta kernel says, the default without `promote`).
      check: function of the named meta arguments (numbers for Scalars) that raises what CPU PyTorch
        raises where PyTorch's meta kernel does not, or raises another class; called per key. It
        also gets ``out=`` arguments if its signature names them.
      procedure: the body works on real tensors, not on values.
      masks: a procedure that serves the call when a ``host`` argument is a bool or uint8 mask.
      meta: function of the named meta arguments that returns the list of results, for operators
        whose own meta kernel is missing.
      host_kernel: the rule runs ATen's CPU kernel inside the program (`host.aten_call`); the CPU
        plugin only, elsewhere the call falls back to the CPU. For reports.
      graph_only: the operator occurs in traced graphs only (views); eager calls of it never reach
        a program, so no kernel is registered.
      graph: the rule is a captured graph (`compile/operator.py`), not an ATen operator.
      options: XLA options, by name, of the programs of the rule.
    """

    name: str
    body: Callable[..., Any]
    promote: str | None = None
    runtime: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    specialize: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    writes: tuple[str, ...] = ()
    overwrites: bool = False
    inplace: str | None = None
    random: bool = False
    range: bool = False
    host: tuple[str, ...] = ()
    bounds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    out: str = ""
    overlap: str | None = None
    layout: tuple[str, ...] | str = ()
    check: Callable[..., None] | None = None
    procedure: bool = False
    masks: Callable[..., Any] | None = None
    meta: Callable[..., list] | None = None
    host_kernel: bool = False
    graph_only: bool = False
    graph: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def refused_overlap(self) -> str:
        if self.overlap is None:
            return "partial" if self.promote else ""
        return self.overlap

    @property
    def where(self) -> str:
        """``path:line`` of the body."""
        code = inspect.unwrap(self.body).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


RULES: dict[str, Rule] = {}
FAMILIES: dict[str, str] = {}
"""Functional overload → name of the file in torch_tpu/ops that registers its rule."""


def register(rule: Rule) -> None:
    if rule.name in RULES:
        raise ValueError(f"{rule.name} already has a rule at {RULES[rule.name].where}")
    base, _, overload = rule.name.removeprefix("aten::").partition(".")
    mutating = (base.endswith("_") and not base.endswith("__")) or overload.split("_")[-1] == "out"
    if mutating and not (rule.writes or rule.procedure):
        raise ValueError(f"{rule.name}: register the functional overload; variants are derived")
    RULES[rule.name] = rule
    FAMILIES[rule.name] = _registering_file()


def _registering_file() -> str:
    """The module that called into this one."""
    frame = inspect.currentframe()
    while frame.f_globals["__name__"] == __name__:
        frame = frame.f_back
    return frame.f_globals["__name__"].rpartition(".")[2]


def op(*names: str, **options: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as the rule of each of ``names`` (see `Rule`)."""

    def decorate(body: Callable) -> Callable:
        for name in names:
            register(Rule(name=name, body=body, **options))
        return body

    return decorate


def procedure(*names: str, **options: Any) -> Callable[[Callable], Callable]:
    """Register an operator written over real device tensors (data-dependent result shapes)."""
    return op(*names, procedure=True, **options)


def unary(name: str, word: Callable[[Value], Value], promote: str = "float", **options) -> None:
    """Register a one-operand table row: ``unary("aten::tan", word, promote="float")``."""

    def body(self):
        return word(self)

    register(Rule(name=name, body=body, promote=promote, overlap="partial", **options))


def binary(name: str, word: Callable[[Value, Value], Value], promote="arith", **options) -> None:
    """Register a two-operand table row; the operands arrive promoted and broadcast."""

    def body(self, other):
        return word(self, other)

    register(Rule(name=name, body=body, promote=promote, overlap="partial", **options))


def run_check(check: Callable[..., None], named: Mapping[str, Any]) -> None:
    """Call a rule's check with those of the ``named`` meta arguments that its signature names."""
    parameters = inspect.signature(check).parameters
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    safe = {n + "_" if n in ("from", "lambda") else n: value for n, value in named.items()}
    check(**{name: value for name, value in safe.items() if any_name or name in parameters})


# ---- calling a rule ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Meta:
    """Metadata of one expected result: shape, dtype and strides (in elements)."""

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]


def meta_of(result):
    """`Meta` of a tensor, of each element of a list of them; other results as they are."""
    if isinstance(result, (list, tuple)):
        return [meta_of(r) for r in result]
    if isinstance(result, torch.Tensor):
        return Meta(tuple(result.shape), result.dtype, tuple(result.stride()))
    return result


def overload(name: str) -> torch._ops.OpOverload:
    """The `OpOverload` called ``"aten::add.Tensor"``."""
    namespace, _, rest = name.partition("::")
    base, _, variant = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), variant or "default")


def split_arguments(op: torch._ops.OpOverload, named: Mapping[str, Any]) -> tuple[list, dict]:
    """Named arguments as the positional and keyword ones of ``op``; extra names are ignored."""
    positional, keyword = [], {}
    for argument in op._schema.arguments:
        if argument.name not in named:
            continue
        if argument.kwarg_only:
            keyword[argument.name] = named[argument.name]
        else:
            positional.append(named[argument.name])
    return positional, keyword


def expected() -> list:
    """The results the call must produce: a `Meta` (or None, or list of them) per schema return."""
    return current().expected


# Weak, for the rules of captured graphs come and go.
_parameters: MutableMapping[Callable, tuple[frozenset, bool]] = weakref.WeakKeyDictionary()


def _accepted(body: Callable) -> tuple[frozenset, bool]:
    if body not in _parameters:
        signature = inspect.signature(body).parameters.values()
        names = frozenset(p.name for p in signature)
        _parameters[body] = (names, any(p.kind is p.VAR_KEYWORD for p in signature))
    return _parameters[body]


def call(rule: Rule, arguments: Mapping[str, Any], results: Sequence, rng: Value | None = None):
    """Run ``rule`` on named arguments; returns its results as a list, one entry per schema return
    (then per ``writes``), each checked against ``results`` (see `expected`)."""
    builder = current()
    outer = getattr(builder, "expected", None)
    builder.expected = list(results)
    try:
        arguments = dict(arguments)
        if rule.promote:
            names = list(arguments)
            values = _promote.apply(rule.promote, [arguments[n] for n in names], names)
            arguments = dict(zip(names, values, strict=True))
        accepted, any_keyword = _accepted(rule.body)
        keywords = {}
        for name, argument in arguments.items():
            safe = name + "_" if name in ("from", "lambda") else name
            if safe in accepted or any_keyword:
                keywords[safe] = argument
            elif name not in RESULT_ONLY:
                raise TypeError(f"{rule.name}: the rule at {rule.where} drops argument {name!r}")
        if rule.random:
            keywords["rng"] = rng
        produced = rule.body(**keywords)
        if isinstance(produced, Value) or produced is None:
            produced = [produced]
        # A single list return (``Tensor[]``) may be given as the bare list.
        if (
            isinstance(produced, list)
            and len(results) == 1
            and isinstance(results[0], list)
            and not (len(produced) == 1 and isinstance(produced[0], list))
        ):
            produced = [produced]
        produced = list(produced)
        if len(produced) != len(results) + len(rule.writes):
            raise TypeError(
                f"{rule.name}: the rule at {rule.where} returned {len(produced)} results, "
                f"not {len(results)} + {len(rule.writes)} writes"
            )
        for i, wanted in enumerate(results):
            produced[i] = _finish(rule, produced[i], wanted)
        return produced
    finally:
        builder.expected = outer


def _finish(rule: Rule, value, wanted):
    if wanted is None or value is None or isinstance(value, int):
        return value
    if isinstance(wanted, list):
        return [_finish(rule, v, w) for v, w in zip(value, wanted, strict=True)]
    if rule.promote and value.dtype is not wanted.dtype:
        value = hlo.convert(value, wanted.dtype)
    if rule.promote and value.shape != wanted.shape:
        value = hlo.expand(value, wanted.shape)
    if value.shape != tuple(wanted.shape) or value.dtype is not wanted.dtype:
        raise TypeError(
            f"{rule.name}: the rule at {rule.where} gave {value.type}, "
            f"PyTorch says {tuple(wanted.shape)} {wanted.dtype}"
        )
    return value
