"""A captured graph as plain data, and back: what is kept of it between processes.

Only what lowering looks at is kept: operators, arguments, constants, of each example value the
layout, and the place in the user's program. (PyTorch's own pickler of graphs keeps all, and takes
a millisecond a node to read.)
"""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_map

from ..lowering import places
from ..lowering.registry import overload
from ..program.graph import SYMBOLIC, held
from .inspect import example


@dataclasses.dataclass(frozen=True)
class _Node:
    index: int


@dataclasses.dataclass(frozen=True)
class _Overload:
    name: str


@dataclasses.dataclass(frozen=True)
class _HigherOrder:
    name: str


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Of an example value."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device


@dataclasses.dataclass(frozen=True)
class Record:
    """``rows``: (kind, name, target, arguments, keywords, example value, place) of a node."""

    rows: list[tuple]
    attributes: dict[str, object]


def _number(value):
    if isinstance(value, SYMBOLIC):
        raise TypeError(f"the size {value} is symbolic")
    return value


def _layout(value):
    if not isinstance(value, torch.Tensor):
        return _number(value)
    shape, stride = (tuple(map(_number, s)) for s in (value.shape, value.stride()))
    return _Layout(shape, stride, _number(value.storage_offset()), value.dtype, value.device)


def _attribute(value):
    if isinstance(value, torch.fx.GraphModule):
        return record(value)
    if isinstance(value, torch._subclasses.FakeTensor):
        raise TypeError("a constant of the graph has no value")
    return value


def record(module: torch.fx.GraphModule) -> Record:
    """The graph as data that pickle takes; raises TypeError for one with symbolic sizes."""
    known: dict[torch.fx.Node, _Node] = {}

    def plain(value):
        if isinstance(value, torch.fx.Node):
            return known[value]
        if isinstance(value, torch._ops.OpOverload):
            return _Overload(value.name())
        if isinstance(value, torch._ops.HigherOrderOperator):
            return _HigherOrder(value.name())
        return _number(value)

    rows, attributes = [], {}
    for i, node in enumerate(module.graph.nodes):
        arguments = map_aggregate((node.args, node.kwargs), plain)
        value = tree_map(_layout, example(node))
        place = places.of_node(node)
        rows.append((node.op, node.name, plain(node.target), *arguments, value, place))
        known[node] = _Node(i)
        if node.op == "get_attr":
            attributes[node.target] = _attribute(held(node))
    return Record(rows, attributes)


def graph_of(recorded: Record) -> torch.fx.GraphModule:
    """The graph again, with example values of a fake mode of its own."""
    with torch._subclasses.FakeTensorMode():
        return _graph(recorded, functools.cache(_fake))


def _fake(layout: _Layout) -> torch.Tensor:
    if layout.offset == 0:
        return torch.empty_strided(
            layout.shape, layout.stride, dtype=layout.dtype, device=layout.device
        )
    steps = ((n - 1) * s for n, s in zip(layout.shape, layout.stride, strict=True))
    whole = layout.offset + max(sum(steps), 0) + 1
    base = torch.empty(whole, dtype=layout.dtype, device=layout.device)
    return base.as_strided(layout.shape, layout.stride, layout.offset)


def _graph(recorded: Record, fake) -> torch.fx.GraphModule:
    graph, nodes = torch.fx.Graph(), []

    def live(value):
        if isinstance(value, _Node):
            return nodes[value.index]
        if isinstance(value, _Overload):
            return overload(value.name)
        if isinstance(value, _HigherOrder):
            return getattr(torch.ops.higher_order, value.name)
        return value

    for kind, name, target, args, kwargs, value, place in recorded.rows:
        args, kwargs = map_aggregate((args, kwargs), live)
        node = graph.create_node(kind, live(target), args, kwargs, name)
        node.meta["val"] = tree_map(lambda v: fake(v) if isinstance(v, _Layout) else v, value)
        node.meta["place"] = place
        nodes.append(node)
    attributes = {
        path: _graph(value, fake) if isinstance(value, Record) else value
        for path, value in recorded.attributes.items()
    }
    with _use_lazy_graph_module(True):  # its code is seldom run
        return _make_graph_module(attributes, graph)
