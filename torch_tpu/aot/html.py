"""The report as one HTML file that needs nothing else: drawings, tables, light and dark.

Numbers are `estimate.py`'s and `timeline.py`'s, drawings `drawings.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from . import drawings, report, units
from .estimate import Op

_ROWS, _DOTS = 100, 60
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --rule: #d8dde5; --page: #fff;
  --blue: #2563c9; --area: #2563c933; --fixed: #7b8aa033; --red: #c62f2f; --green: #1d7f45; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f1; --soft: #98a4b5; --rule: #333c49;
  --page: #12161c; --blue: #7aaaf5; --area: #7aaaf533; --red: #f08080; --green: #6fcf97; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.soft, caption { color: var(--soft); } .bad { color: var(--red); } .good { color: var(--green); }
.facts { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1rem 0; }
.facts b { display: block; font-size: 1.3rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; width: 100%; }
td, th { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; } th { color: var(--soft); font-weight: 600; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
.grid { stroke: var(--rule); } .area { fill: var(--area); } .fixed { fill: var(--fixed); }
.line { fill: none; stroke: var(--blue); stroke-width: 1.5; }
.limit { fill: none; stroke: var(--red); stroke-width: 1.5; stroke-dasharray: 5 4; }
.mark { fill: var(--blue); fill-opacity: .7; }
"""


def page(executable) -> str:
    """The whole file's text."""
    estimate, timeline = executable.estimate, report.of_memory(executable)
    title = escape(f"{executable.name} on {executable.topology.name}")
    parts = [
        f"<h1>{escape(executable.name)}</h1>",
        f'<p class="soft">{_subtitle(executable)}</p>',
        _facts(executable),
        "<h2>Memory</h2>",
        drawings.memory(timeline, executable.memory.limit),
        _memory(executable, timeline),
        "<h2>Roofline</h2>",
        drawings.roofline(estimate.top(_DOTS), executable.chip),
        "<h2>Operations by time</h2>",
        _operations(estimate.top(_ROWS), estimate.seconds),
        _collectives(executable.collectives),
        "<h2>What this does not know</h2>",
        "<ul>" + "".join(f"<li>{escape(s)}</li>" for s in estimate.uncertain) + "</ul>",
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _subtitle(executable) -> str:
    chip, topology = executable.chip, executable.topology
    return escape(
        f"{units.scaled(executable.parameters)} parameters on {executable.partitions} of "
        f"{topology.size} devices of {topology.name} ({topology.kind}). A device: "
        f"{units.scaled(chip.peak, 'FLOP/s')} bfloat16, {units.scaled(chip.hbm_bandwidth, 'B/s')} "
        "of HBM. Estimated from the compiled program; nothing was run."
    )


def _facts(executable) -> str:
    estimate, memory = executable.estimate, executable.memory
    facts = [
        ("step, estimated", units.seconds(estimate.seconds), ""),
        ("roofline bound", units.seconds(estimate.bound_seconds), ""),
        ("MFU", units.percent(estimate.mfu), ""),
        ("hardware FLOPs utilisation", units.percent(estimate.hfu), ""),
        ("HBM bandwidth", units.percent(estimate.hbm_utilisation), ""),
        ("memory", memory.verdict, "good" if memory.fits else "bad"),
    ]
    cells = (
        f'<div><span class="soft">{name}</span><b class="{kind}">{escape(value)}</b></div>'
        for name, value, kind in facts
    )
    return f'<div class="facts">{"".join(cells)}</div>'


def _memory(executable, timeline) -> str:
    memory = executable.memory
    sizes = [
        ("arguments", memory.arguments),
        ("outputs", memory.outputs),
        ("of them in the place of arguments", memory.aliased),
        ("temporaries", memory.temporaries),
        ("code", memory.code),
        ("peak, by the compiler", memory.peak),
        ("peak, by liveness", timeline.peak),
        ("the same with vector memory", timeline.peak_with_vector),
        ("limit of a device", memory.limit),
    ]
    first = _table(("what", "bytes"), ((name, units.of_bytes(size)) for name, size in sizes), {1})
    rows = (
        (buffer.name, buffer.kind, buffer.shape, units.of_bytes(buffer.bytes), *_place(buffer))
        for buffer in timeline.largest
    )
    head = ("largest at the peak", "kind", "shape", "bytes", "operator", "module", "line")
    return first + _table(head, rows, {3})


def _place(thing) -> tuple[str, str, str]:
    return thing.place.operator, thing.place.module, thing.place.line


def _operations(ops: Sequence[Op], whole: float) -> str:
    head = ("time", "share", "times", "kind", "operator", "module", "line")
    head += ("FLOP", "HBM", "hidden", "from", "name")
    rows = (
        (
            *(units.seconds(op.seconds), units.percent(op.seconds / whole if whole else 0.0)),
            *(str(op.executions), op.kind, *_place(op), units.scaled(op.total_flops)),
            *(units.of_bytes(op.bytes), units.seconds(op.hidden), op.basis, op.name),
        )
        for op in ops
    )
    return _table(head, rows, {0, 1, 2, 7, 8, 9})


def _collectives(collectives: Sequence) -> str:
    if not collectives:
        return ""
    head = ("time", "times", "bytes of one", "kind", "group", "over", "asynchronous")
    rows = (
        (
            *(units.seconds(one.total_seconds), str(one.executions), units.of_bytes(one.bytes)),
            *(one.kind, f"{one.group_size} of {len(one.groups)}", one.over),
            *("yes" if one.asynchronous else "no", *_place(one)),
        )
        for one in sorted(collectives, key=lambda one: -one.total_seconds)
    )
    table = _table((*head, "operator", "module", "line"), rows, {0, 1, 2})
    return "<h2>Collectives, by the link model</h2>" + table


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: set[int]) -> str:
    """``numbers`` are the columns that are aligned to the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        marked = (
            f"<{tag}{' class=n' if i in numbers else ''}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table>{row(head, "th")}{body}</table></div>'
