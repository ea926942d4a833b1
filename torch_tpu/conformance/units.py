"""What there is to run: one unit per OpInfo and dtype, per module and dtype, per optimiser."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Iterable

import torch

from .calls import op_name
from .record import Record

MODES = {
    "strict": torch.tpu.EagerMode.STRICT,
    "debug": torch.tpu.EagerMode.DEBUG,
    "defer": torch.tpu.EagerMode.DEFER_AND_FUSE,
}
TARGETS = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "tpu7x": "tpu7x:2x2x1"}
"""TPU generations, oldest first, and the topology that programs are compiled for."""
DTYPES = ("float32", "bfloat16", "int64", "bool", "complex64")


@dataclasses.dataclass(frozen=True)
class Unit:
    """``kind`` is ``op``, ``module`` or ``optimizer``; ``name`` is unique within it."""

    kind: str
    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}/{self.dtype}"

    @staticmethod
    def parse(text: str) -> Unit:
        kind, rest = text.split("/", 1)
        return Unit(kind, *rest.rsplit("/", 1))


@functools.cache
def databases() -> dict[str, dict]:
    """PyTorch's databases by kind and name (a few seconds to import)."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    return {
        "op": {op_name(info): info for info in op_db},
        "module": {info.name: info for info in module_db},
        "optimizer": {info.optim_cls.__name__: info for info in optim_db},
    }


def _supports(kind: str, info, dtype: torch.dtype) -> bool:
    if kind == "op":
        return dtype in info.supported_dtypes("cpu")
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    if kind == "module":
        # The database names few dtypes; what the CPU refuses is noted when it does.
        return dtype.is_floating_point or dtype in info.supported_dtypes("cpu")
    return info.supports_complex or not dtype.is_complex


def every(kinds: Iterable[str], patterns: Iterable[str], dtypes: Iterable[str]) -> list[Unit]:
    """Units whose name matches one of the shell patterns, that CPU PyTorch supports."""
    found = []
    for kind in kinds:
        for name, info in databases()[kind].items():
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                continue
            for dtype in dtypes:
                if _supports(kind, info, getattr(torch, dtype)):
                    found.append(Unit(kind, name, dtype))
    return found


def unmatched(kinds: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The patterns that no name matches."""
    names = [name for kind in kinds for name in databases()[kind]]
    return [p for p in patterns if not fnmatch.filter(names, p)]


def run(unit: Unit, samples: int) -> Record:
    """Run one unit in this process."""
    record = Record(str(unit))
    info, dtype = databases()[unit.kind][unit.name], getattr(torch, unit.dtype)
    with record.measured(), record.guarded():
        if unit.kind == "op":
            from . import opinfo

            opinfo.run(info, dtype, samples, record)
        elif unit.kind == "module":
            from . import modules

            modules.run(info, dtype, samples, record)
        else:
            from . import optimizers

            optimizers.run(info, dtype, record)
    return record
