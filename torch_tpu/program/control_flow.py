"""Higher-order operators of captured graphs as StableHLO: control flow, saved generator states.

PyTorch captures a branch or a body as a graph of its own, an attribute of the outer one; it is
lowered inside a region of the operation. Each function here gets the `Lowering`, the node and its
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.windows import conditional, while_loop

_higher_order = torch.ops.higher_order

LOWERINGS: dict[object, Callable] = {}
"""Higher-order operator → function (lowering, node, arguments…) that emits it."""


def _lowers(name: str):
    def decorate(function):
        operator = getattr(_higher_order, name, None)
        if operator is not None:
            LOWERINGS[operator] = function
        return function

    return decorate


def _inner(lowering, module: torch.fx.GraphModule, inputs: Sequence) -> list:
    """Emit a captured body; returns its outputs as a list."""
    outputs = lowering.outputs(module.graph, inputs)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _tensors(values: Sequence) -> list[Value]:
    """Loop variables as values; numbers become 0-dim ones."""
    return [v if isinstance(v, Value) else promote.as_value(v, _dtype(v)) for v in values]


def _dtype(number) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    return torch.int64 if isinstance(number, int) else torch.float64


def _metas(lowering, node) -> list:
    metas = lowering.meta(node.meta["val"])
    return list(metas) if isinstance(metas, (list, tuple)) else [metas]


def _fit(values: Sequence, kinds: Sequence) -> list[Value]:
    """Values in the shapes and dtypes that a region must yield."""
    pairs = zip(_tensors(values), kinds, strict=True)
    return [hlo.expand(hlo.convert(v, dtype), shape) for v, (shape, dtype) in pairs]


@_lowers("cond")
def _cond(lowering, node, predicate, on_true, on_false, operands):
    if not isinstance(predicate, Value):
        return _inner(lowering, on_true if predicate else on_false, operands)
    metas = _metas(lowering, node)
    kinds = [(m.shape, m.dtype) for m in metas]
    predicate = hlo.reshape(hlo.convert(predicate, torch.bool), ())

    def branch(module):
        # Either branch may draw: both start from the same state, and what follows does too.
        state = lowering.state()
        try:
            return _fit(_inner(lowering, module, operands), kinds)
        finally:
            lowering.restore(state)

    lowering.advance()
    return conditional(predicate, lambda: branch(on_true), lambda: branch(on_false), kinds)


def _loop(lowering, condition, body, values: Sequence[Value]) -> list[Value]:
    """A while loop whose body may draw random numbers: their state is a loop variable then."""
    state = lowering.state()
    if state is None:
        return while_loop(condition, body, values)

    def stateful(current, *rest):
        lowering.restore(current)
        produced = body(*rest)
        return [lowering.state(), *produced]

    lowering.advance()
    results = while_loop(lambda _, *rest: condition(*rest), stateful, [state, *values])
    lowering.restore(results[0])
    return results[1:]


@_lowers("while_loop")
def _while_loop(lowering, node, condition, body, carried, additional, **_):
    values = _tensors(carried)
    kinds = [(v.shape, v.dtype) for v in values]

    def holds(*current):
        return hlo.reshape(_inner(lowering, condition, [*current, *additional])[0], ())

    def step(*current):
        return _fit(_inner(lowering, body, [*current, *additional]), kinds)

    return _loop(lowering, holds, step, values)


def _row(x: Value, index: Value) -> Value:
    starts = [index] + [hlo.constant(0, torch.int32)] * (x.ndim - 1)
    return hlo.reshape(hlo.dynamic_slice(x, starts, (1, *x.shape[1:])), x.shape[1:])


def _set_row(x: Value, index: Value, row: Value) -> Value:
    starts = [index] + [hlo.constant(0, torch.int32)] * (x.ndim - 1)
    return hlo.dynamic_update_slice(x, hlo.reshape(row, (1, *x.shape[1:])), starts)


def _each_row(
    lowering, step, carried: Sequence[Value], kinds, length: int, first: int = 0, backwards=False
):
    """``carried, rows = step(index, carried)`` for each index, from the last if ``backwards``;
    returns carries and stacked rows."""
    count = len(carried)
    stacked = [hlo.constant(0, dtype, (length, *shape)) for shape, dtype in kinds]

    def holds(index, *_):
        return hlo.compare(index, hlo.constant(length, torch.int32), "LT")

    def body(index, *values):
        row = index
        if backwards:
            row = hlo.binary("subtract", hlo.constant(length - 1, torch.int32), index)
        carry, rows = step(row, list(values[:count]))
        rest = [_set_row(x, row, r) for x, r in zip(values[count:], rows, strict=True)]
        return [hlo.binary("add", index, hlo.constant(1, torch.int32)), *carry, *rest]

    start = hlo.constant(first, torch.int32)
    results = _loop(lowering, holds, body, [start, *carried, *stacked])[1:]
    return results[:count], results[count:]


@_lowers("scan")
def _scan(lowering, node, combine, init, xs, additional):
    carried = _tensors(init)
    metas = _metas(lowering, node)
    kinds = [(m.shape, m.dtype) for m in metas]
    carried_kinds = kinds[: len(carried)]
    row_kinds = [(shape[1:], dtype) for shape, dtype in kinds[len(carried) :]]
    length = xs[0].shape[0]

    def step(index, current):
        produced = _inner(lowering, combine, [*current, *(_row(x, index) for x in xs), *additional])
        carry = _fit(produced[: len(current)], carried_kinds)
        return carry, _fit(produced[len(current) :], row_kinds)

    carried = _fit(carried, carried_kinds)
    backwards = node.meta.get("backwards", False)  # aot/stack.py
    carry, rows = _each_row(lowering, step, carried, row_kinds, length, backwards=backwards)
    return [*carry, *rows]


@_lowers("associative_scan")
def _associative_scan(lowering, node, combine, xs, additional):
    kinds = [(m.shape, m.dtype) for m in _metas(lowering, node)]
    row_kinds = [(shape[1:], dtype) for shape, dtype in kinds]
    length = xs[0].shape[0]
    if length == 0:
        return list(xs)
    zero = hlo.constant(0, torch.int32)
    first = [_row(x, zero) for x in xs]

    def step(index, current):
        rows = [_row(x, index) for x in xs]
        combined = _fit(_inner(lowering, combine, [*current, *rows, *additional]), row_kinds)
        return combined, combined

    _, stacked = _each_row(lowering, step, first, row_kinds, length, first=1)
    return [_set_row(x, zero, row) for x, row in zip(stacked, first, strict=True)]


@_lowers("invoke_subgraph")
def _invoke_subgraph(lowering, node, subgraph, identifier, *operands):
    return _inner(lowering, subgraph, operands)


# ---- checkpointing: backward draws again what forward drew -------------------------------------


@_lowers("run_and_save_rng_state")
def _run_and_save_rng_state(lowering, node, target, *args, **kwargs):
    (result,) = (n for n in node.users if n.args[1] == 1)
    state = lowering.draw()
    return [state, lowering.apply(target, result.meta["val"], args, kwargs, state)]


@_lowers("run_with_rng_state")
def _run_with_rng_state(lowering, node, state, target, *args, **kwargs):
    return lowering.apply(target, _on_meta(target, args, kwargs), args, kwargs, state)


def _on_meta(target, args, kwargs):
    """What an operator gives, on meta tensors: the partitioner leaves its node without a value."""

    def meta(value):
        if isinstance(value, Value):
            return torch.empty(value.shape, dtype=value.dtype, device="meta")
        return torch.device("meta") if isinstance(value, torch.device) else value

    return target(*map(meta, args), **{name: meta(value) for name, value in kwargs.items()})
