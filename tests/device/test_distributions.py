"""`torch.distributions` on the device: laws, seeds, pathwise gradients, no compile per draw.

Not here: the operators that draw (`test_samplers.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributions as D
from goodness import fits
from scipy import special, stats

N = 4096


def tpu(*numbers):
    return torch.tensor(numbers, device="tpu")


COVARIANCE = ((2.0, 0.6), (0.6, 1.0))
SIMPLEX = (0.1, 0.2, 0.7)
CATEGORIES = stats.rv_discrete(values=(range(3), SIMPLEX))()


class Given:
    """A law given by its distribution function; its moments are sums over a fine grid."""

    dist = None

    def __init__(self, cdf, low, high):
        self.cdf, self.low, self.high = cdf, low, high

    def stats(self, moments):
        grid = np.linspace(self.low, self.high, 20001)
        mass, middle = np.diff(self.cdf(grid)), (grid[1:] + grid[:-1]) / 2
        mean = (mass * middle).sum()
        return mean, (mass * (middle - mean) ** 2).sum(), np.nan, np.nan


def continuous_bernoulli(p):
    def cdf(x):
        return (p**x * (1 - p) ** (1 - x) + p - 1) / (2 * p - 1)

    return Given(cdf, 0.0, 1.0)


def kumaraswamy(a, b):
    return Given(lambda x: 1 - (1 - x**a) ** b, 0.0, 1.0)


def relaxed_bernoulli(temperature, p):
    def cdf(x):
        x = np.clip(x, 1e-12, 1 - 1e-12)
        return special.expit(temperature * special.logit(x) - special.logit(p))

    return Given(cdf, 0.0, 1.0)


# name → (distribution of parameters, parameters, the law of one number of it)
SCALARS = {
    "Bernoulli": (D.Bernoulli, (0.3,), stats.bernoulli(0.3)),
    "Beta": (D.Beta, (0.7, 2.0), stats.beta(0.7, 2)),
    "Binomial": (lambda p: D.Binomial(12, p), (0.4,), stats.binom(12, 0.4)),
    "Cauchy": (D.Cauchy, (1.0, 2.0), stats.cauchy(1, 2)),
    "Chi2": (D.Chi2, (3.0,), stats.chi2(3)),
    "ContinuousBernoulli": (D.ContinuousBernoulli, (0.2,), continuous_bernoulli(0.2)),
    "Exponential": (D.Exponential, (2.0,), stats.expon(scale=0.5)),
    "FisherSnedecor": (D.FisherSnedecor, (5.0, 12.0), stats.f(5, 12)),
    "Gamma": (D.Gamma, (2.0, 3.0), stats.gamma(2, scale=1 / 3)),
    "GeneralizedPareto": (D.GeneralizedPareto, (1.0, 2.0, 0.1), stats.genpareto(0.1, 1, 2)),
    "Geometric": (D.Geometric, (0.3,), stats.geom(0.3, -1)),
    "Gumbel": (D.Gumbel, (1.0, 2.0), stats.gumbel_r(1, 2)),
    "HalfCauchy": (D.HalfCauchy, (2.0,), stats.halfcauchy(scale=2)),
    "HalfNormal": (D.HalfNormal, (2.0,), stats.halfnorm(scale=2)),
    "InverseGamma": (D.InverseGamma, (6.0, 3.0), stats.invgamma(6, scale=3)),
    "Kumaraswamy": (D.Kumaraswamy, (2.0, 3.0), kumaraswamy(2, 3)),
    "Laplace": (D.Laplace, (1.0, 2.0), stats.laplace(1, 2)),
    "LogNormal": (D.LogNormal, (0.5, 0.5), stats.lognorm(0.5, scale=np.exp(0.5))),
    "NegativeBinomial": (D.NegativeBinomial, (4.0, 0.3), stats.nbinom(4, 0.7)),
    "Normal": (D.Normal, (1.0, 2.0), stats.norm(1, 2)),
    "Pareto": (D.Pareto, (1.0, 6.0), stats.pareto(6)),
    "Poisson": (D.Poisson, (4.0,), stats.poisson(4)),
    "RelaxedBernoulli": (
        lambda p: D.RelaxedBernoulli(tpu(0.8)[0], p),
        (0.4,),
        relaxed_bernoulli(0.8, 0.4),
    ),
    "StudentT": (D.StudentT, (6.0, 1.0, 2.0), stats.t(6, 1, 2)),
    "TransformedDistribution": (
        lambda loc: D.TransformedDistribution(
            D.Normal(loc, 1.0), [D.AffineTransform(1.0, 2.0), D.TanhTransform()]
        ),
        (0.1,),
        Given(lambda x: stats.norm(0.1).cdf((np.arctanh(x) - 1) / 2), -1 + 1e-9, 1 - 1e-9),
    ),
    "Uniform": (D.Uniform, (-1.0, 3.0), stats.uniform(-1, 4)),
    "VonMises": (D.VonMises, (0.5, 2.0), stats.vonmises(2, 0.5)),
    "Weibull": (D.Weibull, (2.0, 1.5), stats.weibull_min(1.5, scale=2)),
}


def column(index):
    return lambda x: x[..., index]


# name → (a distribution, a number of its sample, that number's law)
VECTORS = {
    "Categorical": (lambda: D.Categorical(tpu(*SIMPLEX)), lambda x: x, CATEGORIES),
    "OneHotCategorical": (
        lambda: D.OneHotCategorical(tpu(*SIMPLEX)),
        lambda x: x.argmax(-1),
        CATEGORIES,
    ),
    "OneHotCategoricalStraightThrough": (
        lambda: D.OneHotCategoricalStraightThrough(tpu(*SIMPLEX)),
        lambda x: x.argmax(-1),
        CATEGORIES,
    ),
    "Multinomial": (lambda: D.Multinomial(6, tpu(*SIMPLEX)), column(1), stats.binom(6, 0.2)),
    "Dirichlet": (lambda: D.Dirichlet(tpu(0.5, 1.0, 2.0)), column(2), stats.beta(2, 1.5)),
    "RelaxedOneHotCategorical": (
        lambda: D.RelaxedOneHotCategorical(tpu(0.8)[0], tpu(0.4, 0.6)),
        column(0),
        relaxed_bernoulli(0.8, 0.4),
    ),
    "LogisticNormal": (
        lambda: D.LogisticNormal(tpu(0.0, 1.0), tpu(1.0, 0.5)),
        lambda x: torch.log(x[..., 1] / x[..., 2]) - np.log(1.0),
        stats.norm(1, 0.5),
    ),
    "MultivariateNormal": (
        lambda: D.MultivariateNormal(tpu(1.0, -1.0), tpu(*COVARIANCE)),
        lambda x: x.sum(-1),
        stats.norm(0, 4.2**0.5),
    ),
    "MultivariateNormal by precision": (
        lambda: D.MultivariateNormal(
            tpu(1.0, -1.0), precision_matrix=torch.linalg.inv(tpu(*COVARIANCE))
        ),
        lambda x: x.sum(-1),
        stats.norm(0, 4.2**0.5),
    ),
    "LowRankMultivariateNormal": (
        lambda: D.LowRankMultivariateNormal(tpu(1.0, -1.0), tpu((1.0,), (0.5,)), tpu(0.5, 0.25)),
        lambda x: x.sum(-1),
        stats.norm(0, 3.0**0.5),
    ),
    "Wishart": (
        lambda: D.Wishart(tpu(5.0)[0], covariance_matrix=tpu(*COVARIANCE)),
        lambda x: x[..., 0, 0],
        stats.chi2(5, scale=2),
    ),
    "LKJCholesky": (
        lambda: D.LKJCholesky(3, tpu(1.5)[0]),
        lambda x: x[..., 1, 0] / 2 + 0.5,
        stats.beta(2, 2),
    ),
    "Independent": (
        lambda: D.Independent(D.Normal(tpu(0.0, 3.0), tpu(1.0, 2.0)), 1),
        column(1),
        stats.norm(3, 2),
    ),
    "MixtureSameFamily": (
        lambda: D.MixtureSameFamily(
            D.Categorical(tpu(0.3, 0.7)), D.Normal(tpu(-2.0, 2.0), tpu(1.0, 0.5))
        ),
        lambda x: x,
        Given(lambda x: 0.3 * stats.norm(-2).cdf(x) + 0.7 * stats.norm(2, 0.5).cdf(x), -9.0, 9.0),
    ),
}


def scalar(name):
    make, parameters, law = SCALARS[name]
    return make(*(torch.full((N,), p, device="tpu") for p in parameters)), law


def check_draws(draw, number, law, compiles):
    torch.tpu.manual_seed(3)
    host = torch.get_rng_state()
    first = draw()
    fits(number(first), law)
    draw()  # what is computed once and kept, such as a matrix's factor, is there now
    compiles.reset()
    second = draw()
    assert compiles() == 0
    assert first.device.type == "tpu"
    assert not torch.equal(first, second)
    torch.tpu.manual_seed(3)
    assert torch.equal(draw(), first)
    assert torch.equal(torch.get_rng_state(), host)


@pytest.mark.parametrize("name", SCALARS)
def test_scalars(name, compiles):
    made, law = scalar(name)
    check_draws(made.sample, lambda x: x, law, compiles)
    assert made.sample((2,)).shape == (2, N)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name, compiles):
    make, number, law = VECTORS[name]
    made = make()
    check_draws(lambda: made.sample((N,)), number, law, compiles)


def test_no_distribution_is_forgotten():
    bases = {"Distribution", "ExponentialFamily"}
    kinds = {
        name
        for name in D.__all__
        if isinstance(getattr(D, name), type) and issubclass(getattr(D, name), D.Distribution)
    }
    assert kinds - bases == {name.split()[0] for name in (*SCALARS, *VECTORS)}


PATHWISE = [name for name in SCALARS if getattr(SCALARS[name][0], "has_rsample", False)]
# Their mean is infinite, or PyTorch gives it no formula or no gradient.
NO_MEAN = {"Cauchy", "HalfCauchy"}


@pytest.mark.parametrize("name", [n for n in PATHWISE if n not in NO_MEAN])
def test_pathwise_gradients(name):
    """The mean gradient of the samples is the gradient of the mean."""
    torch.tpu.manual_seed(7)
    make, numbers, _ = SCALARS[name]
    leaves = [torch.full((N,), p, device="tpu", requires_grad=True) for p in numbers]
    made = make(*leaves)
    got = torch.autograd.grad(made.rsample().sum(), leaves, allow_unused=True)
    exact = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in numbers]
    want = torch.autograd.grad(make(*exact).mean, exact, allow_unused=True)
    for path, slope in zip(got, want, strict=True):
        if path is None:
            assert slope is None
            continue
        path, slope = path.double().cpu(), 0.0 if slope is None else slope.item()
        assert torch.isfinite(path).all()
        allowed = 5 * (path.std() / N**0.5).item() + 1e-4 * abs(slope)
        assert abs(path.mean().item() - slope) <= allowed, f"{path.mean()}, not {slope}"


# Distributions of one parameter, whose samples have gradients. Wishart's raise on the CPU too: what
# PyTorch samples them by writes over a mask that the backward pass needs.
GRADIENTS = {
    "Dirichlet": lambda p: D.Dirichlet(p.exp()),
    "RelaxedOneHotCategorical": lambda p: D.RelaxedOneHotCategorical(tpu(0.8)[0], logits=p),
    "OneHotCategoricalStraightThrough": lambda p: D.OneHotCategoricalStraightThrough(logits=p),
    "LogisticNormal": lambda p: D.LogisticNormal(p, p.exp()),
    "MultivariateNormal": lambda p: D.MultivariateNormal(p, torch.diag(p.exp())),
    "LowRankMultivariateNormal": lambda p: D.LowRankMultivariateNormal(p, p[:, None], p.exp()),
    "Independent": lambda p: D.Independent(D.Gamma(p.exp(), p.exp()), 1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_vectors_have_gradients(name):
    p = tpu(0.1, -0.2, 0.4).requires_grad_()
    x = GRADIENTS[name](p).rsample((5,))
    weights = torch.arange(float(x.numel()), device="tpu").view(x.shape)
    (x * weights).sum().backward()
    grad = p.grad.cpu()
    assert grad.isfinite().all()
    assert (grad != 0).all()


def test_pathwise_gradients_of_dirichlet():
    torch.tpu.manual_seed(2)
    p, weights = tpu(0.5, 1.0, 3.0), tpu(1.0, 2.0, 4.0)
    leaf = p.expand(N, 3).clone().requires_grad_()
    (D.Dirichlet(leaf).rsample() * weights).sum().backward()
    exact = p.clone().requires_grad_()
    (D.Dirichlet(exact).mean * weights).sum().backward()
    spread = leaf.grad.std(0) / N**0.5
    assert ((leaf.grad.mean(0) - exact.grad).abs() < 5 * spread).all()


@pytest.mark.parametrize("name", [n for n in SCALARS if n != "TransformedDistribution"])
def test_log_probabilities(name):
    """What training reads of a distribution, against the CPU."""
    make, numbers, law = SCALARS[name]
    near, far = (
        make(*(torch.full((N,), p, device=device) for p in numbers)) for device in ("cpu", "tpu")
    )
    x = torch.tensor(law.rvs(N, random_state=0) if name in DRAWABLE else 0.5).float().expand(N)
    if name == "RelaxedBernoulli":
        near = D.RelaxedBernoulli(torch.tensor(0.8), torch.full((N,), 0.4))
    torch.testing.assert_close(
        far.log_prob(x.to("tpu")).cpu(), near.log_prob(x), rtol=1e-5, atol=1e-5
    )


DRAWABLE = [name for name in SCALARS if not isinstance(SCALARS[name][2], Given)]


def test_one_seed_one_sequence_in_every_mode():
    def sequence():
        torch.tpu.manual_seed(1)
        return [scalar(name)[0].sample().cpu() for name in SCALARS if name != "RelaxedBernoulli"]

    sequences = []
    for mode in torch.tpu.EagerMode:
        with torch.tpu.set_eager_mode(mode):
            sequences.append(sequence())
    for got in sequences[1:]:
        for a, b in zip(got, sequences[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
