"""The conformance run finds what it must find, survives what it meets, and goes on where it was."""

from __future__ import annotations

import io
import json
import sys
import types

import pytest
import torch

from torch_tpu.conformance import __main__ as command, compare, inputs, pool, report
from torch_tpu.conformance.calls import Call, exactly, own_tolerance
from torch_tpu.conformance.compare import Difference
from torch_tpu.conformance.journal import Journal
from torch_tpu.conformance.record import Record


def kind(check) -> str:
    with pytest.raises(Difference) as caught:
        check()
    return caught.value.kind


# ---- what counts as equal --------------------------------------------------------------------


def test_metadata_differences_have_their_kind():
    want = torch.zeros(2, 3)
    metadata = compare.metadata
    assert kind(lambda: metadata(torch.zeros(3, 2), want, "x")) == "shape"
    assert kind(lambda: metadata(want.double(), want, "x")) == "dtype"
    assert kind(lambda: metadata(torch.zeros(3, 2).t(), want, "x")) == "stride"
    assert kind(lambda: metadata([want], [want, want], "x")) == "shape"
    assert kind(lambda: metadata(None, want, "x")) == "value"
    # The stride of a dimension with one element says nothing.
    metadata(torch.zeros(1, 3), torch.zeros(3, 1).t(), "x")


def test_integers_are_exact_and_floats_are_not():
    values = compare.Values()
    one = torch.tensor([1_000_000, 5])
    assert kind(lambda: values(one + torch.tensor([1, 0]), one, "x")) == "value"
    values(one.float() * (1 + 5e-6), one.float(), "x")
    assert kind(lambda: values(one.float() * (1 + 5e-5), one.float(), "x")) == "value"
    assert kind(lambda: values(torch.tensor([1.0]), torch.tensor([float("nan")]), "x")) == "value"


def test_the_exact_result_decides_where_the_cpu_is_off():
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    cpu = torch.tensor([1.001, 2.0])
    values = compare.Values(exact=lambda: exact)
    values(torch.tensor([1.0, 2.001]), cpu, "x")  # as far off as the CPU
    assert kind(lambda: values(torch.tensor([1.0, 2.01]), cpu, "x")) == "value"
    assert kind(lambda: values(torch.tensor([1.0, float("inf")]), cpu, "x")) == "value"


def test_the_exact_result_of_integers_is_double():
    call = Call(torch.fft.rfft, (torch.tensor([1, 2, 4], dtype=torch.uint8), (), {}))
    assert exactly(call)[0].dtype is torch.complex128
    assert torch.get_default_dtype() is torch.float32
    assert exactly(Call(torch.linalg.inv, (torch.zeros(2, 2), (), {}))) is None


def test_aliases_tell_identity_and_shared_storage():
    x, y = torch.zeros(4), torch.zeros(4)
    assert compare.aliases([x, x[1:], y.clone()], [x, y]) == [(0, (0,)), (None, (0,)), (None, ())]


def test_an_operators_own_tolerance_is_read_from_its_opinfo():
    from torch_tpu.conformance.units import databases

    assert own_tolerance(databases()["op"]["exp"], torch.float32) is None
    assert own_tolerance(databases()["op"]["matmul"], torch.float32) == (1e-5, 1e-4)


# ---- copies ----------------------------------------------------------------------------------


def test_copies_keep_layout_sharing_and_lazy_bits():
    base = torch.arange(12.0)
    tree = [base[2:8].view(2, 3).t(), base[1:3], torch.ones(3).expand(2, 3)]
    tree.append(torch.view_as_complex(torch.rand(3, 2)).conj())
    copies = inputs.Copies("tpu")(tree)
    for mine, theirs in zip(copies, tree, strict=True):
        assert mine.device.type == "tpu"
        assert mine.stride() == theirs.stride()
        assert mine.is_conj() == theirs.is_conj()
        assert torch.equal(mine.cpu(), theirs)
    copies[0].zero_()
    assert torch.equal(copies[1].cpu(), torch.tensor([1.0, 0.0]))


def test_one_copier_copies_a_tensor_once():
    x = torch.ones(2, requires_grad=True)
    first, second = inputs.Copies("tpu")([x, x])
    assert first is second
    assert first.requires_grad
    assert first.is_leaf


def test_a_wide_copy_is_in_double_precision():
    call = Call(torch.add, (torch.ones(2), (torch.ones(2),), {}))
    result, _ = call.run("cpu", {torch.float32: torch.float64})
    assert result.dtype is torch.float64


# ---- processes -------------------------------------------------------------------------------

WORKER = """
import json, os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if job == "abort":
        os.abort()
    if job == "hang":
        time.sleep(60)
    print(json.dumps({"unit": job, "pid": os.getpid()}), flush=True)
"""


def test_a_crash_and_a_hang_cost_one_unit_each(tmp_path):
    jobs = [(name, name) for name in ("a", "abort", "b", "hang", "c")]
    found = {}
    with (tmp_path / "log").open("w") as log:
        pool.run(
            jobs,
            1,
            3.0,
            log,
            lambda r: found.update({r["unit"]: r}),
            command=[sys.executable, "-c", WORKER],
        )
    assert list(found) == ["a", "abort", "b", "hang", "c"]
    assert found["abort"]["kinds"] == {"abort": 1}
    assert "SIGABRT" in found["abort"]["failures"][0]["message"]
    assert found["hang"]["kinds"] == {"hang": 1}
    assert len({found[name]["pid"] for name in "abc"}) == 3


def test_a_worker_that_does_not_start_is_an_error(tmp_path):
    with (tmp_path / "log").open("w") as log, pytest.raises(RuntimeError, match="did not start"):
        pool.run([("a", "a")], 1, 3.0, log, print, command=[sys.executable, "-c", "1"])


# ---- journal ---------------------------------------------------------------------------------


def test_a_journal_goes_on_after_a_torn_line(tmp_path):
    path = tmp_path / "run.jsonl"
    Journal(path, {"samples": 1}).add({"unit": "op/add/float32"})
    with path.open("a") as file:
        file.write('{"unit": "op/sub/fl\n{"unit": "op/mul/fl')
    journal = Journal(path, {"samples": 1})
    assert list(journal.records) == ["op/add/float32"]
    journal.add({"unit": "op/mul/float32"})
    assert list(Journal(path, {"samples": 1}).records) == ["op/add/float32", "op/mul/float32"]
    with pytest.raises(ValueError, match="samples"):
        Journal(path, {"samples": 2})


# ---- the command -----------------------------------------------------------------------------


def run(tmp_path, *words: str) -> int:
    return command.main([*words, "--jobs", "1", "--output", str(tmp_path / "run.jsonl")])


def test_a_small_run_writes_tables_and_is_not_repeated(tmp_path, capsys):
    words = ("--ops", "abs,nonzero", "--kinds", "op", "--dtypes", "float32,bool", "--samples", "1")
    assert run(tmp_path, *words, "--write", str(tmp_path)) == 0
    data = json.loads((tmp_path / "operators.json").read_text())
    assert data["units"]["op/abs/float32"] == "native"
    assert len(data["overloads"]) >= 428
    page = (tmp_path / "operators.md").read_text()
    assert "| `abs` |  | native |" in page  # CPU PyTorch has no abs of bool
    assert "| `nonzero` | native | native |" in page
    before = (tmp_path / "run.jsonl").read_text()
    assert run(tmp_path, *words, "--check", str(tmp_path / "operators.json")) == 0
    assert (tmp_path / "run.jsonl").read_text() == before
    assert run(tmp_path, "--ops", "abs", "--write", str(tmp_path)) == 2  # would lose nonzero
    assert json.loads((tmp_path / "operators.json").read_text()) == data
    assert "silent" not in capsys.readouterr().out


def test_wrong_arguments_are_refused(tmp_path, capsys):
    wrong = (("--dtypes", "float7"), ("--kinds", "ops"), ("--samples", "0"), ("--check", "nowhere"))
    for words in wrong:
        with pytest.raises(SystemExit) as caught:
            run(tmp_path, *words)
        assert caught.value.code == 2
    assert run(tmp_path, "--ops", "no_such_operator") == 2
    assert "float7" in capsys.readouterr().err


def record(unit: str, **kinds: int) -> dict:
    made = Record(unit)
    made.passed["forward"] = 1
    for name, count in kinds.items():
        for _ in range(count):
            made.add("forward", name.replace("_", " "), "", "message")
    return made.fields()


def test_what_passed_before_and_fails_now_is_a_regression(tmp_path):
    records = [record("op/add/float32", value=1), record("op/mul/float32", raises=1)]
    baseline = {"op/add/float32": "native", "op/mul/float32": "fails"}
    (tmp_path / "base.json").write_text(json.dumps({"units": baseline}))
    assert report.regressions(tmp_path / "base.json", records) == ["op/add/float32"]


def test_summary_counts_each_kind_once_per_unit():
    records = [
        record("op/add/float32"),
        record("op/mul/float32", value=3, stride=1),
        record("op/div/float32", raises=1),
        record("op/sub/float32", unchecked_value=1),
    ]
    row = report.summary(records)["op float32"]
    assert (row["units"], row["passed"], row["silent"], row["refused"]) == (4, 2, 1, 1)


def test_the_fuzzer_compares_what_a_resized_tensor_held():
    from torch_tpu.conformance import fuzz

    info = types.SimpleNamespace(name="resize_", inplace_variant=None, decorators=())

    def resized(value: int, rest: int):
        x = torch.full((6,), rest)
        x[:4] = value
        return x.view(2, 3), (x, (), {})

    call = Call(torch.Tensor.resize_, (torch.zeros(2, 2, dtype=torch.int64), (), {}))
    fuzz._values(info, torch.int64, call, resized(1, 7), resized(1, 8))
    assert kind(lambda: fuzz._values(info, torch.int64, call, resized(1, 7), resized(2, 7)))


def test_the_fuzzer_leaves_out_what_the_cpu_dies_of():
    from torch_tpu.conformance import fuzz

    matrix, pivots = torch.zeros(2, 3, 3), torch.ones(2, 3, dtype=torch.int32)
    unfit = fuzz._UNFIT["lu_unpack"]
    assert not unfit(matrix, (pivots,), {})
    assert unfit(matrix, (pivots[:, :2],), {}) and unfit(matrix, (4 * pivots,), {})
    unfit, lengths = fuzz._UNFIT["_segment_reduce"], torch.ones(2, 3, dtype=torch.int64)
    assert not unfit(matrix, (), {"lengths": lengths})
    assert unfit(matrix, (), {"lengths": lengths[:1]})
    assert fuzz._UNFIT["median"](torch.zeros(1).expand(3), (), {})
    unfit = fuzz._UNFIT["native_batch_norm"]
    assert not unfit(matrix, (torch.ones(3), None), {}) and unfit(matrix, (torch.ones(2),), {})
    unfit, poles = fuzz._UNFIT["polygamma"], torch.tensor([-3.0])
    assert unfit(poles, (1,), {}) and not unfit(poles, (2,), {}) and not unfit(-poles, (1,), {})
    unfit, base = fuzz._UNFIT["pow"], torch.zeros(2, dtype=torch.complex64)
    assert unfit(base, (0,), {}) and not unfit(base, (1,), {}) and not unfit(poles, (0.0,), {})
    unfit = fuzz._UNFIT["linalg.tensorinv"]
    assert unfit(torch.ones(2, 2, 4), (), {"ind": 2})
    assert not unfit(torch.eye(4).view(2, 2, 4), (), {"ind": 2})
    unfit = fuzz._UNFIT["linalg.tensorsolve"]
    assert unfit(torch.ones(2, 2, 4), (torch.ones(2, 2),), {})
    assert not unfit(torch.eye(4).view(2, 4, 2), (torch.ones(2, 2),), {"dims": (1,)})
    unfit = fuzz._UNFIT["linalg.lu"]
    assert unfit(torch.ones(2, 3), (), {}) and not unfit(torch.eye(3)[:2], (), {})
    unfit = fuzz._UNFIT["native_group_norm"]
    assert unfit(matrix, (torch.ones(1).expand(3),), {}) and not unfit(matrix, (torch.ones(3),), {})


def test_the_fuzzer_names_sparse_tensors():
    from torch_tpu.conformance import fuzz

    assert fuzz._shown(torch.eye(2).to_sparse_csr()) == "float32[2, 2] torch.sparse_csr"
    assert fuzz._shown(torch.eye(2).t()) == "float32[2, 2]s[1, 2]"


def test_the_fuzzer_is_reproducible(monkeypatch):
    from torch_tpu.conformance import fuzz

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    first, second = (fuzz.run(7, 12, ["add", "sum", "cat"], []).fields() for _ in range(2))
    assert first["passed"] == second["passed"]
    assert sum(first["passed"].values()) + sum(first["failed"].values()) == 12
    assert not {"abort", "value", "shape"} & set(first["kinds"])
