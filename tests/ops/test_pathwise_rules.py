"""Slopes of gamma and beta samples equal the quotient of differences of exact quantiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

CHANCES = np.array([0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
SIZES = (0.05, 0.3, 1.0, 2.5, 10.0, 300.0)


def quotient(quantile, a):
    """Of fourth order, in float64."""
    h = 1e-3 * a
    near, far = (quantile(a + k * h) - quantile(a - k * h) for k in (1, 2))
    return (8 * near - far) / (12 * h)


def tpu(values, dtype):
    return torch.tensor(np.asarray(values), dtype=dtype, device="tpu")


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_gamma(dtype):
    a, chance = (grid.ravel() for grid in np.meshgrid(SIZES, CHANCES))
    x = special.gammaincinv(a, chance)
    a, chance, x = (v[x > 1e-30] for v in (a, chance, x))
    want = quotient(lambda a: special.gammaincinv(a, chance), a)
    got = torch._standard_gamma_grad(tpu(a, dtype), tpu(x, dtype))
    assert got.dtype is dtype
    torch.testing.assert_close(got.cpu().double(), torch.tensor(want), rtol=1e-5, atol=0)


def test_beta():
    sizes = np.meshgrid(SIZES, (0.3, 1.0, 4.0, 100.0), CHANCES)
    a, b, chance = (grid.ravel() for grid in sizes)
    x = special.betaincinv(a, b, chance)
    inside = (x > 1e-30) & (x < 1 - 1e-6)  # quantiles nearer to 1 have too few digits
    a, b, chance, x = (v[inside] for v in (a, b, chance, x))
    want = quotient(lambda a: special.betaincinv(a, b, chance), a)
    got = torch._dirichlet_grad(*(tpu(v, torch.float64) for v in (x, a, a + b)))
    torch.testing.assert_close(got.cpu(), torch.tensor(want / (1 - x)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_short_floats(dtype):
    a, x = torch.tensor([0.5, 3.0], dtype=dtype), torch.tensor([0.25, 4.0], dtype=dtype)
    want = torch._standard_gamma_grad(a.double(), x.double())
    got = torch._standard_gamma_grad(a.to("tpu"), x.to("tpu"))
    assert got.dtype is dtype
    torch.testing.assert_close(got.cpu().double(), want, rtol=torch.finfo(dtype).eps, atol=1e-4)


def test_what_is_refused():
    one, whole = torch.ones(2, device="tpu"), torch.ones(2, dtype=torch.int64, device="tpu")
    with pytest.raises(RuntimeError, match="float32 and torch.float64"):
        torch._standard_gamma_grad(one, one.double())
    with pytest.raises((RuntimeError, NotImplementedError), match="_dirichlet_grad"):
        torch._dirichlet_grad(whole, whole, whole)


def test_extremes_are_finite():
    tiny = torch.finfo(torch.float32).tiny
    a = torch.tensor([1e-3, 1e-3, 1.0, 1e6], device="tpu")
    x = torch.tensor([tiny, 1e-3, 80.0, 1e6], device="tpu")
    assert torch._standard_gamma_grad(a, x).isfinite().all()
    x = torch.tensor([tiny, 1 - 6e-8, 0.5, 1e-3], device="tpu")
    assert torch._dirichlet_grad(x, a, a + 1.0).isfinite().all()
