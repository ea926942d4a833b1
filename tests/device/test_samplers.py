"""Every operator that draws: its distribution, its seeds, its generators, the three eager modes.

Not here: `torch.distributions`, built on these (`test_distributions.py`), and how generators keep
their states (`test_generator.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from goodness import fits
from scipy import stats

N = 8192


def full(value, dtype=torch.float32):
    return torch.full((N,), value, dtype=dtype, device="tpu")


def empty(dtype=torch.float32):
    return torch.empty(N, dtype=dtype, device="tpu")


# name → (a draw with a generator, the law)
DRAWS = {
    "rand": (lambda g: torch.rand(N, device="tpu", generator=g), stats.uniform()),
    "uniform_": (lambda g: empty().uniform_(-2, 3, generator=g), stats.uniform(-2, 5)),
    "randn": (lambda g: torch.randn(N, device="tpu", generator=g), stats.norm()),
    "normal_": (lambda g: empty().normal_(1, 2, generator=g), stats.norm(1, 2)),
    "normal of numbers": (
        lambda g: torch.normal(-1.0, 0.5, (N,), device="tpu", generator=g),
        stats.norm(-1, 0.5),
    ),
    "normal of tensors": (
        lambda g: torch.normal(full(3.0), full(2.0), generator=g),
        stats.norm(3, 2),
    ),
    "normal of a mean": (lambda g: torch.normal(full(3.0), 2.0, generator=g), stats.norm(3, 2)),
    "normal of a spread": (lambda g: torch.normal(3.0, full(2.0), generator=g), stats.norm(3, 2)),
    "exponential_": (lambda g: empty().exponential_(2, generator=g), stats.expon(scale=0.5)),
    "cauchy_": (lambda g: empty().cauchy_(1, 2, generator=g), stats.cauchy(1, 2)),
    "log_normal_": (
        lambda g: empty().log_normal_(0.5, 0.25, generator=g),
        stats.lognorm(0.25, scale=np.exp(0.5)),
    ),
    "_standard_gamma": (
        lambda g: torch._standard_gamma(full(2.5), generator=g),
        stats.gamma(2.5),
    ),
    "_standard_gamma below one": (
        lambda g: torch._standard_gamma(full(0.3), generator=g),
        stats.gamma(0.3),
    ),
    "_sample_dirichlet": (
        lambda g: torch._sample_dirichlet(
            torch.tensor([0.5, 1.5, 3.0], device="tpu").expand(N, 3), generator=g
        )[:, 1],
        stats.beta(1.5, 3.5),
    ),
    "geometric_": (lambda g: empty().geometric_(0.3, generator=g), stats.geom(0.3)),
    "bernoulli": (lambda g: torch.bernoulli(full(0.3), generator=g), stats.bernoulli(0.3)),
    "bernoulli_": (lambda g: empty().bernoulli_(0.7, generator=g), stats.bernoulli(0.7)),
    "bernoulli_ of a tensor": (
        lambda g: empty(torch.int32).bernoulli_(full(0.7), generator=g),
        stats.bernoulli(0.7),
    ),
    "poisson": (lambda g: torch.poisson(full(3.5), generator=g), stats.poisson(3.5)),
    "poisson of many": (lambda g: torch.poisson(full(60.0), generator=g), stats.poisson(60)),
    "binomial": (
        lambda g: torch.binomial(full(7.0), full(0.3), generator=g),
        stats.binom(7, 0.3),
    ),
    "binomial of many": (
        lambda g: torch.binomial(full(100.0), full(0.6), generator=g),
        stats.binom(100, 0.6),
    ),
    "randint": (
        lambda g: torch.randint(-3, 9, (N,), device="tpu", generator=g),
        stats.randint(-3, 9),
    ),
    "random_": (lambda g: empty(torch.int64).random_(2, 12, generator=g), stats.randint(2, 12)),
    "random_ of a dtype": (
        lambda g: empty(torch.int8).random_(generator=g),
        stats.randint(0, 128),
    ),
    "randperm": (
        lambda g: torch.cat([torch.randperm(8, generator=g, device="tpu")[:1] for _ in range(300)]),
        stats.randint(0, 8),
    ),
    "multinomial": (
        lambda g: torch.multinomial(
            torch.tensor([0.1, 0.2, 0.3, 0.4], device="tpu"), N, True, generator=g
        ),
        stats.rv_discrete(values=(range(4), (0.1, 0.2, 0.3, 0.4)))(),
    ),
    "multinomial without replacement": (
        lambda g: torch.multinomial(
            torch.tensor([[1.0, 2.0, 0.0, 1.0]], device="tpu").expand(N, 4), 2, generator=g
        )[:, 0],
        stats.rv_discrete(values=(range(4), (0.25, 0.5, 0.0, 0.25)))(),
    ),
    "rrelu": (
        lambda g: -torch.ops.aten.rrelu(full(-1.0), 0.1, 0.4, True, g),
        stats.uniform(0.1, 0.3),
    ),
    "rand_like": (lambda g: torch.rand_like(empty(), generator=g), stats.uniform()),
    "randn_like": (lambda g: torch.randn_like(empty(), generator=g), stats.norm()),
    "randint_like": (
        lambda g: torch.randint_like(empty(), 2, 6, generator=g),
        stats.randint(2, 6),
    ),
}
# Drawn with the default generator only.
MASKS = {
    "dropout": lambda: F.dropout(full(1.0), 0.3) * 0.7,
    "dropout_": lambda: F.dropout(full(1.0), 0.3, inplace=True) * 0.7,
    "alpha_dropout": lambda: (F.alpha_dropout(full(1.0), 0.3, True) > 0).float(),
    "feature_alpha_dropout": lambda: (
        F.feature_alpha_dropout(full(1.0).view(64, 128, 1), 0.3, True) > 0
    ).float(),
    "dropout1d": lambda: F.dropout1d(full(1.0).view(64, 128, 1), 0.3) * 0.7,
    "dropout2d": lambda: F.dropout2d(full(1.0).view(64, 128, 1, 1), 0.3) * 0.7,
    "dropout3d": lambda: F.dropout3d(full(1.0).view(64, 128, 1, 1, 1), 0.3) * 0.7,
    "native_dropout": lambda: torch.native_dropout(full(1.0), 0.3, True)[1].float(),
}


def generator(seed=11):
    return torch.Generator("tpu").manual_seed(seed)


@pytest.mark.parametrize("name", DRAWS)
def test_law_and_seeds(name, compiles):
    draw, law = DRAWS[name]
    g, host = generator(), torch.get_rng_state()
    default = torch.tpu.get_rng_state()
    first = draw(g)
    fits(first, law)
    compiles.reset()
    second = draw(g)
    assert compiles() == 0
    assert not torch.equal(first, second)
    assert torch.equal(draw(generator()), first)
    # Neither the host's stream nor the device's default one has moved.
    assert torch.equal(torch.get_rng_state(), host)
    assert torch.equal(torch.tpu.get_rng_state(), default)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name, compiles):
    torch.tpu.manual_seed(5)
    host = torch.get_rng_state()
    first = MASKS[name]()
    fits(first.round(decimals=4), stats.bernoulli(0.7))
    compiles.reset()
    second = MASKS[name]()
    assert compiles() == 0
    assert not torch.equal(first, second)
    torch.tpu.manual_seed(5)
    assert torch.equal(MASKS[name](), first)
    assert torch.equal(torch.get_rng_state(), host)


def test_alpha_dropout_keeps_mean_and_variance():
    torch.tpu.manual_seed(1)
    x = torch.randn(200, 200, device="tpu")
    y = F.alpha_dropout(x, 0.2, True)
    assert abs(y.mean().item()) < 0.02
    assert abs(y.var().item() - 1) < 0.03


def test_features_are_dropped_as_a_whole():
    y = F.dropout2d(torch.ones(8, 64, 2, 3, device="tpu"), 0.5).cpu()
    assert set(y.flatten(2).sum(-1).unique().tolist()) == {0.0, 12.0}


def test_one_seed_one_sequence_in_every_mode():
    def sequence():
        g = generator()
        return [draw(g).cpu() for name, (draw, _) in DRAWS.items() if name != "randperm"]

    sequences = {}
    for mode in torch.tpu.EagerMode:
        with torch.tpu.set_eager_mode(mode):
            sequences[mode] = sequence()
    want = sequences[torch.tpu.EagerMode.STRICT]
    for got in sequences.values():
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float64))
@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("uniform_", stats.uniform()),
        ("normal_", stats.norm()),
        ("exponential_", stats.expon()),
        ("cauchy_", stats.cauchy()),
        ("log_normal_", stats.lognorm(1, scale=np.e)),
    ],
)
def test_dtypes(name, law, dtype):
    options = {"log_normal_": (1, 1)}
    drawn = getattr(empty(dtype), name)(*options.get(name, ()), generator=generator())
    assert drawn.dtype is dtype
    if name == "cauchy_":  # its tails leave the range of 16 bits, on the CPU too
        drawn = drawn[drawn.isfinite()]
    fits(drawn, law, grain=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128))
def test_complex_numbers(dtype):
    z = torch.randn(N, dtype=dtype, device="tpu", generator=generator())
    fits(z.real, stats.norm(0, 0.5**0.5))
    fits(z.imag, stats.norm(0, 0.5**0.5))
    assert abs(np.corrcoef(z.real.cpu(), z.imag.cpu())[0, 1]) < 0.05
    u = torch.rand(N, dtype=dtype, device="tpu", generator=generator())
    fits(u.imag, stats.uniform())


def test_neighbouring_seeds_and_draws_are_unrelated():
    draws = [torch.rand(N, device="tpu", generator=generator(seed)).cpu() for seed in range(8)]
    g = generator()
    draws += [torch.rand(N, device="tpu", generator=g).cpu() for _ in range(8)]
    correlations = np.corrcoef(np.stack(draws)) - np.eye(16)
    assert abs(correlations).max() < 5 / N**0.5
    # and within one draw
    first = draws[0].numpy()
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 5 / N**0.5


def test_permutations_are_uniform():
    g = generator()
    seen = {}
    for _ in range(600):
        order = tuple(torch.randperm(3, device="tpu", generator=g).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda: torch.randn(N, device="tpu") * 1.1, stats.norm()),
        (lambda: torch.randn(N, device="tpu") + 0.06, stats.norm()),
        (lambda: torch.rand(N, device="tpu") * 2 - 1, stats.norm(0, 3**-0.5)),
        (lambda: torch.poisson(full(3.5)), stats.poisson(3.8)),
        (lambda: torch.randint(0, 9, (N,), device="tpu"), stats.randint(0, 10)),
    ],
    ids="spread mean form counts range".split(),
)
def test_a_wrong_law_is_noticed(draw, law):
    with pytest.raises(AssertionError):
        fits(draw(), law)
