"""`torch.tpu`: the eager modes, what DeferAndFuse did, and the environment that chooses a mode.

The mode belongs to the process: threads of autograd, data loaders and users see the same one. What
a mode does is in csrc/dispatch (deferred.h, run.cc); docs/eager_modes.md explains them.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable

import torch
from torch.utils._contextlib import context_decorator

from .. import _core, config
from ..dispatch import debug


class EagerMode(enum.Enum):
    """How operators run.

    STRICT: each is a program that starts at once; nothing is waited for.
    DEBUG: each completes before the next begins, and indices are checked.
    DEFER_AND_FUSE: they are recorded; a run of them becomes one program when a value is needed.
    """

    STRICT = 0
    DEBUG = 1
    DEFER_AND_FUSE = 2


def eager_mode() -> EagerMode:
    """The mode of this process."""
    return EagerMode(_core.eager_mode())


class set_eager_mode:  # noqa: N801 - a function to its users, like torch.set_grad_enabled
    """Sets the mode of this process: a function, a context manager and a decorator.

    As a function it changes the mode at once; ``with`` and the decorator put the mode back that was
    there before. Raises TypeError for anything but an `EagerMode`. Recorded operators are handed to
    the device before the mode changes.

        torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEBUG)
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            train_step()
    """

    def __init__(self, mode: EagerMode):
        if not isinstance(mode, EagerMode):
            raise TypeError(
                f"an eager mode is one of {', '.join(map(str, EagerMode))}, not {mode!r}"
            )
        self.mode = mode
        self.previous = eager_mode()
        try:
            _core.set_eager_mode(mode.value)
        except BaseException:  # recorded operators failed, and nobody will put the mode back
            _core.set_eager_mode(self.previous.value)
            raise

    def __enter__(self) -> None:
        _core.set_eager_mode(self.mode.value)

    def __exit__(self, *_: object) -> None:
        _core.set_eager_mode(self.previous.value)

    def __call__(self, function: Callable) -> Callable:
        _core.set_eager_mode(self.previous.value)  # it is for the calls, not for the definition
        mode = self.mode
        # PyTorch's own, as of torch.no_grad: generators have the mode while they run.
        return context_decorator(lambda: set_eager_mode(mode), function)


class set_detect_nonfinite:  # noqa: N801 - as above
    """Whether Debug looks for NaN and infinity: a function and a context manager.

    On, the first operator that makes a NaN or an infinity out of finite arguments raises
    FloatingPointError naming it; ``masked_fill(mask, -inf)`` does not. Only Debug looks.
    """

    def __init__(self, enabled: bool):
        self.previous = debug.detect_nonfinite
        debug.detect_nonfinite = bool(enabled)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        debug.detect_nonfinite = self.previous


def flush_stats() -> dict[str, int | float]:
    """What DeferAndFuse did in this process.

    ``value``, ``synchronize``, ``operators``, ``bytes``, ``repetition`` and ``thread`` count the
    regions that were closed for this cause; ``recorded`` the operators in them,
    ``mean``, ``largest`` and ``last`` the operators per region. ``hits`` and ``misses`` say how
    many regions had their program, ``unused`` how many nobody needed a result of, and
    ``one_by_one`` how many had to run operator by operator because their program failed.
    docs/eager_modes.md has more.
    """
    stats = _core.flush_stats()
    causes = "value synchronize operators bytes repetition thread".split()
    regions = sum(stats[cause] for cause in causes)
    return {**stats, "regions": regions, "mean": stats["recorded"] / max(regions, 1)}


def start() -> None:
    """Gives the core its limits, and the process the mode that the environment asks for."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _core.set_library_folders([os.path.dirname(torch.__file__) + os.sep, ours + os.sep])
    _core.set_defer_limits(config.defer_operators(), config.defer_bytes())
    if config.launch_blocking():
        _core.set_eager_mode(EagerMode.DEBUG.value)
    elif config.defer_and_fuse():
        _core.set_eager_mode(EagerMode.DEFER_AND_FUSE.value)
