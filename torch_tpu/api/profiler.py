"""`torch.tpu.profiler`: traces by the plugin itself, for XProf and TensorBoard.

What `torch.profiler` shows comes from csrc/device/profiler.h, with nothing from here. A trace of
the plugin looks inside programs; which plugin can is its own affair (PJRT's profiler extension).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from .. import _core

# PyTorch imports this module at the first `record_function`. If that happens while a profiler with
# `with_stack=True` is on, it keeps the name of code that is gone, and reading its events fails.
with contextlib.suppress(ModuleNotFoundError):
    import torch.profiler._cupti_monitor  # noqa: F401

__all__ = ["is_available", "trace"]

# A serialised tensorflow.ProfileOptions: version 1 (field 5), with host events of level 2 (field
# 2), device events (3) and the programs (7).
_OPTIONS = bytes([5 << 3, 1, 2 << 3, 2, 3 << 3, 1, 7 << 3, 1])


def is_available() -> bool:
    """Whether the plugin can write traces. Starts the runtime."""
    return _core.has_tracer()


@contextlib.contextmanager
def trace(directory: str | os.PathLike) -> Iterator[Path]:
    """Write a trace of what runs in the scope into ``directory``, for XProf and TensorBoard.

    Gives the file, which is there after the scope. Raises RuntimeError, before the scope, if the
    plugin cannot trace; `torch.profiler` works with every plugin.
    """
    if not is_available():
        platform = _core.device_info(0)["platform"]
        raise RuntimeError(
            f"torch.tpu.profiler.trace: the PJRT plugin for {platform} has no profiler extension, "
            "so it cannot write XProf traces; use torch.profiler.profile with ProfilerActivity.TPU"
        )
    run = time.strftime("%Y_%m_%d_%H_%M_%S")
    file = Path(directory) / "plugins" / "profile" / run / f"{socket.gethostname()}.xplane.pb"
    file.parent.mkdir(parents=True, exist_ok=True)
    tracer = _core.Tracer(_OPTIONS)
    tracer.start()
    try:
        yield file
        _synchronize()
    finally:
        tracer.stop()
        file.write_bytes(tracer.data())


def _synchronize() -> None:
    """What was launched in the scope belongs to the trace."""
    for index in range(_core.device_count()):
        _core.synchronize(index)
