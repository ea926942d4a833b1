"""Other libraries, other processes: NumPy, DLPack, workers of loaders, forks, shared memory.

Not here: files (`test_checkpoints.py`) and what copies between devices mean (`test_copies.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
import torch.multiprocessing  # teaches ForkingPickler tensors
from torch.utils import dlpack
from torch.utils.data import DataLoader, Dataset


def matrix():
    return torch.arange(6.0, device="tpu").view(2, 3)


# ---- NumPy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.numpy(),
        np.asarray,
        np.asanyarray,
        lambda x: np.add(x, 1),
        lambda x: x * np.ones(3),
    ],
    ids="numpy asarray asanyarray add multiply".split(),
)
def test_numpy_is_refused_as_on_cuda(convert):
    with pytest.raises(TypeError, match=r"can't convert tpu:0 .*Tensor\.cpu\(\)"):
        convert(matrix())


def test_numpy_by_force_and_back():
    got = matrix().requires_grad_().numpy(force=True)
    assert isinstance(got, np.ndarray)
    assert got.tolist() == matrix().tolist()
    for make in (torch.as_tensor, torch.asarray, torch.tensor):
        x = make(got, device="tpu")
        assert x.device.type == "tpu"
        assert x.dtype is torch.float32
        assert x.tolist() == got.tolist()
    got[0, 0] = 9  # never aliased: the host's memory is not the device's
    assert x[0, 0].item() == 0
    assert (np.float32(2) * matrix()).tolist() == (matrix() * 2).tolist()


def test_python_numbers():
    x = matrix()[1]
    assert (int(x[0]), float(x[1]), complex(x[2]), bool(x[0])) == (3, 4.0, 5 + 0j, True)
    assert [10, 20, 30, 40][torch.tensor(2, device="tpu")] == 30
    assert list(range(torch.tensor(3, device="tpu"))) == [0, 1, 2]
    assert [v.item() for v in x] == [3, 4, 5]
    with pytest.raises(ValueError, match="scalar"):
        float(x)


# ---- DLPack ----------------------------------------------------------------------------------


def test_dlpack_from_the_host():
    source = np.arange(3.0)
    for got in (
        torch.from_dlpack(source).to("tpu"),
        torch.from_dlpack(source, device="tpu"),
        torch.from_dlpack(torch.arange(3.0).double(), device="tpu", copy=True),
    ):
        assert got.device.type == "tpu"
        assert got.tolist() == source.tolist()
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(source, device="tpu", copy=False)


@pytest.mark.parametrize("dtype", (torch.float32, torch.int64, torch.bool, torch.complex64))
def test_dlpack_capsules_share_the_array(dtype):
    x = matrix().to(dtype)
    y = dlpack.from_dlpack(dlpack.to_dlpack(x.t()))
    assert (y.device, y.dtype, y.stride()) == (x.device, dtype, (1, 3))
    assert torch.equal(y, x.t())
    y.zero_()
    assert not x.cpu().any()
    address = y.data_ptr()
    del x
    assert y.data_ptr() == address
    assert (y + 1).cpu().all()


def test_dlpack_beyond_this_library_is_refused():
    with pytest.raises((RuntimeError, BufferError, ValueError), match="[Uu]nsupported|Unknown"):
        np.from_dlpack(matrix())
    # PyTorch 2.13 compares the device's name with "privateuse1"; capsules do without.
    with pytest.raises(ValueError, match="Unknown device type tpu"):
        torch.from_dlpack(matrix())


# ---- workers, forks, shared memory -----------------------------------------------------------


class Squares(Dataset):
    """Numbers made in the workers, which must not touch the device."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        assert torch.tpu._is_in_bad_fork() == (torch.utils.data.get_worker_info() is not None)
        return torch.full((2,), float(index)), index * index


@pytest.mark.parametrize("workers", (0, 2))
@pytest.mark.parametrize("pin", (False, True))
def test_loaders_after_initialisation(workers, pin):
    matrix().cpu()
    loader = DataLoader(Squares(), batch_size=3, num_workers=workers, pin_memory=pin)
    for _ in range(2):
        batches = list(loader)
        assert all(x.is_pinned() == pin for x, _ in batches)
        moved = [y.to("tpu", non_blocking=True) for _, y in batches]
        assert torch.cat(moved).tolist() == [n * n for n in range(8)]


class Wrong(Squares):
    def __getitem__(self, index):
        return torch.ones(2, device="tpu")


def test_a_worker_that_uses_the_device_says_why_it_cannot():
    matrix().cpu()
    with pytest.raises(RuntimeError, match="forked.*spawn"):
        list(DataLoader(Wrong(), num_workers=1, timeout=60))


CHILD = """
import multiprocessing, sys, torch
if {deferred}:
    torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE)
x = torch.ones(3, device="tpu")
before = x.sum().item()
pending = x * 2
calls = dict(
    factory=lambda: torch.ones(2, device="tpu"),
    empty=lambda: torch.empty(2, device="tpu"),
    operator=lambda: x + 1,
    view=lambda: (x[1:] * 2).cpu(),
    read=lambda: x.cpu(),
    recorded=lambda: pending.cpu(),
    show=lambda: repr(x),
    move=lambda: torch.ones(2).to("tpu"),
    pin=lambda: torch.ones(2).pin_memory(),
    wait=lambda: torch.tpu.synchronize(),
    stream=lambda: torch.tpu.current_stream(),
    draw=lambda: torch.randn(2, device="tpu"),
)
def child():
    assert torch.tpu._is_in_bad_fork() and not torch.tpu.is_initialized()
    for name, call in calls.items():
        try:
            call()
        except RuntimeError as error:
            assert "forked" in str(error) and "spawn" in str(error), (name, error)
        else:
            raise AssertionError(name + " worked in a fork")
    torch.manual_seed(3)  # scripts seed everything; that needs no device
    y = torch.ones(3, requires_grad=True)
    (y * 2).sum().backward()
    assert y.grad.tolist() == [2, 2, 2]
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(60)
print(process.exitcode, pending.tolist())
"""


def in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("deferred", (False, True))
def test_every_use_in_a_fork_is_refused(deferred):
    assert in_a_process(CHILD.format(deferred=deferred)) == "0 [2.0, 2.0, 2.0]"


def test_a_fork_before_initialisation_has_the_device_of_its_own():
    code = """
import multiprocessing, torch
def child(pipe):
    pipe.send(torch.ones(3, device="tpu").sum().item())
near, far = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=child, args=(far,))
process.start()
assert near.poll(60)
print(near.recv(), torch.ones(2, device="tpu").sum().item())
process.join(60)
"""
    assert in_a_process(code) == "3.0 2.0"


def test_share_memory_leaves_device_tensors_alone():
    x = matrix()
    assert x.share_memory_() is x
    model = torch.nn.Linear(2, 2).to("tpu")
    before = model.weight.data_ptr()
    assert model.share_memory().weight.data_ptr() == before
    assert torch.ones(2).share_memory_().to("tpu").tolist() == [1, 1]


def test_tensors_are_not_sent_to_other_processes():
    """A device's memory belongs to one process; PyTorch says so where the tensor is packed."""
    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(matrix())
    assert ForkingPickler.dumps(matrix().cpu())
