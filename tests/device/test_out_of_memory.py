"""Running out of device memory: an exception that tells what happened, after which all goes on."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
import threading

import pytest
import torch

STRICT, DEFER, DEBUG = (torch.tpu.EagerMode[name] for name in ("STRICT", "DEFER_AND_FUSE", "DEBUG"))
MIB = 2**20


@pytest.fixture(params=[STRICT, DEFER, DEBUG], ids=lambda mode: mode.name)
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield request.param


@contextlib.contextmanager
def room_for(bytes: int):
    """At most ``bytes`` more can be allocated."""
    gc.collect()
    torch.tpu.synchronize()
    total = torch.tpu.mem_get_info()[1]
    torch.tpu.set_per_process_memory_fraction((torch.tpu.memory_allocated() + bytes) / total)
    try:
        yield
    finally:
        torch.tpu.set_per_process_memory_fraction(1.0)


@contextlib.contextmanager
def recorded(what="state"):
    torch.tpu.memory._record_memory_history(what, clear_history=True)
    try:
        yield
    finally:
        torch.tpu.memory._record_memory_history(None)


def failure(make) -> str:
    """The message of the `torch.OutOfMemoryError` that ``make`` raises, here or when read."""
    try:
        make().cpu()
    except torch.OutOfMemoryError as error:
        assert type(error) is torch.OutOfMemoryError
        return str(error)
    pytest.fail("memory was enough")


X = torch.ones(256, 256)  # 256 KiB

CALLS = {
    "empty": (lambda x: torch.empty(MIB, device="tpu"), "aten::empty"),
    "factory": (lambda x: torch.full((MIB,), 3.0, device="tpu"), "aten::"),
    "random": (lambda x: torch.randn(MIB, device="tpu"), "aten::"),
    "operator": (lambda x: x.expand(16, 256, 256) + 1, "aten::add.Tensor"),
    "copy": (lambda x: torch.ones(MIB).to("tpu"), "aten::empty"),
    "clone of a view": (lambda x: x.expand(16, 256, 256).contiguous(), "aten::"),
    "foreach": (
        lambda x: torch.cat(torch._foreach_add([x] * 16, 1.0)),
        "aten::",
    ),
    "resize": (lambda x: x.clone().resize_(1024, 1024), "aten::"),
}


@pytest.mark.filterwarnings("ignore:a region of")
@pytest.mark.parametrize("name", CALLS)
def test_the_error_names_operator_bytes_and_limit(mode, name):
    call, operator = CALLS[name]
    x = X.to("tpu") + 0
    before = allocated()
    with room_for(2 * MIB):
        text = failure(lambda: call(x))
        assert "out of memory in" in text and operator in text
        numbers = [int(n) for n in re.findall(r"(\d+) bytes", text)]
        asked, used, limit = numbers[:3]
        assert asked >= 4 * MIB and used >= before and abs(limit - before - 2 * MIB) < 2
        assert "tpu:0" in text and "float32[256, 256] 262144 bytes" in text
        assert (x + 1).sum().item() == 2 * 256 * 256
    assert allocated() == before
    assert (x * 2).sum().item() == 2 * 256 * 256


def allocated() -> int:
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


def test_between_devices():
    x = torch.ones(1024, 1024, device="tpu:1")
    with room_for(MIB):
        assert "tried to allocate 4194304 bytes (4.0 MiB) on tpu:0" in failure(
            lambda: x.to("tpu:0")
        )


def test_compiled_graphs(mode):
    @torch.compile
    def widen(x):
        return torch.cat([x.sin(), x.cos()] * 8) * 2

    x = X.to("tpu") + 0
    with room_for(2 * MIB):
        assert "torch_tpu::graph" in failure(lambda: widen(x))
        assert (x + 1).sum().item() == 2 * 256 * 256
    assert widen(x).shape == (4096, 256)


def test_backward_runs_out_and_the_next_step_works():
    weight = torch.ones(512, 512, device="tpu", requires_grad=True)
    loss = (weight * weight).sum()
    with room_for(MIB // 2):
        assert "out of memory" in failure(lambda: loss.backward() or weight.grad)
    weight.grad = None
    (weight * weight).sum().backward()
    assert weight.grad.sum().item() == 2 * 512 * 512


def test_an_in_place_operator_that_fails_leaves_its_tensor():
    x = X.to("tpu") + 0
    with room_for(MIB // 16):
        assert "aten::add_.Tensor" in failure(lambda: x[:200].add_(1))
        x.mul_(2)  # in its own memory
    assert torch.equal(x.cpu(), X * 2)


def test_lines_of_the_largest_tensors():
    x = X.to("tpu") + 0
    with room_for(2 * MIB):
        assert "_record_memory_history()" in failure(lambda: torch.empty(MIB, device="tpu"))
        with recorded():
            y = x + 1
            z = x[:8] * 1
            text = failure(lambda: torch.empty(MIB, device="tpu"))
    here = re.escape(__file__)
    lines = re.findall(rf"float32\[(.*?)\] (\d+) bytes made at {here}:(\d+)", text)
    assert lines[0][:2] == ("256, 256", "262144")
    assert ("8, 256", "8192") in [line[:2] for line in lines]
    assert int(lines[1][2]) == int(lines[0][2]) + 1
    assert y.shape and z.shape


def test_errors_and_retries_are_counted():
    torch.tpu.reset_accumulated_memory_stats()
    with room_for(MIB):
        for _ in range(3):
            failure(lambda: torch.empty(MIB, device="tpu"))
    assert torch.tpu.memory_stats()["num_ooms"] == 3
    assert torch.accelerator.memory_stats()["num_ooms"] == 3
    torch.tpu.reset_accumulated_memory_stats()
    assert torch.tpu.memory_stats()["num_ooms"] == 0


def test_deferred_operators_that_do_not_fit_together_run_one_by_one():
    x = X.to("tpu") + 0
    torch.tpu.reset_accumulated_memory_stats()
    with torch.tpu.set_eager_mode(DEFER), room_for(5 * MIB):
        kept = [x + i for i in range(16)]
        big = torch.ones(1024, 1024, device="tpu") * 2
        with pytest.warns(UserWarning, match="one by one"):
            assert kept[3][0, 0].item() == 4
        assert torch.tpu.memory_stats()["num_alloc_retries"] == 1
        with pytest.raises(torch.OutOfMemoryError, match=r"recorded at .*test_out_of_memory.py"):
            big.cpu()


def test_many_threads_run_out_at_once():
    x = X.to("tpu") + 0
    failed = []

    def work():
        for _ in range(10):
            try:
                x.expand(16, 256, 256) + 1
            except torch.OutOfMemoryError as error:
                failed.append(str(error))
            x.add_(0)

    with recorded(), room_for(3 * MIB):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert len(failed) == 40 and torch.equal(x.cpu(), X)


PLUGIN = """
import resource, torch
x = torch.ones(4, 4, device="tpu")
torch.ones(2**20, device="tpu").add_(1).cpu()
with open("/proc/self/statm") as f:
    mapped = int(f.read().split()[0]) * resource.getpagesize()
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**29, hard))
try:
    print(torch.zeros(2**31, device="tpu").sum().item())
except torch.OutOfMemoryError as error:
    print(error)
print((x + 1).sum().item())
"""


def test_what_the_plugin_cannot_allocate_is_the_same_exception():
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_TPU_MEMORY_LIMIT": "100G"},
    )
    assert done.returncode == 0, done.stderr
    *message, after = done.stdout.strip().splitlines()
    assert "the plugin could not allocate 8589934592 bytes" in message[0]
    assert "float32[4, 4] 64 bytes" in "".join(message)
    assert float(after) == 32
