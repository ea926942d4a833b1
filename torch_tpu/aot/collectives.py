"""What the devices of a program tell one another: bytes, groups, and a time by a model.

The model is of bandwidth on a torus, with no latency and no contention (docs/aot_estimates.md). The
compiler gives collectives no cycles. Where the compiler fuses one (a reduce-scatter is a fusion of
an all-reduce and a slice), it is listed by what the fusion does. One that runs beside other work is
a chain of fusions, each with a copy of it: it is listed once, with its `parts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from . import source
from .chips import Chip
from .hlo import Computation, HloModule, Instruction
from .loops import Executions
from .torus import Coordinates

KINDS = (
    *("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
)


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective of a program.

    Attributes:
      name: of the instruction that does it, or begins it.
      kind: of `KINDS`.
      bytes: that one device has of the whole: results of a gather, operands of the others.
      group_size: devices that take part together; groups: all of them, as device numbers.
      executions: in one step; in_branch: only if a conditional takes its way.
      seconds: of one, by the model.
      parts: ids of the instructions that do it: of the first, which begins it, to the last, which
        waits for it.
      asynchronous: whether other work may run meanwhile.
      over: the axes of the torus that a group spans, or what else is known.
      place: PyTorch's operator, module and line.
    """

    name: str
    kind: str
    bytes: int
    group_size: int
    groups: list[tuple[int, ...]]
    executions: int
    in_branch: bool
    seconds: float
    parts: tuple[int, ...]
    asynchronous: bool
    over: str
    place: source.Source

    @property
    def total_seconds(self) -> float:
        return self.seconds * self.executions


def kind_of(one: Instruction) -> str:
    """Of `KINDS`, or "" if it is no collective; "-start" forms count as what they start."""
    kind = one.opcode.removesuffix("-start")
    return kind if kind in KINDS else ""


def of(module: HloModule, chip: Chip, devices: Sequence = ()) -> list[Collective]:
    """In the order of the schedule; ``devices`` have ``coords`` and ``core``."""
    found = _Finder(module, chip, Coordinates(devices, chip))
    return found.collectives


class _Finder:
    def __init__(self, module: HloModule, chip: Chip, coordinates: Coordinates):
        self.module, self.chip, self.coordinates = module, chip, coordinates
        self.executions = Executions(module)
        self.collectives: list[Collective] = []
        self.chains: dict[tuple, int] = {}  # → position in `collectives`
        self._visit(module.entry, None, set())

    def _visit(self, computation: Computation, doer: Instruction | None, seen: set[int]) -> None:
        """``doer`` is the instruction of the schedule that the computation is part of, if any."""
        if computation.id in seen:
            return
        seen.add(computation.id)
        for one in computation.instructions:
            if kind_of(one):
                self._add(computation, one, doer or one)
            elif one.called:
                inner = doer
                if inner is None and one.opcode in ("fusion", "async-start"):
                    inner = one
                for called in self.module.called(one):
                    self._visit(called, inner, seen)

    def _add(self, computation: Computation, one: Instruction, doer: Instruction) -> None:
        kind = kind_of(one)
        chain = (one.attributes.get("chain_id"), one.channel)
        if chain[0] is not None and chain in self.chains:
            begun = self.collectives[self.chains[chain]]
            parts = (*begun.parts, doer.id)
            self.collectives[self.chains[chain]] = dataclasses.replace(
                begun, parts=parts, asynchronous=True
            )
            return
        if chain[0] is not None:
            self.chains[chain] = len(self.collectives)
        users = computation.users.get(one.id, ())
        sliced = any(user.opcode == "dynamic-slice" for user in users)
        if kind == "all-reduce" and doer.opcode == "fusion" and sliced:
            kind = "reduce-scatter"
        size = sum(computation.by_id[i].shape.bytes for i in one.operands)
        groups = one.groups or [tuple(range(self.module.partitions * self.module.replicas))]
        if kind == "collective-permute":
            groups = [pair for pair in one.pairs if pair[0] != pair[1]]
        count = len(groups[0]) if groups else 1
        if kind == "all-gather":
            size *= count
        seconds, over = self.coordinates.seconds(kind, size, groups, count)
        place = source.of(one if one.op_name else doer)
        asynchronous = doer.opcode.endswith("-start")
        self.collectives.append(
            Collective(
                *(doer.name, kind, size, count, groups),
                self.executions.counts.get(computation.id, 1),
                computation.id in self.executions.in_branch,
                *(seconds, (doer.id,), asynchronous, over, place),
            )
        )


def summary(collectives: Sequence[Collective]) -> list[tuple[str, int, int, float]]:
    """(kind, executions, bytes, seconds) of each kind, the longest first."""
    rows = {}
    for one in collectives:
        row = rows.setdefault(one.kind, [0, 0, 0.0])
        row[0] += one.executions
        row[1] += one.bytes * one.executions
        row[2] += one.total_seconds
    listed = [(kind, *row) for kind, row in rows.items()]
    return sorted(listed, key=lambda row: -row[3])
