"""The compilation cache: this process, the disk, a shared URL, and at last the compiler.

`program` is the only way to an executable. It goes through the levels in that order and tells every
level that did not have the program. Keys are described at `content_key` and in identity.py.
Whatever is wrong with a level (a damaged file, a full disk, a network that is down) costs time and
a `CacheWarning`, never the program. Not here: what is in a file (entry.py), and the dispatch cache,
which maps operator calls to programs (csrc/dispatch).
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import _core, config, errors
from . import entry, identity
from .remote import RemoteStore
from .store import DiskStore

# Programs that this process keeps although nobody may be using them any more.
_MOST_IN_MEMORY = 1024

_NAME = re.compile(r"\Amodule @\S+")

_lock = threading.Lock()
_told: set[str] = set()
_counts: dict[str, int | float] = dict.fromkeys(
    "programs memory_hits disk_hits remote_hits misses writes remote_writes evictions errors "
    "unserializable bytes_read bytes_written compile_ms load_ms".split(),
    0,
)


def stats() -> dict[str, int | float]:
    """What the levels did so far in this process; docs/cache.md says what each number means."""
    with _lock:
        return dict(_counts)


def _count(**amounts: float) -> None:
    with _lock:
        for name, amount in amounts.items():
            _counts[name] += amount


def _trouble(level: str, message: str) -> None:
    """Counts an error and warns about the first one of a level."""
    _count(errors=1)
    with _lock:
        if level in _told:
            return
        _told.add(level)
    warnings.warn(
        f"torch_tpu's compilation cache: {level}: {message}. Programs are compiled all the same; "
        "torch.tpu.cache_stats() counts what goes wrong from here on.",
        errors.CacheWarning,
        stacklevel=2,
    )


# ---- keys ----------------------------------------------------------------------------------


def content_key(text: str, options: bytes) -> str:
    """Digest of a module and its compile options.

    The module's name is left out: it tells people which operator this was, and programs of several
    operators are equal without it.
    """
    text = _NAME.sub("module @program", text, count=1)
    return hashlib.sha256(b"%d\n" % len(options) + options + text.encode()).hexdigest()


def file_key(content: str, facts: dict) -> str:
    """Digest of a program for the compiler and machine that ``facts`` describe."""
    return hashlib.sha256(f"{content}\n{identity.digest(facts)}".encode()).hexdigest()


# ---- levels --------------------------------------------------------------------------------


class Memory:
    """The last programs of this process. Threads that want one that is being built wait for it."""

    def __init__(self, most: int):
        self.most = most
        self._lock = threading.Lock()
        self._programs: OrderedDict[str, object] = OrderedDict()
        self._building: dict[str, threading.Event] = {}

    def find_or_build(self, key: str, build: Callable[[], object]) -> tuple[object, bool]:
        """The program of ``key``, and whether it was there."""
        while True:
            with self._lock:
                if key in self._programs:
                    self._programs.move_to_end(key)
                    return self._programs[key], True
                other = self._building.get(key)
                if other is None:
                    self._building[key] = threading.Event()
                    break
            other.wait()
        try:
            program = build()
            with self._lock:
                self._programs[key] = program
                while len(self._programs) > self.most:
                    self._programs.popitem(last=False)
        finally:
            with self._lock:
                self._building.pop(key).set()
        return program, False

    def clear(self) -> None:
        with self._lock:
            self._programs.clear()


memory = Memory(_MOST_IN_MEMORY)


@dataclass
class Levels:
    """What lies beyond this process. A level that cannot be used is None."""

    disk: DiskStore | None
    remote: RemoteStore | None

    @property
    def present(self) -> list[DiskStore | RemoteStore]:
        return [level for level in (self.disk, self.remote) if level is not None]

    def write_disk(self, key: str, data: bytes) -> None:
        if self.disk is None:
            return
        try:
            evicted = self.disk.write(key, data)
        except OSError as error:
            _trouble("disk", f"cannot write to {self.disk.folder}: {error}")
            return
        _count(writes=1, bytes_written=len(data), evictions=evicted)

    def write_remote(self, key: str, data: bytes) -> None:
        if self.remote is not None:
            self.remote.write(key, data)

    def read(self, level: DiskStore | RemoteStore, key: str) -> bytes | None:
        try:
            return level.read(key)
        except OSError as error:
            _trouble(level.source, f"cannot read: {error}")
            return None


def levels() -> Levels:
    """The levels that the environment asks for now."""
    if not config.cache_enabled() or "xla_dump" in str(config.compiler_flags()):
        return Levels(None, None)  # who wants dumps of the compiler wants it to run
    return _levels(config.cache_directory(), config.cache_size(), config.cache_url())


@functools.lru_cache(maxsize=8)
def _levels(folder: Path | None, size: int, url: str) -> Levels:
    if folder is None:
        _trouble("disk", "this user has no home directory; set TORCH_TPU_CACHE_DIR")
    disk = folder and DiskStore(folder, size)
    return Levels(disk, _remote(url) if url else None)


def _remote(url: str) -> RemoteStore | None:
    try:
        return RemoteStore(
            url,
            failed=functools.partial(_trouble, f"TORCH_TPU_CACHE_URL={url}"),
            written=lambda size: _count(remote_writes=1, bytes_written=size),
        )
    except Exception as error:  # noqa: BLE001 - a protocol's client may raise anything when set up
        _trouble(f"TORCH_TPU_CACHE_URL={url}", f"{error}")
        return None


def flush(seconds: float = 60.0) -> bool:
    """Waits until what was compiled is at the shared URL; False if it is not there by then."""
    remote = levels().remote
    return remote is None or remote.flush(seconds)


# ---- the way to a program ------------------------------------------------------------------


def program(
    text: str,
    options: bytes,
    name: str,
    why: Callable[[], str] | None = None,
    located: Callable[[], str] | None = None,
):
    """The `torch_tpu._core.Executable` of a module; raises RuntimeError with XLA's message.

    ``name`` says what it is for. ``why`` says why it had to be built, when somebody wants to know.
    ``located`` gives the text that is compiled: the same with the places that operations come from
    (lowering/places.py). Of several programs that differ there only, the first is everybody's.
    """
    content = content_key(text, options)
    story: list[str] = []

    def build():
        found, source, took = _build(content, located or (lambda: text), options, name)
        came = f"loaded {name} from {source}" if source else f"compiled {name}"
        story.append(f"{came} in {took:.1f} ms")
        return found

    found, hit = memory.find_or_build(content, build)
    _count(**({"memory_hits": 1} if hit else {"programs": 1}))
    if "compile" in config.log_topics():
        said = f"found a program equal to {name} in memory" if hit else story[0]
        reason = f" ({reason})" if why is not None and (reason := why()) else ""
        print(f"torch_tpu: {said}{reason}", file=sys.stderr)
    return found


def _build(
    content: str, code: Callable[[], str], options: bytes, name: str
) -> tuple[object, str, float]:
    """A program that is not in memory, the level that had it, and the milliseconds that took."""
    outside, facts = _surroundings()
    key = file_key(content, facts)
    kept, damaged = _find(outside, outside.present, key)
    if kept is not None or outside.disk is None:
        return kept or _compile(outside, code, options, key, name, facts)
    with outside.disk.building(key):
        # While this process waited, another one may have built it.
        if not damaged:
            kept, _ = _find(outside, [outside.disk], key)
        return kept or _compile(outside, code, options, key, name, facts)


def _find(outside: Levels, among, key: str) -> tuple[tuple[object, str, float] | None, bool]:
    """What `_build` returns if a level has the program, and whether one had a damaged file."""
    start = time.perf_counter()
    damaged = False
    for level in among:
        data = outside.read(level, key)
        found = None if data is None else _load(data, key, level.source)
        if found is not None:
            took = _milliseconds(start)
            _count(**{f"{level.source}_hits": 1, "bytes_read": len(data), "load_ms": took})
            if level is outside.remote:
                outside.write_disk(key, data)
            return (found, level.source, took), damaged
        damaged |= data is not None
    return None, damaged


def _compile(outside: Levels, code: Callable, options: bytes, key: str, name: str, facts: dict):
    start = time.perf_counter()
    found = _core.compile(code(), options)
    took = _milliseconds(start)
    _count(misses=1, compile_ms=took)
    if outside.present:
        _keep(outside, key, found, name, took, facts)
    return found, "", took


def _surroundings() -> tuple[Levels, dict]:
    """The levels, and what programs have to be made for to be in them."""
    outside = levels()
    try:
        return outside, identity.describe() if outside.present else {}
    except OSError as error:  # without /proc, or a plugin that we may run but not read
        _trouble("identity", f"cannot tell which processor or plugin this is: {error}")
        return Levels(None, None), {}


def _milliseconds(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


def _load(data: bytes, key: str, source: str):
    """The program in a file; None if there is something wrong with it. It will be replaced."""
    try:
        return _core.deserialize(entry.decode(data, key).executable)
    except (entry.CorruptEntry, RuntimeError) as error:
        _trouble(f"{source} entry", f"ignored {key}: {error}")
        return None


def _keep(outside: Levels, key: str, found, name: str, took: float, facts: dict) -> None:
    """Writes a program that was just compiled.

    Only compiled programs are serialised: what XLA's CPU plugin gives for a loaded one lacks its
    native code.
    """
    try:
        executable = found.serialize()
    except RuntimeError:  # the plugin cannot; the next process compiles it again
        _count(unserializable=1)
        return
    made_for = identity.summary(facts)
    data = entry.Entry(key, executable, name, took, time.time(), made_for).encode()
    outside.write_disk(key, data)
    outside.write_remote(key, data)
