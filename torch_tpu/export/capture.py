"""From a `torch.export.ExportedProgram` to a StableHLO module and its signature.

The graph is made functional and decomposed, then lowered through the table of rules, with its
lifted parameters, buffers and constants as parameters of the module. Devices that the graph names
mean nothing. Not here: running (`program.py`) and files (`artifact.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ..compile.symbols import Bindings, is_symbolic
from ..lowering.builder import Builder, building
from ..program import decompose, graph, module
from .program import Program
from .signature import GENERATOR, Leaf, Parameter, Result, Signature

_KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}
_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
    OutputKind.PARAMETER_MUTATION,
)


def to_stablehlo(
    exported: ExportedProgram, args: Sequence | None = None, kwargs: Mapping | None = None
) -> Program:
    """Lower an exported program to one StableHLO module.

    A module has fixed sizes. A program that was exported with dynamic ones needs example arguments
    (tensors on any device, their contents are not read): the result is the program of their sizes.
    Raises NotImplementedError for an operator that has no lowering or whose result's size depends
    on data, ValueError for dynamic sizes without examples or examples that do not fit.
    """
    if not isinstance(exported, ExportedProgram):
        kind = type(exported).__name__
        raise TypeError(f"to_stablehlo() takes what torch.export.export returns, not {kind}")
    functional = exported.run_decompositions(_decompositions())
    graph.check(functional.graph_module)
    captured = _Captured(functional, _examples(functional, args, kwargs))
    text, signature = captured.lower()
    spec = functional.call_spec
    return Program(text, signature, captured.weights(), spec.in_spec, spec.out_spec)


@functools.cache
def _decompositions() -> dict:
    """As for torch.compile, and composite operators without a rule, which torch.export would keep.

    Where both tables have an operator that of torch.export counts: in the other one, which has the
    reference implementations, ``item`` needs a real tensor.
    """
    composite = {
        op: decomposition
        for op, decomposition in torch.export.default_decompositions().items()
        if not decompose.has_rule(op)
    }
    return {**decompose.table(), **composite}


def _examples(exported: ExportedProgram, args, kwargs) -> list | None:
    """The leaves of example arguments, in the order of the exported ones."""
    if args is None and kwargs is None:
        return None
    spec = exported.call_spec.in_spec
    named = dict(kwargs or {})
    order = spec.child(1).context or []
    if set(order) == set(named):
        named = {name: named[name] for name in order}
    leaves, given = pytree.tree_flatten((tuple(args or ()), named))
    if given != spec:
        raise ValueError(f"example arguments come as {given}, the program takes {spec}")
    return leaves


class _Captured:
    """A functional exported program with its sizes bound."""

    def __init__(self, exported: ExportedProgram, examples: list | None):
        self.exported = exported
        self.inputs = [n for n in exported.graph.nodes if n.op == "placeholder"]
        self.specs = exported.graph_signature.input_specs
        for node, spec in zip(self.inputs, self.specs, strict=True):
            if spec.kind not in _KINDS:
                kind = spec.kind.name.lower()
                raise NotImplementedError(f"{node.name}: an input of kind {kind} has no lowering")
        self.bindings = self._bound(examples)

    def _bound(self, examples: list | None) -> Bindings:
        """Binds symbolic sizes to those of the example arguments."""
        nodes = [n for n, s in zip(self.inputs, self.specs, strict=True) if _is_user(s)]
        fakes = [n.meta.get("val") for n in nodes]
        if examples is None:
            dynamic = [
                f"{n.name} {_shown(f)}" for n, f in zip(nodes, fakes, strict=True) if is_symbolic(f)
            ]
            if dynamic:
                raise ValueError(
                    f"the program has dynamic sizes ({', '.join(dynamic)}) and a StableHLO module "
                    "has fixed ones: pass example arguments, to_stablehlo(exported, args, kwargs)"
                )
            return Bindings((), ())
        for node, fake, example in zip(nodes, fakes, examples, strict=True):
            if isinstance(fake, torch.Tensor) and (
                not isinstance(example, torch.Tensor) or example.ndim != fake.ndim
            ):
                raise ValueError(
                    f"{node.name}: the program takes {_shown(fake)}, not {_shown(example)}"
                )
        shapes = [tuple(e.shape) if isinstance(e, torch.Tensor) else e for e in examples]
        bindings = Bindings(fakes, shapes)
        for node, fake, shape in zip(nodes, fakes, shapes, strict=True):
            _check_example(node.name, fake, shape, bindings)
        self._check_ranges(bindings)
        return bindings

    def _check_ranges(self, bindings: Bindings) -> None:
        for symbol, allowed in self.exported.range_constraints.items():
            number = bindings.bound(symbol)
            if number is not None and not allowed.lower <= number <= allowed.upper:
                raise ValueError(
                    f"the size {symbol} is {number} in the example arguments, and was exported "
                    f"as one of {allowed.lower} to {allowed.upper}"
                )

    # ---- the module ------------------------------------------------------------------------

    def lower(self) -> tuple[str, Signature]:
        builder, parameters, arguments, inputs = Builder(), [], [], []
        with building(builder):
            for node, spec in zip(self.inputs, self.specs, strict=True):
                fake = node.meta.get("val")
                leaf = self._value_leaf(node.name, fake)
                if isinstance(fake, torch.Tensor):
                    meta = self.bindings.meta(fake)
                    name, kind = spec.target or node.name, _KINDS[spec.kind]
                    leaf = Leaf(node.name, position=len(parameters))
                    parameters.append(Parameter(name, kind, meta.shape, meta.dtype))
                    inputs.append(builder.parameter(meta.shape, meta.dtype))
                else:
                    inputs.append(leaf.value)
                if _is_user(spec):
                    arguments.append(leaf)
            state = self._state(builder, parameters)
            lowering = graph.Lowering(self.bindings.meta, state)
            values = lowering.outputs(self.exported.graph, inputs)
        results, outputs, returned = self._results(values, parameters)
        text = module.finish(builder, returned, name="exported", keep_unread=True).text
        return text, Signature(*map(tuple, (parameters, results, arguments, outputs)))

    def _state(self, builder: Builder, parameters: list):
        if not graph.is_random(self.exported.graph_module):
            return None
        parameters.append(Parameter(GENERATOR, GENERATOR, (2,), torch.uint64))
        return builder.parameter((2,), torch.uint64)

    def _results(
        self, values: Sequence, parameters: Sequence[Parameter]
    ) -> tuple[list[Result], list[Leaf], list]:
        """Results of the module, leaves of the outputs, and the values that are returned."""
        nodes = self.exported.graph.output_node().args[0]
        results, outputs, returned = [], [], []
        specs = self.exported.graph_signature.output_specs
        for node, spec, value in zip(nodes, specs, values, strict=True):
            example = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
            name = str(getattr(spec.arg, "name", "") or f"output_{len(outputs)}")
            mutates = self._mutated(name, spec, parameters)
            kind = "output" if mutates is None else "mutation"
            leaf = Leaf(name, position=len(results))
            if isinstance(example, torch.Tensor):
                meta = self.bindings.meta(example)
                results.append(Result(name, kind, meta.shape, meta.dtype, meta.strides, mutates))
                returned.append(value)
            else:
                leaf = self._value_leaf(name, example)
            if mutates is None:
                outputs.append(leaf)
        return results, outputs, returned

    @staticmethod
    def _mutated(name: str, spec, parameters: Sequence[Parameter]) -> int | None:
        """Position of the parameter that an output is the new value of."""
        if spec.kind is OutputKind.USER_OUTPUT:
            return None
        if spec.kind not in _MUTATIONS:
            raise NotImplementedError(f"{name}: an output of kind {spec.kind.name.lower()}")
        argument = spec.kind is OutputKind.USER_INPUT_MUTATION
        return next(
            i
            for i, p in enumerate(parameters)
            if p.name == spec.target and (p.kind == "input") is argument
        )

    def _value_leaf(self, name: str, value) -> Leaf:
        """The leaf of an argument or output that is no tensor."""
        if isinstance(value, torch.Tensor):
            return Leaf(name)
        value = self.bindings.number(value)
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise NotImplementedError(f"{name}: a value of type {type(value).__name__}")
        return Leaf(name, value=value)

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters, buffers and constants by their names in the nn.Module."""
        held = {**self.exported.constants, **self.exported.state_dict}
        return {s.target: held[s.target].detach() for s in self.specs if not _is_user(s)}


def _is_user(spec) -> bool:
    return spec.kind is InputKind.USER_INPUT


def _shown(value) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _check_example(name: str, fake, given, bindings: Bindings) -> None:
    expected = fake.shape if isinstance(fake, torch.Tensor) else (fake,)
    expected = tuple(bindings.number(n) for n in expected)
    actual = given if isinstance(fake, torch.Tensor) else (given,)
    if expected != tuple(actual):
        raise ValueError(f"{name}: the program takes {list(expected)} here, not {list(actual)}")
