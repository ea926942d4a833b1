"""An optimised program as XLA hands it out, read from its protocol buffer.

`parse` takes an ``HloModuleProtoWithConfig`` or an ``HloModuleProto``. The field numbers are those
of xla/service/hlo.proto and xla/xla_data.proto. What is read is what estimating takes: shapes with
their layout on the device, the schedule, costs, places. Literals are known by their size, and by
their value where they are one integer. Text is `hlo_text.py`'s, counting `work.py`'s.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterator

from .groups import replica_groups
from .wire import Message

# PrimitiveType of xla_data.proto: its text form and bits.
_TYPES = {
    **{1: ("pred", 8), 2: ("s8", 8), 3: ("s16", 16), 4: ("s32", 32), 5: ("s64", 64)},
    **{6: ("u8", 8), 7: ("u16", 16), 8: ("u32", 32), 9: ("u64", 64), 10: ("f16", 16)},
    **{11: ("f32", 32), 12: ("f64", 64), 13: ("tuple", 0), 14: ("opaque", 0)},
    **{15: ("c64", 64), 16: ("bf16", 16), 17: ("token", 0), 18: ("c128", 128)},
    **{19: ("f8e5m2", 8), 20: ("f8e4m3fn", 8), 21: ("s4", 4), 22: ("u4", 4)},
    **{23: ("f8e4m3b11fnuz", 8), 24: ("f8e5m2fnuz", 8), 25: ("f8e4m3fnuz", 8)},
    **{26: ("s2", 2), 27: ("u2", 2), 28: ("f8e4m3", 8), 29: ("f8e3m4", 8)},
    **{30: ("s1", 1), 31: ("u1", 1), 32: ("f4e2m1fn", 4), 33: ("f8e8m0fnu", 8)},
}
HBM, VECTOR = 0, 1  # memory spaces of a layout: the device's, the core's own; others are tiny
# Literal fields with integers, by the type they are for; the 8 and 16 bit ones are bytes.
_INTEGERS = {"s32": 4, "s64": 5, "u32": 6, "u64": 7, "pred": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A tensor's type and its layout, or a tuple of shapes.

    Attributes:
      dtype: XLA's name: "bf16", "s32", "pred", "tuple", "token".
      dims: of the tensor.
      elements: of a tuple.
      minor_to_major: dimensions from the fastest to the slowest.
      tiles: of the layout, the outer first; on a TPU the outer one decides how much is padded.
      space: the memory space, `HBM` or another.
      bits: of one element.
    """

    dtype: str
    dims: tuple[int, ...] = ()
    elements: tuple[Shape, ...] = ()
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = HBM
    bits: int = 0

    @property
    def count(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """What it takes in memory, with the padding of its tiles; of a tuple, all its elements."""
        if self.dtype == "tuple":
            return sum(element.bytes for element in self.elements)
        return (math.prod(self._padded()) * self.bits + 7) // 8

    def _padded(self) -> list[int]:
        order = self.minor_to_major or tuple(reversed(range(len(self.dims))))
        sizes = [self.dims[d] for d in order]  # the fastest first
        for i, tile in enumerate(reversed(self.tiles[0]) if self.tiles and sizes else ()):
            if i < len(sizes) and tile > 0:
                sizes[i] = -(-sizes[i] // tile) * tile
        return sizes

    def leaves(self, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Shape]]:
        """Every tensor of it with its place in the tuples."""
        if self.dtype != "tuple":
            yield index, self
        for i, element in enumerate(self.elements):
            yield from element.leaves((*index, i))

    @property
    def hbm_bytes(self) -> int:
        return sum(leaf.bytes for _, leaf in self.leaves() if leaf.space == HBM)


@functools.lru_cache(maxsize=1 << 14)
def _shape(data: bytes) -> Shape:
    message = Message(data)
    dtype, bits = _TYPES.get(message.integer(2), (f"type{message.integer(2)}", 0))
    if dtype == "tuple":
        return Shape(dtype, elements=tuple(_shape(bytes(e)) for e in message.parts(4)))
    layout = message.message(5)
    return Shape(
        dtype=dtype,
        dims=tuple(message.integers(3)),
        minor_to_major=tuple(layout.integers(1)),
        tiles=tuple(tuple(tile.integers(1)) for tile in layout.messages(6)),
        space=layout.integer(8),
        bits=layout.integer(9) or bits,
    )


class Instruction:
    """One operation.

    Attributes:
      id, name, opcode: as XLA has them; ids are unique in the module.
      shape: of the result.
      operands: ids.
      called: ids of the computations it runs: fusion's, while's (body, condition), branches.
      op_name: what the program said of where it comes from, see `lowering/places.py`.
      source: ``file:line``, or "".
    """

    def __init__(self, message: Message, frames: list[str]):
        self.raw = message
        self.name = message.string(1)
        self.opcode = message.string(2)
        self.shape = _shape(bytes(message.data(3)))
        self.id = message.integer(35)
        self.operands = message.integers(36)
        self.called = message.integers(38)
        metadata = message.message(7)
        self.op_name = metadata.string(2)
        file, line, frame = metadata.string(3), metadata.integer(4), metadata.integer(15)
        self.source = f"{file}:{line}" if file else ""
        if not file and 0 < frame <= len(frames):
            self.source = frames[frame - 1]

    @functools.cached_property
    def config(self) -> dict:
        """The backend's notes; what is not JSON is under "text"."""
        text = self.raw.string(43)
        if not text:
            return {}
        try:
            found = json.loads(text)
        except ValueError:
            return {"text": text}
        return found if isinstance(found, dict) else {"value": found}

    @functools.cached_property
    def estimated_cycles(self) -> int | None:
        """The compiler's, of one execution; None where it has none."""
        if len(self.raw.data(43)) == 0:
            return None
        found = find(self.config, "estimated_cycles")
        # The compiler writes -1 (and its unsigned form) where its model has no answer.
        value = int(found) if found is not None and str(found).lstrip("-").isdigit() else -1
        return value if 0 <= value < 1 << 62 else None

    @property
    def parameter_number(self) -> int:
        return self.raw.integer(9)

    @property
    def tuple_index(self) -> int:
        return self.raw.integer(13)

    @property
    def fusion_kind(self) -> str:
        return self.raw.string(11)

    @property
    def direction(self) -> str:
        """Of a comparison."""
        return self.raw.string(63)

    @property
    def dimensions(self) -> tuple[int, ...]:
        return tuple(self.raw.integers(14))

    @property
    def channel(self) -> int | None:
        return self.raw.integer(26) or None

    @property
    def target(self) -> str:
        """Of a custom call."""
        return self.raw.string(28)

    @functools.cached_property
    def attributes(self) -> dict[str, str]:
        """Frontend attributes."""
        return self.raw.message(68).string_map(1)

    @functools.cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Of a collective, the devices that take part together; [] is all in one group."""
        return replica_groups(self.raw)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(source, target) of a permutation."""
        return [(pair.integer(1), pair.integer(2)) for pair in self.raw.messages(52)]

    @property
    def has_sharding(self) -> bool:
        return 40 in self.raw

    @functools.cached_property
    def aliases(self) -> dict[tuple[int, ...], int]:
        """Of a fusion or custom call: place in the result → operand number whose memory it has."""
        noted = {
            tuple(pair.integers(1)): pair.integer(2)
            for pair in self.raw.messages(74)
            if not pair.integers(3)
        }
        # The TPU's own note: one list of numbers that share memory, first operands, then results.
        places = [index for index, _ in self.shape.leaves()]
        lists = (find(self.config, "aliasing_operands") or {}).get("lists", ())
        for numbers in lists if self.opcode == "fusion" else ():
            shared = [int(number) for number in numbers.get("indices", ())]
            inputs = [number for number in shared if number < len(self.operands)]
            for number in shared:
                if inputs and 0 <= (at := number - len(self.operands)) < len(places):
                    noted[places[at]] = inputs[0]
        return noted

    @functools.cached_property
    def scalar(self) -> int | None:
        """The value of a constant that is one integer, else None."""
        if self.opcode != "constant" or self.shape.count != 1 or self.shape.dtype == "tuple":
            return None
        number = _INTEGERS.get(self.shape.dtype)
        values = self.raw.message(8).integers(number) if number else ()
        return values[0] if values else None

    @functools.cached_property
    def known_trips(self) -> int | None:
        """Of a while loop, if the compiler wrote it down."""
        found = find(self.config, "known_trip_count")
        if isinstance(found, dict):
            found = found.get("n")
        return int(found) if found is not None else None

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.name}>"


def find(config: dict, key: str):
    """The value of a key, wherever it is in nested objects."""
    if key in config:
        return config[key]
    for value in config.values():
        if isinstance(value, dict) and (found := find(value, key)) is not None:
            return found
    return None


class Computation:
    """Instructions in the order in which they run, or, in a fusion, of dependence."""

    def __init__(self, message: Message, order: dict[int, list[int]], frames: list[str]):
        self.name = message.string(1)
        self.id = message.integer(5)
        unordered = [Instruction(one, frames) for one in message.messages(2)]
        self.by_id = {one.id: one for one in unordered}
        ids = order.get(self.id)
        self.is_scheduled = ids is not None
        self.instructions = [self.by_id[i] for i in ids] if ids else unordered
        self.root = self.by_id[message.integer(6)]
        parameters = [one for one in unordered if one.opcode == "parameter"]
        self.parameters = sorted(parameters, key=lambda one: one.parameter_number)

    def operand(self, instruction: Instruction, number: int) -> Instruction:
        return self.by_id[instruction.operands[number]]

    @functools.cached_property
    def users(self) -> dict[int, list[Instruction]]:
        users: dict[int, list[Instruction]] = {}
        for one in self.instructions:
            for operand in dict.fromkeys(one.operands):
                users.setdefault(operand, []).append(one)
        return users

    def __repr__(self) -> str:
        return f"<computation {self.name}, {len(self.instructions)} instructions>"


class HloModule:
    """A program.

    Attributes:
      name: of the program.
      computations: by id.
      entry: the computation that runs.
      is_scheduled: whether the entry's order is the one in which the device runs it.
      aliases: place in the results → (parameter number, place in it) whose memory it takes over.
      partitions: the devices that share the program.
      replicas: how often all of it runs beside itself.
    """

    def __init__(self, message: Message, config: Message):
        self.name = message.string(1)
        frames = _frames(message.message(17))
        order = {
            entry.integer(1): entry.message(2).integers(1)
            for entry in message.message(7).messages(1)
        }
        made = [Computation(one, order, frames) for one in message.messages(3)]
        self.computations = {one.id: one for one in made}
        if message.integer(6) not in self.computations:
            raise ValueError("not an HLO module: it has no entry computation")
        self.entry = self.computations[message.integer(6)]
        self.is_scheduled = self.entry.is_scheduled
        self.aliases = {
            tuple(one.integers(1)): (one.integer(2), tuple(one.integers(3)))
            for one in message.message(8).messages(1)
        }
        assignment = message.message(15)
        self.replicas = max(1, config.integer(4), assignment.integer(1))
        self.partitions = max(1, config.integer(5), assignment.integer(2))

    def called(self, instruction: Instruction) -> list[Computation]:
        return [self.computations[i] for i in instruction.called]

    def loop(self, instruction: Instruction) -> tuple[Computation, Computation]:
        """(body, condition) of a while instruction, told apart by the condition's result."""
        first, second = self.called(instruction)
        return (second, first) if first.root.shape.dtype == "pred" else (first, second)

    def __repr__(self) -> str:
        return f"<HloModule {self.name}, {len(self.computations)} computations>"


def _frames(index: Message) -> list[str]:
    """``file:line`` of every frame of the stack frame index, which counts from 1."""
    files = index.strings(1)
    places = []
    for place in index.messages(3):
        file = place.integer(1)
        known = 0 < file <= len(files)
        places.append(f"{files[file - 1]}:{place.integer(3)}" if known else "")
    found = []
    for frame in index.messages(4):
        place = frame.integer(1)
        found.append(places[place - 1] if 0 < place <= len(places) else "")
    return found


def parse(data: bytes) -> HloModule:
    """Raises ValueError if the data is no HLO module."""
    try:
        outer = Message(data)
        # With its configuration it is a message of two messages, else it begins with its name.
        if 3 in outer and 2 in outer and 6 in outer:
            return HloModule(outer, Message(b""))
        return HloModule(outer.message(1), outer.message(2))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an HLO module: {error!r}") from error
