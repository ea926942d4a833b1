"""How long a collective takes on a torus of chips, by bandwidth alone (docs/aot_estimates.md).

Which collectives a program has is `collectives.py`'s to find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .chips import Chip


class Coordinates:
    """Where devices are on the torus, and how long a collective over a group of them takes."""

    def __init__(self, devices: Sequence, chip: Chip):
        self.chip = chip
        self.places = [(tuple(device.coords), device.core) for device in devices]
        coords = [place for place, _ in self.places]
        self.sizes = [max(axis) - min(axis) + 1 for axis in zip(*coords, strict=True)]

    def links(self, axis: int, length: int) -> int:
        """Of one chip along an axis, in use by a group that spans ``length`` chips of it.

        A ring has two, a line one. Rings exist where the group spans the whole axis and the axis is
        long enough to be closed: 4 chips where links go three ways, 16 where they go two ways.
        """
        closed = 4 if self.chip.ici_links > 4 else 16
        return 2 if length == self.sizes[axis] and length >= closed else 1

    def seconds(
        self, kind: str, size: int, groups: Sequence[tuple[int, ...]], count: int
    ) -> tuple[float, str]:
        """(time of one collective over ``size`` bytes, the axes that a group spans)."""
        if count < 2 or not groups:
            return 0.0, "one device"
        if any(device >= len(self.places) for device in groups[0]):
            bandwidth = self.chip.ici_bandwidth
            return _moved(kind, size, count) / bandwidth, "unknown: as on one link"
        if kind == "collective-permute":
            hops = max(self._distance(*pair) for pair in groups)
            rate = self.chip.ici_bandwidth / self.chip.devices
            return size * max(hops, 1) / rate, f"up to {hops} hops" if hops else "chip"
        return self._over_axes(kind, size, groups[0])

    def _over_axes(self, kind: str, size: int, group: tuple[int, ...]) -> tuple[float, str]:
        chips = {self.places[device][0] for device in group}
        whole = len(group) > len(chips)  # both devices of a chip take part
        everything = self.chip.ici_bandwidth * self.chip.ici_links
        if len(chips) == 1:
            return _moved(kind, size, len(group)) / everything, "chip"
        lengths = [len(set(axis)) for axis in zip(*chips, strict=True)]
        spanned = [axis for axis, length in enumerate(lengths) if length > 1]
        over = "·".join(f"{'xyz'[axis]}{lengths[axis]}" for axis in spanned)
        regular = math.prod(lengths) == len(chips)
        links = {axis: self.links(axis, lengths[axis]) for axis in spanned}
        rate = self.chip.ici_bandwidth / (1 if whole else self.chip.devices)
        if kind.endswith("all-to-all"):
            # Half of what each holds crosses the middle of the longest axis, half of it each way.
            longest = max(spanned, key=lambda axis: lengths[axis] / links[axis])
            seconds = size * lengths[longest] / 4 / (links[longest] * rate)
        else:
            in_use = sum(links.values()) if regular else 1
            seconds = _moved(kind, size, len(chips)) / (rate * in_use)
        more = (" +cores" if whole else "") + ("" if regular else " (irregular: one link)")
        return seconds, over + more

    def _distance(self, first: int, second: int) -> int:
        total = 0
        ends = zip(self.places[first][0], self.places[second][0], strict=True)
        for axis, (a, b) in enumerate(ends):
            straight = abs(a - b)
            ring = self.links(axis, self.sizes[axis]) == 2
            total += min(straight, self.sizes[axis] - straight) if ring else straight
        return total


def _moved(kind: str, size: int, count: int) -> float:
    """Bytes that pass each device's link in a ring of ``count``."""
    if kind == "all-reduce":
        return 2 * size * (count - 1) / count
    if kind.endswith("all-to-all"):
        return size * count / 4
    return size * (count - 1) / count if kind != "collective-permute" else size
