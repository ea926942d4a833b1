"""Compile-only conformance: programs are lowered as for a TPU, compiled, and told of by name."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch

from torch_tpu.conformance import __main__ as command, programs, report, target
from torch_tpu.conformance.units import Unit
from torch_tpu.lowering.target import lower_everything_for, lowering_for, platform


@pytest.fixture
def for_tpu():
    """Eager calls are lowered as for a TPU; they still run here."""
    lower_everything_for("tpu")
    yield
    lower_everything_for("")


# ---- lowering for a TPU ----------------------------------------------------------------------


def test_the_platform_is_the_plugins_unless_something_else_is_asked_for():
    assert platform() == "cpu"
    with lowering_for("tpu"):
        assert platform() == "tpu"
    assert platform() == "cpu"
    lower_everything_for("tpu")
    assert platform() == "tpu"
    lower_everything_for("")
    assert platform() == "cpu"


def wide(*shape: int) -> torch.Tensor:
    """Integers whose products overflow 64 bits."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-(1 << 62), 1 << 62, shape, generator=generator)


PRODUCTS = {
    "mm": (torch.mm, wide(3, 5), wide(5, 4)),
    "bmm": (torch.bmm, wide(2, 3, 5), wide(2, 5, 4)),
    "dot": (torch.dot, wide(7), wide(7)),
    "mv": (torch.mv, wide(3, 5), wide(5)),
    "addmm": (torch.addmm, wide(3, 4), wide(3, 5), wide(5, 4)),
    "addbmm": (torch.addbmm, wide(3, 4), wide(2, 3, 5), wide(2, 5, 4)),
    "nothing to sum": (torch.mm, wide(3, 0), wide(0, 4)),
    "conv1d": (torch.conv1d, wide(2, 3, 9), wide(4, 3, 3)),
    "conv2d": (torch.conv2d, wide(2, 4, 9, 8), wide(6, 2, 3, 2), wide(6), 2, 1, (2, 1), 2),
    "many groups": (torch.conv2d, wide(1, 36, 4, 4), wide(36, 2, 3, 3), None, 1, 1, 1, 18),
    "conv3d": (torch.conv3d, wide(1, 2, 4, 5, 4), wide(3, 2, 2, 1, 3)),
    "transposed": (torch.conv_transpose2d, wide(2, 4, 5, 4), wide(4, 3, 3, 2), None, 2, 1, 1, 2),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_of_64_bit_integers_are_exact_without_dot_or_convolution(for_tpu, case):
    function, *arguments = PRODUCTS[case]
    want = function(*arguments)
    mode = programs.Programs()
    given = [a.to("tpu") if isinstance(a, torch.Tensor) else a for a in arguments]
    with mode:
        got = function(*given)
    assert torch.equal(got.cpu(), want)
    texts = [text for found in mode.found.values() for text, _ in found.values()]
    assert texts
    assert not [t for t in texts if "stablehlo.dot" in t or "stablehlo.convolution" in t]


def test_what_only_the_cpu_plugin_can_do_falls_back_and_is_named(for_tpu, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "warn")
    record = programs.collect(Unit.parse("op/linalg.eigvals/float32"), 1)
    assert record["fallbacks"]
    found = target.wanted([record], 1)
    rows = target.tables(found, dict.fromkeys(found.programs, ""), {})["overloads"]
    assert {rows[name]["served"] for name in ("aten::linalg_eig",)} == {target.CPU}


def test_programs_are_collected_by_overload(for_tpu):
    record = programs.collect(Unit.parse("op/add/float32"), 2)
    assert {"aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"} <= record["programs"].keys()
    assert record["failures"] == []
    text, options = record["programs"]["aten::add.Tensor"][0]
    assert "stablehlo.add" in text and options == {}
    # A procedure's programs are those of what it is made of.
    assert programs.collect(Unit.parse("op/nonzero/float32"), 1)["programs"]["aten::nonzero"]


# ---- tables ----------------------------------------------------------------------------------

LINE = "x64: While rewriting, XLA met: %dot.{0} = s64[{0},5]{{1,0}} dot(%a, %b), metadata={{{0}}}"


def record(dtype: str, **programs_of: list) -> dict:
    listed = {f"aten::{n}": [[text, {}] for text in texts] for n, texts in programs_of.items()}
    fields = {"operators": list(listed), "lowered": list(listed), "fallbacks": {}}
    return {"unit": f"op/x/{dtype}", "programs": listed, **fields}


def rows(reasons: dict[str, str]) -> dict:
    """Of abs in float32 and int64 and mm in int64; ``reasons`` by program."""
    records = [
        record("float32", **{"abs.out": ["a", "bb"]}),
        record("int64", **{"abs.out": ["a"], "mm": ["ccc"]}),
    ]
    found = target.wanted(records, 5)
    verdicts = {key: reasons.get(text, "") for key, (text, _) in found.programs.items()}
    facts = {"topology": "v6e:2x2", "compiler": "libtpu", "settings": {"dtypes": ["float32"]}}
    return target.tables(found, verdicts, facts)


def test_equal_problems_are_one_reason():
    one, other = (target.kind_of(LINE.format(n)) for n in (3, 17))
    assert one == other == "xN: While rewriting, XLA met: dot"
    assert target.kind_of("") == "no message"


def test_a_program_of_several_overloads_and_dtypes_is_compiled_once():
    found = target.wanted([record("float32", abs=["a", "bb", "ccc"], mm=["a"])], 2)
    assert sorted(text for text, _ in found.programs.values()) == ["a", "ccc"]


def test_refusals_are_told_by_overload_dtype_and_reason():
    data = rows({"bb": LINE.format(1), "ccc": LINE.format(2)})
    cells = data["overloads"]
    assert cells["aten::abs.out"]["dtypes"]["float32"]["compiled"] == 1
    assert cells["aten::abs.out"]["dtypes"]["int64"]["reasons"] == []
    # `mm.out` was not called: it is known by `mm`, which has the same rule.
    assert data["summary"][target.NATIVE] == 3
    assert data["summary"]["compile"] == 0
    (names,) = report.refused(cells).values()
    assert names == ["aten::abs.out (float32)", "aten::mm (int64)", "aten::mm.out (int64)"]


def test_what_compiled_and_does_not_is_a_regression():
    good, bad = rows({}), rows({"ccc": "no"})
    assert target.regressions(good, good) == []
    worse = ["aten::mm (int64): no", "aten::mm.out (int64): no"]
    assert target.regressions(good, bad) == worse
    assert target.regressions(bad, bad) == []


def test_the_page_has_a_column_for_each_generation(tmp_path):
    report.write(tmp_path, [], {"samples": 1})
    report.write_target(tmp_path, "v6e", rows({"bb": "no"}))
    report.write_target(tmp_path, "v5e", rows({}))
    page = (tmp_path / "operators.md").read_text()
    assert "| overload | served by | rule | core ATen | v5e | v6e |" in page
    line = next(line for line in page.splitlines() if line.startswith("| `abs.out` "))
    assert line.endswith("| ✓ | ✓ but float32 in 1 of 2 [1] |")
    assert "| [1] | no | `abs.out (float32)` | v6e |" in page
    report.write(tmp_path, [], {"samples": 2})  # a run on the device keeps them
    assert target.recorded(tmp_path / "operators.json").keys() == {"v5e", "v6e"}
    with pytest.raises(FileNotFoundError, match="without --target"):
        report.write_target(tmp_path / "empty", "v6e", rows({}))


# ---- the command -----------------------------------------------------------------------------


def run(tmp_path, *words: str) -> int:
    return command.main([*words, "--jobs", "1", "--output", str(tmp_path / "run.jsonl")])


def test_wrong_arguments_are_refused(tmp_path, capsys):
    for words in (("--target", "v6e"), ("--compile-only",), ("--target", "v9", "--compile-only")):
        with pytest.raises(SystemExit):
            run(tmp_path, *words)
    assert "'v9' is none of v5e, v6e, tpu7x" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]")
def test_a_small_run_compiles_and_is_not_repeated(tmp_path, capsys):
    report.write(tmp_path, [], {"samples": 1})
    words = ("--ops", "abs", "--dtypes", "float32", "--samples", "1", "--target", "v6e")
    words += ("--compile-only", "--write", str(tmp_path))
    assert run(tmp_path, *words) == 0
    rows_ = target.recorded(tmp_path / "operators.json")["v6e"]["overloads"]
    assert rows_["aten::abs"]["dtypes"]["float32"]["reasons"] == []
    before = (tmp_path / "run.compiled.jsonl").read_text()
    assert run(tmp_path, *words) == 0
    assert (tmp_path / "run.compiled.jsonl").read_text() == before
    records = [json.loads(line) for line in before.splitlines()[1:]]
    assert records and all(r["unit"].startswith("v6e/") for r in records)
