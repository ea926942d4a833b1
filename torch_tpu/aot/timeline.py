"""Live bytes of HBM along the schedule, which tensors they are, and where the peak is.

Read off the program as it is compiled: a buffer lives from the instruction that makes it to its
last use, arguments and results that are not donated throughout. The compiler's own assignment can
do better (it packs a result into an operand that ends there) or worse (fragmentation, alignment),
so `Timeline.difference` stands beside it. The peak that libtpu gives
counts the core's vector memory in some programs (docs/aot_estimates.md), so there are two peaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from . import source
from .hlo import HBM, VECTOR, Computation, HloModule, Instruction
from .work import Work

_Index = tuple[int, ...]
_SAME = {"bitcast", "opt-barrier", "add-dependency", "domain", "while", "copy-done", "async-update"}


@dataclasses.dataclass(eq=False)
class Buffer:
    """A tensor in HBM.

    Attributes:
      bytes: with its padding; 0 where it takes over memory that is counted already.
      name: of the instruction that makes it, or of the argument.
      kind: "argument", "output" or "temporary"; "inside" is what a loop needs while it runs.
      first, last: positions in the schedule between which it lives.
      place: PyTorch's operator, module and line.
    """

    bytes: int
    name: str
    kind: str
    first: int
    last: int
    place: source.Source
    shape: str = ""


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Live bytes after every instruction of the entry computation.

    Attributes:
      names: of the instructions.
      live: bytes at each.
      argument_bytes: of `live`, what arguments take throughout.
      peak_at: where most is live.
      largest: buffers that are live there, the largest first.
      peak_with_vector: the peak if vector memory counts too.
      compiler_peak: what the compiler says; None if unknown.
    """

    names: Sequence[str]
    live: Sequence[int]
    argument_bytes: int
    peak_at: int
    largest: Sequence[Buffer]
    peak_with_vector: int
    compiler_peak: int | None

    @property
    def peak(self) -> int:
        return self.live[self.peak_at] if self.live else 0

    @property
    def difference(self) -> float | None:
        """Of this peak from the compiler's, as a fraction of that."""
        return self.peak / self.compiler_peak - 1 if self.compiler_peak else None

    @property
    def difference_with_vector(self) -> float | None:
        """The same, with vector memory."""
        return self.peak_with_vector / self.compiler_peak - 1 if self.compiler_peak else None


def of(
    module: HloModule, names: Sequence[str] = (), compiler_peak: int | None = None, count: int = 12
) -> Timeline:
    """``names`` are of the parameters, in order, for people."""
    work = Work(module)
    walk = _Walk(module, module.entry, work, names)
    both = _Walk(module, module.entry, work, names, frozenset({HBM, VECTOR})).peak()
    live = walk.live()
    peak_at = max(range(len(live)), key=live.__getitem__, default=0)
    there = [b for b in walk.buffers if b.first <= peak_at <= b.last and b.bytes]
    largest = sorted(there, key=lambda b: -b.bytes)[:count]
    arguments = sum(b.bytes for b in walk.buffers if b.kind == "argument")
    order = [one.name for one in module.entry.instructions]
    return Timeline(order, live, arguments, peak_at, largest, both, compiler_peak)


class _Walk:
    """Buffers of one computation; of an inner one only what comes on top of its operands."""

    def __init__(
        self,
        module: HloModule,
        computation: Computation,
        work: Work,
        names: Sequence[str] = (),
        spaces: frozenset[int] = frozenset({HBM}),
    ):
        self.module, self.computation, self.work, self.names = module, computation, work, names
        self.spaces = spaces
        self.is_entry = computation is module.entry
        self.buffers: list[Buffer] = []
        self.held: dict[int, dict[_Index, Buffer]] = {}
        for at, one in enumerate(computation.instructions):
            for operand in one.operands:
                for buffer in self.held.get(operand, {}).values():
                    buffer.last = max(buffer.last, at)
            self.held[one.id] = self._made(one, at)
            self._inside(one, at)
        self._results()

    def live(self) -> list[int]:
        """Bytes at every position."""
        change = [0] * (len(self.computation.instructions) + 1)
        for buffer in self.buffers:
            change[buffer.first] += buffer.bytes
            change[buffer.last + 1] -= buffer.bytes
        total, live = 0, []
        for step in change[:-1]:
            total += step
            live.append(total)
        return live

    def peak(self) -> int:
        return max(self.live(), default=0)

    def _new(self, one: Instruction, at: int, index: _Index, shape) -> Buffer:
        size = shape.bytes if shape.space in self.spaces else 0
        kind, name, last = "temporary", one.name, at
        if one.opcode == "constant":
            size = 0  # part of the program's code
        if one.opcode == "parameter":
            kind, last = "argument", len(self.computation.instructions) - 1
            number = one.parameter_number
            name = self.names[number] if number < len(self.names) else one.name
            size = size if self.is_entry else 0
        dims = ",".join(map(str, shape.dims))
        place = source.of(self.work.main(one))
        buffer = Buffer(size, name, kind, 0 if kind == "argument" else at, last, place)
        buffer.shape = f"{shape.dtype}[{dims}]"
        self.buffers.append(buffer)
        return buffer

    def _made(self, one: Instruction, at: int) -> dict[_Index, Buffer]:
        """The buffers of an instruction's result, those it shares among them."""
        shared = self._shared(one)
        return {
            index: shared[index] if index in shared else self._new(one, at, index, shape)
            for index, shape in one.shape.leaves()
        }

    def _shared(self, one: Instruction) -> Mapping[_Index, Buffer]:
        first = self.held.get(one.operands[0], {}) if one.operands else {}
        if one.opcode == "tuple":
            parts = [self.held.get(operand, {}) for operand in one.operands]
            return {(i, *index): b for i, part in enumerate(parts) for index, b in part.items()}
        if one.opcode == "get-tuple-element":
            return {index[1:]: b for index, b in first.items() if index[0] == one.tuple_index}
        if one.opcode in ("copy-start", "slice-start"):
            return {(1,): first[()]} if () in first else {}
        if one.opcode == "copy-done" or one.opcode == "slice-done":
            return {(): first[(0,)]} if (0,) in first else first
        if one.opcode.endswith("-done"):
            # Most start operations have (operands, results, ...); an all-reduce has its result.
            second = {index[1:]: b for index, b in first.items() if index[:1] == (1,)}
            return second or first
        if one.opcode.endswith("-start"):
            return self._operands_of_start(one)
        if one.opcode in _SAME:
            return first
        if one.opcode == "dynamic-update-slice":
            return first
        if one.opcode in ("fusion", "custom-call"):
            places = {**self._carried(one), **one.aliases}
            pairs = ((i, self.held.get(one.operands[n], {})) for i, n in places.items())
            return {index: held[()] for index, held in pairs if () in held}
        return {}

    def _carried(self, one: Instruction) -> Mapping[_Index, int]:
        """Of a fusion that hands a running collective on, result → operand of the same memory.

        The collective's state goes in and out through a custom call, in one order.
        """
        inner = self.module.called(one)[0] if one.opcode == "fusion" else None
        if inner is None or inner.root.opcode != "tuple":
            return {}
        found, taken = {}, set()
        for at, number in enumerate(inner.root.operands):
            element = inner.by_id[number]
            if element.opcode == "parameter":
                found[(at,)] = element.parameter_number
                taken.add(element.parameter_number)
        for at, number in enumerate(inner.root.operands):
            element = inner.by_id[number]
            source_of = inner.operand(element, 0) if element.operands else element
            if element.opcode != "get-tuple-element" or source_of.opcode != "custom-call":
                continue
            operands = (inner.by_id[i] for i in source_of.operands)
            same = [
                each.parameter_number
                for each in operands
                if each.opcode == "parameter" and each.shape == element.shape
            ]
            free = [n for n in same if n not in taken]
            if free:
                found[(at,)] = free[0]
                taken.add(free[0])
        return found

    def _operands_of_start(self, one: Instruction) -> Mapping[_Index, Buffer]:
        shape, shared = one.shape, {}
        if len(shape.elements) < 2:
            return shared
        for i, operand in enumerate(one.operands):
            for index, buffer in self.held.get(operand, {}).items():
                nested = shape.elements[0].dtype == "tuple"
                shared[(0, i, *index) if nested else (0, *index)] = buffer
        return shared

    def _inside(self, one: Instruction, at: int) -> None:
        """What loops, branches and calls need in between, beside their operands and results."""
        if one.opcode not in ("while", "conditional", "call"):
            return
        inner = (
            _Walk(self.module, c, self.work, spaces=self.spaces) for c in self.module.called(one)
        )
        size = max((walk.peak() for walk in inner), default=0)
        if size:
            place = source.of(one)
            self.buffers.append(Buffer(size, f"inside {one.name}", "inside", at, at, place))

    def _results(self) -> None:
        end = len(self.computation.instructions) - 1
        for index, buffer in self.held[self.computation.root.id].items():
            if buffer.kind == "argument":
                continue
            # The caller hands memory for results in before the program starts.
            buffer.kind, buffer.first, buffer.last = "output", 0, end
            if not self.is_entry or index in self.module.aliases:
                buffer.bytes = 0
