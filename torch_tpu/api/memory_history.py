"""Snapshots of device memory in the form of `torch.cuda.memory`, whose viewer reads them.

A storage that holds an array is a segment with one block; a block also tells the dtype and shape of
the array. Where tensors were made, and the history of allocations, are kept by the core while
`_record_memory_history` is on (csrc/device/history.h). Frames are one deep: the user's line.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

from .. import _core
from .device import DeviceLike, _get_device_index, device_count, is_initialized

_RECORDING = {None: 0, False: 0, "state": 1, "all": 2, True: 2}
_ACTIONS = ("alloc", "free_completed", "oom")


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    **unused: Any,
) -> None:
    """Starts or stops recording where tensors are made, on all devices.

    "state" keeps the line of every tensor that is made from now on; "all" (or True) also the last
    ``max_entries`` allocations and frees; None (or False) stops. Of the other arguments that
    `torch.cuda.memory` has, ``stacks`` makes no difference, since only the user's line is kept.
    """
    if enabled not in _RECORDING:
        raise ValueError(f'enabled must be None, "state" or "all", not {enabled!r}')
    if enabled and context is None:
        raise ValueError("recording without context records nothing more than is always known")
    if unused:
        raise TypeError(f"not supported on tpu: {', '.join(sorted(unused))}")
    if stacks not in ("python", "all"):
        raise ValueError(f'stacks must be "python" or "all", not {stacks!r}')
    if max_entries < 0:
        raise ValueError(f"max_entries must not be negative, but is {max_entries}")
    if clear_history:
        _core.clear_memory_events()
    _core.record_memory(_RECORDING[enabled], max_entries)


def memory_snapshot(mempool_id=None, include_traces: bool = True) -> list[dict[str, Any]]:
    """What is in the memory of all devices: a segment for each array, largest first."""
    if mempool_id not in (None, (0, 0)):
        raise ValueError(f"tpu memory has no pools, but got mempool_id={mempool_id}")
    if not is_initialized():
        return []
    found = []
    for device in range(device_count()):
        found += [_segment(device, array) for array in _core.live_arrays(device)]
    return found


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Segments and, if recorded, the events of every device; see `torch.cuda.memory._snapshot`."""
    devices = range(device_count() if is_initialized() else 0)
    segments = memory_snapshot()
    if device is not None:
        index = _get_device_index(device)
        segments = [segment for segment in segments if segment["device"] == index]
    return {
        "segments": segments,
        "device_traces": [_trace(index) for index in devices],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes `_snapshot()` where the viewer of PyTorch (pytorch.org/memory_viz) can read it."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _segment(device: int, array: dict) -> dict[str, Any]:
    used = 0 if array["deferred"] else array["bytes"]
    frames = _frames(array["place"])
    block = {
        "address": array["address"],
        "size": array["bytes"],
        "requested_size": array["bytes"],
        "state": "inactive" if array["deferred"] else "active_allocated",
        "frames": frames,
        "dtype": str(array["dtype"]).removeprefix("torch."),
        "shape": array["shape"],
        "line": f"{frames[0]['filename']}:{frames[0]['line']}" if frames else None,
    }
    return {
        "device": device,
        "address": array["address"],
        "total_size": array["bytes"],
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large" if array["bytes"] >= 2**20 else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [block],
    }


def _trace(device: int) -> list[dict[str, Any]]:
    entries = []
    for action, address, size, microseconds, place in _core.memory_events(device):
        entry = {
            "action": _ACTIONS[action],
            "size": size,
            "stream": 0,
            "pool_id": (0, 0),
            "time_us": microseconds,
            "frames": _frames(place),
        }
        entry["device_free" if entry["action"] == "oom" else "addr"] = address
        entries.append(entry)
    return entries


def _frames(place: tuple[str, int, str] | None) -> list[dict[str, Any]]:
    if place is None:
        return []
    file, line, function = place
    return [{"filename": file, "line": line, "name": function}]
