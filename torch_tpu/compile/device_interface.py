"""What Dynamo asks of the device: torch.tpu under the names of its DeviceInterface.

PyTorch registers a stand-in for "tpu" of its own when the first interface is asked for; ours
replaces it.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import torch


def register(module: ModuleType) -> None:
    """Called with torch._dynamo.device_interface once it is imported."""
    module.init_device_reg()  # now, or it would put PyTorch's stand-in over ours later
    module.register_interface_for_device("tpu", _interface(module.DeviceInterface))


def _interface(base: type) -> type:
    class TpuInterface(base):
        """torch.tpu for Dynamo."""

        device = torch.tpu.device
        Event = torch.Event
        Stream = torch.Stream

        class Worker:
            set_device = staticmethod(torch.tpu.set_device)
            current_device = staticmethod(torch.tpu.current_device)

            @staticmethod
            def get_device_properties(device=None):
                # Dynamo wants this number for its heuristics of block sizes; XLA has its own.
                return SimpleNamespace(multi_processor_count=1)

        current_device = staticmethod(torch.tpu.current_device)
        set_device = staticmethod(torch.tpu.set_device)
        device_count = staticmethod(torch.tpu.device_count)
        is_available = staticmethod(torch.tpu.is_available)
        stream = staticmethod(torch.tpu.stream)
        current_stream = staticmethod(torch.tpu.current_stream)
        set_stream = staticmethod(torch.tpu.set_stream)
        synchronize = staticmethod(torch.tpu.synchronize)
        memory_allocated = staticmethod(torch.tpu.memory_allocated)

        @staticmethod
        def exchange_device(device: int) -> int:
            from torch_tpu import _core

            return _core.exchange_device(device)

        maybe_exchange_device = exchange_device

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return 0

        @staticmethod
        def get_compute_capability(device=None) -> str:
            return ""

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True

        @classmethod
        def is_dtype_supported(cls, dtype, including_emulation: bool = False) -> bool:
            from ..lowering.builder import ELEMENT_TYPES

            return dtype in ELEMENT_TYPES

    return TpuInterface
