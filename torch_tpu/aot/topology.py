"""A TPU topology by its name, whether or not there is one.

`Topology("v6e:2x2")` asks libtpu, in the child process, which devices such a machine has. The name
is libtpu's: generation, colon, chips in each dimension of the torus.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re

from . import chips, worker

_NAME = re.compile(r"(v2|v3|v4|v5e|v5p|v5|v6e|tpu7x):(\d+(?:x\d+){1,2})")
EXAMPLES = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1", "tpu7x:4x4x4")


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of a topology: its PJRT id and kind, where its chip is, and which core it is."""

    id: int
    kind: str
    coords: tuple[int, ...]
    core: int


class Topology:
    """The devices of a TPU machine or pod slice, for compiling.

    ``name`` is like "v5e:2x2", "v6e:4x4", "tpu7x:2x2x1"; ``options`` are libtpu's own, such as
    ``chips_per_host_bounds=(1, 1, 1)`` (which a single chip, "v6e:1x1", gets by itself) or
    ``num_slices=2``. Raises ValueError for a name that is none, `CompilationError` for a topology
    that libtpu does not know, `PluginError` if libtpu is not installed.
    """

    def __init__(self, name: str, **options: worker.Option):
        matched = _NAME.fullmatch(name) if isinstance(name, str) else None
        if matched is None:
            raise ValueError(
                f"{name!r} is no TPU topology: write generation:chips, as {', '.join(EXAMPLES)}"
            )
        self.name = name
        self.bounds = tuple(int(n) for n in matched.group(2).split("x"))
        if math.prod(self.bounds) == 1:
            options.setdefault("chips_per_host_bounds", (1, 1, 1))
        self.options = options

    @functools.cached_property
    def _described(self) -> dict:
        return worker.shared().topology(self.name, self.options)

    @functools.cached_property
    def devices(self) -> tuple[Device, ...]:
        """In the order in which programs for several devices number them."""
        devices = []
        for fields in self._described["devices"]:
            more = fields["attributes"]
            coords, core = tuple(more.get("coords", ())), more.get("core_on_chip", 0)
            devices.append(Device(fields["id"], fields["kind"], coords, core))
        return tuple(devices)

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self.devices)

    @property
    def kind(self) -> str:
        return self.devices[0].kind

    @property
    def chip(self) -> chips.Chip:
        """The published figures; raises KeyError for a generation that has none here."""
        return chips.of_kind(self.kind)

    @property
    def memory_limit(self) -> int:
        """Bytes of HBM that a program may use on one device, by libtpu."""
        stated = self._described["attributes"]["device_memory_bytes_limit"]
        # On v4 that is of a chip, whose two devices have half each: libtpu refuses more.
        chip = chips.CHIPS.get(self.kind)
        return stated // chip.devices if chip and stated > 1.5 * chip.hbm_bytes else stated

    @property
    def compiler(self) -> str:
        """libtpu's version, in its own words."""
        return self._described["platform_version"]

    def compile(
        self, text: str, build_options: bytes, timeout: float | None = None
    ) -> tuple[dict, bytes, bytes]:
        """See `worker.Worker.compile`."""
        return worker.shared().compile(self.name, self.options, text, build_options, timeout)

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"Topology({self.name!r}{more})"


def as_topology(topology: str | Topology) -> Topology:
    return topology if isinstance(topology, Topology) else Topology(topology)
