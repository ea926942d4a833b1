"""Runs rows: the call on the device, its reference on the CPU, and their comparison.

Used by `test_ops.py` (rows as they are, and on views) and `test_variants.py` (in-place and out=).
"""

from __future__ import annotations

import collections
import importlib
import pathlib

import torch

from ops.row import ANY, Row
from torch_tpu.lowering.registry import RULES

HERE = pathlib.Path(__file__).parent
FAMILIES = sorted(p.stem for p in (HERE / "rows").glob("*.py") if p.stem != "__init__")
ROWS: list[Row] = [
    row for family in FAMILIES for row in importlib.import_module(f"ops.rows.{family}").ROWS
]


def _convolution_backward(grad, x, weight, *rest):
    channels = weight.shape[1] * rest[5] if rest[3] else weight.shape[0]
    results = torch.ops.aten.convolution_backward(grad, x, weight, [channels], *rest)
    # Some CPU kernels return gradients that were not asked for.
    return [r if asked else None for r, asked in zip(results, rest[-1], strict=True)]


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
        elif reference.dtype.itemsize > 1 and (
            reference.is_floating_point() or reference.is_complex()
        ):
            tolerance = {"rtol": row.rtol, "atol": row.atol}
        torch.testing.assert_close(actual.cpu(), reference, equal_nan=True, **tolerance)


def by_rule() -> dict[str, list[Row]]:
    groups = collections.defaultdict(list)
    for row in ROWS:
        groups[row.name].append(row)
    return groups
