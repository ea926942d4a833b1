"""A training step of a model of Qwen3-8B's shape (8.2 billion weights), fully sharded over all
devices of a topology: float32 master weights and AdamW state, bfloat16 arithmetic.

    python -m torch_tpu.aot estimate examples/aot/qwen3_8b.py --topology tpu7x:4x4x4

Batches are split over the same devices. The layers are one loop over stacked weights, so that 36
compile as fast as one, and every layer is recomputed in the backward pass; with ``unroll`` they are
compiled one by one, and recomputed if ``remat``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from torch_tpu.aot.job import Job
from torch_tpu.aot.sharding import Mesh, data, fully_sharded
from torch_tpu.aot.training import training_step

sys.path.insert(0, str(Path(__file__).parent))
from decoder import Config, Decoder, next_token_loss  # noqa: E402

AXIS = "fsdp"


def build(
    topology,
    layers: int = 36,
    batch: int = 0,
    seq: int = 4096,
    remat: bool = True,
    unroll: bool = False,
) -> Job:
    """The job for ``batch`` sequences (one a device unless given) of ``seq`` tokens."""
    mesh = Mesh((topology.size,), (AXIS,))
    batch = batch or mesh.size
    config = Config(
        layers=layers,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        intermediate=12288,
        vocab=151936,
        qk_norm=True,
        remat=remat,
        scan=not unroll,
        batch_axis=AXIS,
    )
    with torch.device("meta"):
        model = Decoder(config)
        tokens = torch.empty(batch, seq, dtype=torch.int64)
    step = training_step(model, torch.optim.AdamW, next_token_loss, {"lr": 1e-4})
    batch_specs = dict(zip(("tokens", "targets"), data([tokens, tokens], AXIS), strict=True))
    return Job(
        fn=step,
        args=(tokens, tokens.clone()),
        name=f"Qwen3-8B shape, {layers} layers, batch {batch} x {seq}",
        mesh=mesh,
        in_shardings={**fully_sharded(model, mesh, AXIS), "batch.*": (AXIS,), **batch_specs},
        flops=batch * seq * config.flops_per_token(seq),
    )
