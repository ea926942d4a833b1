"""For which compiler and machine an executable is made: half of every key of a cached program.

An executable runs only where the plugin and the device are those it was made for, and on XLA's CPU
plugin it is native code, for one kind of processor and split for one number of threads. All of that
is described here as plain facts, once per process. The other half of a key is the program.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
from collections import Counter
from pathlib import Path

from torch_tpu import __version__

from .. import _core, config
from .store import write_atomically

# The lines of /proc/cpuinfo that decide what code is generated, on x86 and on ARM.
_PROCESSOR = {"vendor_id", "cpu family", "model", "flags"} | {
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "Features",
}


@functools.cache
def describe() -> dict:
    """The facts. Starts the runtime."""
    devices = [_core.device_info(i) for i in range(_core.device_count())]
    name = devices[0]["platform"]
    facts = {
        "torch_tpu": __version__,
        "platform": name,
        "version": devices[0]["platform_version"],
        "plugin": file_digest(Path(_core.plugin_path()), config.cache_directory()),
        "devices": [device["kind"] for device in devices],
        "flags": {k: _flags(v) for k, v in config.compiler_flags().items()},
    }
    if name == "cpu":
        facts["processor"] = processor()
        facts["threads"] = len(os.sched_getaffinity(0))
    return facts


def digest(facts: dict) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def summary(facts: dict) -> dict[str, str]:
    """The facts in short, for the metadata of a program."""
    kinds = Counter(facts["devices"]).items()
    return {
        "devices": " + ".join(f"{count} x {kind}" for kind, count in kinds),
        "torch_tpu": facts["torch_tpu"],
        "plugin": facts["plugin"][:12],
        "machine": digest(facts)[:12],
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """What the compiler generates code for: model and features of the first processor."""
    facts = {"machine": platform.machine()}
    first, _, _ = cpuinfo.read_text().partition("\n\n")
    for line in first.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in _PROCESSOR:
            facts[name] = " ".join(sorted(value.split()))
    return facts


def _flags(value: str) -> str:
    """XLA takes a file of flags in place of flags."""
    if value.startswith("-") or not os.path.isfile(value):
        return value
    return Path(value).read_text()


def file_digest(path: Path, root: Path | None) -> str:
    """SHA-256 of a file.

    A plugin is hundreds of megabytes and takes half a second, so the digest is noted in the cache
    directory ``root`` under what tells that the file is still the same.
    """
    status = path.stat()
    parts = path.resolve(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    mark = hashlib.sha256(repr(parts).encode()).hexdigest()
    note = root and root / "plugins" / mark
    with contextlib.suppress(OSError):  # no note yet, or no directory
        if note and re.fullmatch("[0-9a-f]{64}", noted := note.read_text(errors="replace")):
            return noted
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):  # whoever writes programs there tells the user
        if note:
            write_atomically(root, note, found.encode())
    return found
