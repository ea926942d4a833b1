"""Lowers an FX graph of ATen operators through the table of rules.

Serves decompositions (`decompose.py`); torch.compile and export lower their graphs the same way.
Every node must be an operator with a rule; anything else raises NotImplementedError naming it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from ..lowering import registry


def lower_graph(graph: torch.fx.Graph, inputs: Sequence):
    """Emit ``graph`` with placeholders bound to ``inputs`` in order; returns its outputs."""
    values: dict[torch.fx.Node, object] = {}
    remaining = iter(inputs)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(remaining)
        elif node.op == "output":
            return torch.fx.node.map_arg(node.args[0], values.__getitem__)
        elif node.op == "call_function" and node.target is operator.getitem:
            source, index = node.args
            values[node] = values[source][index]
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            values[node] = _call(node, values)
        else:
            raise NotImplementedError(f"a graph node {node.op} {node.target} has no lowering")
    raise ValueError("the graph has no output node")


def _call(node: torch.fx.Node, values):
    overload: torch._ops.OpOverload = node.target
    rule = registry.RULES.get(overload.name())
    if rule is None or rule.procedure or rule.random:
        raise NotImplementedError(f"{overload} has no lowering inside a graph")
    args = torch.fx.node.map_arg(node.args, values.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
    named = {}
    for i, argument in enumerate(overload._schema.arguments):
        if i < len(args):
            named[argument.name] = args[i]
        else:
            named[argument.name] = kwargs.get(argument.name, argument.default_value)
    result = registry.meta_of(node.meta["val"])
    single = len(overload._schema.returns) == 1
    produced = registry.call(rule, named, [result] if single else result)
    return produced[0] if single else produced
