"""Changes to a traced graph before it is lowered: what is dead goes, recomputations draw the random
numbers of the forward pass again, and the compiler is kept from merging them with it.

The notes that this goes by are made in `tracing.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch.fx import Node

from ..program import graph
from .tracing import Note

_SAVE = torch.ops.higher_order.run_and_save_rng_state
_AGAIN = torch.ops.higher_order.run_with_rng_state


def clean(traced: torch.fx.GraphModule, results: int) -> list[int]:
    """Rewrite a graph that returns ``results`` results and then the last value of every input;
    returns the numbers of the inputs whose last value is another one, which alone are kept."""
    for part in graph.parts(traced):
        for node in part.graph.nodes:
            note = (node.meta.get("custom") or {}).get("note")
            node.meta["note"] = note or Note(graph.places.of_node(node))
            node.meta["place"] = node.meta["note"].place
            node.meta["backwards"] = node.meta["note"].backwards
    mutated = _keep_changed(traced.graph, results)
    traced.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    _check(traced)
    _draw_again(traced.graph)
    _keep_apart(traced.graph)
    traced.graph.lint()
    return mutated


def _keep_changed(fx: torch.fx.Graph, results: int) -> list[int]:
    outputs = list(fx.output_node().args[0])
    inputs = [node for node in fx.nodes if node.op == "placeholder"]
    pairs = zip(inputs, outputs[results:], strict=True)
    mutated = [i for i, (before, after) in enumerate(pairs) if before is not after]
    fx.output_node().args = (outputs[:results] + [outputs[results + i] for i in mutated],)
    return mutated


def _check(traced: torch.fx.GraphModule) -> None:
    try:
        graph.check(traced)
    except NotImplementedError as error:
        name = str(error).split(" ", 1)[0]
        where = next((n.meta["place"] for n in traced.graph.nodes if str(n.target) == name), None)
        if where is None or not where.line:
            raise
        inside = f" in {where.module}" if where.module else ""
        raise NotImplementedError(f"{error}: {where.operator}{inside}, {where.line}") from None


# ---- random numbers ------------------------------------------------------------------------------


def _draw_again(fx: torch.fx.Graph) -> None:
    """Operators that take the same numbers get one state of the generator: the first saves it."""
    groups: dict[int, list[Node]] = {}
    for node in fx.nodes:
        if graph.draws(node) and node.meta["note"].numbers is not None:
            # One operator may have been taken apart into several that draw: these differ.
            groups.setdefault(node.meta["note"].numbers, []).append(node)
    for nodes in groups.values():
        for first, again in _pairs(nodes):
            state = _saved(fx, first)
            for node in again:
                with fx.inserting_before(node):
                    new = fx.call_function(_AGAIN, (state, node.target, *node.args), node.kwargs)
                    new.meta = dict(node.meta)
                node.replace_all_uses_with(new)
                fx.erase_node(node)


def _pairs(nodes: Sequence[Node]) -> list[tuple[Node, list[Node]]]:
    """Each node of the first occurrence, with those of later ones that repeat it."""
    by_occurrence: dict[int, list[Node]] = {}
    for node in nodes:
        by_occurrence.setdefault(node.meta["note"].recomputed, []).append(node)
    first, *later = by_occurrence.values()
    return [
        (node, [repeat[i] for repeat in later if i < len(repeat)])
        for i, node in enumerate(first)
        if later
    ]


def _saved(fx: torch.fx.Graph, node: Node) -> Node:
    """Replaces a node that draws by one that also gives the state it drew from, which is given."""
    with fx.inserting_before(node):
        both = fx.call_function(_SAVE, (node.target, *node.args), node.kwargs)
        state = fx.call_function(operator.getitem, (both, 0))
        value = fx.call_function(operator.getitem, (both, 1))
    for new in (both, state, value):
        new.meta = dict(node.meta)
    both.meta["val"] = (None, node.meta["val"])
    node.replace_all_uses_with(value)
    fx.erase_node(node)
    return state


# ---- recomputations ------------------------------------------------------------------------------


def _keep_apart(fx: torch.fx.Graph) -> None:
    """What a recomputation reads goes through a barrier, together with the gradient for which it
    is done: so it is neither merged with the forward pass nor done before the gradient is there."""
    order = {node: i for i, node in enumerate(fx.nodes)}
    groups: dict[int, list[Node]] = {}
    for node in order:
        if node.meta["note"].recomputed:
            groups.setdefault(node.meta["note"].recomputed, []).append(node)
    for nodes in groups.values():
        members = set(nodes)
        read = dict.fromkeys(
            source
            for node in nodes
            for source in node.all_input_nodes
            if source not in members and _is_array(source) and order[source] < order[nodes[0]]
        )
        if not read:
            continue
        gradient = _awaited(nodes, members, order)
        _insert_barrier(fx, nodes[0], list(read), members, gradient)


def _awaited(nodes: Sequence[Node], members: set[Node], order: dict[Node, int]) -> Node | None:
    """The gradient with which the backward operator that wanted the recomputation begins."""
    step, start = nodes[0].meta["note"].step, order[nodes[0]]
    for node, index in order.items():
        note = node.meta["note"]
        if index > start and note.backward and note.step == step and node not in members:
            for source in node.all_input_nodes:
                if order[source] < start and source.meta["note"].backward and _is_array(source):
                    return source
    return None


def _insert_barrier(
    fx: torch.fx.Graph, before: Node, read: list[Node], members: set[Node], gradient: Node | None
) -> None:
    through = read if gradient is None or gradient in read else [*read, gradient]
    with fx.inserting_before(before):
        barrier = fx.call_function(torch.ops.torch_tpu.barrier.default, (through,))
        barrier.meta = {**before.meta, "val": [node.meta["val"] for node in through]}
        for i, source in enumerate(read):
            new = fx.call_function(operator.getitem, (barrier, i))
            new.meta = {**before.meta, "val": source.meta["val"]}
            source.replace_all_uses_with(new, lambda user: user in members)


def _is_array(node: Node) -> bool:
    return node.op != "get_attr" and isinstance(node.meta.get("val"), torch.Tensor)
