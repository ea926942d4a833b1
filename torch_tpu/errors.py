"""Every error a user can meet, one class per mistake.

Each class derives from `TorchTpuError` and from the built-in exception that code written for other
devices already catches. Messages say what happened, to which operator or option, and what to do.
Not here: errors that PyTorch itself raises for a wrong call (shapes, dtypes), and
`torch.OutOfMemoryError`, which the core raises as PyTorch defines it.
"""

from __future__ import annotations


class TorchTpuError(Exception):
    """Anything torch_tpu raises on purpose."""


class ConfigError(TorchTpuError, ValueError):
    """An environment variable or option has a value that cannot be understood."""


class PluginError(TorchTpuError, RuntimeError):
    """No PJRT plugin was found, or the one that was named cannot be used."""


class DeviceInUseError(TorchTpuError, RuntimeError):
    """The TPU chips are held by another process; the message names it if it can be known."""


class BackendLoadError(TorchTpuError, RuntimeError, AttributeError):
    """torch_tpu is installed but its core did not load; `__cause__` says why.

    Also an AttributeError, so that `hasattr(torch.tpu, name)`, which libraries use to probe a
    device, answers False and does not raise.
    """


class ForkError(TorchTpuError, RuntimeError):
    """The device was used in a process forked after the runtime had started."""


class CompilationError(TorchTpuError, RuntimeError):
    """A compiler for devices that are not attached refused a program, or ended on it.

    Attributes:
      kind: what kind of refusal, in words.
      crashed: whether the compiler's process ended instead of answering.
    """

    def __init__(self, message: str, kind: str = "", crashed: bool = False):
        super().__init__(f"{kind}: {message}" if kind else message)
        self.kind = kind
        self.crashed = crashed


class FallbackError(TorchTpuError, NotImplementedError):
    """An operator would have to run on the CPU, and TORCH_TPU_FALLBACK=error forbids it."""


class FallbackWarning(UserWarning):
    """An operator ran on the CPU because the device has no program for it."""


class CacheWarning(UserWarning):
    """A level of the compilation cache cannot be used; programs are compiled without it."""
