"""Forward pass of one transformer layer in bfloat16, on one device.

python -m torch_tpu.aot estimate examples/aot/transformer_block.py --topology v6e:2x2
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from torch_tpu.aot.job import Job

sys.path.insert(0, str(Path(__file__).parent))
from decoder import Config, Layer  # noqa: E402


def build(topology, batch: int = 8, seq: int = 2048) -> Job:
    """The job for ``batch`` sequences of ``seq`` tokens; the same for every topology."""
    config = Config(
        layers=1, hidden=2048, heads=16, kv_heads=16, head_dim=128, intermediate=5632, vocab=0
    )
    with torch.device("meta"):
        layer = Layer(config).requires_grad_(False)
        x = torch.empty(batch, seq, config.hidden, dtype=config.dtype)
        positions = torch.empty(seq, dtype=torch.int64)
    return Job(fn=layer, args=(x, positions), name=f"transformer block, batch {batch} x {seq}")
