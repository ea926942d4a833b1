"""Compile-only conformance: every native lowering, compiled for TPUs that are not attached.

``python -m torch_tpu.conformance --target v6e --compile-only``: workers collect the programs that
each ATen overload is lowered to (`programs.py`), of which the shortest to the longest of each
overload and dtype are compiled by libtpu in its child process. Here: which are compiled, what came
of it, the columns of `operators.md`, and what got worse. How programs are collected and compiled is
not here.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pathlib
import re

import torch
from rich.console import Console
from rich.table import Table

from ..aot.topology import Topology
from ..program import cache
from ..program.compile import compile_options
from . import overloads, pool, programs, report, units
from .journal import Journal

COMPILE_LIMIT = 120.0  # seconds for one program
# How an overload is served: by programs, by none (views), on the CPU; or nothing called it.
NATIVE, NO_PROGRAM, CPU, UNSEEN = "native", "no program", "CPU fallback", "not called"
_SPARE = 60.0  # seconds more until the worker itself is given up


# ---- what to compile -----------------------------------------------------------------------


@dataclasses.dataclass
class Wanted:
    """Programs to compile, and what is known of the overloads without compiling.

    Attributes:
      programs: content key → (text, options as JSON).
      keys: overload → dtype → keys of its programs.
      met: overloads that were called.
      lowered: overloads that had a program of their own, not only through others.
      on_cpu: overloads (functional) of which a call fell back to the CPU.
    """

    programs: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    keys: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)
    met: set[str] = dataclasses.field(default_factory=set)
    lowered: set[str] = dataclasses.field(default_factory=set)
    on_cpu: set[str] = dataclasses.field(default_factory=set)


def wanted(records: list[dict], count: int) -> Wanted:
    """Of each overload and dtype ``count`` programs, from the shortest to the longest."""
    found = Wanted()
    every: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for record in records:
        dtype = record["unit"].rsplit("/", 1)[1]
        found.met |= set(record["operators"])
        found.lowered |= set(record.get("lowered", ()))
        found.on_cpu |= {overloads.functional(name) for name in record["fallbacks"]}
        for name, listed in record.get("programs", {}).items():
            for text, options in listed:
                key = cache.content_key(text, compile_options(options))
                pair = text, json.dumps(options, sort_keys=True)
                every.setdefault((name, dtype), {}).setdefault(key, pair)
    for (name, dtype), listed in sorted(every.items()):
        keys = {pair: key for key, pair in listed.items()}
        chosen = programs.shortest(listed.values(), count)
        found.keys.setdefault(name, {})[dtype] = [keys[pair] for pair in chosen]
        found.programs.update((keys[pair], pair) for pair in chosen)
    return found


# ---- what came of it -----------------------------------------------------------------------


def failed(record: dict) -> str:
    """Why a program did not compile; "" if it did."""
    if "reason" in record:
        return record["reason"]
    return record["failures"][0]["message"]  # of a worker that was lost


_NOISE = (
    (re.compile(r", metadata=\{.*"), ""),
    (re.compile(r"%[\w.\-]+"), "%"),
    (re.compile(r"% = [^\s(]+ ([\w\-]+)\(.*"), r"\1"),
    (re.compile(r"\[[\d,]*\](\{[\d,:TE()S]*\})?"), "[]"),
    (re.compile(r"\d+"), "N"),
)


def kind_of(reason: str) -> str:
    """The compiler's words without what differs between two programs with one problem."""
    text = " ".join(reason.strip().splitlines()[0].split()) if reason.strip() else "no message"
    for pattern, word in _NOISE:
        text = pattern.sub(word, text)
    return text[:240]


def outcome(name: str, found: Wanted, verdicts: dict[str, str], same: dict[str, str]) -> dict:
    """What is known of an overload: how it is served on a TPU, and by dtype what did not compile.

    ``verdicts`` are reasons by content key, "" for what compiled; ``same`` is of `alike`.
    """
    rule = overloads.functional(name)
    # `x.out` often stands for `x`, which structured kernels implement: the lowering is the same.
    by_dtype = found.keys.get(name) or found.keys.get(same.get(rule, name), {})
    if rule in found.on_cpu and name not in found.lowered:
        return {"served": CPU}
    if not by_dtype:
        return {"served": NO_PROGRAM if name in found.met else UNSEEN}
    dtypes = {}
    for dtype, keys in by_dtype.items():
        reasons = sorted({kind_of(verdicts[key]) for key in keys if verdicts[key]})
        bad = sum(bool(verdicts[key]) for key in keys)
        dtypes[dtype] = {"programs": len(keys), "compiled": len(keys) - bad, "reasons": reasons}
    return {"served": NATIVE, "dtypes": dtypes}


def alike(found: Wanted) -> dict[str, str]:
    """Functional overload → one with programs that its rule serves, itself if it can be."""
    names = [n for n in sorted(found.keys) if n.startswith("aten::")]
    served = {overloads.functional(name): name for name in names}
    return {**served, **{rule: rule for rule in served if rule in found.keys}}


def compiles(row: dict) -> bool:
    return all(d["compiled"] == d["programs"] for d in row.get("dtypes", {}).values())


def tables(found: Wanted, verdicts: dict[str, str], facts: dict) -> dict:
    """Everything that is known of one generation, as plain data."""
    names = sorted(set(overloads.listed()) | {n for n in found.keys if n.startswith("aten::")})
    same = alike(found)
    rows = {name: outcome(name, found, verdicts, same) for name in names}
    return {**facts, "overloads": rows, "summary": summary(rows)}


def summary(rows: dict[str, dict]) -> dict[str, int]:
    """Numbers of overloads: native, of these with programs that all compile, and the others."""
    native = [row for row in rows.values() if row["served"] == NATIVE]
    count = collections.Counter(row["served"] for row in rows.values())
    others = {word: count[word] for word in (NO_PROGRAM, CPU, UNSEEN)}
    return {NATIVE: len(native), "compile": sum(map(compiles, native)), **others}


def regressions(before: dict, now: dict) -> list[str]:
    """Overloads with dtypes whose programs compiled in the table ``before`` and do not ``now``."""
    worse = []
    for name, row in now["overloads"].items():
        known = before.get("overloads", {}).get(name, {}).get("dtypes", {})
        for dtype, cell in row.get("dtypes", {}).items():
            was = known.get(dtype)
            if was and not was["reasons"] and cell["reasons"]:
                worse.append(f"{name} ({dtype}): {cell['reasons'][0]}")
    return worse


# ---- the run -------------------------------------------------------------------------------


def run(given: argparse.Namespace) -> int:
    """0 unless a lowering that compiled in the recorded table does not now."""
    from . import session

    console = Console(stderr=True)
    names = [str(unit) for unit in units.every(["op"], given.ops, given.dtypes)]
    if unknown := units.unmatched(["op"], given.ops):
        console.print(f"no operator is called {', '.join(unknown)}", style="red")
        return 2
    try:
        records = _collect(given, names, console, session.progress)
        found = wanted(records, given.samples)
        compilers = {g: Topology(units.TARGETS[g]).compiler for g in given.target}
        verdicts = _compile(given, found, compilers, console, session.progress)
    except ValueError as error:  # a journal of another run
        console.print(str(error), style="red")
        return 2
    status = 0
    for generation in given.target:
        facts = {
            "topology": units.TARGETS[generation],
            "compiler": compilers[generation],
            "settings": {"samples": given.samples, "dtypes": given.dtypes},
        }
        data = tables(found, verdicts[generation], facts)
        _print(console, generation, data)
        for table in filter(None, {given.check, given.write and given.write / "operators.json"}):
            for line in regressions(recorded(table).get(generation, {}), data):
                print(f"{generation}: compiled before, is refused now: {line}")
                status = 1
        if given.write:
            report.write_target(given.write, generation, data)
    return status


def recorded(table: pathlib.Path) -> dict:
    """What a table in ``operators.json`` has of the generations."""
    return json.loads(table.read_text()).get("targets", {}) if table.is_file() else {}


def _collect(given, names: list[str], console, progress) -> list[dict]:
    path = given.output.with_suffix(".collected.jsonl")
    if given.fresh:
        path.unlink(missing_ok=True)
    journal = Journal(path, {"samples": given.samples, "torch": torch.__version__})
    jobs = [
        (name, {"collect": name, "samples": given.samples})
        for name in names
        if name not in journal.records
    ]
    _served(given, jobs, journal, ("collecting", len(names)), console, progress)
    return [journal.records[name] for name in names]


def _compile(given, found: Wanted, compilers: dict, console, progress) -> dict:
    """Generation → content key → reason. What the journal has of this compiler is not repeated."""
    path = given.output.with_suffix(".compiled.jsonl")
    if given.fresh:
        path.unlink(missing_ok=True)
    journal = Journal(path, {"compilers": sorted(set(compilers.values()))})
    jobs = []
    for generation in given.target:
        for key, (text, options) in found.programs.items():
            name = f"{generation}/{key}"
            job = {"compile": name, "topology": units.TARGETS[generation], "limit": COMPILE_LIMIT}
            if name not in journal.records:
                jobs.append((name, {**job, "text": text, "options": options}))
    total = len(found.programs) * len(given.target)
    _served(given, jobs, journal, ("compiling", total), console, progress)
    return {
        g: {key: failed(journal.records[f"{g}/{key}"]) for key in found.programs}
        for g in given.target
    }


def _served(given, jobs: list, journal: Journal, said: tuple, console, progress) -> None:
    """Run jobs in worker processes that lower for a TPU; records go to the journal."""
    title, total = said
    command = (*pool.worker_command("strict"), "tpu")
    limit = max(given.limit, COMPILE_LIMIT + _SPARE)
    with progress(console) as bar, given.output.with_suffix(".log").open("a") as log:
        task = bar.add_task(title, total=total, completed=total - len(jobs))

        def done(record: dict) -> None:
            journal.add(record)
            bar.update(task, advance=1)
            if given.verbose and record.get("reason"):
                bar.print(record["unit"], kind_of(record["reason"]))

        pool.run(jobs, given.jobs, limit, log, done, command)


def _print(console: Console, generation: str, data: dict) -> None:
    count = data["summary"]
    share = 100 * count["compile"] / max(count[NATIVE], 1)
    others = ", ".join(f"{count[word]} {word}" for word in (NO_PROGRAM, CPU, UNSEEN))
    console.print(
        f"{generation}: of {count[NATIVE]} native overloads {count['compile']} compile "
        f"({share:.1f} %); {others}"
    )
    reasons = report.refused(data["overloads"])
    if reasons:
        table = Table("refused", "reason of the compiler")
        for reason, names in reasons.items():
            table.add_row("\n".join(names), reason)
        console.print(table)
