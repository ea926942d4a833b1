"""Several processes and one machine: the CPU device is shared, a TPU chip that is taken is said."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest
import torch

from torch_tpu import errors
from torch_tpu.api import device, holders

# The words of libtpu and of those who load it, over the years.
TAKEN = [
    "The TPU is already in use by process with pid 4242. Not attempting to load libtpu.so in this "
    "process.",
    "ABORTED: libtpu.so already in use by another process probably owned by another user. Run "
    '"$ sudo lsof -w /dev/accel0" to figure out which process is using the TPU.',
    'ABORTED: Internal error when accessing libtpu multi-process lockfile. Run "$ sudo rm '
    '/tmp/libtpu_lockfile".',
    "UNKNOWN: TPU initialization failed: open(/dev/vfio/0): Device or resource busy: Device or "
    "resource busy; Couldn't open iommu group /dev/vfio/0",
]
OTHER = [
    "the tpu runtime cannot start: cannot load the PJRT plugin libtpu.so: no such file",
    "UNKNOWN: TPU initialization failed: No ba16c7433 device found.",
    "INVALID_ARGUMENT: unknown option",
]


def process(root, pid: int, command: bytes, *files: str):
    """Writes what a machine's /proc says about a process with these files open."""
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(command)
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)


@pytest.fixture
def machine(tmp_path):
    process(tmp_path, 41, b"/usr/bin/python\0train.py\0", "/dev/null", "/dev/vfio/0")
    process(tmp_path, 4242, b"server\0--port\x0080\0", "/tmp/libtpu_lockfile")
    process(tmp_path, 77, b"bystander\0", "/dev/vfio/vfio", "/dev/null", "socket:[1]")
    (tmp_path / "proc" / "uptime").write_text("1")
    return tmp_path


@pytest.mark.parametrize("message", TAKEN)
def test_a_taken_chip_is_recognised_and_its_holder_named(message, machine):
    text = holders.explain(message, machine)
    assert "process 4242 (server --port 80)" in text
    assert ("process 41 (/usr/bin/python train.py)" in text) == ("pid" not in message)
    assert "bystander" not in text
    assert message in text
    assert "TPU_VISIBLE_CHIPS" in text


@pytest.mark.parametrize("message", TAKEN)
def test_a_holder_that_cannot_be_seen(message, tmp_path):
    text = holders.explain(message, tmp_path)
    assert ("process 4242;" in text) == ("pid" in message)
    assert ("sudo lsof" in text.split("The plugin said")[0]) == ("pid" not in message)


@pytest.mark.parametrize("message", OTHER)
def test_other_failures_are_left_alone(message, machine):
    assert holders.explain(message, machine) is None


def test_the_process_itself_can_be_the_holder(tmp_path):
    chip = tmp_path / "libtpu_lockfile"
    with chip.open("w"):
        assert os.getpid() in holders.processes_with_chips()
    assert os.getpid() not in holders.processes_with_chips()
    assert "this one" in holders.description(os.getpid())


def failing_core(message: str):
    def initialize():
        raise RuntimeError(f"the tpu runtime cannot start: {message} (in PJRT_Client_Create)")

    return types.SimpleNamespace(is_initialized=lambda: False, initialize=initialize)


@pytest.mark.parametrize("use", [torch.tpu.init, torch.tpu.device_count, torch.tpu.synchronize])
def test_first_use_raises_the_error_that_names_the_holder(use, monkeypatch):
    monkeypatch.setattr(device, "_core", failing_core(TAKEN[0]))
    with pytest.raises(errors.DeviceInUseError, match="process 4242") as caught:
        use()
    assert isinstance(caught.value, RuntimeError)
    assert TAKEN[0] in str(caught.value.__cause__)


def test_other_failures_of_the_start_are_not_renamed(monkeypatch):
    monkeypatch.setattr(device, "_core", failing_core(OTHER[0]))
    with pytest.raises(RuntimeError, match="no such file") as caught:
        torch.tpu.init()
    assert type(caught.value) is RuntimeError


CALCULATION = """
import sys, torch
x = torch.arange(6.0, device="tpu").reshape(2, 3)
print((x @ x.T).tolist(), flush=True)
sys.stdin.readline()  # the other process starts and calculates meanwhile
print((x + 1).sum().item(), flush=True)
"""


def test_two_processes_use_the_cpu_device_at_once():
    command = [sys.executable, "-c", CALCULATION]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "TORCH_TPU_PJRT_PLUGIN": "cpu"}
    both = [subprocess.Popen(command, text=True, env=environment, **pipes) for _ in range(2)]
    try:
        first = [one.stdout.readline().strip() for one in both]
        assert first == ["[[5.0, 14.0], [14.0, 50.0]]"] * 2
        assert [one.poll() for one in both] == [None, None]  # both hold the device now
        for one in both:
            output, complaints = one.communicate("go on\n", timeout=60)
            assert (output.strip(), complaints, one.returncode) == ("21.0", "", 0)
    finally:
        for one in both:
            one.kill()
