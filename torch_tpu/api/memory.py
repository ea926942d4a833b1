"""`torch.tpu`: how much device memory is in use, and its peaks.

Numbers are counted per device by the core in logical bytes of live arrays. PJRT keeps no cache that
we could hand back, so "reserved" is what the plugin holds for us as the core reports it, and
`empty_cache` only lets pending frees happen. Every function takes a device, an index, or None for
the current device, and answers 0 without starting the runtime when it is not up.
"""

from __future__ import annotations

import gc

from .. import _core
from .device import DeviceLike, _get_device_index, _lazy_init, is_initialized, synchronize

# What `_core.memory_stats` gives.
COUNTERS = ("allocated", "peak", "reserved", "limit", "allocations", "frees")


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in use by tensors."""
    return _stats(device)["allocated"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes in use by tensors since the start or the last `reset_peak_memory_stats`."""
    return _stats(device)["peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes held by the runtime for tensors; at least `memory_allocated`."""
    stats = _stats(device)
    return max(stats["reserved"], stats["allocated"])


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes held; without a peak of its own, the larger of peak use and holding."""
    stats = _stats(device)
    return max(stats["reserved"], stats["peak"])


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Starts the peaks again from what is in use now."""
    if is_initialized():
        _core.reset_peak_memory(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Starts the totals (number of allocations) again from 0."""
    if is_initialized():
        _core.reset_accumulated_memory(_get_device_index(device, optional=True))


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The counters under the names that `torch.cuda.memory_stats` uses, plus `limit_bytes`."""
    stats = _stats(device)
    return {
        "allocated_bytes.all.current": stats["allocated"],
        "allocated_bytes.all.peak": stats["peak"],
        "reserved_bytes.all.current": max(stats["reserved"], stats["allocated"]),
        "reserved_bytes.all.peak": max(stats["reserved"], stats["peak"]),
        "allocation.all.current": stats["allocations"] - stats["frees"],
        "allocation.all.allocated": stats["allocations"],
        "allocation.all.freed": stats["frees"],
        "limit_bytes": stats["limit"],
    }


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free bytes, total bytes) of a device. Starts the runtime, which knows the total."""
    _lazy_init()
    stats = _stats(device)
    total = stats["limit"]
    return max(total - stats["allocated"], 0), total


def empty_cache() -> None:
    """Frees what only waits to be freed: dead reference cycles, then running programs; and gives
    the system the host memory that was kept for further arrays (of XLA's CPU plugin)."""
    if is_initialized():
        gc.collect()
        synchronize()
        _core.return_memory()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A short table for people. `abbreviated` leaves out the totals."""
    index = _get_device_index(device, optional=True)
    stats = _stats(index)
    rows = [
        ("in use", stats["allocated"]),
        ("peak in use", stats["peak"]),
        ("held by the runtime", max(stats["reserved"], stats["allocated"])),
        ("limit", stats["limit"]),
    ]
    lines = [f"tpu:{index} memory"]
    lines += [f"  {label:<20} {size / 2**20:>14,.1f} MiB" for label, size in rows]
    if not abbreviated:
        lines.append(f"  {'allocations':<20} {stats['allocations']:>14,}")
    return "\n".join(lines)


def _stats(device: DeviceLike) -> dict[str, int]:
    if not is_initialized():
        return dict.fromkeys(COUNTERS, 0)
    return _core.memory_stats(_get_device_index(device, optional=True))
