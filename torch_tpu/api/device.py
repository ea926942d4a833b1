"""`torch.tpu`: is there a device, how many, which one is current, what is it.

`is_available` never starts the runtime; everything that must know the devices does. Starting it is
`_lazy_init`, which PyTorch calls before it makes the first tpu tensor. Not here: memory, random
numbers, streams (their own files), and the runtime itself (`csrc/`, reached through `_core`).
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from ..errors import ConfigError, DeviceInUseError, ForkError, PluginError
from . import holders, plugin

DeviceLike = torch.device | str | int | None

# True in a child forked after the runtime started: PJRT's threads and clients do not survive a
# fork.
_forked_after_start = False


def _note_fork() -> None:
    global _forked_after_start
    _forked_after_start = _core.is_initialized()


os.register_at_fork(after_in_child=_note_fork)


@functools.cache
def is_available() -> bool:
    """Whether there is a PJRT plugin to run on. Does not start the runtime."""
    try:
        plugin.choose()
    except (PluginError, ConfigError):
        return False
    return True


def is_initialized() -> bool:
    """Whether the runtime is up in this process."""
    return _core.is_initialized() and not _forked_after_start


def init() -> None:
    """Starts the runtime now. Otherwise the first tpu tensor does."""
    _lazy_init()


def _lazy_init() -> None:
    if _forked_after_start:
        raise ForkError(
            "tpu cannot be used in a process forked after the runtime started. Use the start "
            "method 'spawn' (or 'forkserver') of torch.multiprocessing, or fork before the first "
            "tpu call."
        )
    if _core.is_initialized():
        return
    try:
        _core.initialize()
    except RuntimeError as error:
        held = holders.explain(str(error))
        if held is None:
            raise
        raise DeviceInUseError(held) from error


def _is_in_bad_fork() -> bool:
    return _forked_after_start


def device_count() -> int:
    """The number of devices; 0 when there is no plugin. Starts the runtime when there is one."""
    if _forked_after_start or not is_available():
        return 0
    _lazy_init()
    return _core.device_count()


def current_device() -> int:
    """The index of the device that `torch.device("tpu")` means on this thread."""
    return _core.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes `device` the current one of this thread. A negative index changes nothing."""
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()
        _core.set_device(index)


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of `device`: an index, "tpu:1", torch.device; without one the current device.

    `None` stands for the current device when `optional` is set. With `allow_cpu`, a cpu device is
    -1.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "tpu":
            raise ValueError(f"expected a tpu device, got {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise TypeError(f"expected a device, an index or None, got {type(device).__name__}")
    elif not optional:
        raise ValueError("expected a device or an index, got None")
    return _core.current_device()


class device:  # noqa: N801 - the name torch.cuda, torch.xpu and torch.mtia have
    """Context manager: makes a device current, and restores the previous one. -1 does nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _get_device_index(device, optional=True, allow_cpu=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        _exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801
    """Context manager: makes the device of a tensor current; for other devices does nothing."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.get_device() if obj.device.type == "tpu" else -1)


def _exchange_device(index: int) -> int:
    """Sets the current device and returns the previous one; for a negative index does nothing."""
    return _core.exchange_device(index) if index >= 0 else -1


_maybe_exchange_device = _exchange_device


def synchronize(device: DeviceLike = None) -> None:
    """Waits until everything that was started on `device` is done."""
    _lazy_init()
    _core.synchronize(_get_device_index(device, optional=True))


# What libtpu calls some devices → what everybody else does.
KNOWN_NAMES = {
    "TPU v5": "TPU v5p",
    "TPU v5 lite": "TPU v5e",
    "TPU v6 lite": "TPU v6e",
    "TPU7x": "TPU v7x",
}


@dataclass(frozen=True)
class DeviceProperties:
    """What the plugin says about a device.

    Attributes:
      name: the name it is known by, with a remark when it is no TPU.
      kind: what the plugin calls it.
      platform: PJRT's platform name, "tpu" or "cpu".
      platform_version: the runtime's version text.
      total_memory: bytes this device may hold.
      id: the plugin's own id, unique over all hosts.
    """

    name: str
    kind: str
    platform: str
    platform_version: str
    total_memory: int
    id: int


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """The properties of a device. On XLA's CPU plugin the name says that it is no TPU."""
    _lazy_init()
    info: dict[str, Any] = _core.device_info(_get_device_index(device, optional=True))
    return DeviceProperties(name=known_name(info["kind"], info["platform"]), **info)


def known_name(kind: str, platform: str) -> str:
    """The name that people and libraries know a device by; the latter look for "v5e" and such."""
    if platform != "tpu":
        return f"{kind} (XLA {platform} plugin, not a TPU)"
    return KNOWN_NAMES.get(kind, kind)


def get_device_name(device: DeviceLike = None) -> str:
    return get_device_properties(device).name


def get_arch_list() -> list[str]:
    """The kinds of device that programs are compiled for: those of this process. [] without any.

    Nothing is compiled ahead of time, so there is no list that a build would have fixed.
    """
    return sorted({get_device_properties(index).name for index in range(device_count())})


def is_tf32_supported() -> bool:
    """Always False: TensorFloat-32 is a format of NVIDIA's; no XLA platform of ours has it."""
    return False


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """What `torch.accelerator.get_device_capability` reports: the supported dtypes."""
    _lazy_init()
    return torch.accelerator.get_device_capability(_get_device_index(device, optional=True))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether tensors can be copied between two devices directly: true for any two of ours."""
    count = device_count()
    indices = (_get_device_index(device), _get_device_index(peer_device))
    for index in indices:
        if not 0 <= index < count:
            raise ValueError(f"there is no tpu:{index}; this process has {count} devices")
    return indices[0] != indices[1]
