"""Runs a captured program on the device, with real tensors: what the tests of capturing share."""

from __future__ import annotations

import dataclasses

import torch

from torch_tpu.aot.capture import Captured, capture
from torch_tpu.export.program import Program
from torch_tpu.export.signature import Parameter, Result, Signature


def program(captured: Captured, weights: dict[str, torch.Tensor]) -> Program:
    """The program with these values of its weights and of the optimizer's state, by name."""
    kinds = {"optimizer": "buffer"}
    parameters = tuple(
        Parameter(p.name, kinds.get(p.kind, p.kind), p.shape, p.dtype) for p in captured.parameters
    )
    results = tuple(
        Result(r.name, r.kind, r.shape, r.dtype, r.strides, r.mutates) for r in captured.results
    )
    signature = Signature(parameters, results, captured.arguments, captured.outputs)
    text = dataclasses.replace(captured.module, donate={}).located()
    held = {p.name: weights[p.name] for p in parameters if p.kind in ("parameter", "buffer")}
    return Program(text, signature, held, captured.in_spec, captured.out_spec)


def state_of(model: torch.nn.Module, optimizer=None) -> dict[str, torch.Tensor]:
    """Copies of weights and of optimizer state, by the names that capturing gives them."""
    weights = [*model.named_parameters(), *model.named_buffers()]
    state = {name: t.detach().clone() for name, t in weights}
    names = {parameter: name for name, parameter in model.named_parameters()}
    if optimizer is not None:
        for parameter, held in optimizer.state.items():
            for key, value in held.items():
                if isinstance(value, torch.Tensor):
                    state[f"optimizer.{names[parameter]}.{key}"] = value.detach().clone()
    return state


def on_device(tree):
    return torch.utils._pytree.tree_map(
        lambda x: x.to("tpu") if isinstance(x, torch.Tensor) else x, tree
    )


def compare_step(step, model, optimizer, batch, steps: int = 3) -> Captured:
    """The captured step must do what the eager one does on the CPU, ``steps`` times."""
    step(*batch)  # so that there is state
    captured = capture(step, batch)
    compiled = program(captured, state_of(model, optimizer))
    inputs = on_device(batch)
    for _ in range(steps):
        torch.testing.assert_close(compiled(*inputs).cpu(), step(*batch), rtol=1e-5, atol=1e-6)
    for name, expected in state_of(model, optimizer).items():
        actual = compiled.weights[name].cpu()
        torch.testing.assert_close(
            actual, expected, rtol=1e-5, atol=2e-6, msg=lambda m, n=name: n + m
        )
    return captured
