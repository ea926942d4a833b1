"""Reads the wire format of protocol buffers: numbered fields, without knowing any message.

XLA publishes no Python package for its messages. What the numbers mean is `hlo.py`'s to know.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Message:
    """The fields of one message, by number; those that are absent have proto3's defaults."""

    __slots__ = ("_fields",)

    def __init__(self, data: bytes | memoryview):
        """Raises ValueError if the data is no message."""
        self._fields: dict[int, list] = {}
        view, at = memoryview(data), 0
        while at < len(view):
            key, at = _varint(view, at)
            value, at = _value(view, at, key & 7)
            self._fields.setdefault(key >> 3, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def integer(self, number: int) -> int:
        """A signed integer, an enumeration or a truth value; the last one counts."""
        values = self._fields.get(number)
        return _signed(values[-1]) if values else 0

    def data(self, number: int) -> memoryview:
        values = self._fields.get(number)
        return values[-1] if values else memoryview(b"")

    def string(self, number: int) -> str:
        return bytes(self.data(number)).decode(errors="replace")

    def message(self, number: int) -> Message:
        return Message(self.data(number))

    def parts(self, number: int) -> list[memoryview]:
        """Repeated messages, not read yet."""
        return self._fields.get(number, [])

    def messages(self, number: int) -> list[Message]:
        return [Message(value) for value in self._fields.get(number, ())]

    def strings(self, number: int) -> list[str]:
        return [bytes(value).decode(errors="replace") for value in self._fields.get(number, ())]

    def integers(self, number: int) -> list[int]:
        """Repeated integers, packed or not."""
        numbers = []
        for value in self._fields.get(number, ()):
            if isinstance(value, int):
                numbers.append(_signed(value))
                continue
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                numbers.append(_signed(one))
        return numbers

    def string_map(self, number: int) -> dict[str, str]:
        """A ``map<string, string>``: entries of key and value."""
        return {entry.string(1): entry.string(2) for entry in self.messages(number)}


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ValueError("not a protocol buffer: a number does not end")
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _value(view: memoryview, at: int, kind: int) -> tuple[int | memoryview, int]:
    if kind == _VARINT:
        return _varint(view, at)
    if kind == _BYTES:
        size, at = _varint(view, at)
    elif kind in (_FIXED32, _FIXED64):
        size = 4 if kind == _FIXED32 else 8
    else:
        raise ValueError(f"not a protocol buffer: there is no wire type {kind}")
    value = view[at : at + size]
    if len(value) != size:
        raise ValueError("not a protocol buffer: it ends within a field")
    if kind == _BYTES:
        return value, at + size
    return struct.unpack("<I" if kind == _FIXED32 else "<Q", value)[0], at + size


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
