"""Memory: counters come back to where they were, nothing leaks, snapshots say what is there.

Running out of memory: test_out_of_memory.py.
"""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import subprocess
import sys

import pytest
import torch


def allocated() -> int:
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


def test_counts_live_bytes():
    before = allocated()
    x = torch.ones(1024, device="tpu")
    assert allocated() - before == 4096
    y = x + 1
    assert allocated() - before == 8192
    view = y.view(32, 32)[3:]
    del y
    assert allocated() - before == 8192
    del view, x
    assert allocated() == before


def test_empty_takes_no_memory_until_written():
    before = allocated()
    x = torch.empty(1024, device="tpu")
    assert allocated() == before
    x.fill_(1)
    assert allocated() - before == 4096


def test_writing_in_place_takes_no_more():
    x = torch.ones(256, 256, device="tpu")
    before = allocated()
    for i in range(4):
        x.add_(1)
        x[i] = 0
        x.t()[1:].mul_(2)
    assert allocated() == before


def test_training_returns_to_the_start():
    def train():
        layer = torch.nn.Linear(16, 16).to("tpu")
        optimizer = torch.optim.Adam(layer.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(4, 16, device="tpu")).sum().backward()
            optimizer.step()

    train()  # small constants stay on the device for good
    before = allocated()
    train()
    assert allocated() == before


def test_peak_and_statistics():
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    x = torch.ones(1 << 20, device="tpu")
    del x
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() >= before + (4 << 20)
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() < before + (4 << 20)
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated()
    assert torch.tpu.memory_reserved() >= torch.tpu.memory_allocated()
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    assert "tpu:0 memory" in torch.tpu.memory_summary()
    torch.tpu.empty_cache()


def test_statistics_under_the_names_of_cuda():
    x = torch.ones(256, device="tpu") + 1
    torch.tpu.synchronize()
    torch.tpu.reset_accumulated_memory_stats()
    y = x + 1
    del x
    stats = torch.tpu.memory_stats()
    for name in ("active_bytes", "reserved_bytes", "requested_bytes", "allocated_bytes"):
        assert stats[f"{name}.all.allocated"] == 1024 == stats[f"{name}.all.freed"]
        assert stats[f"{name}.all.current"] == torch.tpu.memory_allocated()
        assert stats[f"{name}.all.peak"] == torch.tpu.max_memory_allocated()
    assert stats["allocation.all.allocated"] == 1 == stats["num_device_alloc"]
    assert stats["num_ooms"] == 0 == stats["num_alloc_retries"]
    nested = torch.tpu.memory_stats_as_nested_dict()
    assert nested["allocation"]["all"]["current"] == stats["allocation.all.current"]
    accelerator = torch.accelerator.memory_stats()
    assert {k: accelerator[k] for k in stats if k != "limit_bytes"} == {
        k: v for k, v in stats.items() if k != "limit_bytes"
    }
    assert y.sum().item() == 3 * 256


def test_statistics_do_not_start_the_runtime():
    assert (
        run(
            "print(torch.tpu.memory_allocated(), torch.tpu.memory_stats()['num_ooms'], "
            "torch.tpu.memory_snapshot(), torch.tpu.is_initialized())"
        )
        == "0 0 [] False"
    )


def test_summary():
    x = torch.ones(77, 3, device="tpu") + 1
    short = torch.tpu.memory_summary(abbreviated=True)
    full = torch.tpu.memory_summary("tpu:0")
    assert full.startswith(short) and "float32[77, 3] 924 bytes" in full
    assert "tpu:1 memory" in torch.tpu.memory_summary(1)
    assert x.shape


def test_a_fraction_of_the_device_can_be_allowed():
    free, total = torch.tpu.mem_get_info()
    assert torch.tpu.get_per_process_memory_fraction() == 1.0
    torch.tpu.set_per_process_memory_fraction(0.5)
    try:
        assert torch.tpu.mem_get_info() == (free - (total - total // 2), total)
        assert torch.accelerator.get_memory_info() == torch.tpu.mem_get_info()
        assert abs(torch.tpu.get_per_process_memory_fraction() - 0.5) < 1e-9
        assert torch.tpu.memory_stats()["limit_bytes"] == total // 2
        assert torch.tpu.mem_get_info(1)[0] > total // 2
    finally:
        torch.tpu.set_per_process_memory_fraction(1.0)
    assert torch.tpu.get_device_properties(0).total_memory == total
    with pytest.raises(ValueError, match="between 0 and 1"):
        torch.tpu.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="float"):
        torch.tpu.set_per_process_memory_fraction(1)


# ---- snapshots -----------------------------------------------------------------------------------


@pytest.fixture
def record():
    yield torch.tpu.memory._record_memory_history
    torch.tpu.memory._record_memory_history(None, clear_history=True)


def find(snapshot, tensor) -> dict:
    (segment,) = [s for s in snapshot if s["address"] == tensor.data_ptr()]
    return segment


def test_snapshots_tell_shapes_always_and_lines_when_recorded(record):
    before = torch.ones(3, 4, device="tpu") + 1
    record("state")
    line = inspect.currentframe().f_lineno + 1
    after = torch.ones(5, device="tpu:1", dtype=torch.int64) + 1
    record(None)
    last = after + 1
    snapshot = torch.tpu.memory_snapshot()
    for tensor, shape, dtype, where in (
        (before, (3, 4), "float32", None),
        (after, (5,), "int64", f"{__file__}:{line}"),
        (last, (5,), "int64", None),
    ):
        segment = find(snapshot, tensor)
        (block,) = segment["blocks"]
        assert (block["shape"], block["dtype"], block["line"]) == (shape, dtype, where)
        assert segment["total_size"] == block["size"] == tensor.nbytes
        assert segment["device"] == tensor.device.index
    frame = find(snapshot, after)["frames"][0]
    assert frame["filename"] == __file__ and frame["line"] == line
    assert frame["name"] == inspect.currentframe().f_code.co_qualname


def test_snapshots_add_up_to_what_is_allocated():
    x = torch.ones(100, 100, device="tpu") + 1
    views = [x[i] for i in range(5)]
    gc.collect()
    torch.tpu.synchronize()
    sizes = [s["allocated_size"] for s in torch.tpu.memory_snapshot() if s["device"] == 0]
    assert sum(sizes) == torch.tpu.memory_allocated()
    assert sizes == sorted(sizes, reverse=True) and views[0].shape


def test_tensors_that_are_deferred_take_no_memory_yet():
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        x = torch.ones(100, 100, device="tpu") + 1
        segment = find(torch.tpu.memory_snapshot(), x)
        assert segment["allocated_size"] == 0 and segment["blocks"][0]["state"] == "inactive"
        x.cpu()
        assert find(torch.tpu.memory_snapshot(), x)["allocated_size"] == 40000


def test_history_of_allocations(record, tmp_path):
    record("all", max_entries=100)
    x = torch.ones(11, device="tpu") + 1
    address = x.data_ptr()
    del x
    torch.tpu.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    dumped = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    trace = dumped["device_traces"][0]
    of_x = [entry for entry in trace if entry["addr"] == address]
    assert [entry["action"] for entry in of_x[-2:]] == ["alloc", "free_completed"]
    assert of_x[-1]["size"] == 44 and of_x[-1]["time_us"] >= of_x[-2]["time_us"] > 1.7e15
    assert of_x[-2]["frames"][0]["filename"] == __file__
    for _ in range(100):
        torch.ones(3, device="tpu")
    assert len(torch.tpu.memory._snapshot("tpu:0")["device_traces"][0]) <= 100
    record("state")
    kept = torch.tpu.memory._snapshot()["device_traces"][0]
    torch.ones(3, device="tpu")
    assert torch.tpu.memory._snapshot()["device_traces"][0] == kept
    record(True, clear_history=True)
    assert torch.tpu.memory._snapshot()["device_traces"] == [[], []]


def test_the_viewer_of_torch_reads_snapshots(record):
    from torch.cuda import _memory_viz

    record()
    x = torch.ones(11, 13, device="tpu") + 1
    del x
    y = torch.ones(1 << 20, device="tpu") + 1
    snapshot = torch.tpu.memory._snapshot()
    assert "4.0MiB" in _memory_viz.segsum(snapshot)
    assert "4.0MiB" in _memory_viz.trace(snapshot)
    assert "<script" in _memory_viz.trace_plot(snapshot) and y.shape


def test_what_cannot_be_recorded_is_refused(record):
    for options in ({"enabled": "some"}, {"context": None}, {"stacks": "c"}, {"max_entries": -1}):
        with pytest.raises(ValueError, match="enabled|context|stacks|max_entries"):
            record(**options)
    with pytest.raises(TypeError, match="skip_actions"):
        record(skip_actions=["alloc"])
    with pytest.raises(ValueError, match="pools"):
        torch.tpu.memory_snapshot((1, 0))


# ---- accelerator, devices, limits ----------------------------------------------------------------


def test_accelerator_memory_api():
    x = torch.ones(1024, device="tpu")
    torch.tpu.synchronize()
    assert torch.accelerator.memory_allocated() == torch.tpu.memory_allocated()
    assert torch.accelerator.max_memory_allocated() >= x.nbytes
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= x.nbytes
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.empty_cache()


def test_devices_are_counted_apart():
    before = [torch.tpu.memory_allocated(i) for i in range(2)]
    x = torch.ones(1024, device="tpu:1")
    torch.tpu.synchronize(1)
    assert torch.tpu.memory_allocated(0) == before[0]
    assert torch.tpu.memory_allocated("tpu:1") >= before[1] + x.nbytes


def test_out_of_memory_is_an_exception_and_the_device_works_afterwards():
    elements = 10 * 2**40 // 4
    for make in (
        lambda: torch.empty(elements, device="tpu"),
        lambda: torch.zeros(elements, device="tpu"),
        lambda: torch.ones(1, device="tpu").expand(elements).clone(),
        lambda: torch.ones(1, device="tpu").expand(elements) + 1,
        lambda: torch.randn(2**21, 2**20, device="tpu"),
    ):
        with pytest.raises(torch.OutOfMemoryError, match="bytes"):
            make()
        assert (torch.ones(2, device="tpu") * 2).sum().item() == 4


def test_sizes_beyond_64_bits_are_refused():
    with pytest.raises(RuntimeError, match="overflow|memory|size"):
        torch.empty(2**40, 2**40, device="tpu")
    assert torch.ones(2, device="tpu").sum().item() == 2


def test_a_limit_can_be_set():
    done = run(
        "try:\n"
        "    torch.ones(1 << 20, device='tpu')\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print('1048576' in str(error), (torch.ones(2, device='tpu') + 1).tolist())\n",
        TORCH_TPU_MEMORY_LIMIT="1M",
    )
    assert done == "True [2.0, 2.0]"


def run(body: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import torch\n" + body],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


RSS = """
import gc, os, resource
def rss():
    gc.collect()
    torch.tpu.synchronize()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 2**20
x = torch.ones(8, 8).to("tpu")
def work(count):
    global x
    for i in range(count):
        y = x + i
        y.mul_(0.5)
        x[i % 8] = y[0]
        x = (x - y).clamp_(-1, 1)
def create(count):
    kept = []
    for i in range(count):
        kept.append(torch.empty(16, device="tpu").fill_(i))
        if len(kept) > 100:
            kept.clear()
        torch.zeros(4, i % 7 + 1, device="tpu")
"""


def test_resident_memory_is_flat():
    printed = run(
        RSS
        + "work(2000); create(2000)\n"
        + "start = rss(); work(20000); middle = rss(); create(10000); end = rss()\n"
        + "print(middle - start, end - start)\n"
    )
    operators, creations = map(float, printed.split())
    assert operators < 20, "100,000 small operators"
    assert creations < 20, "10,000 tensor creations"


def test_host_copies_do_not_leak():
    printed = run(
        RSS
        + "big = torch.ones(1 << 16)\n"
        + "def copy(n):\n"
        + "    for _ in range(n): big.to('tpu').cpu(); (x * 2).sum().item()\n"
        + "copy(300); start = rss(); copy(2000); print(rss() - start)\n"
    )
    assert float(printed) < 20


# ---- pinned memory -------------------------------------------------------------------------------


def test_pinned_memory():
    made = (
        torch.empty(5, pin_memory=True),
        torch.zeros(2, 3, pin_memory=True),
        torch.tensor([1, 2], pin_memory=True),
        torch.ones(4).pin_memory(),
        torch.ones(4)[1:].pin_memory()[1:],
    )
    for x in made:
        assert x.is_pinned() and x.device.type == "cpu"
        assert torch.equal(x.to("tpu", non_blocking=True).cpu(), x)
    assert not torch.ones(4).is_pinned() and not torch.ones(4, device="tpu").is_pinned()
    assert made[1].pin_memory() is made[1]
    assert torch.empty(0, pin_memory=True).shape == (0,)
    with pytest.raises(RuntimeError, match="pin"):
        torch.empty(4, device="tpu", pin_memory=True)


def test_pinned_memory_is_counted():
    gc.collect()
    before = torch.tpu.host_memory_stats()
    x = torch.empty(1000, pin_memory=True)
    now = torch.tpu.host_memory_stats()
    assert now["active_bytes.current"] - before["active_bytes.current"] == 4000
    assert now["allocations.allocated"] - before["allocations.allocated"] == 1
    del x
    after = torch.tpu.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"]
    assert after["active_bytes.peak"] >= before["active_bytes.current"] + 4000
    torch.tpu.reset_peak_host_memory_stats()
    torch.tpu.reset_accumulated_host_memory_stats()
    reset = torch.tpu.host_memory_stats()
    assert reset["active_bytes.peak"] == reset["active_bytes.current"]
    assert reset["allocations.allocated"] == 0 == reset["allocations.freed"]


def test_copies_that_do_not_block_are_right():
    source = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    expected = source.clone()
    on_device = source.to("tpu", non_blocking=True)
    source.zero_()  # may be written at once
    target = torch.empty_like(source, pin_memory=True)
    target.copy_(on_device * 2, non_blocking=True)
    assert torch.equal(target, expected * 2)  # may be read at once
    on_device.copy_(target, non_blocking=True)
    target.zero_()
    assert torch.equal(on_device.cpu(), expected * 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins(workers):
    data = torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10))
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=4,
        pin_memory=True,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    seen = []
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        seen += (x.to("tpu", non_blocking=True) + y.to("tpu", non_blocking=True)).tolist()
    assert seen == [2.0 * i for i in range(10)]


# ---- long runs -----------------------------------------------------------------------------------

TRAINING = """
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
model.to("tpu")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
def train(steps):
    for i in range(steps):
        batch = 16 if i % 3 else 1 + i // 3 % 4  # the last batch of an epoch is short
        x = torch.ones(batch, 8).to("tpu")
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), torch.zeros(batch, dtype=int).to("tpu"))
        loss.backward()
        optimizer.step()
        if i % 10 == 0: loss.item()
def use():
    resident = rss()
    return resident, torch.tpu.memory_allocated()
train(30)
"""


@pytest.mark.parametrize("steps", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_training_with_a_changing_batch_tail_is_flat(steps):
    printed = run(
        RSS
        + TRAINING
        + f"start, used = use(); train({steps}); end, still = use()\n"
        + "print(end - start, still - used)\n"
    )
    resident, allocated = map(float, printed.split())
    assert resident < 10 and allocated == 0


SHAPES = """
from torch_tpu import _core
from torch_tpu.program import cache
_core.keep_entries(40)
cache.memory.most = 30
torch.tpu.set_eager_mode(torch.tpu.EagerMode[{mode!r}])
most = 0
def visit(sizes):
    global most
    for n in sizes:
        (torch.ones(n).to("tpu") * 2).cpu()
        most = max(most, _core.cache_stats()["live"])
visit(range(1, 101)); start = rss(); visit(range(101, 201))
print(most, torch.tpu.compile_count(), rss() - start)
"""


@pytest.mark.parametrize("mode", ["STRICT", pytest.param("DEFER_AND_FUSE", marks=pytest.mark.slow)])
def test_programs_of_200_shapes_are_given_up(mode):
    printed = run(RSS + SHAPES.format(mode=mode))
    most, compiled, resident = map(float, printed.split())
    assert compiled >= 200
    assert most <= 40 + 30 + 10
    assert resident < 20
