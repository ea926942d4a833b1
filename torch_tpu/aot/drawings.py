"""The drawings of the HTML report as SVG: memory along the schedule, and a roofline plot.

Colours are CSS variables of the page (`html.py`), so that they follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from . import units
from .chips import Chip
from .estimate import Op
from .timeline import Timeline

_WIDE, _HIGH, _LEFT, _BELOW, _TOP = 900, 260, 80, 34, 16
_POINTS = 900  # more cannot be seen


def memory(timeline: Timeline, limit: int) -> str:
    """Live bytes over the position in the schedule; the line above is what the device has."""
    live = list(timeline.live) or [0]
    ceiling = max(*live, limit if limit < 4 * max(live) else 0, 1)
    right, floor = _WIDE - 12, _HIGH - _BELOW
    x = lambda at: _LEFT + (right - _LEFT) * at / max(len(live) - 1, 1)  # noqa: E731
    y = lambda size: floor - (floor - _TOP) * size / ceiling  # noqa: E731
    points = " ".join(f"{x(at):.1f},{y(size):.1f}" for at, size in _thinned(live))
    base = y(timeline.argument_bytes)
    peak = f"peak {units.of_bytes(timeline.peak)} at {timeline.names[timeline.peak_at]}"
    parts = [
        *_grid([ceiling * i / 4 for i in range(5)], y, units.of_bytes, right),
        f'<polygon class="area" points="{_LEFT},{floor} {points} {right},{floor}"/>',
        f'<rect class="fixed" x="{_LEFT}" y="{base:.1f}" width="{right - _LEFT}" '
        f'height="{floor - base:.1f}"/>',
        f'<polyline class="line" points="{points}"/>',
        f'<circle class="mark" cx="{x(timeline.peak_at):.1f}" cy="{y(timeline.peak):.1f}" r="4"/>',
        _text(_LEFT, _HIGH - 8, f"{len(live)} instructions in the order of the schedule; {peak}"),
    ]
    if limit <= ceiling:
        parts.append(
            f'<line class="limit" x1="{_LEFT}" x2="{right}" y1="{y(limit):.1f}" '
            f'y2="{y(limit):.1f}"/>'
        )
    return _svg(parts, "Live bytes of HBM along the schedule")


def _thinned(live: Sequence[int]) -> list[tuple[int, int]]:
    """The largest of every few positions, so that no peak is lost."""
    step = max(1, -(-len(live) // _POINTS))
    groups = (range(at, min(at + step, len(live))) for at in range(0, len(live), step))
    found = [(at, live[at]) for at in (max(group, key=live.__getitem__) for group in groups)]
    return [(0, live[0]), *found, (len(live) - 1, live[-1])]


def roofline(ops: Sequence[Op], chip: Chip) -> str:
    """FLOP/s over FLOP per byte of the operations, under the roof of the chip."""
    shown = [op for op in ops if op.total_flops and op.bytes and op.seconds > 0]
    if not shown:
        return "<p>No operation has both products and traffic to HBM.</p>"
    places = [(op.total_flops / op.bytes, op.total_flops / op.seconds, op) for op in shown]
    ridge = chip.peak / chip.hbm_bandwidth
    low = min(*(p[0] for p in places), ridge / 30)
    high = max(*(p[0] for p in places), ridge * 30)
    bottom = min(*(p[1] for p in places), chip.peak / 1000)
    top = max(*(p[1] for p in places), chip.peak) * 1.5
    right, floor = _WIDE - 12, _HIGH - _BELOW
    x = lambda v: _LEFT + (right - _LEFT) * _between(v, low, high)  # noqa: E731
    y = lambda v: floor - (floor - _TOP) * _between(v, bottom, top)  # noqa: E731
    steps = [10.0**n for n in range(math.ceil(math.log10(bottom)), int(math.log10(top)) + 1)]
    left_roof = max(low, bottom / chip.hbm_bandwidth)
    roof = [(left_roof, left_roof * chip.hbm_bandwidth), (ridge, chip.peak), (high, chip.peak)]
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in roof)
    longest = max(op.seconds for _, _, op in places)
    parts = _grid(steps, y, lambda v: units.scaled(v, "FLOP/s"), right)
    parts.append(f'<polyline class="limit" points="{points}"/>')
    for intensity, rate, op in places:
        radius = 3 + 7 * math.sqrt(op.seconds / longest)
        label = f"{op.name}: {op.place}, {units.seconds(op.seconds)}, {intensity:.3g} FLOP/B"
        parts.append(
            f'<circle class="mark" cx="{x(intensity):.1f}" cy="{y(rate):.1f}" r="{radius:.1f}">'
            f"<title>{escape(label)}</title></circle>"
        )
    words = f"FLOP per byte of HBM, {low:.3g} to {high:.3g}; the roof bends at {ridge:.3g}"
    parts.append(_text(_LEFT, _HIGH - 8, words))
    return _svg(parts, "Roofline of the longest operations")


def _between(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def _grid(values, y, label, right) -> list[str]:
    parts = []
    for value in values:
        at = y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(_LEFT - 6, at + 4, label(value), "end"))
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
