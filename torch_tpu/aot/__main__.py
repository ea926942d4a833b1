"""Compiling for TPUs from the command line.

    python -m torch_tpu.aot estimate FILE --topology tpu7x:2x2x1 [--html out.html] [--NAME VALUE]
    python -m torch_tpu.aot hlo FILE --topology v6e:2x2
    python -m torch_tpu.aot topologies

FILE is Python and defines ``build(topology, **options) -> torch_tpu.aot.Job``; what follows
``--NAME`` goes to it as an option. Exit status 1: the program does not compile or does not fit a
device; 2: a wrong call.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ..errors import CompilationError, ConfigError, PluginError
from . import chips, html, report, units
from .job import Job
from .topology import EXAMPLES, Topology

_DTYPES = {"bfloat16", "float16", "float32", "float64"}


class UsageError(Exception):
    """A call that makes no sense; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    given, more = _parser().parse_known_args(arguments)
    try:
        return given.run(given, more)
    except UsageError as error:
        return _failed(str(error), 2)
    except (ValueError, TypeError, ConfigError) as error:
        return _failed(f"{type(error).__name__}: {error}", 2)
    except (CompilationError, NotImplementedError, PluginError, TimeoutError) as error:
        return _failed(str(error), 1)


def _failed(message: str, status: int) -> int:
    print("torch_tpu.aot:", " ".join(message.split()), file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m torch_tpu.aot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="estimate | hlo | topologies")
    for name, run, words in (
        ("estimate", _estimate, "memory, time and utilisation of a program"),
        ("hlo", _hlo, "the optimised program as text"),
    ):
        command = commands.add_parser(name, help=words, allow_abbrev=False)
        command.add_argument("file", type=Path, help="Python that defines build()")
        command.add_argument("--topology", required=True, help=f"such as {EXAMPLES[-2]}")
        command.add_argument("--timeout", type=float, help="seconds for the compiler")
        if run is _estimate:
            command.add_argument("--html", type=Path, help="also write the report to this file")
            command.add_argument("--top", type=int, default=10, help="operations to show")
        command.set_defaults(run=run)
    listing = commands.add_parser("topologies", help="names, devices and published figures")
    listing.set_defaults(run=_topologies)
    return parser


def _estimate(given: argparse.Namespace, more: Sequence[str]) -> int:
    if given.html and not given.html.resolve().parent.is_dir():
        raise UsageError(f"--html: there is no folder {given.html.resolve().parent}")
    executable = _compiled(given, more)
    print(report.screen(executable, colour=sys.stdout.isatty(), top=given.top), end="")
    if given.html:
        given.html.write_text(html.page(executable))
        print(f"\nwritten: {given.html}")
    return 0 if executable.memory.fits else 1


def _hlo(given: argparse.Namespace, more: Sequence[str]) -> int:
    print(_compiled(given, more).hlo(), end="")
    return 0


def _topologies(given: argparse.Namespace, more: Sequence[str]) -> int:
    if more:
        raise UsageError(f"unknown arguments: {' '.join(more)}")
    print(f"{'generation':<11}{'kind':<13}{'bfloat16':>15}{'HBM':>9}{'bandwidth':>12}  clock")
    for chip in chips.CHIPS.values():
        guess = " (guessed)" if "clock" in chip.guessed else ""
        rate = units.scaled(chip.peak, "FLOP/s")
        memory, bandwidth = units.of_bytes(chip.hbm_bytes), units.scaled(chip.hbm_bandwidth, "B/s")
        clock = f"{chip.clock / 1e9:g} GHz{guess}"
        print(f"{chip.name:<11}{chip.kind:<13}{rate:>15}{memory:>9}{bandwidth:>12}  {clock}")
    print("\nFigures are of one device. Names are generation:chips along each axis, such as")
    print(", ".join(EXAMPLES))
    return 0


def _compiled(given: argparse.Namespace, more: Sequence[str]):
    from .compile import compile as compile_for

    topology = Topology(given.topology)
    build = _builder(given.file)
    options = _options(build, more)
    try:
        job = build(topology, **options)
    except (TypeError, ValueError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        raise UsageError(f"build() raised {type(error).__name__} at {place}: {error}") from error
    if not isinstance(job, Job):
        raise UsageError(f"build() returned a {type(job).__name__}, not a torch_tpu.aot.Job")
    with _Progress(f"compiling {job.name or given.file.stem} for {topology.name}"):
        name = job.name or given.file.stem
        return compile_for(job, topology=topology, name=name, timeout=given.timeout)


def _builder(path: Path):
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    path = path.resolve()  # lines are noted, and cached, under the same name from everywhere
    spec = importlib.util.spec_from_file_location(f"torch_tpu_aot_{path.stem}", path)
    if spec is None:
        raise UsageError(f"{path} is not Python: its name does not end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # files beside it, as for a script
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    build = getattr(module, "build", None)
    if not callable(build):
        raise UsageError(f"{path} does not define build(topology, **options)")
    return build


def _options(build, more: Sequence[str]) -> Mapping[str, object]:
    """``--batch 8 --remat=false --dtype bfloat16`` as arguments of ``build``."""
    options, left = {}, list(more)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"what is {word!r}? options of build() are written --name value")
        name, given, value = word[2:].partition("=")
        if not given:
            value = left.pop(0) if left and not left[0].startswith("--") else "true"
        options[name.replace("-", "_")] = _value(value)
    known = inspect.signature(build).parameters
    free = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    unknown = [] if free else [name for name in options if name not in list(known)[1:]]
    if unknown:
        names = ", ".join(f"--{name}" for name in list(known)[1:]) or "none"
        raise UsageError(f"build() has no option --{unknown[0]}; it has {names}")
    return options


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if text in _DTYPES:
        return getattr(torch, text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class _Progress:
    """Says on stderr how long it has taken: in place on a terminal, else a line each 10 s."""

    def __init__(self, what: str):
        self._what, self._done = what, threading.Event()
        self._start = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._done.wait(1 if self._terminal else 10):
            self._say("\r" if self._terminal else "\n")

    def _say(self, end: str) -> None:
        print(f"{self._what}: {time.monotonic() - self._start:.0f} s", end=end, file=sys.stderr)
        sys.stderr.flush()

    def __enter__(self) -> _Progress:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._done.set()
        self._thread.join()
        if self._terminal:
            self._say("\n")


if __name__ == "__main__":
    sys.exit(main())
