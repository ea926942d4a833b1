"""One runner over all rows: every rule against CPU PyTorch.

A row gives: the call itself (values, dtypes, shapes), the same call on non-contiguous inputs (views
with an offset), its in-place and ``out=`` forms where the schema has them. Rows live in `rows/`, one
file per rule file. `test_every_rule_has_a_row` keeps both in step.
"""

from __future__ import annotations

import importlib
import pathlib

import pytest
import torch
from torch_tpu.dispatch import register
from torch_tpu.lowering.registry import RULES

from ops.row import Row

ROWS_DIR = pathlib.Path(__file__).parent / "rows"
FAMILIES = sorted(p.stem for p in ROWS_DIR.glob("*.py") if p.stem != "__init__")
ROWS: list[Row] = [
    row for family in FAMILIES for row in importlib.import_module(f"ops.rows.{family}").ROWS
]

# Operators without a CPU kernel, and the one that computes the same.
REFERENCES = {
    "aten::convolution_overrideable": lambda *a: torch.ops.aten.convolution(*a),
    "aten::convolution_backward_overrideable": lambda go, x, w, *rest: (
        torch.ops.aten.convolution_backward(
            go, x, w, [w.shape[1] * rest[5] if rest[3] else w.shape[0]], *rest
        )
    ),
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


def to_device(x: torch.Tensor) -> torch.Tensor:
    return x.to("tpu")


def to_view(x: torch.Tensor) -> torch.Tensor:
    """The same values as a transposed slice, at an offset, of a larger tensor on the device."""
    if x.ndim == 0:
        return torch.stack([x, x]).to("tpu")[1]
    big = torch.zeros([s + 2 for s in x.shape][::-1], dtype=x.dtype).to("tpu")
    view = big.permute(*range(x.ndim - 1, -1, -1))[tuple(slice(1, s + 1) for s in x.shape)]
    view.copy_(x)
    return view


def results(value) -> list:
    if isinstance(value, (list, tuple)):
        return [r for v in value for r in results(v)]
    return [value]


def compare(row: Row, got, want) -> None:
    got, want = results(got), results(want)
    assert len(got) == len(want)
    for actual, reference in zip(got, want, strict=True):
        if not isinstance(reference, torch.Tensor):
            assert row.random or actual == reference
            continue
        if actual is None:
            continue
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


def reference(row: Row):
    op = REFERENCES.get(row.name) or resolve(row.name)
    copies = move(row.args, torch.clone)
    return op(*copies, **{k: move(v, torch.clone) for k, v in row.kwargs.items()})


def run(row: Row, transform):
    args = move(row.args, transform)
    kwargs = {k: move(v, transform) for k, v in row.kwargs.items()}
    return resolve(row.name)(*args, **kwargs)


@pytest.mark.parametrize("row", ROWS, ids=[row.label[:100] for row in ROWS])
def test_row(row: Row):
    want = reference(row)
    got = run(row, to_device)
    compare(row, got, want)
    if row.random and row.check:
        assert row.check([r.cpu() for r in results(got) if isinstance(r, torch.Tensor)])


# Views take another way into the program; two rows per rule show it.
_seen: dict[str, int] = {}
VIEW_ROWS = []
for _row in ROWS:
    _seen[_row.name] = _seen.get(_row.name, 0) + 1
    if _seen[_row.name] <= 1 and not _row.random:
        VIEW_ROWS.append(_row)


@pytest.mark.parametrize("row", VIEW_ROWS, ids=[row.label[:100] for row in VIEW_ROWS])
def test_row_on_views(row: Row):
    compare(row, run(row, to_view), reference(row))


def test_every_rule_has_a_row():
    named = {row.name for row in ROWS}
    missing = sorted(
        name
        for name, rule in RULES.items()
        if name not in named and not rule.procedure and not rule.graph_only
    )
    assert not missing


def test_every_rule_takes_the_arguments_of_its_schema():
    import inspect

    from torch_tpu.lowering.registry import RESULT_ONLY

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
