"""A program compiled for devices that are not attached, and what the compiler knows about it.

`Executable` is the result of `compile.py`. Memory is the compiler's account; time is an estimate
(`estimate.py` says of what and how sure).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from . import hlo
from .capture import Captured
from .chips import Chip
from .topology import Topology


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of HBM on one device, as the compiler laid them out.

    Attributes:
      arguments, outputs: of the program's parameters and results.
      aliased: of the outputs, those that take the place of donated arguments.
      temporaries: of everything in between, at its largest.
      code: of the program itself.
      peak: the most that is in use at once, without the code.
      limit: what a program may use on the device.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int
    peak: int
    limit: int

    @property
    def needed(self) -> int:
        return self.peak + self.code

    @property
    def fits(self) -> bool:
        return self.needed <= self.limit

    @property
    def verdict(self) -> str:
        share = self.needed / self.limit
        return f"{'fits' if self.fits else 'does not fit'}: {share:.1%} of the HBM of a device"

    @classmethod
    def of(cls, stats: Mapping[str, int], limit: int) -> Memory:
        """From the fields of PJRT_Executable_GetCompiledMemoryStats."""
        arguments = stats["argument_size_in_bytes"]
        outputs, aliased = stats["output_size_in_bytes"], stats["alias_size_in_bytes"]
        temporaries = stats["temp_size_in_bytes"]
        # libtpu counts arguments, outputs and temporaries, each donated one once.
        peak = stats["peak_memory_in_bytes"] or arguments + outputs - aliased + temporaries
        code = stats["generated_code_size_in_bytes"]
        return cls(arguments, outputs, aliased, temporaries, code, peak, limit)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What the compiler counted, of one device: every loop body once."""

    flops: float
    bytes: float
    transcendentals: float

    @classmethod
    def of(cls, properties: Mapping[str, float]) -> Cost:
        wanted = ("flops", "bytes accessed", "transcendentals")
        return cls(*(properties.get(name, 0.0) for name in wanted))


class Executable:
    """A compiled program.

    Attributes:
      name: what it was called.
      topology: what it is compiled for.
      captured: the program that was compiled, with its parameters and results.
      memory: `Memory` of one device.
      cost: `Cost` by the compiler.
      fingerprint: of the executable, by the compiler; hexadecimal.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        captured: Captured,
        facts: Mapping,
        optimized: bytes,
        executable: bytes,
        seconds: float,
    ):
        self.name = name
        self.topology = topology
        self.captured = captured
        self.memory = Memory.of(facts["memory"], topology.memory_limit)
        self.cost = Cost.of(facts["cost"])
        self.fingerprint = facts["fingerprint"].encode("latin-1").hex()
        self.compile_seconds = seconds
        self._optimized = optimized
        self._executable = executable

    @property
    def chip(self) -> Chip:
        return self.topology.chip

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return self.captured.parameter_count

    @functools.cached_property
    def module(self) -> hlo.HloModule:
        """The optimised program."""
        return hlo.parse(self._optimized)

    def hlo(self) -> str:
        """The optimised program as text, with the PyTorch operator and line of each operation."""
        from . import hlo_text

        return hlo_text.text(self.module)

    @functools.cached_property
    def collectives(self) -> list:
        """What the devices tell one another; see `collectives.Collective`."""
        from . import collectives

        return collectives.of(self.module, self.chip, self.topology.devices)

    @functools.cached_property
    def estimate(self):
        """Time and utilisation; see `estimate.Estimate`."""
        from . import estimate

        return estimate.estimate(
            self.module,
            self.chip,
            collectives=self.collectives,
            cost=self.cost,
            model_flops=self.captured.flops / self.partitions,
        )

    @property
    def partitions(self) -> int:
        """How many devices share the program."""
        return self.captured.partitions

    def serialize(self) -> bytes:
        """The executable as PJRT serialised it, for `PJRT_Executable_DeserializeAndLoad` of the
        same libtpu on a machine that has the devices."""
        return self._executable

    def __repr__(self) -> str:
        return f"<Executable {self.name} for {self.topology.name}: {self.memory.verdict}>"
