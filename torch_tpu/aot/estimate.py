"""How long a compiled program takes, from the compiler's own cycles: an estimate, never a time.

`estimate` runs the schedule in its head: cycles of the compiler over the chip's clock, loop bodies
as often as they run, asynchronous copies and collectives beside what is scheduled meanwhile, and a
bound by flop and bytes where the compiler says nothing. docs/aot_estimates.md has the formulas and
what they leave out; `Estimate.uncertain` says which of that applies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from . import source, uncertain
from .chips import Chip
from .collectives import Collective, kind_of
from .hlo import Computation, HloModule, Instruction, find
from .loops import Loop
from .work import FREE, Work

_DTYPES = {
    **{"bf16": torch.bfloat16, "f16": torch.float16, "s8": torch.int8, "u8": torch.int8},
    **{"f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e4m3fn},
}
# What an operation's time is taken from.
CYCLES, ROOFLINE, LINKS, AUTHOR = "compiler", "roofline", "link model", "kernel's author"
_MEMORY_START = {"copy-start", "slice-start", "dynamic-slice-start", "dynamic-update-slice-start"}


@dataclasses.dataclass
class Op:
    """One instruction of the schedule, with all its executions in a step.

    Attributes:
      name, opcode, computation: the compiler's names.
      kind: "convolution fusion", "fusion", "collective", "copy", "kernel", or the opcode.
      executions: in one step.
      cycles: of one execution, by the compiler; None if it has none.
      seconds: of all executions, that nothing else hides.
      hidden: seconds of asynchronous work beside other work.
      bytes: to and from HBM; flops: of products by dtype; both of all executions.
      basis: what the time is taken from.
      place: PyTorch's operator, module and line.
    """

    name: str
    opcode: str
    computation: str
    kind: str
    executions: int
    cycles: int | None
    seconds: float
    hidden: float
    bytes: int
    flops: dict[str, int]
    basis: str
    place: source.Source

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Of one step on one device.

    Attributes:
      chip: the figures it rests on.
      seconds: of the step.
      ops: in the order of the schedule; `top` gives the longest.
      flops: that the compiled program does in products, by dtype, with loops counted out.
      bytes: to and from HBM.
      model_flops: that the model takes, without recomputation; None if unknown.
      uncertain: what this number does not know, in sentences.
    """

    chip: Chip
    seconds: float
    ops: Sequence[Op]
    flops: Mapping[str, int]
    bytes: int
    model_flops: float | None
    uncertain: Sequence[str]

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: of the chip's bfloat16 peak, what the model needs."""
        if self.model_flops is None or not self.seconds:
            return None
        return self.model_flops / (self.seconds * self.chip.peak)

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation: as `mfu`, of what the program does."""
        return self.total_flops / (self.seconds * self.chip.peak) if self.seconds else 0.0

    @property
    def hbm_utilisation(self) -> float:
        return self.bytes / (self.seconds * self.chip.hbm_bandwidth) if self.seconds else 0.0

    @property
    def compute_seconds(self) -> float:
        """Of the products at the peak rate of their dtypes."""
        return sum(n / peak(self.chip, dtype) for dtype, n in self.flops.items())

    @property
    def memory_seconds(self) -> float:
        """Of the bytes at the peak rate of the memory."""
        return self.bytes / self.chip.hbm_bandwidth

    @property
    def bound_seconds(self) -> float:
        """No execution is faster than this roofline."""
        return max(self.compute_seconds, self.memory_seconds)

    def top(self, count: int = 10) -> list[Op]:
        return sorted(self.ops, key=lambda op: -op.seconds)[:count]

    def share(self, basis: str) -> float:
        """Of the time, what is taken from this basis."""
        found = sum(op.seconds for op in self.ops if op.basis == basis)
        return found / self.seconds if self.seconds else 0.0


def peak(chip: Chip, dtype: str) -> float:
    """Of products, by XLA's name of the operands' dtype; without a figure it is bfloat16's."""
    return chip.flops.get(_DTYPES.get(dtype, torch.bfloat16), chip.peak)


def estimate(
    module: HloModule,
    chip: Chip,
    *,
    collectives: Sequence[Collective] = (),
    cost=None,
    model_flops: float | None = None,
) -> Estimate:
    """Time of one execution of a program on one device of its partitions.

    ``collectives`` are `collectives.of` the same module; ``cost`` is the compiler's count, which
    is only compared with; ``model_flops`` is one device's part.
    """
    simulation = Simulation(module, chip, collectives)
    seconds = simulation.run(module.entry, 1)
    flops: dict[str, int] = {}
    for op in simulation.ops:
        for dtype, number in op.flops.items():
            flops[dtype] = flops.get(dtype, 0) + number
    moved = sum(op.bytes for op in simulation.ops)
    made = Estimate(chip, seconds, simulation.ops, flops, moved, model_flops, ())
    notes = uncertain.sentences(made, module, collectives, cost, simulation)
    return dataclasses.replace(made, uncertain=notes)


class Moment:
    """Time on one device, and what runs beside the core: copies and collectives, each in a row."""

    def __init__(self):
        self.now = 0.0
        self.running: dict[int, tuple[float, Op] | None] = {}
        self._busy: dict[str, float] = {}

    def begin(self, key: int, unit: str, op: Op) -> None:
        end = max(self.now, self._busy.get(unit, 0.0)) + op.seconds / max(op.executions, 1)
        self._busy[unit], self.running[key] = end, (end, op)
        op.hidden, op.seconds = op.seconds, 0.0

    def wait(self, key: int) -> None:
        """Until it is done; what is waited for is the operation's own time."""
        begun = self.running.get(key)
        if begun is None:
            return
        end, op = begun
        waited = max(0.0, end - self.now)
        op.seconds += waited * op.executions
        op.hidden = max(0.0, op.hidden - waited * op.executions)
        self.now += waited


class Simulation:
    """One device that follows the schedule.

    Attributes:
      ops: what ran.
      guessed_loops: names of loops that run an unknown number of times, counted once.
      branches: names of the conditionals, of which the longest branch counts.
    """

    def __init__(self, module: HloModule, chip: Chip, collectives: Sequence[Collective]):
        self.module, self.chip, self.work = module, chip, Work(module)
        self.ops: list[Op] = []
        self.guessed_loops: list[str] = []
        self.branches: list[str] = []
        self._links: dict[int, float] = {}
        self._begins: dict[int, list[Collective]] = {}  # chains of fusions, by the first and ...
        self._ends: dict[int, list[Collective]] = {}  # ... by the last
        for one in collectives:
            if len(one.parts) > 1:
                self._begins.setdefault(one.parts[0], []).append(one)
                self._ends.setdefault(one.parts[-1], []).append(one)
            else:
                self._links[one.parts[0]] = self._links.get(one.parts[0], 0.0) + one.seconds

    def run(self, computation: Computation, times: int) -> float:
        """Seconds of one execution; notes the instructions with ``times`` executions."""
        at = Moment()
        for one in computation.instructions:
            if one.opcode == "while":
                at.now += self._loop(computation, one, times)
            elif one.opcode == "conditional":
                at.now += self._longest(one, times)
            elif one.opcode == "call":
                at.now += sum(self.run(inner, times) for inner in self.module.called(one))
            elif one.opcode.endswith("-start") or one.opcode in ("send", "recv"):
                unit = "memory" if one.opcode in _MEMORY_START else "links"
                at.begin(one.id, unit, self._note(computation, one, times))
            elif one.opcode.endswith("-update") and one.operands:
                at.running[one.id] = at.running.get(one.operands[0])
            elif one.opcode.endswith("-done") and one.operands:
                at.wait(one.operands[0])
            elif one.opcode not in FREE and one.target != "AllocateBuffer":
                self._step(computation, one, times, at)
        return at.now

    def _step(self, computation: Computation, one: Instruction, times: int, at: Moment) -> None:
        """An instruction that takes the core, and collectives that it begins or waits for."""
        for collective in self._begins.get(one.id, ()):
            at.begin(collective.parts[-1], "links", self._transfer(collective, computation, times))
        for collective in self._ends.get(one.id, ()):
            at.wait(collective.parts[-1])
        at.now += self._note(computation, one, times).seconds / max(times, 1)

    def _transfer(self, one: Collective, computation: Computation, times: int) -> Op:
        seconds = one.seconds * times
        name = f"{one.kind} of {one.name}"
        op = Op(
            name,
            one.kind,
            computation.name,
            "collective",
            times,
            None,
            seconds,
            0.0,
            0,
            {},
            LINKS,
            one.place,
        )
        self.ops.append(op)
        return op

    def _loop(self, computation: Computation, one: Instruction, times: int) -> float:
        loop = Loop(self.module, computation, one)
        if loop.trips is None:
            self.guessed_loops.append(one.name)
        trips = 1 if loop.trips is None else loop.trips
        if not trips:
            return self.run(loop.condition, times)
        body = self.run(loop.body, times * trips)
        return body * trips + self.run(loop.condition, times * (trips + 1)) * (trips + 1)

    def _longest(self, one: Instruction, times: int) -> float:
        self.branches.append(one.name)
        before, best, longest = self.ops, [], -1.0
        for branch in self.module.called(one):
            self.ops = []
            seconds = self.run(branch, times)
            if seconds > longest:
                best, longest = self.ops, seconds
        self.ops = before + best
        return max(longest, 0.0)

    def _note(self, computation: Computation, one: Instruction, times: int) -> Op:
        flops = self.work.flops(computation, one)
        moved = self.work.bytes(computation, one)
        seconds, basis = self._seconds(one, flops, moved)
        op = Op(
            *(one.name, one.opcode, computation.name, self._kind(one, flops)),
            *(times, one.estimated_cycles, seconds * times, 0.0, moved * times),
            {dtype: number * times for dtype, number in flops.items() if number},
            *(basis, source.of(self.work.origin(computation, one))),
        )
        self.ops.append(op)
        return op

    def _seconds(self, one: Instruction, flops: Mapping[str, int], moved: int) -> tuple[float, str]:
        if one.estimated_cycles is not None:
            return one.estimated_cycles / self.chip.clock, CYCLES
        if one.id in self._links:
            return self._links[one.id], LINKS
        if one.id in self._begins or one.id in self._ends:
            return 0.0, LINKS  # the transfer has an entry of its own
        given = find(one.config, "cost_estimate") if one.opcode == "custom-call" else None
        if isinstance(given, dict):
            arithmetic = float(given.get("flops", 0)) / self.chip.peak
            memory = float(given.get("bytes_accessed", moved)) / self.chip.hbm_bandwidth
            return max(arithmetic, memory), AUTHOR
        arithmetic = sum(number / peak(self.chip, dtype) for dtype, number in flops.items())
        return max(arithmetic, moved / self.chip.hbm_bandwidth), ROOFLINE

    def _kind(self, one: Instruction, flops: Mapping[str, int]) -> str:
        if one.id in self._links or kind_of(one):
            return "collective"
        if one.opcode == "fusion":
            return "convolution fusion" if any(flops.values()) else "fusion"
        if one.opcode == "custom-call":
            return "kernel" if one.target == "tpu_custom_call" else f"custom call {one.target}"
        return "copy" if one.opcode.startswith("copy") else one.opcode
