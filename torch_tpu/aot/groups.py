"""Which devices take part in a collective together, in the forms that XLA writes it down.

A list of lists; a compact form, which is counting through a reshaped and transposed list of all
devices; or axes of a mesh. Field numbers are those of xla_data.proto and hlo.proto. How long it
takes them is `torus.py`'s.
"""

from __future__ import annotations

import math

import torch

from .wire import Message

_LISTS, _DEVICE_LIST, _IOTA, _MESH = 49, 87, 92, 93  # fields of HloInstructionProto


def replica_groups(instruction: Message) -> list[tuple[int, ...]]:
    """[] where the instruction says nothing: all devices are one group."""
    if _MESH in instruction:
        return _of_mesh(instruction.message(_MESH))
    if _IOTA in instruction:
        return _of_iota(instruction.message(_IOTA))
    if _DEVICE_LIST in instruction:
        listed = instruction.message(_DEVICE_LIST)
        if 2 in listed:
            return _of_iota(listed.message(2))
        if 1 in listed:
            return [tuple(group.integers(1)) for group in listed.messages(1)]
    return [tuple(group.integers(1)) for group in instruction.messages(_LISTS)]


def _of_iota(iota: Message) -> list[tuple[int, ...]]:
    """``[groups, size]<=[dims]T(permutation)``."""
    count, size = iota.integer(1), iota.integer(2)
    dims = iota.integers(3) or [count * size]
    order = iota.integers(4) or list(range(len(dims)))
    devices = torch.arange(math.prod(dims)).reshape(dims).permute(order)
    return [tuple(group) for group in devices.reshape(count, size).tolist()]


def _of_mesh(listed: Message) -> list[tuple[int, ...]]:
    """``mesh['x'=2,'y'=4] {'x'}``; of an axis also a part, ``'x':(1)2``: before it, its size."""
    mesh = listed.message(1)
    dims = [axis.integer(2) for axis in mesh.messages(1)]
    devices = mesh.integers(2) or list(range(math.prod(dims)))
    parts: list[tuple[int, bool]] = []  # every axis in pieces, and whether the group runs over it
    wanted = {axis.integer(1): axis for axis in listed.messages(2)}
    for number, size in enumerate(dims):
        parts += _pieces(size, wanted.get(number))
    chosen = [i for i, (_, taken) in enumerate(parts) if taken]
    others = [i for i, (_, taken) in enumerate(parts) if not taken]
    arranged = torch.tensor(devices).reshape([size for size, _ in parts])
    size = math.prod(parts[i][0] for i in chosen)
    return [tuple(g) for g in arranged.permute(others + chosen).reshape(-1, size).tolist()]


def _pieces(size: int, axis: Message | None) -> list[tuple[int, bool]]:
    if axis is None:
        return [(size, False)]
    if 2 not in axis:
        return [(size, True)]
    part = axis.message(2)
    before, taken = part.integer(1) or 1, part.integer(2) or size
    return [(before, False), (taken, True), (size // before // taken, False)]
