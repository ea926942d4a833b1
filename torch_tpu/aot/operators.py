"""The two operators that exist in captured programs only, and how they are lowered:
`torch_tpu::shard` (where a tensor lies over the devices) and `torch_tpu::barrier` (what must not be
merged). Eagerly both copy their arguments.

They are no rules in `torch_tpu/ops/` because nothing that runs on a device calls them.
"""

from __future__ import annotations

import torch

from ..lowering.builder import current
from ..program.control_flow import LOWERINGS


@torch.library.custom_op("torch_tpu::shard", mutates_args=())
def shard(x: torch.Tensor, sharding: str) -> torch.Tensor:
    """``x``, laid over the devices as XLA's ``sharding`` says."""
    return x.clone()


@shard.register_fake
def _(x, sharding):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.sharding = inputs[1]


def _backward(ctx, gradient):
    return torch.ops.torch_tpu.shard(gradient, ctx.sharding), None


shard.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("torch_tpu::barrier", mutates_args=())
def barrier(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same values, which the compiler must not take for those that went in."""
    return [x.clone() for x in tensors]


@barrier.register_fake
def _(tensors):
    return [torch.empty_like(x) for x in tensors]


def _lower_shard(lowering, node, x, sharding):
    attributes = f'call_target_name = "Sharding", mhlo.sharding = "{sharding}"'
    return current().emit("stablehlo.custom_call", [x], [(x.shape, x.dtype)], attributes)[0]


def _lower_barrier(lowering, node, tensors):
    kinds = [(x.shape, x.dtype) for x in tensors]
    return current().emit("stablehlo.optimization_barrier", list(tensors), kinds)


LOWERINGS[torch.ops.torch_tpu.shard.default] = _lower_shard
LOWERINGS[torch.ops.torch_tpu.barrier.default] = _lower_barrier
