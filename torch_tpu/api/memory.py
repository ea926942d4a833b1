"""`torch.tpu` and `torch.tpu.memory`: how much device memory is in use, and how much may be.

The core counts live arrays per device, in logical bytes. There is no cache of freed arrays: what is
reserved is what is allocated, and an array is a segment. So the names that only a caching allocator
gives a meaning (pools, splits, garbage collection) are left out. Functions take a device, an index,
or None for the current device, and those that count answer 0 without starting the runtime. Not
here: snapshots (memory_history.py).
"""

from __future__ import annotations

import gc

from .. import _core
from .device import DeviceLike, _get_device_index, _lazy_init, is_initialized, synchronize
from .memory_history import _dump_snapshot, _record_memory_history, _snapshot, memory_snapshot

__all__ = [
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "memory_snapshot",
]

# The names of torch.cuda.memory_stats for the two things that are counted.
BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
ARRAYS = ("allocation", "segment", "active")

_EMPTY = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
_NOTHING = {"bytes": _EMPTY, "arrays": _EMPTY, "ooms": 0, "retries": 0, "total": 0, "limit": 0}


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in use by tensors."""
    return _counters(device)["bytes"]["current"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes in use by tensors since the start or the last `reset_peak_memory_stats`."""
    return _counters(device)["bytes"]["peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes held for tensors: `memory_allocated`, since nothing is kept after use."""
    return memory_allocated(device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes held for tensors: `max_memory_allocated`."""
    return max_memory_allocated(device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Starts the peaks again from what is in use now."""
    if is_initialized():
        _core.reset_peak_memory(_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """`reset_peak_memory_stats` under its older name."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Starts what only grows (allocations, frees, errors and retries) again from 0."""
    if is_initialized():
        _core.reset_accumulated_memory(_index(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict:
    """`memory_stats` with a dictionary per level of its names."""
    counters = _counters(device)
    nested = {name: {"all": dict(counters["bytes"])} for name in BYTES}
    nested |= {name: {"all": dict(counters["arrays"])} for name in ARRAYS}
    return nested | {
        "num_alloc_retries": counters["retries"],
        "num_ooms": counters["ooms"],
        "num_device_alloc": counters["arrays"]["allocated"],
        "num_device_free": counters["arrays"]["freed"],
        "limit_bytes": counters["limit"],
    }


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Counters under the names of `torch.cuda.memory_stats`, plus ``limit_bytes``.

    ``num_ooms`` counts the `torch.OutOfMemoryError`s that were raised; ``num_alloc_retries`` the
    regions of deferred operators that did not fit as one program and ran one by one.
    """
    return _flat(memory_stats_as_nested_dict(device))


def host_memory_stats_as_nested_dict() -> dict:
    """`host_memory_stats` with a dictionary per level of its names."""
    counters = _core.pinned_stats()
    bytes_, blocks = counters["bytes"], counters["blocks"]
    return {
        "active_bytes": dict(bytes_),
        "allocated_bytes": bytes_,
        "active_requests": dict(blocks),
        "allocations": blocks,
        "num_host_alloc": blocks["allocated"],
        "num_host_free": blocks["freed"],
    }


def host_memory_stats() -> dict[str, int]:
    """Counters of pinned host memory under the names of `torch.cuda.host_memory_stats`."""
    return _flat(host_memory_stats_as_nested_dict())


def reset_peak_host_memory_stats() -> None:
    """Starts the peaks of pinned memory again from what is in use now."""
    _core.reset_pinned_peak()


def reset_accumulated_host_memory_stats() -> None:
    """Starts the sums of pinned memory again from 0."""
    _core.reset_pinned_sums()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(bytes that may still be allocated, bytes of the device). Starts the runtime."""
    _lazy_init()
    counters = _counters(device)
    return max(counters["limit"] - counters["bytes"]["current"], 0), counters["total"]


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Lets this process use only a part of the device's memory.

    More raises `torch.OutOfMemoryError`. What is in use already stays. The whole is what the device
    has, or TORCH_TPU_MEMORY_LIMIT where that is set.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"the fraction must be a float, not {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction must be between 0 and 1, not {fraction}")
    _lazy_init()
    index = _index(device)
    _core.set_memory_limit(index, int(fraction * _counters(index)["total"]))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """What `set_per_process_memory_fraction` set; 1.0 otherwise."""
    _lazy_init()
    counters = _counters(device)
    return counters["limit"] / counters["total"]


def empty_cache() -> None:
    """Frees what only waits to be freed: dead reference cycles, then running programs; and gives
    the system the host memory that was kept for further arrays (of XLA's CPU plugin)."""
    if is_initialized():
        gc.collect()
        synchronize()
        _core.return_memory()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table for people. `abbreviated` leaves out the counts and the largest tensors."""
    index = _index(device)
    counters = _counters(index)
    rows = [
        ("in use", counters["bytes"]["current"]),
        ("peak in use", counters["bytes"]["peak"]),
        ("limit", counters["limit"]),
        ("device", counters["total"]),
    ]
    lines = [f"tpu:{index} memory"]
    lines += [f"  {label:<24} {size / 2**20:>14,.1f} MiB" for label, size in rows]
    if abbreviated or not is_initialized():
        return "\n".join(lines)
    counts = [
        ("arrays", counters["arrays"]["current"]),
        ("arrays at most", counters["arrays"]["peak"]),
        ("allocations", counters["arrays"]["allocated"]),
        ("out of memory", counters["ooms"]),
        ("retries with less memory", counters["retries"]),
    ]
    lines += [f"  {label:<24} {count:>14,}" for label, count in counts]
    lines.append("  largest tensors")
    lines += [f"    {_described(array)}" for array in _core.live_arrays(index)[:8]]
    return "\n".join(lines)


def _described(array: dict) -> str:
    dtype = str(array["dtype"]).removeprefix("torch.")
    text = f"{dtype}{list(array['shape'])} {array['bytes']:,} bytes"
    if array["deferred"]:
        text += ", not computed yet"
    if array["place"] is not None:
        file, line, _ = array["place"]
        text += f", made at {file}:{line}"
    return text


def _flat(nested: dict) -> dict[str, int]:
    flat = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": number for inner, number in _flat(value).items()}
        else:
            flat[name] = value
    return dict(sorted(flat.items()))


def _index(device: DeviceLike) -> int:
    return _get_device_index(device, optional=True)


def _counters(device: DeviceLike) -> dict:
    return _core.memory_stats(_index(device)) if is_initialized() else _NOTHING
