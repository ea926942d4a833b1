"""Cached programs on the local disk: one file each, for any number of processes and threads.

Files are written beside their place and renamed into it, so a reader sees all of a file or nothing.
There is no index: the directory is the state. A file's modification time is when it was last used;
when the directory outgrows its bound, the least recently used files go. Contents are opaque here
(entry.py knows them), and callers handle the OSErrors.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

KEY = re.compile(r"[0-9a-f]{64}")
# The note of the directory's size: bytes, and when they were measured, in seconds since 1970.
_NOTE = re.compile(r" *(\d{1,18}) +(\d{1,18})\n", re.ASCII)
# The note may be wrong a little (files that were replaced or removed), so it is made anew each day.
_REMEASURE = 86400
# Evicting goes below the bound by this much, so that it is not due again at the next write.
_ROOM = 0.1
# A writer that died leaves its temporary file; none is alive for so many seconds.
_STALE = 3600


def write_atomically(root: Path, path: Path, data: bytes) -> None:
    """Writes a file below ``root`` that appears whole or not at all."""
    # Programs are native code: unless the directory is there already, nobody else may write to it.
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    # Not the tempfile module: its files are private, and a directory may be shared by a team.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the error that is raised matters, not this one
            os.unlink(temporary)
        raise


@dataclass(frozen=True)
class File:
    """One cached program as the directory shows it."""

    key: str
    path: Path
    size: int
    used: float


class Pruned(NamedTuple):
    """The files that were removed, and the bytes of those that are left."""

    removed: list[File]
    left: int


class DiskStore:
    """A bounded directory of files by key."""

    source = "disk"

    def __init__(self, folder: Path, limit: int):
        self.folder = folder
        self.limit = limit
        self._lock = threading.Lock()
        self._unnoted = 0  # bytes written that the noted size does not have yet

    def path(self, key: str) -> Path:
        return self.folder / "programs" / key[:2] / key

    def read(self, key: str) -> bytes | None:
        """The contents of a file, which is now the most recently used one; None without it."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        with contextlib.suppress(OSError):  # a directory that may only be read serves as well
            os.utime(path)
        return data

    def write(self, key: str, data: bytes) -> int:
        """Keeps ``data``; returns how many files were evicted for it."""
        if len(data) > self.limit:
            return 0
        write_atomically(self.folder, self.path(key), data)
        with self._lock:
            self._unnoted += len(data)
            return self._account()

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Holds the right to compile a program; another process that wants it waits.

        The kernel gives the right back when a process dies. Where nothing may be written, or locks
        are not known, every process compiles for itself.
        """
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                folder = self.folder / "building"
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Some files that stay, rather than one of each key that somebody has to remove.
                path = folder / key[:3]
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def _account(self) -> int:
        """Adds what was written to the directory's noted size; evicts when that is too much.

        The note is shared by all processes, so that none has to look at every file before it can
        write one. Who finds another process at it comes back at the next write.
        """
        descriptor = os.open(self.folder / "size", os.O_RDWR | os.O_CREAT, 0o666)
        with open(descriptor, "r+") as note:
            try:
                fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            noted = _NOTE.match(note.read(64))
            total, measured = map(int, noted.groups()) if noted else (0, 0)
            total, evicted, now = total + self._unnoted, 0, int(time.time())
            if total > self.limit or not 0 <= now - measured < _REMEASURE:
                pruned = self.prune(self.limit, room=_ROOM)
                total, measured, evicted = pruned.left, now, len(pruned.removed)
            self._unnoted = 0
            # In place and not truncated: ext4 flushes a file to the disk that was emptied first.
            note.seek(0)
            note.write(f"{total:18} {measured:18}\n")
        return evicted

    def files(self) -> Iterator[File]:
        """All files. Removes what writers that died left behind."""
        oldest = time.time() - _STALE
        for folder in _scan(self.folder / "programs"):
            for item in _scan(folder.path):
                try:
                    status = item.stat(follow_symlinks=False)
                    if KEY.fullmatch(item.name):
                        yield File(item.name, Path(item.path), status.st_size, status.st_mtime)
                    elif item.name.endswith(".tmp") and status.st_mtime < oldest:
                        os.unlink(item.path)
                except FileNotFoundError:
                    continue  # another process was quicker

    def prune(
        self, limit: int | None = None, before: float | None = None, room: float = 0.0
    ) -> Pruned:
        """Removes files last used before a time; if more than ``limit`` bytes are left, the oldest.

        ``room``: a share of the limit to free in addition, if anything has to be removed.
        """
        files = sorted(self.files(), key=lambda file: file.used)
        left = sum(file.size for file in files)
        goal = math.inf if limit is None or left <= limit else limit * (1 - room)
        removed = []
        for file in files:
            if left <= goal and (before is None or file.used >= before):
                break
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                os.unlink(file.path)
            left -= file.size
            removed.append(file)
        return Pruned(removed, left)


def _scan(folder: str | Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
