"""`compile`: a PyTorch program for a TPU topology, with neither weights nor a TPU.

Captures the program (`capture.py`), compiles it in the child process (`topology.py`) and keeps what
came out in the cache of compiled programs, so that the same program takes no time again.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_tpu import __version__

from .. import config
from ..program import cache, entry, identity
from ..program.compile import compile_options
from . import worker
from .capture import Captured, capture
from .executable import Executable
from .job import Job
from .topology import Topology, as_topology

_LENGTHS = struct.Struct("<QQ")


def compile(
    target: Callable | Any,
    example_args: Sequence = (),
    example_kwargs: Mapping | None = None,
    *,
    topology: str | Topology,
    in_shardings: Any = None,
    mesh: Any = None,
    options: Mapping[str, bool | int | str] | None = None,
    name: str | None = None,
    timeout: float | None = None,
) -> Executable:
    """Compile a program for a topology.

    ``target`` is a function, an nn.Module, a `torch.export.ExportedProgram` or a `Job` (which
    brings the arguments with it). Example arguments give shapes and dtypes; they may be on "meta",
    and nothing is read from them or allocated for them. ``in_shardings`` says how arguments and
    weights lie over ``mesh`` (docs/aot_sharding.md); without it the program is one device's.
    ``options`` are libtpu's, by name. ``timeout`` is for the compiler, in seconds.

    Raises `CompilationError` with the compiler's words (its ``kind`` is "out of memory" for a
    program that does not fit a device), NotImplementedError for an operator without a lowering,
    TimeoutError, ValueError for a name or a sharding that makes no sense, and PluginError if libtpu
    is not installed.
    """
    topology = as_topology(topology)
    job = target if isinstance(target, Job) else None
    if job is not None:
        if example_args or example_kwargs or in_shardings is not None or mesh is not None:
            raise TypeError("a Job has its arguments, shardings and mesh: give it alone")
        captured, name, options = (
            job.captured(),
            name or job.name,
            {**job.options, **(options or {})},
        )
    else:
        captured = capture(target, example_args, example_kwargs, in_shardings, mesh)
        name = name or getattr(target, "__name__", type(target).__name__)
    return compile_captured(captured, topology, options, name, timeout)


def compile_captured(
    captured: Captured,
    topology: Topology,
    options: Mapping[str, bool | int | str] | None,
    name: str,
    timeout: float | None = None,
) -> Executable:
    """As `compile`, for a program that is captured."""
    if captured.partitions > topology.size:
        raise ValueError(
            f"{name} is for {captured.partitions} devices, {topology.name} has {topology.size}"
        )
    ids = [device.id for device in topology.devices]
    build = compile_options(options, captured.partitions, ids)
    start = time.perf_counter()
    results = compile_text(captured.text, topology, build, name, timeout)
    return Executable(name, topology, captured, *results, time.perf_counter() - start)


def compile_text(
    text: str, topology: Topology, build: bytes, name: str, timeout: float | None = None
) -> tuple[dict, bytes, bytes]:
    """(facts, optimised program, executable) of StableHLO text; from the cache if it is there."""
    outside = cache.levels()
    if outside.disk is None:
        return topology.compile(text, build, timeout)
    facts = _made_for(topology)
    key = cache.file_key(cache.content_key(text, build), facts)
    with outside.disk.building(key):
        data = outside.read(outside.disk, key)
        if data is not None:
            try:
                return _unpacked(entry.decode(data, key).executable)
            except (entry.CorruptEntry, struct.error, ValueError):
                data = None  # it is compiled again, and replaced
        start = time.perf_counter()
        results = topology.compile(text, build, timeout)
        took = (time.perf_counter() - start) * 1e3
        made_for = {"devices": f"{topology.name} (not attached)", "machine": ""}
        kept = entry.Entry(key, _packed(*results), name, took, time.time(), made_for)
        outside.write_disk(key, kept.encode())
        return results


def _made_for(topology: Topology) -> dict:
    """What else than the program decides what comes out."""
    return {
        "torch_tpu": __version__,
        "aot": 1,  # the form of what is kept
        "topology": topology.name,
        "options": {k: str(v) for k, v in topology.options.items()},
        "version": topology.compiler,
        "plugin": identity.file_digest(worker.libtpu_path(), config.cache_directory()),
        "flags": dict(config.compiler_flags()),
    }


def _packed(facts: dict, optimized: bytes, executable: bytes) -> bytes:
    head = json.dumps(facts).encode()
    return _LENGTHS.pack(len(head), len(optimized)) + head + optimized + executable


def _unpacked(data: bytes) -> tuple[dict, bytes, bytes]:
    first, second = _LENGTHS.unpack_from(data)
    head = data[_LENGTHS.size :]
    if len(head) < first + second:
        raise ValueError("too short")
    return json.loads(head[:first]), head[first : first + second], head[first + second :]
