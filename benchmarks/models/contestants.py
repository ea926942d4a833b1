"""One contestant of compiled_models.py: a process that builds a model and runs steps on demand.

    python -m models.contestants <contestant> <model> <dtype> <infer|train>

It answers on stdout, one JSON object a line: first what building took and the first results, then,
for every number of steps it reads from stdin, the seconds they took.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import torch

from . import torch_models

RATE = 1e-4


def torch_steps(kind: str, name: str, dtype: torch.dtype, training: bool):
    """A function that makes one step and returns a tensor, for Strict, compiled and Inductor."""
    device = "cpu" if kind == "inductor" else "tpu"
    model = torch_models.build(name).to(dtype).to(device).train(training)
    inputs, targets = torch_models.example(name)
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    inputs, targets = inputs.to(device), targets.to(device)
    compiled = {"strict": lambda f: f, "compiled": torch.compile, "inductor": torch.compile}[kind]

    if not training:
        run = compiled(model)

        def step():
            with torch.no_grad():
                return run(inputs)

        return step

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    forward = compiled(lambda x, y: torch_models.loss(model(x), y))
    update = compiled(optimizer.step)

    def step():
        value = forward(inputs, targets)
        value.backward()
        update()
        optimizer.zero_grad()
        return value.detach()

    return step


def adamw(jax, jnp, parameters, gradients, state, count):
    """PyTorch's AdamW with its defaults: betas 0.9 and 0.999, eps 1e-8, weight decay 0.01."""
    first, second = state
    first = jax.tree.map(lambda m, g: m * 0.9 + g * 0.1, first, gradients)
    second = jax.tree.map(lambda v, g: v * 0.999 + g * g * 0.001, second, gradients)

    def update(p, m, v):
        p = p * (1 - RATE * 0.01)
        scale = jnp.sqrt(v) / jnp.sqrt(1 - 0.999**count) + 1e-8
        return (p - RATE / (1 - 0.9**count) * m / scale).astype(p.dtype)

    return jax.tree.map(update, parameters, first, second), (first, second)


def jax_steps(name: str, dtype: torch.dtype, training: bool):
    """The same step in `jax.jit`, with donated parameters and state."""
    import jax
    import jax.numpy as jnp

    from . import jax_models

    kind = jnp.bfloat16 if dtype is torch.bfloat16 else jnp.float32
    model = torch_models.build(name)
    trained = {n: jnp.asarray(p.detach().numpy(), kind) for n, p in model.named_parameters()}
    fixed = {
        n: jnp.asarray(b.numpy(), kind) for n, b in model.named_buffers() if b.is_floating_point()
    }
    inputs, targets = (jnp.asarray(t.numpy()) for t in torch_models.example(name))
    inputs = inputs.astype(kind) if inputs.dtype == jnp.float32 else inputs
    network = jax_models.MODELS[name]
    size = torch_models.SIZES[name]
    extra = {"training": training} if name == "resnet" else {}

    if not training:
        run = jax.jit(lambda p: network({**p, **fixed}, size, inputs, **extra))
        return lambda: run(trained).block_until_ready()

    def value(p):
        return jax_models.loss(network({**p, **fixed}, size, inputs, **extra), targets)

    def one(p, state, count):
        result, gradients = jax.value_and_grad(value)(p)
        p, state = adamw(jax, jnp, p, gradients, state, count)
        return result, p, state

    jitted = jax.jit(one, donate_argnums=(0, 1))
    zeros = lambda: jax.tree.map(jnp.zeros_like, trained)  # noqa: E731
    held = [trained, (zeros(), zeros()), 0]

    def step():
        held[2] += 1
        result, held[0], held[1] = jitted(held[0], held[1], float(held[2]))
        return result.block_until_ready()

    return step


def finish() -> None:
    with contextlib.suppress(AttributeError):
        torch.tpu.synchronize()


def main(kind: str, name: str, dtype_name: str, mode: str) -> None:
    dtype = getattr(torch, dtype_name)
    training = mode == "train"
    if kind == "jax":
        step = jax_steps(name, dtype, training)
    else:
        step = torch_steps(kind, name, dtype, training)
    start = time.perf_counter()
    results = []
    for _ in range(3):
        value = step()
        finish()
        results.append(float(value.mean()))
    say = lambda **fields: print(json.dumps(fields), flush=True)  # noqa: E731
    say(build=time.perf_counter() - start, results=results)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
        finish()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say(seconds=seconds, peak_mib=peak)


if __name__ == "__main__":
    main(*sys.argv[1:])
