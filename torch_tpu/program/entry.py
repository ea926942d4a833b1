"""The file of one cached program: how it is written, read and checked.

    magic | SHA-256 of all that follows | length of the metadata | metadata as JSON | executable

The executable is what PJRT serialised, deflated: at level 1 that halves it and costs 0.03 ms per
program to undo. PJRT plugins trust what they are given, so nothing reaches one that does not have
its digest and the key that was asked for. Not here: where files lie (store.py, remote.py).
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"torchtpu-program-1\n"
_LENGTH = struct.Struct("<I")
_DIGEST = hashlib.sha256().digest_size
_HEAD = len(MAGIC) + _DIGEST
_MOST_METADATA = 1 << 20
_FIELDS = {"key": str, "name": str, "milliseconds": float, "created": float, "made_for": dict}


class CorruptEntry(ValueError):
    """A file that is not a whole entry, or the entry of another key."""


@dataclass(frozen=True)
class Entry:
    """A cached program.

    Attributes:
      key: what it is found by (hexadecimal).
      executable: the bytes that PJRT serialised.
      name: what was compiled, for people.
      milliseconds: how long compiling took.
      created: when, in seconds since 1970.
      made_for: the compiler and machine, as `identity.summary` puts it.
    """

    key: str
    executable: bytes
    name: str
    milliseconds: float
    created: float
    made_for: dict

    def encode(self) -> bytes:
        metadata = json.dumps({name: getattr(self, name) for name in _FIELDS}).encode()
        body = _LENGTH.pack(len(metadata)) + metadata + zlib.compress(self.executable, 1)
        return MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes, key: str) -> Entry:
    """The entry of ``key`` in a file's contents; raises CorruptEntry saying what is wrong."""
    if not data.startswith(MAGIC):
        raise CorruptEntry("not a cached program of this version of torch_tpu")
    body = data[_HEAD:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : _HEAD]:
        raise CorruptEntry("truncated or damaged")
    fields, end = _metadata(body)
    if fields["key"] != key:
        raise CorruptEntry(f"the program of another key, {fields['key']}")
    try:
        executable = zlib.decompress(body[end:])
    except zlib.error as error:
        raise CorruptEntry("its executable cannot be inflated") from error
    return Entry(executable=executable, **fields)


def read_metadata(file: BinaryIO) -> dict:
    """The metadata at the head of an open file, without checking the executable behind it."""
    head = file.read(_HEAD + _LENGTH.size)
    if not head.startswith(MAGIC) or len(head) < _HEAD + _LENGTH.size:
        raise CorruptEntry("not a cached program of this version of torch_tpu")
    (length,) = _LENGTH.unpack(head[_HEAD:])
    return _metadata(head[_HEAD:] + file.read(min(length, _MOST_METADATA)))[0]


def _metadata(body: bytes) -> tuple[dict, int]:
    """The metadata at the start of a body, and where it ends."""
    try:
        (length,) = _LENGTH.unpack_from(body)
        end = _LENGTH.size + length
        fields = json.loads(body[_LENGTH.size : end])
    except (struct.error, ValueError) as error:
        raise CorruptEntry("its metadata cannot be read") from error
    if not isinstance(fields, dict) or {n: type(v) for n, v in fields.items()} != _FIELDS:
        raise CorruptEntry("its metadata cannot be read")
    return fields, end
