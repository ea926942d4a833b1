"""Every rule against CPU PyTorch, one test a row.

A row tests the call itself (values, dtypes, shapes, mutated arguments); one row of each rule also
tests it on non-contiguous inputs (views at an offset). Rows live in `rows/`, one file to a rule
file; `test_every_rule_has_a_row` keeps both in step. By default at most three rows of a rule run;
``-m sweep`` runs the others.
"""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from ops.row import Row
from ops.runner import (
    HERE,
    ROWS,
    by_rule,
    compare,
    flat,
    invoke,
    resolve,
    to_cpu_view,
    to_device,
    to_view,
    wanted,
)
from torch_tpu.dispatch import register
from torch_tpu.lowering.registry import RESULT_ONLY, RULES

# Files of cases that a row cannot hold; their COVERS name the rules they test.
CASE_FILES = sorted(p.stem for p in HERE.glob("test_*.py") if "\nCOVERS = " in p.read_text())
ROWS_PER_RULE = 3

# ---- rows ----------------------------------------------------------------------------------


def _dtypes(row: Row) -> tuple:
    values = flat([*row.args, *row.kwargs.values()])
    return tuple(v.dtype for v in values if isinstance(v, torch.Tensor))


def _default_rows(rows: list[Row]) -> list[Row]:
    """The first row of a rule, then those that bring dtypes not seen yet, then the next ones."""
    chosen = rows[:1]
    for row in rows[1:]:
        if _dtypes(row) not in map(_dtypes, chosen):
            chosen.append(row)
    chosen += [row for row in rows if row not in chosen]
    return chosen[:ROWS_PER_RULE]


def _parameters() -> list:
    default = {id(row) for rows in by_rule().values() for row in _default_rows(rows)}
    return [
        pytest.param(row, id=row.label[:100], marks=[] if id(row) in default else pytest.mark.sweep)
        for row in ROWS
    ]


def _view_parameters() -> list:
    """One row of every rule, of float32 if there is one. Random results cannot be compared."""
    chosen = []
    for rows in by_rule().values():
        rows = [r for r in rows if _dtypes(r) and not r.random and r.views != "refused"]
        chosen += sorted(rows, key=lambda row: torch.float32 not in _dtypes(row))[:1]
    return [pytest.param(row, id=row.label[:100]) for row in chosen]


@pytest.mark.parametrize("row", _parameters())
def test_row(row: Row):
    want = wanted(row)
    got = invoke(row, resolve(row.name), to_device, "tpu")
    compare(row, got, want)
    if row.random and row.check:
        assert row.check([r.cpu() for r in got if isinstance(r, torch.Tensor)])


@pytest.mark.parametrize("row", _view_parameters())
def test_row_on_views(row: Row):
    got = invoke(row, resolve(row.name), to_view, "tpu")
    compare(row, got, wanted(row, to_cpu_view if row.views == "strides" else torch.clone))


# ---- the table -----------------------------------------------------------------------------


def test_every_rule_has_a_row():
    named = {row.name for row in ROWS}
    for file in CASE_FILES:
        named.update(importlib.import_module(f"ops.{file}").COVERS)
    assert not named - set(RULES)
    # Rules of captured graphs come and go with the tests of torch.compile.
    wanted = {n for n, rule in RULES.items() if not (rule.graph_only or rule.graph)}
    assert not sorted(wanted - named)


def test_departures_from_the_cpu_have_a_reason():
    departures = [row for row in ROWS if row.reference or row.rtol > 1e-5 or row.atol > 1e-6]
    assert not [row.label for row in departures if not row.reason]


def test_every_rule_takes_the_arguments_of_its_schema():
    for name, rule in RULES.items():
        if rule.graph:
            continue
        base, _, overload = name.partition(".")
        parameters = inspect.signature(rule.body).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            continue
        for argument in torch._C._get_schema(base, overload).arguments:
            safe = argument.name + "_" if argument.name in ("from", "lambda") else argument.name
            assert safe in parameters or argument.name in RESULT_ONLY, f"{name}: {argument.name}"


def test_served_overloads_are_found_by_schema():
    assert register.SERVED["aten::add_.Tensor"] == "aten::add.Tensor"
    assert register.SERVED["aten::add.out"] == "aten::add.Tensor"
