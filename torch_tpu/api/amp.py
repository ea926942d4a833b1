"""`torch.tpu`: mixed precision, and with how many bits float32 matrices are multiplied.

`torch.autocast("tpu")` asks `get_amp_supported_dtype`; its default is bfloat16, set at registration
(for the main thread: PyTorch keeps it per thread and gives others float16). Which operators
autocast casts is decided by the lists that the core registers (`csrc/device`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .. import _core

PRECISIONS = ("highest", "high", "medium")


def set_default_dtype() -> None:
    """Makes a bare `torch.autocast("tpu")` use bfloat16, the low precision TPUs are made for."""
    torch.set_autocast_dtype("tpu", torch.bfloat16)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes `torch.autocast("tpu", dtype=...)` accepts."""
    return [torch.bfloat16, torch.float16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always True: XLA computes in bfloat16 on every platform it has."""
    return True


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Within it, float32 matrices and convolutions are multiplied as `name` says.

    ``"highest"`` (PyTorch's default) is float32. ``"high"`` and ``"medium"`` let a TPU use three
    bfloat16 passes, or one; XLA's CPU plugin always computes in float32. It sets
    `torch.set_float32_matmul_precision` and sets it back, so it holds for all threads (the backward
    pass runs on its own). Also a decorator.
    """
    if name not in PRECISIONS:
        raise ValueError(f"precision {name!r}: expected one of {', '.join(PRECISIONS)}")
    before = PRECISIONS[_core.float32_matmul_precision()]
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
