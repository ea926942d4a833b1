"""Counts and tables of a run: the summary, `operators.md`, `operators.json`, regressions."""

from __future__ import annotations

import collections
import json
import pathlib

from . import overloads
from .compare import SILENT
from .reasons import explained, reason
from .units import TARGETS


def passes(record: dict) -> bool:
    """Whether every check of a unit passed (and there was one)."""
    return not _failed(record) and bool(record["passed"])


def _failed(record: dict) -> int:
    """Failures that count. Refusing a call only because of the values in it needs a look at them;
    Strict mode does not look, and docs/architecture.md says so."""
    return sum(record["failed"].values()) - record["kinds"].get("unchecked value", 0)


def silent(record: dict) -> dict | None:
    """The first failure that no exception told the user of and that is not the CPU's, if any."""
    kept = sum(record["kinds"].get(kind, 0) for kind in SILENT)
    shown = [f for f in record["failures"] if f["kind"] in SILENT]
    for failure in shown:
        if explained(record["unit"], failure) is None:
            return failure
    if kept > len(shown):
        return {"check": "?", "kind": "value", "message": "more failures than were kept"}
    return None


def ran(record: dict) -> bool:
    """Whether there was anything to check."""
    return bool(record["passed"] or record["failed"])


def summary(records: list[dict]) -> dict[str, collections.Counter]:
    """Counts per kind and dtype: units, passed, native, silent, refused, gradients.

    ``native`` counts units that pass with no CPU fallback.
    """
    rows: dict[str, collections.Counter] = {}
    for record in filter(ran, records):
        kind, dtype = record["unit"].split("/", 1)[0], record["unit"].rsplit("/", 1)[1]
        row = rows.setdefault(f"{kind} {dtype}", collections.Counter())
        row["units"] += 1
        row["passed"] += passes(record)
        row["native"] += passes(record) and not record["fallbacks"]
        row["silent"] += silent(record) is not None
        row["refused"] += bool(record["kinds"].get("raises") or record["kinds"].get("error class"))
        if record["passed"].get("backward") or record["failed"].get("backward"):
            row["gradients"] += 1
            row["gradients_passed"] += not record["failed"].get("backward")
    return rows


# ---- tables --------------------------------------------------------------------------------


def state(record: dict) -> str:
    """One word for a unit: how it runs if it passes, else ``fails``."""
    if not ran(record):
        return "no samples"
    if not passes(record):
        return "fails"
    if record["fallbacks"]:
        return overloads.FALLBACK
    # Operators that PyTorch writes in Python (torch_nn::...) are made of the others.
    names = (name for name in record["operators"] if name.startswith("aten::"))
    paths = {overloads.served(name).path for name in names}
    for path in (overloads.HOST, overloads.DECOMPOSITION):
        if path in paths:
            return path
    return overloads.NATIVE


def tables(records: list[dict], settings: dict) -> dict:
    """Everything `operators.md` says, as plain data."""
    fallbacks = collections.Counter()
    for record in records:
        fallbacks.update(record["fallbacks"].keys())
    rows = {}
    met = {name for record in records for name in record["operators"]}
    for name in sorted(set(overloads.listed()) | set(fallbacks)):
        served = overloads.served(name)
        rows[name] = {
            "path": served.path,
            "by": served.by,
            "core": served.core,
            "core decomposition": served.decomposable,
            "units on the CPU": fallbacks.get(name, 0),
        }
    units = {record["unit"]: state(record) for record in records}
    failing = [record for record in records if ran(record) and not passes(record)]
    return {
        "settings": settings,
        "summary": {name: dict(row) for name, row in summary(records).items()},
        "overloads": rows,
        "overloads met": len(met),
        "units": units,
        "reasons": {record["unit"]: list(reason(record)) for record in failing},
    }


def lost(folder: pathlib.Path, names: list[str]) -> list[str]:
    """Units of the table in ``folder`` that a table of the units ``names`` would not have."""
    return sorted(_recorded(folder).get("units", {}).keys() - set(names))


def write(folder: pathlib.Path, records: list[dict], settings: dict) -> None:
    """Write ``operators.md`` and ``operators.json`` of a run to ``folder``."""
    data = tables(records, settings)
    if (kept := _recorded(folder).get("targets")) is not None:
        data["targets"] = kept
    _write(folder, data)


def write_target(folder: pathlib.Path, generation: str, found: dict) -> None:
    """Put what compile-only conformance found of a generation into the tables in ``folder``."""
    data = _recorded(folder)
    if not data:
        raise FileNotFoundError(
            f"{folder / 'operators.json'} is missing: a run without --target writes it first"
        )
    data["targets"] = {**data.get("targets", {}), generation: found}
    _write(folder, data)


def _recorded(folder: pathlib.Path) -> dict:
    table = folder / "operators.json"
    return json.loads(table.read_text()) if table.is_file() else {}


def _write(folder: pathlib.Path, data: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "operators.json").write_text(json.dumps(data, indent=0, sort_keys=True) + "\n")
    (folder / "operators.md").write_text(_markdown(data))


_HEAD = """# Operators

Written by `python -m torch_tpu.conformance --write docs`; do not edit. The same as data:
`operators.json`. What is checked, and how: [conformance.md](conformance.md).

Settings of the run: {settings}.
"""


def _markdown(data: dict) -> str:
    parts = [_HEAD.format(settings=", ".join(f"{k} {v}" for k, v in data["settings"].items()))]
    parts.append("## Summary\n\n" + _summary_table(data["summary"]))
    parts.append(_overload_section(data["overloads"], data.get("targets", {})))
    parts.append(_unit_section(data["units"]))
    parts.append(_reason_section(data["reasons"]))
    return "\n".join(parts)


def _row(*cells) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |\n"


def _head(*names: str) -> str:
    return _row(*names) + _row(*("---" for _ in names))


def _summary_table(rows: dict) -> str:
    text = _head("", "units", "pass", "of these without fallback", "silent mismatches", "gradients")
    for name, row in rows.items():
        row = collections.Counter(row)
        share = f"{row['passed']} ({100 * row['passed'] / row['units']:.1f} %)"
        native = f"{row['native']} ({100 * row['native'] / max(row['passed'], 1):.1f} %)"
        gradients = f"{row['gradients_passed']} of {row['gradients']}" if row["gradients"] else ""
        text += _row(name, row["units"], share, native, row["silent"], gradients)
    return text


def _overload_section(rows: dict, targets: dict) -> str:
    count = collections.Counter(row["path"] for row in rows.values())
    words = ", ".join(f"{n} {path}" for path, n in count.most_common())
    text = f"## ATen overloads that reach a backend\n\n{len(rows)}: {words}.\n\n"
    targets = {name: targets[name] for name in TARGETS if name in targets}
    numbers = {reason: i for i, (reason, _, _) in enumerate(_refusals(targets), 1)}
    text += "".join(_target_line(name, found) for name, found in targets.items())
    text += _head("overload", "served by", "rule", "core ATen", *targets)
    for name, row in rows.items():
        core = "core" if row["core"] else "decomposable" if row["core decomposition"] else ""
        cells = [_target_cell(t["overloads"].get(name), numbers) for t in targets.values()]
        by = "" if row["by"] == name else f"`{row['by'].removeprefix('aten::')}`"
        text += _row(f"`{name.removeprefix('aten::')}`", row["path"], by, core, *cells)
    return text + _refusal_section(targets)


# ---- columns of compile-only conformance -----------------------------------------------------


def _target_line(name: str, found: dict) -> str:
    count, compiler = found["summary"], found["compiler"].strip().splitlines()[0]
    dtypes = ", ".join(found["settings"]["dtypes"])
    return (
        f"Compiled for {name} ({found['topology']}; {compiler}; {dtypes}): {count['compile']} of "
        f"{count['native']} native overloads.\n\n"
    )


def _target_cell(row: dict | None, numbers: dict[str, int]) -> str:
    """✓, or the dtypes that do not compile with the numbers of the reasons."""
    if row is None:
        return ""
    if row["served"] != overloads.NATIVE:
        return row["served"]
    bad = []
    for dtype, cell in row["dtypes"].items():
        if cell["reasons"]:
            part = f" in {cell['compiled']} of {cell['programs']}" if cell["compiled"] else ""
            bad.append(dtype + part + "".join(f" [{numbers[r]}]" for r in cell["reasons"]))
    if not bad:
        return "✓"
    return ("" if len(bad) == len(row["dtypes"]) else "✓ but ") + ", ".join(bad)


def refused(rows: dict[str, dict]) -> dict[str, list[str]]:
    """The compiler's reason → "overload (dtypes)" that it refuses, of one generation."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for name, row in rows.items():
        for dtype, cell in row.get("dtypes", {}).items():
            for why in cell["reasons"]:
                reasons.setdefault(why, {}).setdefault(name, []).append(dtype)
    return {
        why: [f"{name} ({', '.join(dtypes)})" for name, dtypes in sorted(found.items())]
        for why, found in sorted(reasons.items(), key=lambda item: -len(item[1]))
    }


def _refusals(targets: dict) -> list[tuple[str, list[str], list[str]]]:
    """(reason, overloads with dtypes, generations); what is common to generations once."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for generation, target in targets.items():
        for why, names in refused(target["overloads"]).items():
            every, generations = found.setdefault(why, ([], []))
            every += [name for name in names if name not in every]
            generations.append(generation)
    return [(why, *lists) for why, lists in found.items()]


def _refusal_section(targets: dict) -> str:
    if not targets:
        return ""
    text = "\n### What the TPU compiler refuses\n\n"
    text += _head("", "reason in its words, N for numbers", "overloads", "generations")
    for number, (why, names, generations) in enumerate(_refusals(targets), 1):
        listed = ", ".join(f"`{name.removeprefix('aten::')}`" for name in names)
        text += _row(f"[{number}]", why, listed, ", ".join(generations))
    return text


def _unit_section(units: dict) -> str:
    text = ""
    for kind, title in (("op", "OpInfo"), ("module", "Module"), ("optimizer", "Optimiser")):
        found: dict[str, dict[str, str]] = {}
        for unit, word in units.items():
            this, rest = unit.split("/", 1)
            if this == kind:
                name, dtype = rest.rsplit("/", 1)
                found.setdefault(name, {})[dtype] = word
        if not found:
            continue
        dtypes = sorted({dtype for row in found.values() for dtype in row})
        text += f"\n## {title} by dtype\n\n" + _head(title, *dtypes)
        for name, row in sorted(found.items()):
            text += _row(f"`{name}`", *(row.get(dtype, "") for dtype in dtypes))
    return text


def _reason_section(reasons: dict) -> str:
    text = "\n## What does not pass, and why\n\n"
    if not reasons:
        return text + "Everything passes.\n"
    text += _head("unit", "reason", "")
    for unit, (word, line) in sorted(reasons.items(), key=lambda item: (item[1][0], item[0])):
        text += _row(f"`{unit}`", word, " ".join(line.split())[:300])
    return text


def regressions(baseline: pathlib.Path, records: list[dict]) -> list[str]:
    """Units that pass in the ``operators.json`` at ``baseline`` and do not in ``records``."""
    before = json.loads(baseline.read_text())["units"]
    failed = (r for r in records if ran(r) and not passes(r))
    return [r["unit"] for r in failed if before.get(r["unit"]) not in (None, "fails", "no samples")]
