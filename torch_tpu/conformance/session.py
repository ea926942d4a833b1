"""One run as the user sees it: progress, summary, tables, exit status."""

from __future__ import annotations

import argparse
import collections
import sys
import time

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import pool, report, units
from .compare import SILENT
from .journal import Journal


def progress(console: Console) -> Progress:
    """The bar of a run."""
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def _settings(given: argparse.Namespace) -> dict:
    return {"samples": given.samples, "mode": given.mode, "torch": torch.__version__}


def conform(given: argparse.Namespace) -> int:
    """The conformance run; 0 if nothing differs silently (and nothing that passed fails)."""
    console = Console(stderr=True)
    wanted = units.every(given.kinds, given.ops, given.dtypes)
    if unmatched := units.unmatched(given.kinds, given.ops):
        names = ", ".join(unmatched)
        console.print(f"no operator, module or optimiser is called {names}", style="red")
        return 2
    if not wanted:
        console.print("the CPU has none of these with these dtypes", style="red")
        return 2
    names = [str(unit) for unit in wanted]
    if given.write and (lost := report.lost(given.write, names)):
        console.print(
            f"--write: the table in {given.write} has {len(lost)} units that this run has not "
            f"({lost[0]}, ...); run all of them, or write to another folder",
            style="red",
        )
        return 2
    if given.fresh:
        given.output.unlink(missing_ok=True)
    try:
        journal = Journal(given.output, _settings(given))
    except ValueError as error:
        console.print(str(error), style="red")
        return 2
    jobs = [
        (name, {"unit": name, "samples": given.samples})
        for name in names
        if name not in journal.records
    ]
    if len(jobs) < len(names):
        done_before = len(names) - len(jobs)
        console.print(f"{done_before} of {len(names)} units are in {given.output} (--fresh: anew)")
    start = time.monotonic()
    with progress(console) as bar, given.output.with_suffix(".log").open("a") as log:
        task = bar.add_task("conformance", total=len(names), completed=len(names) - len(jobs))

        def done(record: dict) -> None:
            journal.add(record)
            bar.update(task, advance=1, description=record["unit"].removeprefix("op/")[:34])
            if given.verbose:
                for failure in record["failures"]:
                    bar.print(_line(record, failure))

        pool.run(jobs, given.jobs, given.limit, log, done, pool.worker_command(given.mode))
    records = [journal.records[name] for name in names]
    return _finish(given, console, records, time.monotonic() - start)


def _line(record: dict, failure: dict) -> str:
    words = record["unit"], failure["check"], failure["kind"], failure["message"]
    return " · ".join(words)


def _finish(given, console: Console, records: list[dict], seconds: float) -> int:
    summary = report.summary(records)
    console.print(_table(summary))
    programs = sum(r["programs"] for r in records)
    console.print(f"{len(records)} units, {programs} programs compiled, {seconds:.0f} s")
    if given.write:
        report.write(given.write, records, _settings(given))
    status = 0
    for record in records:
        failure = report.silent(record)
        if failure is not None:
            print("silent mismatch:", _line(record, failure))
            status = 1
    if given.check:
        for line in report.regressions(given.check, records):
            print("passed before, fails now:", line)
            status = 1
    return status


def _table(summary: dict) -> Table:
    table = Table("", "units", "pass", "no fallback", "silent", "refused", "gradients")
    for name, row in summary.items():
        share = f"{100 * row['passed'] / max(row['units'], 1):.1f} %"
        native = f"{100 * row['native'] / max(row['passed'], 1):.1f} %"
        gradients = f"{row['gradients_passed']}/{row['gradients']}" if row["gradients"] else ""
        cells = str(row["units"]), share, native, str(row["silent"]), str(row["refused"])
        table.add_row(name, *cells, gradients)
    return table


def fuzz(given: argparse.Namespace) -> int:
    """Random calls with mutated arguments; 0 if none aborts, hangs or differs silently."""
    console = Console(stderr=True)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    batch = 100
    count = -(-given.fuzz // batch)
    jobs = []
    for i in range(count):
        calls = min(batch, given.fuzz - i * batch)
        job = {"fuzz": given.seed + i, "calls": calls, "ops": given.ops, "skip": []}
        jobs.append((f"fuzz/{given.seed + i}", job))
    totals: collections.Counter = collections.Counter()
    bad: list[str] = []
    with progress(console) as bar, given.output.with_suffix(".log").open("a") as log:
        task = bar.add_task("fuzz", total=len(jobs))

        def done(record: dict) -> None:
            bar.update(task, advance=1)
            totals.update(record["passed"])
            totals.update({f"! {kind}": n for kind, n in record["kinds"].items()})
            bad.extend(_line(record, f) for f in record["failures"] if f["kind"] in SILENT)

        pool.run(jobs, given.jobs, given.limit * 4, log, done, pool.worker_command(given.mode))
    table = Table("outcome", "calls")
    for name, n in sorted(totals.items()):
        table.add_row(name, str(n))
    console.print(table)
    for line in bad:
        print("silent:", line)
    sys.stdout.flush()
    return 1 if bad else 0


def numerics(given: argparse.Namespace) -> int:
    """Measure errors against double precision and write the page."""
    from . import numerics as measuring

    console = Console(stderr=True)
    wanted = units.every(["op"], given.ops, measuring.DTYPES)
    jobs = [(str(u), {"numerics": str(u), "samples": given.samples}) for u in wanted]
    rows: list[dict] = []
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with progress(console) as bar, given.output.with_suffix(".log").open("a") as log:
        task = bar.add_task("numerics", total=len(jobs))

        def done(row: dict) -> None:
            bar.update(task, advance=1)
            if "family" in row:
                rows.append(row)

        pool.run(jobs, given.jobs, given.limit, log, done, pool.worker_command(given.mode))
    measuring.write(given.numerics, sorted(rows, key=lambda row: row["unit"]))
    return 0
