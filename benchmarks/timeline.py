"""Draws when the host and the device work on one training step, in each eager mode.

    python benchmarks/timeline.py [--size 96] [--rounds 41] [--out docs/eager_modes.svg]

writes the picture of docs/eager_modes.md. The step is a layer, a loss, gradients and an update
written out by hand, so that each operator is one call of the host. Every mode runs it warm,
``--rounds`` times in turn with the others; what is drawn of a mode is the run whose total is the
median. The host's times are taken around each call, the device's are those of an event after each
call. Recording an event would hand recorded operators over, so DeferAndFuse has one, at the end.

A program has no event for its beginning. It is taken to begin when the call that handed it over
returned, or the one before it was done, whichever was later. In Debug a call returns when the device is
done: there a program is taken to begin as long after its call as the same call takes in Strict.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import time
from xml.sax.saxutils import escape

import torch

MODES = torch.tpu.EagerMode
NAMES = {MODES.STRICT: "Strict", MODES.DEBUG: "Debug", MODES.DEFER_AND_FUSE: "DeferAndFuse"}
READ = "loss.item()"


@dataclasses.dataclass
class Bar:
    """What one lane did from ``start`` to ``end``, in microseconds from the start of the step."""

    label: str
    start: float
    end: float


@dataclasses.dataclass
class Run:
    host: list[Bar]
    device: list[Bar]

    @property
    def total(self) -> float:
        return max(bar.end for bar in self.host + self.device)


# ---- the work ------------------------------------------------------------------------------


class Step:
    """tanh(x w) v against y, in eleven operators; the transposes are views and run nothing."""

    def __init__(self, size: int):
        torch.manual_seed(0)
        made = [torch.randn(size, size).div(size**0.5).to("tpu") for _ in range(4)]
        self.x, self.y, self.w, self.v = made

    def calls(self):
        """(label, call) of each operator; a call may use what the ones before it made."""
        s = self
        return (
            ("x @ w", lambda: setattr(s, "z", s.x @ s.w)),
            ("tanh", lambda: setattr(s, "h", s.z.tanh())),
            ("h @ v", lambda: setattr(s, "p", s.h @ s.v)),
            ("p - y", lambda: setattr(s, "d", s.p - s.y)),
            ("d * d", lambda: setattr(s, "q", s.d * s.d)),
            ("mean", lambda: setattr(s, "loss", s.q.mean())),
            ("h.T @ d", lambda: setattr(s, "gv", s.h.t() @ s.d)),
            ("d @ v.T", lambda: setattr(s, "gh", s.d @ s.v.t())),
            ("tanh'", lambda: setattr(s, "gz", torch.ops.aten.tanh_backward(s.gh, s.h))),
            ("x.T @ g", lambda: setattr(s, "gw", s.x.t() @ s.gz)),
            ("v -=", lambda: s.v.sub_(s.gv, alpha=1e-3)),
            ("w -=", lambda: s.w.sub_(s.gw, alpha=1e-3)),
        )

    def forget(self) -> None:
        """As leaving a function would: nobody refers to what is in between any more."""
        for name in "z h p d q gv gh gz gw".split():
            delattr(self, name)


# ---- the measurement -----------------------------------------------------------------------


def record() -> torch.Event:
    event = torch.tpu.Event(enable_timing=True)
    event.record()
    return event


def measure(step: Step, mode: MODES, launches: list[float]) -> Run:
    """One step; ``launches`` are how long Strict's calls take, for where Debug's programs begin."""
    clock = lambda: (time.perf_counter_ns() - start_ns) / 1e3  # noqa: E731
    defer = mode is MODES.DEFER_AND_FUSE
    host, events = [], []
    with torch.tpu.set_eager_mode(mode):
        torch.tpu.synchronize()
        origin, start_ns = record(), time.perf_counter_ns()
        for label, call in step.calls():
            begun = clock()
            call()
            host.append(Bar(label, begun, clock()))
            if not defer:
                events.append(record())
        step.forget()
        if defer:
            begun = clock()
            events.append(record())
            host.append(Bar("hand over", begun, clock()))
        begun = clock()
        step.loss.item()
        host.append(Bar(READ, begun, clock()))
    for event in [origin, *events]:
        event.synchronize()
    ends = [1e3 * origin.elapsed_time(event) for event in events]
    return Run(host, device_bars(host, ends, launches if mode is MODES.DEBUG else None))


def device_bars(host: list[Bar], ends: list[float], launches: list[float] | None) -> list[Bar]:
    calls = [bar for bar in host if bar.label != READ]
    if len(ends) < len(calls):  # DeferAndFuse: one program, begun by the last call
        return [Bar("one program", calls[-1].end, max(ends[-1], calls[-1].end))]
    bars, free = [], 0.0
    for i, (call, end) in enumerate(zip(calls, ends, strict=True)):
        launched = call.start + launches[i] if launches else call.end
        bars.append(Bar(call.label, min(max(free, launched), end), end))
        free = end
    return bars


def median_runs(size: int, rounds: int) -> dict[MODES, Run]:
    step = Step(size)
    launches = [0.0] * len(step.calls())
    for _ in range(5):
        for mode in MODES:
            measure(step, mode, launches)
    compiled = torch.tpu.compile_count()
    runs: dict[MODES, list[Run]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            runs[mode].append(measure(step, mode, launches))
        strict = [[bar.end - bar.start for bar in run.host] for run in runs[MODES.STRICT]]
        launches = [statistics.median(times) for times in zip(*strict, strict=True)]
    if torch.tpu.compile_count() != compiled:
        raise RuntimeError("the measured runs compiled something: they were not warm")
    return {mode: sorted(r, key=lambda run: run.total)[len(r) // 2] for mode, r in runs.items()}


# ---- the picture ---------------------------------------------------------------------------

WIDTH, LEFT, RIGHT, TOP = 900, 70, 20, 46
BAR, GAP, GROUP = 22, 6, 96
COLOURS = ("#4c78a8", "#9ecae9", "#f58518", "#ffbf79", "#54a24b", "#88d27a")
OTHER = {READ: "#bab0ac", "hand over": "#79706e", "one program": "#b279a2"}
LETTER = 5.6  # pixels of a letter of the labels in bars


def text(x: float, y: float, words: str, **attributes: str) -> str:
    more = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


class Picture:
    def __init__(self, runs: dict[MODES, Run], size: int):
        self.runs = runs
        self.size = size
        self.longest = max(run.total for run in runs.values())
        self.scale = (WIDTH - LEFT - RIGHT) / self.longest
        self.bottom = TOP + GROUP * len(runs)
        self.labels = [b.label for b in runs[MODES.STRICT].host if b.label != READ]

    def lane(self, bars: list[Bar], y: float) -> list[str]:
        lines = []
        for bar in bars:
            x, width = LEFT + bar.start * self.scale, max((bar.end - bar.start) * self.scale, 0.7)
            place = self.labels.index(bar.label) if bar.label in self.labels else None
            colour = OTHER[bar.label] if place is None else COLOURS[place % len(COLOURS)]
            title = f"{bar.label}: {bar.start:.0f} to {bar.end:.0f} us"
            lines.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" '
                f'fill="{colour}"><title>{escape(title)}</title></rect>'
            )
            number = "" if place is None else str(place + 1)
            for words in (bar.label, number):
                if words and LETTER * len(words) + 2 <= width:
                    middle = x + width / 2
                    lines.append(text(middle, y + BAR / 2 + 3.5, words, text_anchor="middle"))
                    break
        return lines

    def group(self, mode: MODES, y: float) -> list[str]:
        run = self.runs[mode]
        title = f"{NAMES[mode]}: {run.total:.0f} µs"
        host, device = y + 8, y + 8 + BAR + GAP
        return [
            text(8, y, title, font_size="13", font_weight="bold"),
            text(LEFT - 8, host + 15, "host", text_anchor="end"),
            *self.lane(run.host, host),
            text(LEFT - 8, device + 15, "device", text_anchor="end"),
            *self.lane(run.device, device),
        ]

    def axis(self) -> list[str]:
        step = next(s for s in (50, 100, 200, 500, 1000, 2000, 5000) if self.longest / s <= 12)
        lines = []
        for tick in range(0, int(self.longest) + 1, step):
            x = LEFT + tick * self.scale
            lines.append(f'<path d="M{x:.1f} {TOP}V{self.bottom}" stroke="#ddd"/>')
            lines.append(text(x, self.bottom + 14, str(tick), text_anchor="middle"))
        return [*lines, text(8, self.bottom + 14, "µs")]

    def legend(self) -> list[str]:
        numbered = [f"{i} {label}" for i, label in enumerate(self.labels, 1)]
        return [text(8, self.bottom + 34, "   ".join(numbered), xml__space="preserve")]

    def svg(self) -> str:
        height = self.bottom + 44
        what = f"One training step on matrices of {self.size} x {self.size}, XLA's CPU plugin"
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="10" fill="#222">',
            "<!-- made by benchmarks/timeline.py; its header says how -->",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            text(8, 18, what, font_size="13"),
            *self.axis(),
        ]
        for i, mode in enumerate(self.runs):
            lines += self.group(mode, TOP + 14 + i * GROUP)
        return "\n".join([*lines, *self.legend(), "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=96, help="rows and columns of the matrices")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--out", type=pathlib.Path, default="docs/eager_modes.svg")
    given = parser.parse_args()
    runs = median_runs(given.size, given.rounds)
    for mode, run in runs.items():
        host = sum(bar.end - bar.start for bar in run.host if bar.label != READ)
        device = sum(bar.end - bar.start for bar in run.device)
        print(f"{NAMES[mode]:13} {run.total:7.0f} us, calls {host:6.0f}, device {device:6.0f}")
    given.out.write_text(Picture(runs, given.size).svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
