"""`torch.tpu`: how many programs were compiled, what the caches did, what ran on the CPU.

Only reads and resets; the core counts compiles and cache hits, `dispatch/fallback.py` counts
operators that had to run on the CPU. None of it starts the runtime.
"""

from __future__ import annotations

from .. import _core
from ..dispatch import fallback


def compile_count() -> int:
    """Programs compiled by XLA in this process so far."""
    return _core.compile_count()


def cache_stats() -> dict[str, int | float]:
    """What the program caches hold and did in this process.

    ``entries`` is what the dispatch cache holds, ``compiles`` what XLA compiled, ``programs`` what
    was compiled or loaded; docs/cache.md explains the others.
    """
    from ..program import cache  # not needed to import torch

    return {**_core.cache_stats(), **cache.stats()}


def fallback_stats() -> dict[str, int]:
    """Operators that ran on the CPU because the device has no program for them: name → calls."""
    return fallback.stats()


def reset_fallback_stats() -> None:
    """Empties `fallback_stats`; every operator is warned about once again."""
    fallback.reset()
