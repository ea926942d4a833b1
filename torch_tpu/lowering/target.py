"""Which platform programs are lowered for.

Normally that of the plugin this process runs on. Programs that are compiled for a machine that is
not attached (`aot`, compile-only conformance) are lowered for its platform instead: `lowering_for`
says so for a block, `lower_everything_for` for a process. Few rules ask; those that do would
otherwise emit what only XLA's CPU plugin compiles. What they emit is not decided here.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_chosen: contextvars.ContextVar[str] = contextvars.ContextVar("platform", default="")
_everywhere = ""


def platform() -> str:
    """PJRT's name of the platform: "cpu", "tpu"."""
    from torch_tpu import _core

    return _chosen.get() or _everywhere or _core.device_info(0)["platform"]


def is_tpu() -> bool:
    return platform() == "tpu"


def has_host_kernels() -> bool:
    """Whether programs may call ATen's CPU kernels (host.py)."""
    from torch_tpu import _core

    return not is_tpu() and _core.has_host_kernels()


@contextlib.contextmanager
def lowering_for(name: str) -> Iterator[None]:
    """Lower for a platform in this block and thread, whatever this process runs on.

    Not for eager calls: the core keeps their programs, and its keys do not hold the platform.
    """
    before = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(before)


def lower_everything_for(name: str) -> None:
    """The same for the whole process, eager calls too; "" undoes it."""
    from torch_tpu import _core

    global _everywhere
    _everywhere = name
    _core.clear_caches()
