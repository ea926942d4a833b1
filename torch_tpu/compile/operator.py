"""A captured FX graph as an operator of the core.

The rule of the operator is the graph: tensors, sizes and numbers go through the same key as those
of an eager call, a program is built when the key is new, inputs that the graph mutates are donated
and written in place. A graph with symbolic sizes has one program per set of sizes.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping

import torch

from .. import _core
from ..dispatch.register import options_of
from ..lowering.registry import RULES, Rule
from ..program import graph as lowering
from . import inspect
from .symbols import Bindings

SCHEMA = "graph(Tensor[] reads, Tensor(a!)[] writes, int[] sizes, float[] numbers) -> Tensor[]"
_library = torch.library.Library("torch_tpu", "FRAGMENT")
_library.define(SCHEMA)
_names = itertools.count()

_ROLES = {"tensor": "r", "written": "w", "size": "s", "number": "n", "nothing": "-"}


class GraphOperator:
    """Runs a functional graph, whose only mutations are ``copy_`` to inputs, as one program.

    Called with the list of the graph's inputs, which it empties; returns the list of its outputs.
    Raises NotImplementedError, naming the node, for a graph that cannot be one program.
    """

    def __init__(self, module: torch.fx.GraphModule, label: str, options: Mapping | None = None):
        self.parts = inspect.Parts(module)
        self.name = f"torch_tpu::graph_{next(_names)}_{label}"
        self._nodes = module.graph.nodes
        lowering.check(module)
        self._constants = [c for c in self.parts.constants.values() if c.device.type != "cpu"]
        computed = itertools.count()
        self._sources = [self._source(output, computed) for output in self.parts.outputs]
        self._plain = all(isinstance(source, int) for source in self._sources)
        self._handle = self._register(options or {})

    def _source(self, output, computed):
        """Where an output comes from: result >= 0 of the program, input -1 - i, or a view."""
        view = self.parts.views.get(output)
        if view is not None:
            return -1 - view.input if view.whole else view
        if isinstance(output, torch.fx.Node) and inspect.is_tensor(output):
            return next(computed)
        return inspect.Number(output)

    def _register(self, options: Mapping):
        rule = Rule(
            name=self.name,
            body=self._body,
            runtime=("numbers",),
            writes=("writes",),
            random=lowering.is_random(self.parts.module),
            meta=self._meta,
            graph=True,
            options=options,
        )
        RULES[self.name] = rule
        weakref.finalize(self, RULES.pop, self.name, None)
        roles = "".join(_ROLES[kind] for kind in self.parts.kinds)
        outputs = [s for s in self._sources if isinstance(s, int) and s >= 0]
        sources = self._sources if self._plain else outputs
        return _core.Graph(options_of(rule), roles, sources)

    # ---- a call ----------------------------------------------------------------------------

    def __call__(self, inputs: list) -> list:
        if self._plain:
            return self._handle(inputs, self._constants)
        kept = list(inputs)
        produced = iter(self._handle(inputs, self._constants))
        bindings = self._bindings(kept) if self.parts.symbolic else None
        return [self._output(source, kept, produced, bindings) for source in self._sources]

    def _bindings(self, inputs: list) -> Bindings:
        arguments = [tuple(i.shape) if isinstance(i, torch.Tensor) else i for i in inputs]
        return Bindings([inspect.example(p) for p in self.parts.inputs], arguments)

    @staticmethod
    def _output(source, inputs: list, produced, bindings: Bindings | None):
        if isinstance(source, int):
            return next(produced) if source >= 0 else inputs[-1 - source]
        if isinstance(source, inspect.Number):
            return source.value if bindings is None else bindings.number(source.value)
        return source.of(inputs[source.input], bindings)

    # ---- a miss ----------------------------------------------------------------------------

    def _split(self, reads, writes, sizes, numbers) -> list:
        """The four arguments of the operator as the inputs of the graph."""
        lists = {"r": iter(reads), "w": iter(writes), "s": iter(sizes), "n": iter(numbers)}
        return [next(lists[_ROLES[k]], None) if k != "nothing" else None for k in self.parts.kinds]

    def _bound(self, inputs: list) -> Bindings:
        arguments = [
            tuple(i.shape) if inspect.is_tensor(p) and i is not None else i
            for p, i in zip(self.parts.inputs, inputs, strict=True)
        ]
        examples = [
            inspect.example(p) if a is not None else None
            for p, a in zip(self.parts.inputs, arguments, strict=True)
        ]
        return Bindings(examples, arguments)

    def _meta(self, reads, writes, sizes, numbers) -> list:
        bindings = self._bound(self._split(reads, writes, sizes, numbers))
        return [[bindings.meta(inspect.example(n)) for n in self._computed()]]

    def _computed(self) -> list[torch.fx.Node]:
        pairs = zip(self.parts.outputs, self._sources, strict=True)
        return [node for node, source in pairs if isinstance(source, int) and source >= 0]

    def _body(self, reads, writes, sizes, numbers, rng=None):
        inputs = self._split(reads, writes, sizes, numbers)
        bindings = self._bound(inputs)
        constants = dict(self.parts.constants)
        on_device = iter(reads[len(reads) - len(self._constants) :])
        for node, tensor in constants.items():
            if tensor.device.type != "cpu":
                constants[node] = next(on_device)
        lowered = lowering.Lowering(bindings.meta, rng)
        values = lowered.run(self.parts.module.graph, inputs, constants)
        results = [values[node] for node in self._computed()]
        written = [
            values[self.parts.written[node]] if node in self.parts.written else None
            for node, kind in zip(self.parts.inputs, self.parts.kinds, strict=True)
            if kind == "written"
        ]
        return results, written
