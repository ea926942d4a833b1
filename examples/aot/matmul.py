"""One product of bfloat16 matrices on one device: the smallest thing to estimate.

python -m torch_tpu.aot estimate examples/aot/matmul.py --topology v5e:2x2
"""

from __future__ import annotations

import torch

from torch_tpu.aot.job import Job


def build(topology, size: int = 8192) -> Job:
    """The job for ``size`` x ``size`` matrices; it is the same for every topology."""
    a, b = (torch.empty(size, size, dtype=torch.bfloat16, device="meta") for _ in range(2))
    return Job(fn=torch.matmul, args=(a, b), name=f"matmul {size}")
