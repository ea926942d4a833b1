"""Draws when the host and the device work on one training step, in each eager mode.

    python benchmarks/timeline.py [--size 96] [--rounds 41] [--out docs/eager_modes.svg]

writes the picture of docs/eager_modes.md. The step is a layer, a loss, gradients and an update
written out by hand, so that each operator is one call of the host. Every mode runs it warm,
``--rounds`` times in turn with the others; what is drawn of a mode is the run whose total is the
median. The host's times are taken around each call, the device's are those of an event after each
call. Recording an event would hand recorded operators over, so DeferAndFuse has one, at the end.

A program has no event for its beginning. It is taken to begin when the one before it was done, or a
little after the beginning of its call, whichever is later. That little is how long a quick call
takes in Strict (the first quartile), and the quickest handing over in DeferAndFuse.
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
READ, HAND_OVER, ONE_PROGRAM = "loss.item()", "hand over", "one program"


@dataclasses.dataclass
class Bar:
    """What one lane did from ``start`` to ``end``, in microseconds from the start of the step."""

    label: str
    start: float
    end: float

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclasses.dataclass
class Run:
    host: list[Bar]
    device: list[Bar]

    @property
    def total(self) -> float:
        return max(bar.end for bar in self.host + self.device)


# ---- the work ------------------------------------------------------------------------------


class Step:
    """tanh(x w) v against y, in twelve operators; the transposes are views and run nothing.

    The update makes new arrays. XLA's CPU plugin keeps a call waiting until the array is there
    whose memory it takes over, and that would hide how far the host runs ahead elsewhere.
    """

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
            ("v - gv", lambda: setattr(s, "v", s.v.sub(s.gv, alpha=1e-3))),
            ("w - gw", lambda: setattr(s, "w", s.w.sub(s.gw, alpha=1e-3))),
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


def measure(step: Step, mode: MODES) -> tuple[list[Bar], list[float]]:
    """One step: the bars of the host, and when each program was done."""
    clock = lambda: (time.perf_counter_ns() - start_ns) / 1e3  # noqa: E731
    host, events = [], []

    def timed(label, call):
        begun = clock()
        result = call()
        host.append(Bar(label, begun, clock()))
        return result

    with torch.tpu.set_eager_mode(mode):
        torch.tpu.synchronize()
        origin, start_ns = record(), time.perf_counter_ns()
        for label, call in step.calls():
            timed(label, call)
            if mode is not MODES.DEFER_AND_FUSE:
                events.append(record())
        step.forget()
        if mode is MODES.DEFER_AND_FUSE:
            events.append(timed(HAND_OVER, record))
        timed(READ, step.loss.item)
    for event in (origin, *events):
        event.synchronize()
    return host, [1e3 * origin.elapsed_time(event) for event in events]


def with_device(host: list[Bar], ends: list[float], launch: float) -> Run:
    """The run; ``launch`` is how long after the beginning of its call a program begins."""
    calls = [bar for bar in host if bar.label != READ]
    if len(ends) < len(calls):  # DeferAndFuse
        calls = [dataclasses.replace(calls[-1], label=ONE_PROGRAM)]
    device, free = [], 0.0
    for call, end in zip(calls, ends, strict=True):
        device.append(Bar(call.label, min(max(free, call.start + launch), end), end))
        free = end
    return Run(host, device)


def median_runs(size: int, rounds: int) -> dict[MODES, Run]:
    step = Step(size)
    for _ in range(5):
        for mode in MODES:
            measure(step, mode)
    compiled = torch.tpu.compile_count()
    measured = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            measured[mode].append(measure(step, mode))
    if torch.tpu.compile_count() != compiled:
        raise RuntimeError("the measured runs compiled something: they were not warm")
    times = {m: [b for host, _ in measured[m] for b in host] for m in MODES}
    launch = statistics.quantiles(b.duration for b in times[MODES.STRICT] if b.label != READ)[0]
    launches = dict.fromkeys(MODES, launch)
    handed_over = (b for b in times[MODES.DEFER_AND_FUSE] if b.label == HAND_OVER)
    launches[MODES.DEFER_AND_FUSE] = min(b.duration for b in handed_over)
    runs = {m: [with_device(*one, launches[m]) for one in measured[m]] for m in MODES}
    return {m: sorted(r, key=lambda run: run.total)[len(r) // 2] for m, r in runs.items()}


# ---- the picture ---------------------------------------------------------------------------

WIDTH, LEFT, RIGHT, TOP = 900, 70, 20, 46
BAR, GAP, GROUP = 22, 6, 96
COLOURS = ("#4c78a8", "#9ecae9", "#f58518", "#ffbf79", "#54a24b", "#88d27a")
OTHER = {READ: "#bab0ac", HAND_OVER: "#b9a59c", ONE_PROGRAM: "#b279a2"}
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
            x, width = LEFT + bar.start * self.scale, max(bar.duration * self.scale, 0.7)
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
        words = " · ".join([*numbered, f"brown: {HAND_OVER}"])
        return [text(8, self.bottom + 34, words)]

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
        host = sum(bar.duration for bar in run.host if bar.label != READ)
        device = sum(bar.duration for bar in run.device)
        print(f"{NAMES[mode]:13} {run.total:7.0f} us, calls {host:6.0f}, device {device:6.0f}")
    given.out.write_text(Picture(runs, given.size).svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
