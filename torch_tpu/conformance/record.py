"""What is remembered of one unit: counts per check, failures, operators met, fallbacks."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
import traceback
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .compare import Difference

_MOST_FAILURES = 60  # kept per unit; the counts are complete


@dataclasses.dataclass
class Record:
    """The outcome of one unit, as it is written to the journal.

    Attributes:
      unit: its name, e.g. ``"op/add/float32"``.
      passed, failed: number of checks by name (``forward``, ``backward``, ``out`` ...).
      failures: ``{check, kind, sample, message}`` of the first failures.
      operators: ATen overloads that the device was asked for.
      fallbacks: calls that ran on the CPU, by overload.
      random: results are drawn, so that only their metadata is compared.
      note: why nothing was run, if nothing was.
      seconds, programs: time taken and programs compiled.
    """

    unit: str
    passed: dict[str, int] = dataclasses.field(default_factory=collections.Counter)
    failed: dict[str, int] = dataclasses.field(default_factory=collections.Counter)
    kinds: dict[str, int] = dataclasses.field(default_factory=collections.Counter)
    failures: list[dict[str, str]] = dataclasses.field(default_factory=list)
    operators: list[str] = dataclasses.field(default_factory=list)
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)
    random: bool = False
    note: str = ""
    seconds: float = 0.0
    programs: int = 0

    def add(self, check: str, kind: str, sample: str, message: str) -> None:
        self.failed[check] += 1
        self.kinds[kind] += 1
        if len(self.failures) < _MOST_FAILURES:
            entry = {"check": check, "kind": kind, "sample": sample[:400], "message": message[:600]}
            self.failures.append(entry)

    @contextlib.contextmanager
    def check(self, name: str, sample: str):
        """Count the block as one check; what it raises is its failure."""
        try:
            yield
        except Difference as difference:
            self.add(name, difference.kind, sample, difference.message)
        except Exception as error:  # noqa: BLE001 (whatever the device raises is the finding)
            self.add(name, "raises", sample, described(error))
        else:
            self.passed[name] += 1

    @contextlib.contextmanager
    def guarded(self):
        """An exception of the run itself (not of a check) ends the unit as a failure."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (one unit must not end the run)
            self.add("run", "raises", "", described(error))

    @contextlib.contextmanager
    def measured(self):
        """Fill in seconds, programs and fallbacks of the block."""
        start, programs = time.perf_counter(), torch.tpu.compile_count()
        before = torch.tpu.fallback_stats()
        try:
            yield
        finally:
            self.seconds = round(time.perf_counter() - start, 3)
            self.programs = torch.tpu.compile_count() - programs
            after = torch.tpu.fallback_stats()
            counts = {name: n - before.get(name, 0) for name, n in after.items()}
            self.fallbacks = {name: n for name, n in counts.items() if n}

    def fields(self) -> dict[str, Any]:
        shown = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: dict(v) if isinstance(v, dict) else v for name, v in shown.items()}


def described(error: BaseException) -> str:
    """Class, message and innermost place of an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return f"{type(error).__name__}: {first}{place}"


class Operators(TorchDispatchMode):
    """Records the ATen overloads that reach the backend, and whether one draws random numbers."""

    def __init__(self):
        super().__init__()
        self.names: set[str] = set()
        self.random = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.name())
        self.random |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))
