"""Command line: ``python -m torch_tpu.conformance`` (see docs/conformance.md)."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pathlib
import sys

EXTRA = "pip install 'torch_tpu[test]'"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parsed command line; exits with status 2 on wrong arguments."""
    from .units import DTYPES, MODES

    parser = argparse.ArgumentParser(
        prog="python -m torch_tpu.conformance",
        description="Runs PyTorch's own OpInfo, ModuleInfo and OptimizerInfo databases on the "
        "device against CPU PyTorch. Exit status 1 if a result differs with no exception.",
        epilog="A unit is one operator, module or optimizer with one dtype that the CPU supports.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    split = lambda text: [word for word in text.split(",") if word]  # noqa: E731
    add = parser.add_argument
    add("--ops", type=split, default=["*"], help="names or shell patterns, separated by commas")
    add("--kinds", type=split, default=["op", "module", "optimizer"], help="op,module,optimizer")
    add("--dtypes", type=split, default=list(DTYPES), help="separated by commas")
    add("--samples", type=int, default=5, help="samples per operator and dtype")
    add("--mode", choices=list(MODES), default="strict", help="eager mode")
    add("--jobs", type=int, default=os.cpu_count(), help="worker processes")
    add("--limit", type=float, default=300, help="seconds per unit")
    add(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("conformance/run.jsonl"),
        help="journal of the run; an interrupted run goes on from it",
    )
    add("--fresh", action="store_true", help="start anew instead of continuing --output")
    add("--write", type=pathlib.Path, metavar="DIR", help="write operators.md and .json to DIR")
    add("--check", type=pathlib.Path, metavar="JSON", help="fail if what passed there fails now")
    add("--numerics", type=pathlib.Path, metavar="FILE", help="measure errors, write FILE instead")
    add("--target", type=split, metavar="CHIPS", help="with --compile-only: v5e,v6e,tpu7x")
    add("--compile-only", action="store_true", help="compile all lowerings for --target instead")
    add("--fuzz", type=int, metavar="CALLS", help="random calls with mutated arguments instead")
    add("--seed", type=int, default=0, help="seed of --fuzz")
    add("--verbose", action="store_true", help="print every failure")
    given = parser.parse_args(argv)
    _validate(parser, given)
    return given


def _validate(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    import torch

    from .units import TARGETS

    for name in ("samples", "jobs", "limit"):
        if getattr(given, name) <= 0:
            parser.error(f"--{name} must be positive")
    if given.fuzz is not None and given.fuzz <= 0:
        parser.error("--fuzz must be positive")
    if bool(given.target) != given.compile_only:
        parser.error("--target and --compile-only go together: no TPU is needed or used")
    for generation in given.target or ():
        if generation not in TARGETS:
            parser.error(f"--target: {generation!r} is none of {', '.join(TARGETS)}")
    if given.check and not given.check.is_file():
        parser.error(f"--check: there is no file {given.check}")
    for dtype in given.dtypes:
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            parser.error(f"--dtypes: {dtype!r} is not a dtype of torch")
    for kind in given.kinds:
        if kind not in ("op", "module", "optimizer"):
            parser.error(f"--kinds: {kind!r} is none of op, module, optimizer")


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit status."""
    missing = [m for m in ("expecttest", "rich") if importlib.util.find_spec(m) is None]
    if missing:
        print(f"The conformance run needs {' and '.join(missing)}: {EXTRA}", file=sys.stderr)
        return 2
    given = arguments(argv)
    from . import session

    if given.target:
        from . import target

        return _interruptible(target.run, given)
    run = session.conform
    if given.fuzz is not None or given.numerics:
        run = session.fuzz if given.fuzz else session.numerics
    return _interruptible(run, given)


def _interruptible(run, given: argparse.Namespace) -> int:
    try:
        return run(given)
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from {given.output}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
