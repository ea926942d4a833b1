"""Memory: counters come back to where they were, nothing leaks, and running out is an exception."""

from __future__ import annotations

import gc
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
    import os

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
