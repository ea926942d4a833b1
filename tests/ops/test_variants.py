"""In-place and ``out=`` forms, which the core derives from the schemas of the functional rules.

Each overload is tried with a row of its functional form. Part of the sweep: the derivation is one
piece of code, which `tests/dispatch` tests by default; this shows that it serves every overload.
"""

from __future__ import annotations

import pytest
import torch

from ops.row import Row
from ops.runner import by_rule, compare, flat, move, resolve, to_device, wanted
from torch_tpu.dispatch.register import SERVED
from torch_tpu.lowering.registry import RULES

ROWS = by_rule()
VARIANTS = {n: f for n, f in SERVED.items() if n != f and not RULES[f].procedure and f in ROWS}


def _is_out(name: str) -> bool:
    return any(a.is_out for a in resolve(name)._schema.arguments)


OUT = sorted(n for n in VARIANTS if _is_out(n))
IN_PLACE = sorted(n for n in VARIANTS if not _is_out(n))


def _named(row: Row, transform) -> dict:
    names = [a.name for a in resolve(row.name)._schema.arguments]
    given = {**dict(zip(names, row.args, strict=False)), **row.kwargs}
    return {name: move(value, transform) for name, value in given.items()}


def _call(name: str, named: dict):
    schema = resolve(name)._schema
    wanted_names = [a.name for a in schema.arguments if a.name in named]
    required = {a.name: None for a in schema.arguments if not a.has_default_value()}
    first, *rest = wanted_names
    keywords = {**required, **{n: named[n] for n in rest}}
    keywords.pop(first, None)
    return resolve(name)(named[first], **keywords)


@pytest.mark.sweep
@pytest.mark.parametrize("name", OUT)
def test_out(name):
    row = ROWS[VARIANTS[name]][0]
    want = wanted(row)
    targets = [a for a in resolve(name)._schema.arguments if a.is_out]
    many = len(targets) == 1 and "List" in str(targets[0].type)
    made = [
        torch.empty(0, dtype=x.dtype if isinstance(x, torch.Tensor) else torch.float32).to("tpu")
        for x in (want if many else want[: len(targets)])
    ]
    named = _named(row, to_device)
    outs = [made] if many else made
    named.update({a.name: out for a, out in zip(targets, outs, strict=True)})
    result = _call(name, named)
    assert many or all(a is b for a, b in zip(flat(result), made, strict=True))
    compare(row, made, want[: len(made)])


@pytest.mark.sweep
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    for row in ROWS[VARIANTS[name]]:
        target = _named(row, torch.clone)
        try:
            _call(name, target)
        except RuntimeError:
            continue  # the result of this row does not fit into its first argument
        first = resolve(name)._schema.arguments[0].name
        named = _named(row, to_device)
        _call(name, named)
        compare(row, flat([named[first]]), flat([target[first]]))
        return
    pytest.fail("no row has a result that fits into its first argument")


@pytest.mark.parametrize(
    ("out", "mean"), [((5, 3), (3,)), ((3,), (5, 3)), ((2,), (2,)), ((0,), (2,)), ((4,), (3,))]
)
def test_normal_draws_for_every_place_of_out(out, mean):
    def draw(device):
        result = torch.zeros(out, device=device)
        returned = torch.normal(torch.full(mean, 100.0, device=device), 0.5, out=result)
        assert returned is result
        return result

    try:
        expected = draw("cpu")
    except RuntimeError:
        with pytest.raises(RuntimeError, match="size|broadcast"):
            draw("tpu")
        return
    result = draw("tpu")
    assert result.shape == expected.shape and result.stride() == expected.stride()
    assert (result > 90).all() and result.unique().numel() == result.numel()
