"""Rows of `torch_tpu/ops/sampling.py`: statistics of a few thousand draws, within wide bounds."""

import math

import torch

from ops.rows.random import BF16, F64, about, rand

N = 4000


def _permutation(n):
    return lambda r: r[0].sort()[0].tolist() == list(range(n)) and r[0].tolist() != list(range(n))


def _shares(*expected_):
    """Each category's share of the draws."""

    def check(results):
        x = results[0].flatten()
        shares = [(x == k).to(F64).mean().item() for k in range(len(expected_))]
        return all(abs(a - b) < 0.05 for a, b in zip(shares, expected_, strict=True))

    return check


def _distinct(*allowed):
    def check(results):
        rows = results[0].reshape(-1, results[0].shape[-1]).tolist()
        return all(len(set(r)) == len(r) and set(r) <= set(allowed) for r in rows)

    return check


def _first_share(results):
    """Drawing two of (1, 2, 7) without replacement starts with the last 70 % of the time."""
    return abs((results[0][:, 0] == 2).to(F64).mean().item() - 0.7) < 0.05


def _full(value, dtype=torch.float32, n=N):
    return torch.full((n,), value, dtype=dtype)


def _poisson(rate, dtype=torch.float32):
    return rand("poisson", _full(rate, dtype), check=about(rate, math.sqrt(rate), low=0))


def _gamma(alpha, dtype=torch.float32):
    return rand("_standard_gamma", _full(alpha, dtype), check=about(alpha, math.sqrt(alpha), 0))


def _binomial(n, p, dtype=torch.float32):
    check = about(n * p, math.sqrt(n * p * (1 - p)), 0, n)
    return rand("binomial", _full(n, dtype), _full(p, dtype), check=check)


W = torch.tensor([1.0, 0.0, 2.0, 5.0, 0.0])
ROWS = [
    rand("randperm", 100, check=_permutation(100)),
    rand("randperm", 50, dtype=torch.int32, check=_permutation(50)),
    rand("randperm.generator", 50, generator=None, dtype=F64, check=_permutation(50)),
    rand("multinomial", W, 3000, True, check=_shares(0.125, 0, 0.25, 0.625, 0)),
    rand("multinomial", W.repeat(30, 1), 100, True, check=_shares(0.125, 0, 0.25, 0.625, 0)),
    rand("multinomial", W.repeat(3000, 1), 1, check=_shares(0.125, 0, 0.25, 0.625, 0)),
    rand("multinomial", W.repeat(3000, 1).to(BF16), 1, True, check=_shares(0.125, 0, 0.25, 0.625)),
    rand("multinomial", W.to(F64), 3000, True, check=_shares(0.125, 0, 0.25, 0.625, 0)),
    rand("multinomial", W.repeat(20, 1), 3, check=_distinct(0, 2, 3)),
    rand("multinomial", torch.tensor([[1.0, 2, 7]]).repeat(3000, 1), 2, check=_first_share),
    *(_gamma(a) for a in (0.3, 1.0, 4.5, 100.0)),
    _gamma(2.0, F64),
    rand("_standard_gamma", torch.tensor(3.0), check=lambda r: r[0].item() > 0),
    rand("_standard_gamma", _full(1e-3), check=lambda r: bool((r[0] > 0).all())),
    rand(
        "_sample_dirichlet",
        torch.tensor([1.0, 2.0, 5.0]).repeat(3000, 1),
        check=lambda r: (
            torch.allclose(r[0].sum(1), torch.ones(3000))
            and torch.allclose(r[0].mean(0), torch.tensor([0.125, 0.25, 0.625]), atol=0.02)
        ),
    ),
    rand(
        "_sample_dirichlet",
        torch.full((50, 4), 1e-3, dtype=F64),
        check=lambda r: torch.allclose(r[0].sum(1), torch.ones(50, dtype=F64)),
    ),
    *(_poisson(a) for a in (0.5, 8.0, 10.0, 30.0, 1e4, 1e6)),
    _poisson(12.0, F64),
    _poisson(3.0, BF16),
    rand("poisson", torch.zeros(2, 0), check=lambda r: r[0].shape == (2, 0)),
    rand("poisson", torch.zeros(5), check=lambda r: bool((r[0] == 0).all())),
    *(
        _binomial(n, p)
        for n, p in ((10.0, 0.3), (40.0, 0.5), (100.0, 0.9), (1e5, 0.2), (7.0, 0.99))
    ),
    _binomial(200.0, 0.1, F64),
    rand(
        "binomial",
        torch.tensor([5.0, 0.0, 3.0, 50.0]),
        torch.tensor([0.0, 0.5, 1.0, 1.0]),
        check=lambda r: r[0].tolist() == [0, 0, 3, 50],
    ),
]
