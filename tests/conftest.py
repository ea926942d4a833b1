"""Shared set-up: the device is there, and a test that falls back to the CPU unasked fails."""

from __future__ import annotations

import os

# A CPU fallback in a test is a failure unless the test asks for it.
os.environ.setdefault("TORCH_TPU_FALLBACK", "error")
os.environ.setdefault("TORCH_TPU_CPU_DEVICES", "2")
# What tests count must not depend on what other runs left on the disk.
os.environ.setdefault("TORCH_TPU_CACHE", "off")

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def spy_on_backward():
    """A function that doubles a tensor and calls ``note`` on the thread that runs its backward."""

    def make(note):
        class Spy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                note()
                return grad * 2

        return Spy.apply

    return make


@pytest.fixture
def compiles():
    """Number of programs compiled since the fixture was made or last asked to `reset`."""

    class Counter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.start = torch.tpu.compile_count()

        def __call__(self) -> int:
            return torch.tpu.compile_count() - self.start

    return Counter()
