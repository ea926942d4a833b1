"""What is published about each TPU generation, per PJRT device, and where.

Rates are peaks. Figures that Google publishes for a chip are divided by its number of devices
(two on v4 and TPU7x as libtpu's topologies count them, one on the others). libtpu states neither a
clock nor a speed: `clock` is derived, as said at the field, and where it rests on a guess the field
is named in `guessed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

_DOCS = "https://cloud.google.com/tpu/docs/"


@dataclasses.dataclass(frozen=True)
class Chip:
    """One PJRT device of a generation.

    Attributes:
      name: of the generation, as topologies spell it.
      kind: PJRT's device kind.
      devices: PJRT devices of one chip.
      flops: peak multiply-adds counted as two, per second, by the dtype of the operands.
      hbm_bytes: memory, as published; what a program may use is the topology's to say.
      hbm_bandwidth: bytes per second.
      clock: cycles per second of the unit that libtpu counts ``estimated_cycles`` in: the published
        peak divided by the flop per cycle of the matrix units (v4, v5e, v5p: number of units x
        128 x 128 x 2; v6e, TPU7x: 524288, chosen because it makes a plausible clock).
      ici_bandwidth: bytes per second of one link in one direction.
      ici_links: of the chip, shared by its devices; two for each dimension of the torus.
      sources: field → where its figure is published.
      guessed: fields that are not derived from published figures alone.
    """

    name: str
    kind: str
    devices: int
    flops: Mapping[torch.dtype, float]
    hbm_bytes: float
    hbm_bandwidth: float
    clock: float
    ici_bandwidth: float
    ici_links: int
    sources: Mapping[str, str]
    guessed: frozenset[str] = frozenset()

    @property
    def peak(self) -> float:
        """Of bfloat16, by which model FLOPs utilisation is usually given."""
        return self.flops[torch.bfloat16]


def _chip(
    name: str,
    kind: str,
    page: str,
    bf16: float,
    memory: float,
    bandwidth: float,
    ici: float,
    links: int,
    clock: float,
    *,
    devices: int = 1,
    int8: float | None = None,
    fp8: float | None = None,
    guessed: frozenset[str] = frozenset(),
) -> Chip:
    """From figures of a whole chip: TFLOP/s, GB, GB/s, and GB/s over all links, both directions."""
    rates = {torch.bfloat16: bf16, torch.float16: bf16, torch.int8: int8, torch.float8_e4m3fn: fp8}
    return Chip(
        name=name,
        kind=kind,
        devices=devices,
        flops={dtype: rate * 1e12 / devices for dtype, rate in rates.items() if rate},
        hbm_bytes=memory * 1e9 / devices,
        hbm_bandwidth=bandwidth * 1e9 / devices,
        clock=clock,
        ici_bandwidth=ici * 1e9 / links / 2,
        ici_links=links,
        sources=dict.fromkeys(("flops", "hbm_bytes", "hbm_bandwidth", "ici_bandwidth"), page),
        guessed=guessed,
    )


_GUESS = frozenset({"clock"})
# The tables of the pages: peak TFLOP/s, GB of HBM and GB/s, GB/s of ICI (all of a chip).
CHIPS = {
    chip.kind: chip
    for chip in (
        _chip("v4", "TPU v4", _DOCS + "v4", 275, 32, 1200, 600, 6, 1.05e9, devices=2),
        _chip("v5e", "TPU v5 lite", _DOCS + "v5e", 197, 16, 819, 400, 4, 1.5e9, int8=393),
        _chip("v5p", "TPU v5", _DOCS + "v5p", 459, 95, 2765, 1200, 6, 1.75e9, int8=918),
        _chip(
            *("v6e", "TPU v6 lite", _DOCS + "v6e", 918, 32, 1638, 800, 4, 1.75e9),
            int8=1836,
            fp8=918,
            guessed=_GUESS,
        ),
        _chip(
            *("tpu7x", "TPU7x", _DOCS + "tpu7x", 2307, 192 * 1.024**3, 7380, 1200, 6, 2.2e9),
            devices=2,
            fp8=4614,
            guessed=_GUESS,
        ),
    )
}


def of_kind(kind: str) -> Chip:
    """Raises KeyError, with the kinds that are known, for one that is not."""
    try:
        return CHIPS[kind]
    except KeyError:
        known = ", ".join(CHIPS)
        raise KeyError(
            f"no published figures of {kind!r} are in chips.py, only of {known}"
        ) from None
