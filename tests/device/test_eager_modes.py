"""The eager modes as an API, and that programs give the same in all of them."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
import torch

MODES = list(torch.tpu.EagerMode)
DEFER = torch.tpu.EagerMode.DEFER_AND_FUSE
STRICT = torch.tpu.EagerMode.STRICT


@pytest.fixture(autouse=True)
def _strict_again():
    yield
    torch.tpu.set_eager_mode(STRICT)


def test_function_context_and_decorator():
    assert torch.tpu.eager_mode() is STRICT
    torch.tpu.set_eager_mode(DEFER)
    assert torch.tpu.eager_mode() is DEFER
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEBUG):
        assert torch.tpu.eager_mode() is torch.tpu.EagerMode.DEBUG
    assert torch.tpu.eager_mode() is DEFER
    torch.tpu.set_eager_mode(STRICT)

    @torch.tpu.set_eager_mode(DEFER)
    def mode_inside():
        return torch.tpu.eager_mode()

    assert torch.tpu.eager_mode() is STRICT
    assert mode_inside() is DEFER
    assert torch.tpu.eager_mode() is STRICT


def test_generators_have_the_mode_while_they_run():
    @torch.tpu.set_eager_mode(DEFER)
    def modes():
        for _ in range(2):
            yield torch.tpu.eager_mode()

    for mode in modes():
        assert mode is DEFER
        assert torch.tpu.eager_mode() is STRICT


def test_the_mode_comes_back_after_an_error():
    with pytest.raises(ValueError, match="mine"), torch.tpu.set_eager_mode(DEFER):
        raise ValueError("mine")
    assert torch.tpu.eager_mode() is STRICT


@pytest.mark.parametrize("wrong", (2, "debug", None))
def test_anything_else_is_refused(wrong):
    with pytest.raises(TypeError, match="EagerMode"):
        torch.tpu.set_eager_mode(wrong)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    (
        ("TORCH_TPU_LAUNCH_BLOCKING", "1", "DEBUG"),
        ("TORCH_TPU_DEFER_AND_FUSE", "1", "DEFER_AND_FUSE"),
        ("TORCH_TPU_DEFER_AND_FUSE", "0", "STRICT"),
    ),
)
def test_the_environment_chooses(variable, value, expected):
    code = "import torch; print(torch.tpu.eager_mode().name)"
    environment = {**os.environ, variable: value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_switching_in_the_middle_keeps_everything():
    expected = torch.arange(6.0)
    x = torch.arange(6.0).to("tpu")
    for step, mode in enumerate(MODES * 3):
        torch.tpu.set_eager_mode(mode)
        x = x * 2 - step
        x[1:3] += 1
        expected = expected * 2 - step
        expected[1:3] += 1
    assert x.tolist() == expected.tolist()


def test_backward_threads_follow(spy_on_backward):
    seen = []
    double = spy_on_backward(lambda: seen.append(torch.tpu.eager_mode()))
    x = torch.ones(2, device="tpu", requires_grad=True)
    with torch.tpu.set_eager_mode(DEFER):
        double(x).sum().backward()
    assert seen[0] is DEFER
    assert x.grad.tolist() == [2.0, 2.0]


# ---- the same programs in every mode -----------------------------------------------------------


class Program:
    """A random sequence of operators on a few tensors: views, writes in place, mixed dtypes, reads.

    The same seed makes the same program whatever the device. Values stay small: products are taken
    of tanh. Floats are compared within 1e-6 relative to the largest, all else exactly.
    """

    DTYPES = (torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)

    def __init__(self, seed: int, device: str):
        self.draw = random.Random(seed)
        values = torch.Generator().manual_seed(seed)
        self.tensors = []
        for _ in range(4):
            x = torch.randn(4, 6, generator=values) * 3
            self.tensors.append(x.to(self.draw.choice(self.DTYPES)).to(device))
        self.read: list = []

    def run(self) -> list:
        for _ in range(self.draw.randint(5, 30)):
            self.draw.choice(
                (self.binary, self.binary, self.unary, self.view, self.write, self.write_view)
                + (self.reduce, self.item, self.index, self.cast, self.matmul)
            )()
        return [*self.tensors, *self.read]

    def pick(self) -> torch.Tensor:
        return self.draw.choice(self.tensors)

    def put(self, x: torch.Tensor) -> None:
        self.tensors[self.draw.randrange(4)] = x

    def binary(self):
        op = self.draw.choice((torch.add, torch.sub, torch.maximum, torch.eq, torch.lt))
        a, b = self.pick(), self.pick()
        if op is torch.sub and torch.bool in (a.dtype, b.dtype):
            op = torch.logical_xor
        self.put(op(a, b))

    def unary(self):
        op = self.draw.choice((torch.tanh, torch.relu, torch.sign, torch.clone, torch.abs))
        x = self.pick()
        self.put(op(x.to(torch.float32) if x.dtype is torch.bool else x))

    def view(self):
        x = self.pick()
        step = self.draw.choice((1, 2))
        rows, columns = self.draw.sample(range(4), 4), slice(None, None, step)
        view = self.draw.choice((lambda: x.t().t(), lambda: x.flip(1), lambda: x[rows]))()
        self.put(torch.cat([view[:, columns]] * step, 1)[:, :6])

    def write(self):
        x = self.pick()
        if x.dtype is torch.bool:
            x.logical_or_(self.pick().to(torch.bool))
        elif x.is_floating_point():
            x.mul_(0.5).add_(self.pick().to(x.dtype).tanh(), alpha=self.draw.random())
        else:
            x.clamp_(-9, 9).add_(self.draw.randint(-3, 3))

    def write_view(self):
        x, row = self.pick(), self.draw.randrange(4)
        start = self.draw.randrange(5)
        target = self.draw.choice((x[row], x[:, start : start + 2], x.t()[start], x[::2]))
        target.copy_(self.draw.choice((0, 1, self.draw.randrange(5))) * torch.ones_like(target))

    def reduce(self):
        x = self.pick()
        x = x.to(torch.float32) if x.dtype is torch.bool else x
        self.put(x.to(torch.float64).tanh().sum(self.draw.choice((0, 1)), keepdim=True) + x)

    def item(self):
        value = self.pick()[self.draw.randrange(4), self.draw.randrange(6)].item()
        self.read.append(torch.tensor(value, dtype=torch.float64))
        if value > 0:
            self.put(self.pick().clone())

    def index(self):
        x = self.pick()
        positions = torch.tensor(self.draw.choices(range(4), k=4), device=x.device)
        self.put(self.draw.choice((x[positions], x.index_select(0, positions))))

    def cast(self):
        self.put(self.pick().to(torch.float32).clamp(-100, 100).to(self.draw.choice(self.DTYPES)))

    def matmul(self):
        # In float64: products that cancel have errors of the size of what cancelled.
        x = self.pick().to(torch.float64).tanh()
        self.put((x @ x.t() @ x).to(torch.float32))


def assert_same(actual: list, expected: list) -> None:
    for a, e in zip(actual, expected, strict=True):
        a = a.cpu()
        assert a.dtype is e.dtype and a.shape == e.shape
        if e.is_floating_point():
            scale = e.abs().max().item()
            torch.testing.assert_close(a, e, rtol=1e-6, atol=1e-6 * max(scale, 1), equal_nan=True)
        else:
            assert torch.equal(a, e)


@pytest.mark.parametrize("start", range(0, 500, 25))
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_random_programs_agree_with_the_cpu(mode, start):
    with torch.tpu.set_eager_mode(mode):
        for seed in range(start, start + 25):
            expected = Program(seed, "cpu").run()
            assert_same(Program(seed, "tpu").run(), expected)
