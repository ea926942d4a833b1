"""torch.profiler on the device: which rows have device time, and what is exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import torch_tpu
from torch_tpu import _core
from torch_tpu.api import plugin

BOTH = [ProfilerActivity.CPU, ProfilerActivity.TPU]
ON_DEVICE = DeviceType.PrivateUse1


def on_device(prof) -> list:
    return [e for e in prof.events() if e.device_type == ON_DEVICE]


def exported(prof, folder: Path) -> list[dict]:
    """The events of the Chrome trace."""
    file = folder / "trace.json"
    prof.export_chrome_trace(str(file))
    return json.loads(file.read_text())["traceEvents"]


def operators_of(prof, folder: Path) -> str:
    """What the trace says is in the only program of a run."""
    (program,) = [e for e in exported(prof, folder) if e.get("cat") == "kernel"]
    return program["args"]["operators"]


def rows(prof, **options) -> dict:
    """Rows of the host by name."""
    averages = prof.key_averages(**options)
    return {e.key: e for e in averages if e.device_type == DeviceType.CPU}


@pytest.fixture
def x():
    made = torch.randn(32, 32, device="tpu")
    (made @ made).relu().sum().item()  # compiled before anything is measured
    return made


# ---- operators -----------------------------------------------------------------------------


def test_every_program_is_an_event_linked_to_its_operator(x):
    with profile(activities=BOTH) as prof:
        for _ in range(3):
            (x @ x).relu()
    assert sorted(e.name for e in on_device(prof)) == ["aten::mm"] * 3 + ["aten::relu"] * 3
    table = rows(prof)
    for name in ("aten::mm", "aten::relu"):
        times = [e.time_range.elapsed_us() for e in on_device(prof) if e.name == name]
        assert table[name].self_device_time_total == pytest.approx(sum(times))
        assert table[name].count == 3
    assert table["aten::matmul"].device_time_total == table["aten::mm"].self_device_time_total
    assert table["tpuExecute"].count == 6


def test_the_table_has_columns_of_the_device(x):
    with profile(activities=BOTH) as prof:
        x.relu()
    text = prof.key_averages().table(sort_by="self_device_time_total")
    assert "Self TPU" in text and "TPU total" in text and "Self TPU time total" in text


def test_times_lie_within_the_run_and_do_not_overlap(x):
    start = time.perf_counter()
    with profile(activities=BOTH) as prof:
        for _ in range(20):
            x = (x @ x).relu()
    wall = (time.perf_counter() - start) * 1e6
    spans = sorted((e.time_range.start, e.time_range.end) for e in on_device(prof))
    assert len(spans) == 40
    assert all(begin >= 0 and end >= begin for begin, end in spans)
    assert all(a[1] <= b[0] + 0.01 for a, b in zip(spans, spans[1:], strict=False))
    assert sum(end - begin for begin, end in spans) <= wall


def test_a_program_begins_after_its_launch(x):
    with profile(activities=BOTH) as prof:
        x.relu()
    launch = next(e for e in prof.events() if e.name == "tpuExecute")
    (event,) = on_device(prof)
    assert event.time_range.start >= launch.time_range.start
    assert event.linked_correlation_id == launch.linked_correlation_id > 0


def test_user_ranges_sum_up_what_is_inside(x):
    with profile(activities=BOTH) as prof, record_function("mine"):
        x.relu()
    table = rows(prof)
    assert table["mine"].device_time_total == table["aten::relu"].device_time_total > 0


def test_backward_is_linked_on_its_thread(x):
    leaf = x.clone().requires_grad_()
    (leaf * leaf).sum().backward()
    with profile(activities=BOTH) as prof:
        (leaf * leaf).sum().backward()
    table = rows(prof)
    assert table["autograd::engine::evaluate_function: MulBackward0"].device_time_total > 0
    assert all(e.linked_correlation_id > 0 for e in on_device(prof))


def test_devices_are_told_apart(x):
    y = x.to("tpu:1")
    y.relu()
    with profile(activities=BOTH) as prof:
        x.relu()
        y.relu()
        torch.tpu.synchronize("tpu:1")
    assert sorted(e.device_index for e in on_device(prof)) == [0, 1]


def test_nothing_is_left_over_for_the_next_run(x):
    with profile(activities=BOTH):
        x.relu()
    x.relu()
    with profile(activities=BOTH) as prof:
        x @ x
    assert [e.name for e in on_device(prof)] == ["aten::mm"]


def test_only_the_cpu_has_no_device_events(x):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x.relu()
    assert not on_device(prof) and "aten::relu" in rows(prof)


def test_only_the_device_has_its_events(x):
    with profile(activities=[ProfilerActivity.TPU]) as prof:
        x.relu()
    assert [e.name for e in on_device(prof)] == ["aten::relu"]


def test_a_program_that_fails_has_its_event_and_ends_the_run(x):
    bad = torch.full((4, 4), float("nan"), device="tpu")
    with profile(activities=BOTH) as prof:
        with pytest.raises(RuntimeError):
            torch.linalg.eigvalsh(bad).cpu()
        x.relu()
    assert "aten::relu" in [e.name for e in on_device(prof)]


# ---- programs of many operators ------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(x).relu()


def test_a_compiled_graph_names_operators_and_modules(tmp_path):
    net = torch.compile(Net().to("tpu"))
    x = torch.randn(3, 4, device="tpu")
    with torch.no_grad():
        net(x)
        with profile(activities=BOTH) as prof:
            net(x)
    (event,) = on_device(prof)
    assert event.name.startswith("torch_tpu::graph_")
    assert "_inference (" in event.name
    assert "addmm" in event.name and "relu" in event.name and "in fc" in event.name
    row = event.name.partition(" (")[0]
    assert rows(prof)[row].self_device_time_total > 0
    assert "fc/aten::addmm" in operators_of(prof, tmp_path)


def test_deferred_operators_are_one_event(x, tmp_path):
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        x.mul(2).add(1).relu().cpu()
        with profile(activities=BOTH) as prof:
            x.mul(2).add(1).relu().cpu()
    (event,) = on_device(prof)
    assert event.name.startswith("3 deferred operators (")
    assert operators_of(prof, tmp_path) == "aten::mul.Tensor, aten::add.Tensor, aten::relu"
    assert event.linked_correlation_id > 0  # the call that needed the value


# ---- options of torch.profiler -------------------------------------------------------------


def test_memory(x):
    with profile(activities=BOTH, profile_memory=True) as prof:
        kept = x.relu()
    row = rows(prof)["aten::relu"]
    assert row.self_device_memory_usage == kept.nbytes
    with profile(activities=BOTH, profile_memory=True) as prof:
        del kept
    freed = [e for e in prof.events() if e.name == "[memory]"]
    assert sum(e.device_memory_usage for e in freed) == -x.nbytes


def test_shapes(x):
    with profile(activities=BOTH, record_shapes=True) as prof:
        x @ x
    averages = prof.key_averages(group_by_input_shape=True)
    (row,) = [e for e in averages if e.key == "aten::mm" and e.device_type == DeviceType.CPU]
    assert row.input_shapes == [[32, 32], [32, 32]] and row.self_device_time_total > 0


def test_stacks(x):
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    options = {"with_stack": True, "experimental_config": verbose}
    with profile(activities=BOTH, **options) as prof, record_function("mine"):
        x.relu()
    stacks = [e.stack for e in prof.events() if e.name == "aten::relu"]
    assert any("test_profiler.py" in frame for stack in stacks for frame in stack)


def test_schedule_and_handlers(x, tmp_path):
    seen = []
    write = torch.profiler.tensorboard_trace_handler(str(tmp_path))

    def ready(prof):
        seen.append([e.name for e in on_device(prof)])
        write(prof)

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=BOTH, schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(8):
            x.relu()
            prof.step()
    assert seen == [["aten::relu"] * 2] * 2
    assert len(list(tmp_path.glob("*.pt.trace.json"))) == 2


def test_chrome_trace_has_a_lane_of_the_device(x, tmp_path):
    with profile(activities=BOTH, profile_memory=True) as prof:
        x.relu()
    events = exported(prof, tmp_path)
    (program,) = [e for e in events if e.get("cat") == "kernel"]
    assert program["name"] == "aten::relu" and program["pid"] == 0
    assert program["args"]["operators"] == "aten::relu"
    names = [e["args"]["name"] for e in events if e["name"] == "process_name" and e["pid"] == 0]
    assert "tpu:0" in names
    arrows = [e["ph"] for e in events if e.get("id") == program["args"]["correlation"]]
    assert sorted(arrows) == ["f", "s"]
    assert any(e["name"] == "[memory]" and e["args"]["Device Type"] == 20 for e in events)


# ---- places --------------------------------------------------------------------------------


def test_the_compiler_is_told_operators_modules_and_lines(tmp_path):
    options = {"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True}
    net = torch.compile(Net().to("tpu"), options=options)
    with torch.no_grad():
        net(torch.randn(3, 4, device="tpu"))
    text = "".join(f.read_text() for f in tmp_path.glob("*before_optimizations.txt"))
    assert 'op_name="fc/aten::addmm" source_file="' + __file__ in text


def test_places_do_not_tell_programs_apart(compiles):
    x = torch.randn(3, 7, device="tpu")
    x.sinh()
    _core.clear_caches()
    compiles.reset()
    x.sinh()
    assert compiles() == 0


# ---- traces of the plugin ------------------------------------------------------------------


def test_a_plugin_without_profiler_says_so(tmp_path):
    assert not torch.tpu.profiler.is_available()
    with pytest.raises(RuntimeError, match="has no profiler extension.*use torch.profiler"):
        with torch.tpu.profiler.trace(tmp_path):
            raise AssertionError("the scope must not run")
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="no profiler extension"):
        _core.Tracer(b"")


@pytest.fixture(scope="module")
def tracing_plugin(tmp_path_factory) -> Path:
    wrapped = Path(plugin.cpu_plugin("a test").path)
    library = tmp_path_factory.mktemp("plugin") / "tracing_plugin.so"
    source = Path(__file__).parents[1] / "pjrt" / "tracing_plugin.cc"
    include = wrapped.parent / "include"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, str(source), "-o", str(library), "-ldl"], check=True)
    return library


def run_traced(library: Path, directory: Path, **environment) -> subprocess.CompletedProcess:
    program = f"""
        import torch
        with torch.tpu.profiler.trace({str(directory)!r}) as file:
            torch.ones(3, device="tpu").add(1)
        print(file)
    """
    environment |= {
        "TORCH_TPU_PJRT_PLUGIN": str(library),
        "WRAPPED_PLUGIN": plugin.cpu_plugin("a test").path,
        "PYTHONPATH": str(Path(torch_tpu.__file__).parents[1]),
    }
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_trace_is_where_xprof_looks_for_it(tracing_plugin, tmp_path):
    done = run_traced(tracing_plugin, tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert done.stdout.strip() == str(file)
    assert file.read_text() == "options 8, start, stop"


def test_a_refused_trace_is_an_exception(tracing_plugin, tmp_path):
    done = run_traced(tracing_plugin, tmp_path, REFUSE_TRACE="1")
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr and "somebody else traces" in done.stderr
    assert not list(tmp_path.glob("plugins/profile/*/*.pb"))
