"""`Stack`: equal layers as one loop over stacked weights, so that a program of many layers is
compiled in the time of one.

The loop keeps the input of every layer and recomputes the rest in the backward pass, which runs
through the layers in the opposite order. Outside a captured program the layers are called in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from ..program import decompose, graph
from . import tracing


class Stack(nn.Module):
    """``count`` layers that ``make`` makes; ``stack(x, *others)`` is each layer's ``(x, *others)``
    of the result of the one before. A layer has parameters only, draws no random numbers, and gives
    a tensor like ``x``; ``others`` are tensors that get no gradient.

    The weight called ``a.b`` of all layers is the parameter ``a_b``, stacked along its first
    dimension.
    """

    def __init__(self, make: Callable[[], nn.Module], count: int):
        super().__init__()
        layers = [make() for _ in range(count)]
        if any(True for _ in layers[0].buffers()):
            raise ValueError("a layer with buffers cannot be stacked: they would be shared")
        self.count = count
        self._template = [layers[0]]  # in a list, for its weights are not the model's
        self._names = [name for name, _ in layers[0].named_parameters()]
        each = [dict(layer.named_parameters()) for layer in layers]
        for name in self._names:
            stacked = torch.stack([weights[name].detach() for weights in each])
            self.register_parameter(name.replace(".", "_"), nn.Parameter(stacked))

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        weights = [getattr(self, name.replace(".", "_")) for name in self._names]
        if tracing.active():
            return _Loop.apply(self, len(others), x, *others, *weights)
        for i in range(self.count):
            x = self.layer([w[i] for w in weights], x, *others)
        return x

    def layer(self, weights: Sequence[torch.Tensor], x: torch.Tensor, *others) -> torch.Tensor:
        """The layer with these weights."""
        named = dict(zip(self._names, weights, strict=True))
        return functional_call(self._template[0], named, (x, *others))


class _Loop(torch.autograd.Function):
    """The layers of a stack as a ``scan``."""

    @staticmethod
    def forward(ctx, stack, count, x, *rest):
        others, weights = rest[:count], rest[count:]

        def body(x, *rest):
            rows, more = rest[: len(weights)], rest[len(weights) :]
            return stack.layer(rows, x, *more), x.clone()

        rows = [w[0] for w in weights]
        traced = _traced(body, [x, *rows, *others])
        y, inputs = torch.ops.higher_order.scan(traced, [x], list(weights), tuple(others))
        ctx.stack, ctx.count = stack, count
        ctx.save_for_backward(inputs, *others, *weights)
        return y

    @staticmethod
    def backward(ctx, gradient):
        inputs, *rest = ctx.saved_tensors
        others, weights = rest[: ctx.count], rest[ctx.count :]

        def body(gradient, x, *rest):
            rows, more = rest[: len(weights)], rest[len(weights) :]
            leaves = [t.detach().requires_grad_() for t in (x, *rows)]
            with torch.enable_grad():
                y = ctx.stack.layer(leaves[1:], leaves[0], *more)
            return torch.autograd.grad(y, leaves, gradient)

        traced = _traced(body, [gradient, inputs[0], *(w[0] for w in weights), *others])
        with tracing.backwards():
            results = torch.ops.higher_order.scan(
                traced, [gradient], [inputs, *weights], tuple(others)
            )
        return None, None, results[0], *[None] * ctx.count, *results[1:]


def _traced(body: Callable, examples: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The graph of a loop's body, by itself: inside the loop it is below autograd."""
    outer = tracing.active()
    kinds = [(t.shape, t.stride(), t.dtype, t.device) for t in examples]

    def functional(*fakes):
        with FunctionalTensorMode(), outer.nested():
            results = body(*map(FunctionalTensor.to_functional, fakes))
            for result in results:
                torch._sync(result)
            return [torch._from_functional_tensor(r.elem) for r in results]

    with _disable_current_modes(), FakeTensorMode():
        fakes = [torch.empty_strided(s, st, dtype=d, device=dev) for s, st, d, dev in kinds]
        traced = make_fx(functional, decomposition_table=decompose.table())(*fakes)
    traced.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    traced.recompile()
    if any(graph.draws(node) and not _without_dropout(node) for node in traced.graph.nodes):
        raise NotImplementedError(
            "a stacked layer draws random numbers (dropout); use a ModuleList"
        )
    return traced


def _without_dropout(node: torch.fx.Node) -> bool:
    """Whether an operator that can drop something does not."""
    names = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return "dropout_p" in names and not given.get("dropout_p")
