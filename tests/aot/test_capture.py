"""Capturing: what becomes a parameter, a result, a donation; notes of places; what is refused."""

from __future__ import annotations

import resource

import pytest
import torch
from aot.run import program, state_of
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name

from torch_tpu.aot.capture import capture


class Cached(nn.Module):
    """One step of decoding with a cache of what came before."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(2, 8, 4))

    def forward(self, x, position):
        self.cache.index_copy_(1, position, self.proj(x))
        seen = torch.arange(8, device=x.device) <= position
        weights = (self.cache @ x.transpose(1, 2)).masked_fill(~seen[None, :, None], -1e9)
        return (weights.softmax(1).transpose(1, 2) @ self.cache).squeeze(1)


def test_decoding_changes_the_cache_in_place():
    torch.manual_seed(0)
    model = Cached().eval().requires_grad_(False)
    captured = capture(model, (torch.empty(2, 1, 4, device="meta"), torch.tensor([0])))
    cache = next(i for i, p in enumerate(captured.parameters) if p.name == "cache")
    assert captured.parameters[cache].kind == "buffer"
    assert [r.mutates for r in captured.results] == [None, cache]
    assert f"%arg{cache}: tensor<2x8x4xf32> {{tf.aliasing_output = 1 : i32}}" in captured.text
    compiled = program(captured, state_of(model))
    for i in range(3):
        x, position = torch.randn(2, 1, 4), torch.tensor([i])
        actual = compiled(x.to("tpu"), position.to("tpu")).cpu()
        torch.testing.assert_close(actual, model(x, position), rtol=1e-5, atol=1e-6)


def test_a_changed_argument_is_donated():
    def step(total, x, scale=2):
        total.add_(x, alpha=scale)
        return total.sum(), x

    captured = capture(step, (torch.zeros(3), torch.ones(3)), {"scale": 3})
    assert [(p.name, p.kind) for p in captured.parameters] == [("total", "input"), ("x", "input")]
    assert [(r.name, r.mutates) for r in captured.results] == [
        ("output.0", None),
        ("output.1", None),
        ("total", 0),
    ]
    total = torch.zeros(3, device="tpu")
    result, same = program(captured, {})(total, torch.ones(3, device="tpu"), scale=3)
    assert total.tolist() == [3, 3, 3] and result.item() == 9 and same.tolist() == [1, 1, 1]


def test_a_buffer_that_is_assigned_is_changed():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count = self.count + 1
            return x * self.count

    model = Counting()
    captured = capture(model, (torch.ones(2),))
    assert [r.kind for r in captured.results] == ["output", "mutation"]
    assert model.count.item() == 0


def test_places_are_those_of_the_user():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x).tanh()  # the line

    model = nn.Sequential(Inner(), nn.Linear(4, 1))
    line = Inner.forward.__code__.co_firstlineno + 1

    def step(x):
        model(x).sum().backward()

    captured = capture(step, (torch.randn(2, 4),))
    located = [t for t in captured.text.splitlines() if f'test_capture.py":{line}:0' in t]
    forward = [t for t in located if '"0/fc/aten::addmm"' in t]
    backward = [t for t in located if '"0/fc/aten::mm"' in t]
    assert forward and backward
    assert any('"0/aten::tanh_backward"' in t for t in located)


def test_nothing_is_allocated():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(1 << 15, 1 << 15) for _ in range(4)))  # 16 GiB
    captured = capture(model, (torch.empty(1 << 15, 1 << 15, device="meta"),))
    assert captured.parameter_count == 4 * ((1 << 30) + (1 << 15))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_flops():
    captured = capture(lambda a, b: F.relu(a @ b), (torch.randn(3, 4), torch.randn(4, 5)))
    assert captured.flops == 2 * 3 * 4 * 5


def test_flops_of_attention():
    q, k = torch.empty(2, 8, 16, 4), torch.empty(2, 2, 32, 4)

    def attend(q, k):
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    forward = 2 * 2 * (2 * 8 * 16 * 32 * 4)
    assert capture(attend, (q, k)).flops == forward

    def gradients(q, k):
        return torch.autograd.grad(attend(q, k).sum(), (q, k))

    both = capture(gradients, (q.requires_grad_(), k.requires_grad_())).flops
    assert both == forward + 5 * forward // 2


@pytest.mark.parametrize("p", [0.0, 0.25])
def test_dropout(p):
    captured = capture(lambda x: F.dropout(x, p), (torch.ones(4096),))
    compiled = program(captured, {})
    torch.tpu.manual_seed(1)
    first = compiled(torch.ones(4096, device="tpu")).cpu()
    second = compiled(torch.ones(4096, device="tpu")).cpu()
    torch.tpu.manual_seed(1)
    assert torch.equal(compiled(torch.ones(4096, device="tpu")).cpu(), first)
    assert abs((first == 0).float().mean() - p) < 0.03
    assert torch.equal(first, second) == (p == 0)


def test_an_exported_program():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    exported = torch.export.export(model, (x,))
    captured = capture(exported, (torch.empty(3, 4, device="meta"),))
    mutated = {
        captured.parameters[r.mutates].name for r in captured.results if r.mutates is not None
    }
    assert mutated == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    compiled = program(captured, state_of(model))
    torch.testing.assert_close(compiled(x.to("tpu")).cpu(), model(x), rtol=1e-5, atol=1e-5)
    assert "test_capture.py" in captured.text or "0/aten" in captured.text


def test_a_number_that_depends_on_data():
    def step(x):
        return x * x.sum().item()

    with pytest.raises(NotImplementedError, match=r"_local_scalar_dense.*test_capture\.py:\d+"):
        capture(step, (torch.ones(2),))


def test_a_shape_that_depends_on_data():
    with pytest.raises(NotImplementedError, match=r"nonzero.*test_capture\.py:\d+"):
        capture(lambda x: x.nonzero(), (torch.ones(2),))


def test_a_branch_that_depends_on_data():
    def step(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(NotImplementedError, match=r"torch\.where"):
        capture(step, (torch.ones(2),))


def test_wrong_targets():
    with pytest.raises(TypeError, match="a function, nn.Module or ExportedProgram"):
        capture(3)
    with pytest.raises(NotImplementedError, match="sparse"):
        capture(lambda x: x, (torch.eye(2).to_sparse(),))
