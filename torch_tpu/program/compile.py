"""Compiles StableHLO text with the options of this process.

Compile options are a serialized ``CompileOptionsProto`` (xla/pjrt/proto/compile_options.proto); the
few fields used are encoded by hand because XLA publishes no Python package for its protos.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from . import cache

_BUILD_OPTIONS, _PORTABLE, _OVERRIDES = 3, 4, 7  # fields of CompileOptionsProto
# Fields of ExecutableBuildOptionsProto.
_REPLICAS, _PARTITIONS, _SPMD, _DEVICES, _PROPAGATE_TO_OUTPUT = 4, 5, 6, 9, 12
_STRING, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4  # fields of OptionOverrideProto


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        byte, number = number & 0x7F, number >> 7
        out.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(out)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    return _varint(number << 3) + _varint(value)


def _override(value: bool | int | str) -> bytes:
    if isinstance(value, bool):
        return _field(_BOOL, int(value))
    if isinstance(value, int):
        return _field(_INT, value)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise TypeError(f"a compiler option is a bool, an int or a str, not a {kind}: {value!r}")
    return _field(_STRING, value.encode())


def compile_options(
    overrides: Mapping[str, bool | int | str] | None = None,
    partitions: int = 1,
    devices: Sequence[int] | None = None,
) -> bytes:
    """Options for a one-device program that may run on any device of the client, or for one that
    ``partitions`` devices share: those with the ids ``devices``, or else the first.

    ``overrides`` are XLA debug options by name, e.g. ``{"xla_dump_to": "/tmp/x"}``.
    """
    build = _field(_REPLICAS, 1) + _field(_PARTITIONS, partitions)
    if partitions == 1:
        encoded = _field(_BUILD_OPTIONS, build) + _field(_PORTABLE, 1)
    else:
        # A DeviceAssignmentProto of one replica. Results without a sharding get the partitioner's.
        chosen = range(partitions) if devices is None else devices[:partitions]
        places = b"".join(_field(3, _field(1, device)) for device in chosen)
        assignment = _field(1, 1) + _field(2, partitions) + places
        build += _field(_SPMD, 1) + _field(_DEVICES, assignment)
        encoded = _field(_BUILD_OPTIONS, build + _field(_PROPAGATE_TO_OUTPUT, b"\x01"))
    for name, value in (overrides or {}).items():
        pair = _field(1, name.encode()) + _field(2, _override(value))
        encoded += _field(_OVERRIDES, pair)
    return encoded


_CPU_OVERRIDES = {
    # XLA:CPU's own default makes `maximum(1, nan)` 1; TPUs and PyTorch propagate NaN.
    "xla_cpu_enable_fast_min_max": False,
    # XNNPACK packs the right operand of a large product once and knows it again by its address; a
    # weight that was updated in place (its memory donated) has the same address and other numbers.
    "xla_cpu_use_xnnpack": False,
}


@functools.cache
def default_options() -> bytes:
    """The options of this process's plugin."""
    return compile_options(_overrides())


def _overrides() -> Mapping[str, bool | int | str]:
    from torch_tpu import _core

    on_cpu = _core.device_info(0)["platform"] == "cpu"
    return _CPU_OVERRIDES if on_cpu else {}


def compile_text(
    text: str,
    name: str = "",
    why: Callable[[], str] | None = None,
    overrides: Mapping[str, bool | int | str] | None = None,
    located: Callable[[], str] | None = None,
):
    """A `torch_tpu._core.Executable` for a module; raises RuntimeError with XLA's message.

    ``name`` says what it is for and ``why``, if it is asked, why it was not there yet. Where it
    comes from is the business of cache.py. ``overrides`` are XLA options beside the plugin's own.
    ``located`` gives the text with the places its operations come from, if it has to be compiled.
    """
    options = compile_options({**_overrides(), **overrides}) if overrides else default_options()
    return cache.program(text, options, name, why, located)
