"""Random numbers obey seeds and states, and do not touch the CPU's stream."""

from __future__ import annotations

import pytest
import torch


def draw(n=16, **options):
    return torch.rand(n, device="tpu", **options).cpu()


def test_manual_seed_repeats():
    torch.manual_seed(5)
    a, b = draw(), draw()
    torch.manual_seed(5)
    assert torch.equal(draw(), a)
    assert torch.equal(draw(), b)
    assert not torch.equal(a, b)
    torch.manual_seed(6)
    assert not torch.equal(draw(), a)


def test_device_seed_alone():
    torch.tpu.manual_seed(3)
    a = draw()
    assert torch.tpu.initial_seed() == 3
    torch.tpu.manual_seed_all(3)
    assert torch.equal(draw(), a)
    torch.tpu.seed()
    assert not torch.equal(draw(), a)


def test_state_is_saved_and_restored():
    draw()
    state = torch.tpu.get_rng_state()
    assert state.dtype is torch.uint8
    assert state.device.type == "cpu"
    a = draw()
    assert not torch.equal(torch.tpu.get_rng_state(), state)
    torch.tpu.set_rng_state(state)
    assert torch.equal(draw(), a)
    states = torch.tpu.get_rng_state_all()
    assert len(states) == torch.tpu.device_count()
    torch.tpu.set_rng_state_all(states)
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork_rng():
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        a = draw()
    assert torch.equal(draw(), a)


def test_no_coupling_with_the_cpu():
    torch.manual_seed(2)
    want = torch.rand(3)
    torch.manual_seed(2)
    draw()
    assert torch.equal(torch.rand(3), want)
    torch.manual_seed(2)
    a = draw()
    torch.manual_seed(2)
    torch.rand(100)
    assert torch.equal(draw(), a)


def test_devices_draw_independently():
    torch.manual_seed(4)
    first, second = draw(), torch.rand(16, device="tpu:1").cpu()
    torch.manual_seed(4)
    assert torch.equal(torch.rand(16, device="tpu:1").cpu(), second)
    assert torch.equal(draw(), first)


def test_own_generator():
    g = torch.Generator(device="tpu").manual_seed(3)
    assert g.device.type == "tpu"
    assert g.initial_seed() == 3
    default = torch.tpu.get_rng_state()
    a, b = draw(generator=g), draw(generator=g)
    assert not torch.equal(a, b)
    assert torch.equal(torch.tpu.get_rng_state(), default)
    g.manual_seed(3)
    assert torch.equal(draw(generator=g), a)
    state = g.get_state()
    c = draw(generator=g)
    g.set_state(state)
    assert torch.equal(draw(generator=g), c)
    twin = g.clone_state()
    assert torch.equal(draw(generator=twin), draw(generator=g))


@pytest.mark.parametrize(
    "fill",
    [
        lambda x, g: x.uniform_(generator=g),
        lambda x, g: x.normal_(generator=g),
        lambda x, g: x.bernoulli_(0.5, generator=g),
        lambda x, g: x.exponential_(generator=g),
        lambda x, g: x.copy_(torch.randint(0, 99, (16,), generator=g, device="tpu")),
        lambda x, g: x.copy_(torch.randperm(16, generator=g, device="tpu")),
        lambda x, g: x.copy_(torch.randn(16, generator=g, device="tpu")),
        lambda x, g: x.copy_(
            torch.multinomial(torch.ones(16, device="tpu"), 16, True, generator=g)
        ),
    ],
    ids="uniform normal bernoulli exponential randint randperm randn multinomial".split(),
)
def test_generator_argument(fill):
    def run(seed):
        g = torch.Generator(device="tpu").manual_seed(seed)
        return fill(torch.zeros(16, device="tpu"), g).cpu()

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_a_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="tpu", generator=torch.Generator())


def test_distributions():
    torch.manual_seed(0)
    u = torch.rand(20000, device="tpu").cpu()
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    n = torch.randn(20000, device="tpu").cpu()
    assert abs(n.mean()) < 0.03
    assert abs(n.std() - 1) < 0.03
    k = torch.randint(-2, 3, (5000,), device="tpu").cpu()
    assert sorted(k.unique().tolist()) == [-2, -1, 0, 1, 2]
    assert torch.randperm(100, device="tpu").cpu().sort().values.tolist() == list(range(100))


def test_dropout_masks_differ_and_repeat():
    layer = torch.nn.Dropout(0.5)
    x = torch.ones(100, device="tpu")
    torch.manual_seed(1)
    a, b = layer(x).cpu(), layer(x).cpu()
    torch.manual_seed(1)
    assert torch.equal(layer(x).cpu(), a)
    assert not torch.equal(a, b)
    assert set(a.unique().tolist()) == {0.0, 2.0}


def test_checkpointing_restores_the_device_stream():
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(64, device="tpu", requires_grad=True)
    y = checkpoint(lambda t: torch.dropout(t, 0.5, True) * t, x, use_reentrant=False)
    kept = y.detach().cpu() != 0
    y.sum().backward()
    assert torch.equal(x.grad.cpu() != 0, kept)


def test_drawing_compiles_once(compiles):
    draw()
    compiles.reset()
    for seed in range(5):
        torch.manual_seed(seed)
        draw()
    assert compiles() == 0
