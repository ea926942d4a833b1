"""A Llama-shaped model of four layers: a training step, a prefill or a step of decoding with its
KV cache, on one device or split over all of them.

    python -m torch_tpu.aot estimate examples/aot/llama_4layer.py --topology v5e:2x2 --mode decode
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from torch_tpu.aot.job import Job
from torch_tpu.aot.sharding import Mesh, fully_sharded
from torch_tpu.aot.training import training_step

sys.path.insert(0, str(Path(__file__).parent))
from decoder import Config, Decoder, empty_caches, next_token_loss  # noqa: E402

MODES = ("train", "prefill", "decode")


def build(
    topology,
    mode: str = "train",
    batch: int = 4,
    seq: int = 1024,
    layers: int = 4,
    sharded: bool = False,
) -> Job:
    """The job of one of MODES. ``sharded`` splits batch and weights over all devices."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is none of {', '.join(MODES)}")
    mesh = Mesh((topology.size,), ("fsdp",)) if sharded else None
    config = Config(
        layers=layers,
        hidden=2048,
        heads=16,
        kv_heads=8,
        head_dim=128,
        intermediate=5632,
        vocab=32000,
        theta=5e5,
        batch_axis="fsdp" if sharded else None,
    )
    fn, args = _program(config, mode, batch, seq)
    model = fn.model if mode == "train" else fn
    table = None
    if sharded:
        table = {**fully_sharded(model, mesh, "fsdp"), "batch.*": ("fsdp",), "tokens": ("fsdp",)}
        table["caches.*"] = ("fsdp",)
    name = f"Llama shape, {layers} layers, {mode}, batch {batch} x {seq}"
    return Job(fn=fn, args=args, name=name, mesh=mesh, in_shardings=table)


def _program(config: Config, mode: str, batch: int, seq: int) -> tuple:
    with torch.device("meta"):
        model = Decoder(config)
        tokens = torch.empty(batch, 1 if mode == "decode" else seq, dtype=torch.int64)
        positions = torch.empty(tokens.shape[1], dtype=torch.int64)
    if mode == "train":
        step = training_step(model, torch.optim.AdamW, next_token_loss, {"lr": 3e-4})
        return step, (tokens, tokens.clone())
    model.requires_grad_(False)
    return model, (tokens, positions, empty_caches(config, batch, seq))
