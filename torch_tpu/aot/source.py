"""Where an instruction of an optimised program comes from, in PyTorch's words.

Our programs carry ``module/path/aten::op`` as the name of an operation (`lowering/places.py`); XLA
keeps it, with prefixes of its own where it moved an operation.
"""

from __future__ import annotations

from typing import NamedTuple

from .hlo import Instruction


class Source(NamedTuple):
    """The operator, the module that called it and ``file:line``; "" for unknown."""

    operator: str = ""
    module: str = ""
    line: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.operator, self.module and f"in {self.module}")))


def of(one: Instruction) -> Source:
    parts = [part for part in one.op_name.split("/") if part]
    for at in range(len(parts) - 1, -1, -1):
        if "::" in parts[at]:
            return Source(parts[at], "/".join(parts[:at]), one.source)
    operator = parts[-1] if parts else ""
    return Source(operator, "/".join(parts[:-1]), one.source)
