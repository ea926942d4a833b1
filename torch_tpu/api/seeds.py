"""`torch.tpu`: seeds and the state of the random number generators, one generator per device.

Also reachable as `torch.tpu.random`, where other backends have these functions. A generator is a
seed and an offset on the host, so nothing here starts the runtime, except `default_generators` and
the `_all` forms of the state, which must know how many devices there are. Not here: the generator
itself (`csrc/device/generator.h`).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _core, config
from .device import DeviceLike, _get_device_index, _lazy_init, is_available, is_initialized

# The most devices a host with TPU chips has, rounded up generously (v2 to 7x: 8).
MOST_CHIP_DEVICES = 16


def default_generators() -> tuple[torch.Generator, ...]:
    """The generator of every device; what `torch.tpu.default_generators` reads."""
    _lazy_init()
    return tuple(_core.default_generator(index) for index in range(_core.device_count()))


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices; `torch.manual_seed` calls this."""
    for index in range(_devices_to_seed()):
        _core.default_generator(index).manual_seed(int(seed))


def _devices_to_seed() -> int:
    """The number of devices; before the runtime is up it is not known, and all must be reached."""
    if is_initialized():
        return _core.device_count()
    return max(MOST_CHIP_DEVICES, config.cpu_devices()) if is_available() else 0


def seed() -> int:
    """Seeds the current device's generator with a number from the system; returns it."""
    return _generator(None).seed()


def seed_all() -> int:
    """Seeds all generators with one number from the system; returns it."""
    number = seed()
    manual_seed_all(number)
    return number


def initial_seed() -> int:
    """The seed the current device's generator started from."""
    return _generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "tpu") -> torch.Tensor:
    """The state of a device's generator, as a ByteTensor on the CPU."""
    with torch._C._DisableTorchDispatch():  # a real one, also while a program is traced
        return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "tpu") -> None:
    """Sets the state of a device's generator."""
    with torch._C._DisableTorchDispatch():
        _generator(device).set_state(new_state.cpu())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of the devices' generators, in the order of `get_rng_state_all`."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _generator(device: DeviceLike) -> torch.Generator:
    index = _get_device_index(device, optional=True)
    if is_initialized() and not 0 <= index < _core.device_count():
        count = _core.device_count()
        raise ValueError(f"there is no tpu:{index}; this process has {count} devices")
    return _core.default_generator(index)
