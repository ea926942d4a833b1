"""PyTorch's own decompositions as lowerings, for operators without a rule.

The decomposition is traced once per key on fake tensors and the resulting graph goes through the
same rules. Nothing here is imported before it is needed: PyTorch's tables take half a second.
"""

from __future__ import annotations

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import RULES, overload, split_arguments
from . import graph


def has_rule(op: torch._ops.OpOverload) -> bool:
    """Whether ``op`` has a rule for graphs."""
    # A rule that writes to its arguments has no place in a functional graph.
    rule = RULES.get(op.name())
    return rule is not None and not rule.writes


def table() -> dict:
    """PyTorch's decompositions, without those of operators that have a rule for graphs."""
    from torch._decomp import decomposition_table

    return {
        op: decomposition
        for op, decomposition in decomposition_table.items()
        if isinstance(op, torch._ops.OpOverload) and not has_rule(op)
    }


def available(name: str) -> bool:
    """Whether PyTorch has a decomposition of the overload ``name`` (``"aten::lerp.Scalar"``)."""
    from torch._decomp import decomposition_table

    if not name.startswith("aten::"):
        return False
    op = overload(name)
    return op in decomposition_table and not has_rule(op)


def lower(name: str, named: dict, expected: list) -> list:
    """Emit the decomposition of ``name`` on named values; returns one entry per result."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    op = overload(name)
    inputs: list[Value] = []
    with FakeTensorMode(allow_non_fake_inputs=True):

        def fake(value):
            if isinstance(value, Value):
                inputs.append(value)
                return torch.empty(value.shape, dtype=value.dtype, device="cpu")
            if isinstance(value, (list, tuple)):
                return [fake(v) for v in value]
            return value

        arguments = {a.name: fake(named[a.name]) for a in op._schema.arguments if a.name in named}
        flat, rebuild = torch.utils._pytree.tree_flatten(arguments)
        tensors = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]

        def call(*values):
            full = list(flat)
            for i, value in zip(tensors, values, strict=True):
                full[i] = value
            positional, keyword = split_arguments(
                op, torch.utils._pytree.tree_unflatten(full, rebuild)
            )
            return op(*positional, **keyword)

        traced = make_fx(call, decomposition_table=table())(*(flat[i] for i in tensors))
    traced.graph.eliminate_dead_code()
    produced = graph.lower_graph(traced.graph, inputs)
    results = [produced] if len(op._schema.returns) == 1 else list(produced)
    return [_match(r, e) for r, e in zip(results, expected, strict=True)]


def _match(value, wanted):
    if isinstance(value, (list, tuple)):
        return [_match(v, w) for v, w in zip(value, wanted, strict=True)]
    return value if value is None else hlo.convert(value, wanted.dtype)
