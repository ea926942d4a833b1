"""What libtpu says of the same step, captured from PyTorch by torch_tpu and written for `jax.jit`.

    python benchmarks/aot_against_jax.py [--topology v6e:2x2] [--models gpt,llama,resnet]

Both are compiled for one device of the topology, with no TPU: flop, peak memory and the sum of the
compiler's `estimated_cycles` over the entry computation, and the ratio ours / JAX's. The models are
those of compiled_models.py in larger sizes: a forward pass, and a training step with AdamW and
donated parameters. float32 products take one pass of the matrix units. In bfloat16 the arithmetic
is not the same: PyTorch rounds after every operator, JAX within its functions does not. Neither
allocates a weight. Needs libtpu and JAX (requirements.txt).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "true")

import torch
from models import jax_models, torch_models
from models.contestants import adamw

RATE = 1e-4
SIZES = {
    "gpt": torch_models.Size(layers=1, width=1024, heads=8, length=512, batch=4, words=4096),
    "llama": torch_models.Size(layers=1, width=1024, heads=8, length=512, batch=4, words=4096),
    "resnet": torch_models.Size(layers=2, width=64, heads=1, length=64, batch=32, words=1000),
}


def example(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, on "meta"."""
    size = SIZES[name]
    if name == "resnet":
        images = torch.empty(size.batch, 3, size.length, size.length, dtype=dtype, device="meta")
        return images, torch.empty(size.batch, dtype=torch.int32, device="meta")
    tokens = torch.empty(size.batch, size.length, dtype=torch.int32, device="meta")
    return tokens, tokens


def build(name: str, dtype: torch.dtype, training: bool) -> torch.nn.Module:
    with torch.device("meta"):
        return torch_models.MODELS[name](SIZES[name]).to(dtype).train(training)


def ours(name: str, dtype: torch.dtype, training: bool, topology: str) -> dict[str, float]:
    from torch_tpu import aot

    model = build(name, dtype, training)
    inputs, targets = example(name, dtype)
    if training:
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        loss = lambda net, x, y: torch_models.loss(net(x), y.long())  # noqa: E731
        step = aot.training_step(model, optimizer, loss)
        compiled = aot.compile(step, (inputs, targets), topology=topology, name=name)
    else:
        compiled = aot.compile(model, (inputs,), topology=topology, name=name)
    cycles = sum(i.estimated_cycles or 0 for i in compiled.module.entry.instructions)
    return {"flop": compiled.cost.flops, "peak": compiled.memory.peak, "cycles": cycles}


def jax_function(name: str, dtype: torch.dtype, training: bool):
    """The step, and its arguments as shapes."""
    import jax
    import jax.numpy as jnp

    model = build(name, dtype, training)
    kinds = {torch.bfloat16: jnp.bfloat16, torch.float32: jnp.float32, torch.int32: jnp.int32}
    shaped = lambda t: jax.ShapeDtypeStruct(t.shape, kinds[t.dtype])  # noqa: E731
    weights = {n: shaped(p) for n, p in model.named_parameters()}
    fixed = {n: shaped(b) for n, b in model.named_buffers() if b.is_floating_point()}
    inputs, targets = map(shaped, example(name, dtype))
    network, size = jax_models.MODELS[name], SIZES[name]
    extra = {"training": training} if name == "resnet" else {}
    if not training:
        return (lambda p, b, x: network({**p, **b}, size, x, **extra)), (weights, fixed, inputs), ()

    def one(p, state, count, b, x, y):
        value = lambda p: jax_models.loss(network({**p, **b}, size, x, **extra), y)  # noqa: E731
        result, gradients = jax.value_and_grad(value)(p)
        p, state = adamw(jax, jnp, p, gradients, state, count)
        return result, p, state

    count = jax.ShapeDtypeStruct((), jnp.float32)
    return one, (weights, (weights, weights), count, fixed, inputs, targets), (0, 1)


def theirs(name: str, dtype: torch.dtype, training: bool, topology: str) -> dict[str, float]:
    import jax
    from jax.experimental import topologies

    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    there = jax.sharding.SingleDeviceSharding(described.devices[0])
    function, arguments, donated = jax_function(name, dtype, training)
    placed = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=there), arguments
    )
    compiled = jax.jit(function, donate_argnums=donated).lower(*placed).compile()
    memory, text = compiled.memory_analysis(), compiled.as_text()
    entry = text[text.index("ENTRY ") :]
    cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', entry)))
    flop = compiled.cost_analysis()["flops"]
    return {"flop": flop, "peak": memory.peak_memory_in_bytes, "cycles": cycles}


def main() -> None:
    split = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topology", default="v6e:2x2")
    parser.add_argument("--models", type=split, default=list(SIZES))
    parser.add_argument("--modes", type=split, default=["infer", "train"])
    parser.add_argument("--dtype", default="float32", help="or bfloat16")
    given = parser.parse_args()
    dtype = getattr(torch, given.dtype)
    # One pass of the matrix units for float32, as is JAX's default on TPUs.
    torch.set_float32_matmul_precision("medium")
    print(f"{given.topology} {given.dtype}: ours, JAX's, ours / JAX's")
    for name in given.models:
        for mode in given.modes:
            start = time.perf_counter()
            mine = ours(name, dtype, mode == "train", given.topology)
            between = time.perf_counter()
            other = theirs(name, dtype, mode == "train", given.topology)
            seconds = between - start, time.perf_counter() - between
            print(f"\n{name} {mode}: compiled in {seconds[0]:.1f} s and {seconds[1]:.1f} s")
            for what, value in mine.items():
                ratio = value / other[what]
                print(f"  {what:<7} {value:>16,.0f} {other[what]:>16,.0f} {ratio:>8.3f}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
