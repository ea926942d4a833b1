"""Lowers an FX graph of ATen operators through the table of rules.

Serves decompositions (`decompose.py`), torch.compile and export. Every node must be an operator
with a rule, control flow (`control_flow.py`) or arithmetic on sizes; anything else raises
NotImplementedError naming it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from ..lowering import hlo, places, registry
from ..lowering.builder import Value, current

aten = torch.ops.aten

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_SAVES_STATE = torch.ops.higher_order.run_and_save_rng_state

# Checks of values: PyTorch acts on them while it captures; Strict mode does not look at values.
ASSERTIONS = frozenset(
    {
        aten._assert_async.default,
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)


def lower_graph(graph: torch.fx.Graph, inputs: Sequence):
    """Emit ``graph`` with placeholders bound to ``inputs`` in order; returns its outputs."""
    return Lowering(registry.meta_of).outputs(graph, inputs)


def rule_of(node: torch.fx.Node) -> registry.Rule | None:
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    rule = registry.RULES.get(node.target.name())
    return None if rule is None or rule.procedure else rule


def is_number(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, (bool, int, float, *SYMBOLIC))


def parts(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """The graph and those of its control flow."""
    yield module
    for child in module.children():
        if isinstance(child, torch.fx.GraphModule):
            yield from parts(child)


def check(module: torch.fx.GraphModule) -> None:
    """Raise NotImplementedError for the first node that cannot be lowered."""
    from . import control_flow

    for part in parts(module):
        for node in part.graph.nodes:
            if node.op == "call_module" or node.op == "call_method":
                raise NotImplementedError(f"a graph node {node.op} {node.target} has no lowering")
            if node.op != "call_function" or not isinstance(
                node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
            ):
                continue
            known = (
                rule_of(node) is not None
                or is_number(node)
                or node.target in ASSERTIONS
                or node.target in control_flow.LOWERINGS
                or node.target in (aten.copy_.default, aten._local_scalar_dense.default)
            )
            if not known:
                raise NotImplementedError(f"{node.target} has no lowering inside a graph")


def held(node: torch.fx.Node):
    """What a ``get_attr`` node names: a constant, or the graph of a branch or a body."""
    return operator.attrgetter(node.target)(node.graph.owning_module)


def is_random(module: torch.fx.GraphModule) -> bool:
    """Whether a node draws random numbers."""
    return any(draws(node) for part in parts(module) for node in part.graph.nodes)


def draws(node: torch.fx.Node) -> bool:
    """Whether a node takes numbers from the generator."""
    if node.op != "call_function":
        return False
    rule = rule_of(node)
    return node.target is _SAVES_STATE or rule is not None and rule.random


def _draws(graph: torch.fx.Graph) -> int:
    return sum(draws(node) and node.target is not _SAVES_STATE for node in graph.nodes)


class Lowering:
    """Emits graphs with one understanding of their sizes.

    ``meta`` gives the `registry.Meta` (or number) of an example value; ``rng`` is the generator
    state that random nodes share out, uint64[2].
    """

    def __init__(self, meta: Callable, rng: Value | None = None):
        self.meta = meta
        self._rng = rng

    def outputs(self, graph: torch.fx.Graph, inputs: Sequence, attributes: Mapping | None = None):
        """The values of the output node."""
        values = self.run(graph, inputs, attributes)
        return torch.fx.node.map_arg(graph.output_node().args[0], values.__getitem__)

    def run(self, graph: torch.fx.Graph, inputs: Sequence, attributes: Mapping | None = None):
        """Emit every node; returns the value of each. ``attributes`` go before the module's."""
        values: dict[torch.fx.Node, object] = {}
        remaining = iter(inputs)
        states = iter(self._split(_draws(graph)))
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = next(remaining)
            elif node.op == "get_attr":
                given = (attributes or {}).get(node)
                values[node] = self._attribute(held(node) if given is None else given)
            elif node.op == "call_function":
                with current().at(places.of_node(node)):
                    values[node] = self._call(node, values, states)
        return values

    # ---- random numbers: one state, of which every node that draws gets a part -------------

    def state(self) -> Value | None:
        """The generator state of the nodes that follow."""
        return self._rng

    def restore(self, state: Value | None) -> None:
        self._rng = state

    def advance(self) -> None:
        """Give what follows a state that is independent of the present one."""
        self._rng = self._split(1)[0] if self._rng is not None else None

    def draw(self) -> Value:
        """A state for one node that is not counted in its graph."""
        if self._rng is None:
            raise NotImplementedError("random numbers are drawn here")
        return self._split(1)[0]

    def _split(self, count: int) -> list[Value]:
        if not count or self._rng is None:
            return []
        *states, self._rng = hlo.rng_split(self._rng, count + 1)
        return states

    # ---- nodes -------------------------------------------------------------------------------

    def _attribute(self, value):
        """A host constant becomes one of the program; graphs of control flow stay what they are."""
        if not isinstance(value, torch.Tensor):
            return value
        data = value.detach().contiguous()
        return hlo.array(data.flatten().tolist(), data.dtype, tuple(data.shape))

    def _call(self, node: torch.fx.Node, values: Mapping, states: Iterator[Value]):
        from . import control_flow

        args = torch.fx.node.map_arg(node.args, values.__getitem__)
        kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if is_number(node):
            return self._number(node, args, kwargs)
        if target in ASSERTIONS:
            return None
        if target is aten.copy_.default:
            return args[1]
        if target in control_flow.LOWERINGS:
            return control_flow.LOWERINGS[target](self, node, *args, **kwargs)
        rule = rule_of(node)
        if rule is None:
            raise NotImplementedError(f"{target} has no lowering inside a graph")
        if rule.random and self._rng is None:
            raise NotImplementedError(f"{target} draws random numbers here")
        state = next(states) if rule.random else None
        return self.apply(node.target, node.meta["val"], args, kwargs, state)

    def apply(self, target: torch._ops.OpOverload, value, args, kwargs, state: Value | None = None):
        """Emit one operator whose result has the metadata of ``value``."""
        rule = registry.RULES[target.name()]
        schema = target._schema
        named = {}
        for i, argument in enumerate(schema.arguments):
            if i < len(args):
                named[argument.name] = args[i]
            else:
                named[argument.name] = kwargs.get(argument.name, argument.default_value)
        result = self.meta(value)
        single = len(schema.returns) == 1
        produced = registry.call(rule, named, [result] if single else result, state)
        if rule.writes:
            raise NotImplementedError(f"{target} writes to its arguments")
        return produced[0] if single else produced

    def _number(self, node: torch.fx.Node, args, kwargs):
        """A size, or a number read from a tensor, which stays a run-time value."""
        if node.target is aten._local_scalar_dense.default:
            value = hlo.reshape(args[0], ())
            return Value(value.builder, value.name, (), value.dtype, weak=True)
        # An operator, like sym_size, gives what is known of a tensor; the others are arithmetic.
        asks = isinstance(node.target, torch._ops.OpOverload)
        if not asks and any(isinstance(a, Value) for a in args):
            return node.target(*args, **kwargs)
        return self.meta(node.meta["val"])
