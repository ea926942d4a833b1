"""Lists of single numbers on the CPU as vectors.

An optimiser has a step count for each parameter, and computes with them by ``_foreach_`` operators,
which on the CPU are a loop over tensors of one element. As one vector that costs a tenth.
"""

from __future__ import annotations

import operator

import torch

aten = torch.ops.aten

# ``_foreach_`` overload → the same on one tensor.
_VECTORS = {
    aten._foreach_neg.default: aten.neg.default,
    aten._foreach_sqrt.default: aten.sqrt.default,
    aten._foreach_reciprocal.default: aten.reciprocal.default,
    aten._foreach_pow.Scalar: aten.pow.Tensor_Scalar,
    aten._foreach_pow.ScalarAndTensor: aten.pow.Scalar,
}
for _name in ("add", "sub", "mul", "div"):
    _VECTORS[getattr(aten, f"_foreach_{_name}").Scalar] = getattr(aten, _name).Scalar
    _VECTORS[getattr(aten, f"_foreach_{_name}").List] = getattr(aten, _name).Tensor


def vectorize(graph: torch.fx.Graph) -> None:
    """Rewrite ``_foreach_`` calls of a graph, whose results nobody may keep, in place."""
    whole: dict[torch.fx.Node, tuple] = {}  # what unbinds a vector → the vector and its length
    for node in list(graph.nodes):
        lists = [a for a in node.args if isinstance(a, (list, tuple))]
        if node.target not in _VECTORS or node.kwargs or not all(map(_alike, lists)):
            continue
        with graph.inserting_before(node):
            args = [
                _vector(graph, a, whole) if isinstance(a, (list, tuple)) else a for a in node.args
            ]
            vector = graph.call_function(_VECTORS[node.target], tuple(args))
            parts = graph.call_function(aten.unbind.int, (vector,))
        whole[parts] = vector, len(lists[0])
        node.replace_all_uses_with(parts)
        graph.erase_node(node)


def _alike(nodes) -> bool:
    """Whether all are tensors of no dims and one floating dtype."""
    values = [n.meta.get("val") for n in nodes]
    if not all(isinstance(v, torch.Tensor) and v.ndim == 0 for v in values):
        return False
    dtypes = {v.dtype for v in values}
    return len(dtypes) == 1 and dtypes.pop().is_floating_point


def _vector(graph: torch.fx.Graph, nodes, whole) -> torch.fx.Node:
    """All of a vector, if the list is that, else a new one."""
    sources = {n.args[0] if n.target is operator.getitem else None for n in nodes}
    source = sources.pop() if len(sources) == 1 else None
    vector, length = whole.get(source, (None, 0))
    if vector is not None and [n.args[1] for n in nodes] == list(range(length)):
        return vector
    return graph.call_function(aten.stack.default, (list(nodes),))
