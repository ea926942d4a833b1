"""Optimised programs that are kept in data/, and the chip and devices they were compiled for."""

from __future__ import annotations

import functools
import gzip
import json
import pathlib

from torch_tpu.aot import chips, hlo
from torch_tpu.aot.topology import Device

DATA = pathlib.Path(__file__).parent / "data"
CHIP = chips.of_kind("TPU v5 lite")
DEVICES = tuple(Device(i, CHIP.kind, (i % 2, i // 2, 0), 0) for i in range(4))  # v5e:2x2


def raw(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.hlo.gz").read_bytes())


@functools.cache
def module(name: str) -> hlo.HloModule:
    return hlo.parse(raw(name))


def facts(name: str) -> dict:
    """What the compiler said beside the program."""
    return json.loads((DATA / f"{name}.json").read_text())
