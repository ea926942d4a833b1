"""One screen about a compiled program: plain text of at most 100 columns, in colour if wanted.

What is shown is `Executable`'s; what it means is in docs/aot_estimates.md. The same with drawings
is `html.py`.
"""

from __future__ import annotations

import textwrap

from . import collectives, timeline, units
from .estimate import CYCLES, Estimate, Op

WIDTH = 100
_BAR = 60
_BOLD, _RED, _GREEN, _DIM, _END = "\033[1m", "\033[31m", "\033[32m", "\033[2m", "\033[0m"


def screen(executable, *, colour: bool = False, top: int = 10) -> str:
    """Model, memory, time, the longest operations, collectives, and what is uncertain."""
    paint = _paint if colour else _plain
    parts = [
        _head(executable, paint),
        _memory(executable, paint),
        _time(executable.estimate, paint),
        _operations(executable.estimate, top, paint),
        _collectives(executable, paint),
        _uncertain(executable.estimate, paint),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _paint(text: str, code: str) -> str:
    return f"{code}{text}{_END}"


def _plain(text: str, code: str) -> str:
    return text


def _head(executable, paint) -> str:
    chip, topology = executable.chip, executable.topology
    weights = units.scaled(executable.parameters)
    devices = f"{executable.partitions} of {topology.size} devices"
    rate, memory = units.scaled(chip.peak, "FLOP/s"), units.of_bytes(executable.memory.limit)
    lines = [
        paint(units.cut(executable.name, WIDTH), _BOLD),
        f"{weights} parameters, on {devices} of {topology.name} ({topology.kind})",
        f"a device: {rate} bfloat16, {memory} HBM at {units.scaled(chip.hbm_bandwidth, 'B/s')}",
    ]
    return "\n".join(lines)


def _memory(executable, paint) -> str:
    memory = executable.memory
    results = memory.outputs - memory.aliased
    parts = [
        ("arguments", memory.arguments, "█"),
        ("outputs", results, "▓"),
        ("temporaries", memory.temporaries, "▒"),
        ("code", memory.code, "░"),
    ]
    whole = max(memory.limit, memory.needed, 1)
    bar = "".join(mark * round(size / whole * _BAR) for _, size, mark in parts)[:_BAR]
    verdict = paint(memory.verdict, _GREEN if memory.fits else _RED)
    listed = "  ".join(f"{mark} {name} {units.of_bytes(size)}" for name, size, mark in parts)
    lines = [f"memory  [{bar:·<{_BAR}}]", f"        {listed}"]
    peak = f"peak {units.of_bytes(memory.peak)} + code = {units.of_bytes(memory.needed)}"
    lines.append(f"        {peak}, {verdict}")
    own = of_memory(executable)
    if own.largest:
        held = ", ".join(
            f"{units.cut(buffer.name, 24)} {units.of_bytes(buffer.bytes)}"
            for buffer in own.largest[:3]
        )
        both = f"with vector memory {units.of_bytes(own.peak_with_vector)}"
        if own.difference is not None:
            both += f" ({own.difference:+.0%} and {own.difference_with_vector:+.0%} from the peak)"
        lines.append(f"        by liveness {units.of_bytes(own.peak)}, {both}")
        where = units.cut(own.names[own.peak_at], 24)
        lines.append(units.cut(f"        largest at {where}: {held}", WIDTH))
    return "\n".join(lines)


def of_memory(executable) -> timeline.Timeline:
    """The memory timeline of a compiled program, with the names of its parameters."""
    named = getattr(getattr(executable, "captured", None), "parameters", ())
    names = [parameter.name for parameter in named]
    return timeline.of(executable.module, names, executable.memory.peak)


def _time(estimate: Estimate, paint) -> str:
    step = paint(units.seconds(estimate.seconds), _BOLD)
    mfu = paint(units.percent(estimate.mfu), _BOLD)
    arithmetic = units.seconds(estimate.compute_seconds)
    memory = units.seconds(estimate.memory_seconds)
    bound = "flop" if estimate.compute_seconds >= estimate.memory_seconds else "bytes"
    model = "" if estimate.model_flops is None else units.scaled(estimate.model_flops, "FLOP")
    return "\n".join(
        [
            f"step    {step} estimated; MFU {mfu}, hardware {units.percent(estimate.hfu)}, "
            f"HBM {units.percent(estimate.hbm_utilisation)}",
            f"        a device: model {model or 'unknown'}, "
            f"program {units.scaled(estimate.total_flops, 'FLOP')}, "
            f"{units.of_bytes(estimate.bytes)} to and from HBM",
            f"        roofline: not below {units.seconds(estimate.bound_seconds)}, by {bound} "
            f"(flop {arithmetic}, bytes {memory})",
        ]
    )


def _operations(estimate: Estimate, top: int, paint) -> str:
    rows = [op for op in estimate.top(top) if op.seconds > 0]
    if not rows:
        return ""
    title = f"{'time':>8} {'share':>6} {'times':>6}  {'operation':<20} {'operator':<30} line"
    return "\n".join([paint(title, _DIM), *(operation_row(op, estimate.seconds) for op in rows)])


def operation_row(op: Op, whole: float) -> str:
    mark = "" if op.basis == CYCLES else "~"  # by a model, not by the compiler's cycles
    share = units.percent(op.seconds / whole if whole else 0.0)
    times = f"{op.executions}x"
    name = units.cut(op.place.operator or op.name, 30)
    kind = units.cut(op.kind, 20)
    where = units.line(op.place.line, WIDTH - 76)
    first = f"{mark + units.seconds(op.seconds):>8} {share:>6} {times:>6}  {kind:<20} {name:<30} "
    return (first + where).rstrip()


def _collectives(executable, paint) -> str:
    found = executable.collectives
    if not found:
        return ""
    lines = [paint(f"{'time':>8} {'times':>6} {'bytes':>9}  collective, by the link model", _DIM)]
    for kind, times, size, seconds in collectives.summary(found):
        over = sorted({one.over for one in found if one.kind == kind})
        row = f"~{units.seconds(seconds):>7} {times:>5}x {units.of_bytes(size):>9}  {kind}"
        lines.append(units.cut(f"{row} over {', '.join(over)}", WIDTH))
    return "\n".join(lines)


def _uncertain(estimate: Estimate, paint) -> str:
    lines = [paint("What this does not know (~ marks times by a model)", _DIM)]
    for sentence in estimate.uncertain:
        lines += textwrap.wrap(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)
