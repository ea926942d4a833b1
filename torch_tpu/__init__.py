"""A native PyTorch backend for TPUs: the device "tpu".

`import torch` is enough: PyTorch loads every entry point of the group `torch.backends`, and ours is
`_autoload`. Importing torch_tpu does the same, in any order. This file loads the core and registers
the device, nothing else; what users call is `torch.tpu` (`api/`). It runs inside `import torch`, so
it must be quick, prints nothing and never raises: when something is wrong, torch works as before
and the first use of the device says what happened.
"""

from __future__ import annotations

import sys
import types

__version__ = "0.1.0"

_registered = False


def _autoload() -> None:
    """Registers the device, once per process."""
    global _registered
    if _registered:
        return
    _registered = True  # first of all: importing torch comes back here through the entry point
    from .api import module

    try:
        _name_device()
        device_module = _load()
    except Exception as error:  # noqa: BLE001 - nothing of ours may break `import torch`
        device_module = module.stand_in(error)
    _register(device_module, module.backends_namespace(device_module))


def _name_device() -> None:
    """Gives PyTorch's out-of-tree device slot its name, and tensors and modules their methods."""
    import torch

    torch.utils.rename_privateuse1_backend("tpu")
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def _load() -> types.ModuleType:
    """Loads the core, registers the operators, and returns the module for `torch.tpu`."""
    # Loading the core registers the allocator, guard, hooks and generator. In this form a missing
    # file is called missing; `from torch_tpu import _core` would blame a circular import.
    import torch_tpu._core as _core

    from .api import amp, modes, module, plugin
    from .dispatch import sparse
    from .dispatch.register import register_all

    _core.set_plugin_chooser(plugin.find)
    _core.expect_devices(plugin.expected_device_count())
    register_all()
    sparse.register()
    amp.set_default_dtype()
    modes.start()
    _extend_dynamo()
    return module.build()


def _extend_dynamo() -> None:
    """Says to torch.compile, once somebody imports it, what is compiled how."""
    from .api.imports import when_imported

    def device_interface(module):
        from .compile import device_interface

        device_interface.register(module)

    def default_backend(module):
        from .compile.backend import default

        module.set_default_backend(default)

    when_imported("torch._dynamo.device_interface", device_interface)
    when_imported("torch._dynamo.backends.registry", default_backend)


def _register(device_module: types.ModuleType, namespace: types.ModuleType) -> None:
    """What `torch._register_device_module` does, also when the name could not be given."""
    import torch

    for parent, child in ((torch, device_module), (torch.backends, namespace)):
        parent.tpu = child
        sys.modules[child.__name__] = child


_autoload()
