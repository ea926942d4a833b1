"""A captured FX graph as an operator of the core.

The rule of the operator is the graph: tensors, sizes and numbers go through the same key as those
of an eager call, a program is built when the key is new, inputs that the graph mutates are donated
and written in place. A graph with symbolic sizes has one program per set of sizes here; one per
set of buckets is in `buckets.py`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping

import torch

from .. import _core
from ..dispatch.register import options_of
from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import RULES, Meta, Rule
from ..program import graph as lowering
from . import inspect
from .symbols import Bindings, dtype_of, symbols_of

SCHEMA = (
    "graph(Tensor[] reads, Tensor(a!)[] writes, int[] sizes, int[] values, float[] numbers) "
    "-> Tensor[]"
)
_library = torch.library.Library("torch_tpu", "FRAGMENT")
_library.define(SCHEMA)
_names = itertools.count()

_ROLES = {"tensor": "r", "written": "w", "size": "s", "value": "v", "number": "n", "nothing": "-"}


def register(
    graph, kinds: list[str], sources: list[int], random: bool, options: Mapping | None = None
) -> _core.Graph:
    """The core's operator that runs ``graph``, by its `body` and `meta`, under its name.

    ``kinds`` says what each input is (`inspect.Parts`), ``sources`` where each output comes from,
    ``random`` whether the body wants a generator state. The operator lives as long as ``graph``.
    """
    # The table of rules must not keep a graph alive that nobody can call any more.
    held = weakref.ref(graph)

    def body(reads, writes, sizes, values, numbers, rng=None):
        return held().body(reads, writes, sizes, values, numbers, rng)

    rule = Rule(
        name=graph.name,
        body=body,
        runtime=("values", "numbers"),
        writes=("writes",),
        random=random,
        meta=lambda **arguments: held().meta(**arguments),
        graph=True,
        options=options or {},
    )
    RULES[graph.name] = rule
    weakref.finalize(graph, RULES.pop, graph.name, None)
    return _core.Graph(options_of(rule), "".join(_ROLES[kind] for kind in kinds), sources)


def split(kinds: list[str], reads, writes, sizes, values, numbers) -> list:
    """The lists of the schema as inputs of these kinds."""
    lists = dict(zip("rwsvn", map(iter, (reads, writes, sizes, values, numbers)), strict=True))
    return [next(lists[_ROLES[k]]) if k != "nothing" else None for k in kinds]


class GraphOperator:
    """Runs a functional graph, whose only mutations are ``copy_`` to inputs, as one program.

    Called with the list of the graph's inputs, which it empties; returns the list of its outputs.
    Raises NotImplementedError, naming the node, for a graph that cannot be one program.
    """

    def __init__(self, module: torch.fx.GraphModule, label: str, options: Mapping | None = None):
        self.parts = inspect.Parts(module)
        self.name = f"torch_tpu::graph_{next(_names)}_{label}"
        lowering.check(module)
        self.constants = [c for c in self.parts.constants.values() if c.device.type != "cpu"]
        self._sources = [self._source(output) for output in self.parts.outputs]
        self._plain = all(isinstance(source, int) for source in self._sources)
        sources = self._sources if self._plain else list(range(len(self.parts.results)))
        random = lowering.is_random(module)
        self._handle = register(self, self.parts.kinds, sources, random, options)

    def _source(self, output):
        """Where an output comes from: result >= 0 of the program, input -1 - i, or a view."""
        view = self.parts.views.get(output)
        if view is not None:
            return view.source if view.whole else view
        if isinstance(output, torch.fx.Node) and inspect.is_tensor(output):
            return self.parts.results.index(output)
        if not isinstance(output, torch.fx.Node):
            return inspect.Number(output)
        value = inspect.example(output)
        if symbols_of(value) <= self._bound_symbols():
            return inspect.Number(value)
        # It depends on data, so that the program computes it.
        self.parts.results.append(output)
        return inspect.Item(len(self.parts.results) - 1)

    def _bound_symbols(self) -> set:
        return set().union(*(symbols_of(inspect.example(p)) for p in self.parts.inputs))

    # ---- a call ----------------------------------------------------------------------------

    def __call__(self, inputs: list) -> list:
        if self._plain:
            return self._handle(inputs, self.constants)
        kept = list(inputs)
        return self.outputs(kept, self._handle(inputs, self.constants))

    def outputs(self, inputs: list, produced: list) -> list:
        """The outputs of the graph from the results of the program."""
        if self._plain:
            return [produced[s] if s >= 0 else inputs[-1 - s] for s in self._sources]
        bindings = self._bound(inputs) if self.parts.symbolic else None
        return [self._output(source, inputs, produced, bindings) for source in self._sources]

    @staticmethod
    def _output(source, inputs: list, produced, bindings: Bindings | None):
        if isinstance(source, int):
            return produced[source] if source >= 0 else inputs[-1 - source]
        if isinstance(source, inspect.Item):
            return produced[source.result].item()
        if isinstance(source, inspect.Number):
            return source.value if bindings is None else bindings.number(source.value)
        base = produced[source.source] if source.source >= 0 else inputs[-1 - source.source]
        return source.of(base, bindings)

    # ---- a miss ----------------------------------------------------------------------------

    def _bound(self, inputs: list) -> Bindings:
        """What the symbols stand for; inputs may be tensors, meta tensors or values."""
        arguments = [
            tuple(i.shape) if inspect.is_tensor(p) and i is not None else i
            for p, i in zip(self.parts.inputs, inputs, strict=True)
        ]
        examples = [
            inspect.example(p) if a is not None else None
            for p, a in zip(self.parts.inputs, arguments, strict=True)
        ]
        return Bindings(examples, arguments)

    def meta(self, **arguments) -> list:
        bindings = self._bound(split(self.parts.kinds, **arguments))
        return [[meta_of(n, bindings.meta) for n in self.parts.results]]

    def body(self, reads, writes, sizes, values, numbers, rng):
        inputs = split(self.parts.kinds, reads, writes, sizes, values, numbers)
        lowered = lowering.Lowering(self._bound(inputs).meta, rng)
        return self.emit(lowered, inputs, reads)

    def emit(self, lowered: lowering.Lowering, inputs: list, reads: list) -> tuple[list, list]:
        """The results of the program, and what is written to inputs."""
        constants = dict(self.parts.constants)
        on_device = iter(reads[len(reads) - len(self.constants) :])
        for node, tensor in constants.items():
            if tensor.device.type != "cpu":
                constants[node] = next(on_device)
        produced = lowered.run(self.parts.module.graph, inputs, constants)
        results = [_as_value(produced[node], node) for node in self.parts.results]
        written = [
            produced[self.parts.written[node]] if node in self.parts.written else None
            for node, kind in zip(self.parts.inputs, self.parts.kinds, strict=True)
            if kind == "written"
        ]
        return results, written


def meta_of(node: torch.fx.Node, of: Callable) -> Meta:
    """`Meta` of a result; ``of`` gives that of a tensor."""
    value = inspect.example(node)
    return of(value) if inspect.is_tensor(node) else Meta((), dtype_of(value), ())


def _as_value(result, node: torch.fx.Node) -> Value:
    """A result of the program: a number that depends on data becomes a tensor of no dims."""
    if inspect.is_tensor(node):
        return result
    dtype = dtype_of(inspect.example(node))
    known = not isinstance(result, Value)
    return promote.as_value(result, dtype) if known else hlo.convert(result, dtype)
