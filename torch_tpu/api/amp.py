"""`torch.tpu`: what automatic mixed precision may use.

`torch.autocast("tpu")` asks `get_amp_supported_dtype`; its default is bfloat16, set at registration
(for the main thread: PyTorch keeps it per thread and gives others float16). Which operators
autocast casts is decided by the lists that the core registers (`csrc/device`).
"""

from __future__ import annotations

import torch


def set_default_dtype() -> None:
    """Makes a bare `torch.autocast("tpu")` use bfloat16, the low precision TPUs are made for."""
    torch.set_autocast_dtype("tpu", torch.bfloat16)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes `torch.autocast("tpu", dtype=...)` accepts."""
    return [torch.bfloat16, torch.float16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always True: XLA computes in bfloat16 on every platform it has."""
    return True
