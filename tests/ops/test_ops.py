"""One runner over all rows: every rule against CPU PyTorch.

A row gives two tests: the call itself (values, dtypes, shapes, mutated arguments), and the same call
on non-contiguous inputs (views at an offset), the latter for one row of each rule. Rows live in
`rows/`, one file per rule file; `test_every_rule_has_a_row` keeps both in step. By default at most
three rows of a rule run; ``-m sweep`` runs the others.
"""

from __future__ import annotations

import collections
import importlib
import inspect
import pathlib

import pytest
import torch

from ops.row import ANY, Row
from torch_tpu.dispatch import register
from torch_tpu.lowering.registry import RESULT_ONLY, RULES

HERE = pathlib.Path(__file__).parent
FAMILIES = sorted(p.stem for p in (HERE / "rows").glob("*.py") if p.stem != "__init__")
ROWS: list[Row] = [
    row for family in FAMILIES for row in importlib.import_module(f"ops.rows.{family}").ROWS
]
# Files of cases that a row cannot hold; their COVERS name the rules they test.
CASE_FILES = sorted(p.stem for p in HERE.glob("test_*.py") if "\nCOVERS = " in p.read_text())
ROWS_PER_RULE = 3


def _convolution_backward(grad, x, weight, *rest):
    channels = weight.shape[1] * rest[5] if rest[3] else weight.shape[0]
    return torch.ops.aten.convolution_backward(grad, x, weight, [channels], *rest)


# Operators without a CPU kernel, and the one that computes the same.
REFERENCES = {
    "aten::convolution_overrideable": torch.ops.aten.convolution,
    "aten::convolution_backward_overrideable": _convolution_backward,
}


def resolve(name: str):
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def move(value, transform):
    if isinstance(value, torch.Tensor):
        return transform(value)
    if isinstance(value, (list, tuple)):
        return type(value)(move(v, transform) for v in value)
    return value


def flat(value) -> list:
    if isinstance(value, (list, tuple)):
        return [r for v in value for r in flat(v)]
    return [value]


# ---- the ways in which a row is called -----------------------------------------------------


def to_device(x: torch.Tensor) -> torch.Tensor:
    return x.to("tpu")


def _view_of_copy(x: torch.Tensor, device: str) -> torch.Tensor:
    """The same values as a transposed slice, at an offset, of a larger tensor."""
    if x.ndim == 0:
        return torch.stack([x, x]).to(device)[1]
    order = range(x.ndim - 1, -1, -1)
    inner = tuple(slice(1, s + 1) for s in x.shape)
    larger = torch.zeros([s + 2 for s in reversed(x.shape)], dtype=x.dtype)
    larger.permute(*order)[inner] = x
    return larger.to(device).permute(*order)[inner]


def to_view(x: torch.Tensor) -> torch.Tensor:
    return _view_of_copy(x, "tpu")


def to_cpu_view(x: torch.Tensor) -> torch.Tensor:
    return _view_of_copy(x, "cpu")


def invoke(row: Row, op, transform, device: str) -> list:
    """All results, then the new values of the arguments that the operator mutates."""
    args = move(row.args, transform)
    kwargs = {k: move(v, transform) for k, v in row.kwargs.items()}
    schema = resolve(row.name)._schema
    names = [a.name for a in schema.arguments]
    if "device" in names and device != "cpu":
        kwargs.setdefault("device", device)
    produced = op(*args, **kwargs)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    mutated = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    mutated += [name for name in RULES[row.name].writes if name not in mutated]
    return [*flat(produced), *flat([given[name] for name in mutated if name in given])]


def wanted(row: Row, transform=torch.clone) -> list:
    op = row.reference or REFERENCES.get(row.name) or resolve(row.name)
    return invoke(row, op, transform, "cpu")


def compare(row: Row, got: list, want: list) -> None:
    assert len(got) == len(want)
    for actual, reference in zip(got, want, strict=True):
        if reference is ANY:
            continue
        if not isinstance(reference, torch.Tensor):
            assert row.random or actual == reference
            continue
        assert actual is not None
        assert actual.shape == reference.shape
        assert actual.dtype is reference.dtype
        assert actual.device.type == "tpu"
        if row.random:
            continue
        tolerance = {"rtol": 0, "atol": 0}
        if reference.dtype in (torch.float16, torch.bfloat16):
            tolerance = {"rtol": 1.6e-2, "atol": 1e-3}
        elif reference.is_floating_point() or reference.is_complex():
            tolerance = {"rtol": row.rtol, "atol": row.atol}
        torch.testing.assert_close(actual.cpu(), reference, equal_nan=True, **tolerance)


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


def _by_rule() -> dict[str, list[Row]]:
    groups = collections.defaultdict(list)
    for row in ROWS:
        groups[row.name].append(row)
    return groups


def _parameters() -> list:
    default = {id(row) for rows in _by_rule().values() for row in _default_rows(rows)}
    return [
        pytest.param(row, id=row.label[:100], marks=[] if id(row) in default else pytest.mark.sweep)
        for row in ROWS
    ]


def _view_parameters() -> list:
    """One row of every rule, of float32 if there is one. Random results cannot be compared."""
    chosen = []
    for rows in _by_rule().values():
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
    assert not sorted(n for n, rule in RULES.items() if n not in named and not rule.graph_only)


def test_departures_from_the_cpu_have_a_reason():
    departures = [row for row in ROWS if row.reference or row.rtol > 1e-5 or row.atol > 1e-6]
    assert not [row.label for row in departures if not row.reason]


def test_every_rule_takes_the_arguments_of_its_schema():
    for name, rule in RULES.items():
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
