"""Assembles the module object that PyTorch knows as `torch.tpu`.

PyTorch, Hugging Face and users reach the backend through this one object. It is put together from
the files of this room; which names are in it is decided by the lists below and nowhere else. When
the core did not load, `stand_in` makes one that keeps PyTorch working on the CPU and explains
itself when the device is used.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NoReturn

from ..errors import BackendLoadError

DEVICE = (
    "can_device_access_peer current_device device device_count device_of get_arch_list "
    "get_device_capability get_device_name get_device_properties init is_available is_initialized "
    "is_tf32_supported set_device synchronize "
    "_exchange_device _get_device_index _is_in_bad_fork _lazy_init _maybe_exchange_device"
).split()
MEMORY = (
    "empty_cache get_per_process_memory_fraction host_memory_stats "
    "host_memory_stats_as_nested_dict max_memory_allocated max_memory_reserved mem_get_info "
    "memory_allocated memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict "
    "memory_summary reset_accumulated_host_memory_stats reset_accumulated_memory_stats "
    "reset_max_memory_allocated reset_peak_host_memory_stats reset_peak_memory_stats "
    "set_per_process_memory_fraction"
).split()
SEEDS = (
    "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all "
    "set_rng_state set_rng_state_all"
).split()
STREAMS = "Event Stream StreamContext current_stream default_stream set_stream stream".split()
AMP = "get_amp_supported_dtype is_bf16_supported precision".split()
MODES = "EagerMode eager_mode flush_stats set_detect_nonfinite set_eager_mode".split()
COUNTERS = "cache_stats compile_count fallback_stats reset_fallback_stats".split()
# PyTorch's own, under the name that torch.cuda has for them too.
TORCH = "OutOfMemoryError".split()


def build() -> types.ModuleType:
    """The `torch.tpu` module. Needs the core."""
    import torch

    from . import amp, counters, device, memory, modes, profiler, seeds, streams

    module = types.ModuleType("torch.tpu", "The tpu device: XLA programs run through PJRT.")
    rooms = (
        (device, DEVICE),
        (memory, MEMORY),
        (seeds, SEEDS),
        (streams, STREAMS),
        (amp, AMP),
        (modes, MODES),
        (counters, COUNTERS),
        (torch, TORCH),
    )
    for source, names in rooms:
        for name in names:
            setattr(module, name, getattr(source, name))
    computed = {
        "_initialized": device.is_initialized,
        "default_generators": seeds.default_generators,
    }

    def __getattr__(name: str) -> Any:
        if name in computed:
            return computed[name]()
        raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")

    public = [name for _, names in rooms for name in names if not name.startswith("_")]
    module.__all__ = sorted([*public, "default_generators"])
    module.__getattr__ = __getattr__
    add_submodules(module, {"random": seeds, "memory": memory, "streams": streams, "amp": amp})
    add_submodules(module, {"profiler": profiler})
    module._utils = types.SimpleNamespace(_get_device_index=device._get_device_index)
    return module


def add_submodules(module: types.ModuleType, submodules: dict[str, types.ModuleType]) -> None:
    """Makes `torch.tpu.<name>` an attribute and importable."""
    for name, submodule in submodules.items():
        setattr(module, name, submodule)
        sys.modules[f"{module.__name__}.{name}"] = submodule


def stand_in(cause: BaseException) -> types.ModuleType:
    """What is at `torch.tpu` when the core did not load: no device, and an error that says why."""
    module = types.ModuleType("torch.tpu", "The tpu backend, which did not load.")

    message = (
        "the tpu backend did not load, so the device cannot be used: "
        f"{type(cause).__name__}: {cause}"
    )
    if isinstance(cause, (ImportError, OSError)):
        message += (
            "\nA core built for another torch or Python? Install torch-tpu again for this one."
        )

    def fail(name: str = "") -> NoReturn:
        raise BackendLoadError(message) from cause

    # PyTorch asks these of every backend, also in programs that never touch the device.
    module.is_available = module.is_initialized = module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 0
    module.manual_seed_all = lambda seed: None
    module._initialized = False
    # Called before PyTorch makes the first tensor of the device.
    module._lazy_init = fail
    module.__getattr__ = fail
    return module


def backends_namespace(module: types.ModuleType) -> types.ModuleType:
    """`torch.backends.tpu`, by whose presence libraries tell that this torch knows TPUs."""
    namespace = types.ModuleType("torch.backends.tpu", "Whether this torch can use a tpu.")
    namespace.is_available = module.is_available
    return namespace
