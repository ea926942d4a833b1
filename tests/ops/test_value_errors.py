"""Dtypes and numbers that a distribution, a product or a fill is not defined for.

Each call raises the class that CPU PyTorch raises, also when a program for another number is at
hand. What depends on the *values* of a tensor is not looked at: an invalid parameter of a sampler
gives what the CPU gives for it, or NaN where the CPU raises, and never a loop without end.
"""

from __future__ import annotations

import math

import pytest
import torch

from ops.both_devices import Maker

U8, I8, I16, B = torch.uint8, torch.int8, torch.int16, torch.bool
F16, F64, C64 = torch.float16, torch.float64, torch.complex64


def _outcome(call, device: str):
    """The class of the exception, or the dtype of the result."""
    try:
        result = call(Maker(device))
    except Exception as error:  # noqa: BLE001 (its class is what is compared)
        return type(error)
    return result.dtype


# ---- dtypes ----------------------------------------------------------------------------------

DISTRIBUTIONS = {
    "normal_": lambda t, d: t(3, dtype=d).normal_(),
    "uniform_": lambda t, d: t(3, dtype=d).uniform_(),
    "exponential_": lambda t, d: t(3, dtype=d).exponential_(),
    "log_normal_": lambda t, d: t(3, dtype=d).log_normal_(),
    "geometric_": lambda t, d: t(3, dtype=d).geometric_(0.5),
    "cauchy_": lambda t, d: t(3, dtype=d).cauchy_(),
    "random_": lambda t, d: t(3, dtype=d).random_(),
    "random_ to": lambda t, d: t(3, dtype=d).random_(2),
    "bernoulli": lambda t, d: torch.bernoulli(t(3, dtype=d)),
    "bernoulli_": lambda t, d: t(3, dtype=d).bernoulli_(0.5),
    "bernoulli_, chances": lambda t, d: t(3).bernoulli_(t(3, dtype=d)),
    "bernoulli_, coins": lambda t, d: t(3, dtype=d).bernoulli_(t(3)),
    "randn": lambda t, d: torch.randn(3, dtype=d, device=t.device),
    "rand": lambda t, d: torch.rand(3, dtype=d, device=t.device),
    "normal, means": lambda t, d: torch.normal(t(3, dtype=d), 1.0),
    "normal, deviations": lambda t, d: torch.normal(0.0, t(3, dtype=d)),
    "normal, both": lambda t, d: torch.normal(t(3), t(3, dtype=d)),
    "normal into": lambda t, d: torch.normal(t(3), 1.0, out=t(3, dtype=d)),
    "poisson": lambda t, d: torch.poisson(t(3, dtype=d)),
    "binomial": lambda t, d: torch.binomial(t(3), t(3, dtype=d)),
    "gamma": lambda t, d: torch._standard_gamma(t(3, dtype=d)),
    "dirichlet": lambda t, d: torch._sample_dirichlet(t(3, dtype=d)),
    "randperm": lambda t, d: torch.randperm(3, dtype=d, device=t.device),
    "bincount": lambda t, d: torch.bincount(t(3, dtype=d)),
    "histogram": lambda t, d: torch.histogram(t(3, dtype=d), 2)[0],
    "histogram, edges": lambda t, d: torch.histogram(t(3, dtype=d), t(2, dtype=d))[0],
    "normal_ of nothing": lambda t, d: t(0, dtype=d).normal_(),
    "exponential_ of nothing": lambda t, d: t(0, dtype=d).exponential_(),
    "cauchy_ of nothing": lambda t, d: t(0, dtype=d).cauchy_(),
    "uniform_ of nothing": lambda t, d: t(0, dtype=d).uniform_(),
}


@pytest.mark.parametrize("dtype", [U8, torch.int64, B, torch.uint16, F64, C64])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_dtypes_are_refused_as_on_the_cpu(name, dtype):
    def call(t):
        return DISTRIBUTIONS[name](t, dtype)

    assert _outcome(call, "tpu") is _outcome(call, "cpu")


PRODUCTS = {
    "mm": lambda m, v, b: torch.mm(m, m),
    "bmm": lambda m, v, b: torch.bmm(b, b),
    "mv": lambda m, v, b: torch.mv(m, v),
    "dot": lambda m, v, b: torch.dot(v, v),
    "vdot": lambda m, v, b: torch.vdot(v, v),
    "addmm": lambda m, v, b: torch.addmm(m, m, m),
    "addmv": lambda m, v, b: torch.addmv(v, m, v),
    "addbmm": lambda m, v, b: torch.addbmm(m, b, b),
    "baddbmm": lambda m, v, b: torch.baddbmm(b, b, b),
    "addr": lambda m, v, b: torch.addr(m, v, v),
    "addmm with relu": lambda m, v, b: torch._addmm_activation(v, m, m),
    "linear": lambda m, v, b: torch.nn.functional.linear(m, m, v),
    "einsum": lambda m, v, b: torch.einsum("ij,jk", m, m),
    "mm over nothing": lambda m, v, b: torch.mm(m[:, :0], m[:0]),
    "bmm over nothing": lambda m, v, b: torch.bmm(b[:, :, :0], b[:, :0]),
    "dot of nothing": lambda m, v, b: torch.dot(v[:0], v[:0]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_bools_are_refused_as_on_the_cpu(name):
    def call(t):
        return PRODUCTS[name](t(2, 2, dtype=B), t(2, dtype=B), t(2, 2, 2, dtype=B))

    assert _outcome(call, "tpu") is _outcome(call, "cpu")


REFUSED = {
    "bincount, negative length": lambda t: torch.bincount(t(3, dtype=U8), minlength=-1),
    "histc to infinity": lambda t: torch.histc(t(3), 2, 0, math.inf),
    "histc, ends exchanged": lambda t: torch.histc(t(0), 2, 3, 1),
    "histc into another dtype": lambda t: torch.histc(t(3), 2, 0, 1, out=t(2, dtype=F16)),
    "histc, no bins": lambda t: torch.histc(t(3, dtype=B), 0),
    "histc of bools": lambda t: torch.histc(t(3, dtype=B), 2),
    "histogramdd of float16": lambda t: torch.histogramdd(t(3, 2, dtype=F16), [2, 2])[0],
    "threshold of bools": lambda t: torch.threshold(t(3, dtype=B), 1, 1),
    "fill_ with a vector": lambda t: t(3).fill_(t(1)),
    "fill with a vector": lambda t: torch.fill(t(3), t(3)),
    "bools minus a number": lambda t: t(3, dtype=B) - 1,
    "a number minus bools": lambda t: 1 - t(3, dtype=B),
    "floats minus bools": lambda t: t(3) - t(3, dtype=B),
    "binomial of two dtypes": lambda t: torch.binomial(t(3), t(3, dtype=F64)),
    "normal, complex deviation": lambda t: torch.normal(t(3), t(3, dtype=C64)),
    "randperm, uint8": lambda t: torch.randperm(257, dtype=U8, device=t.device),
    "randperm, int8": lambda t: torch.randperm(129, dtype=I8, device=t.device),
    "randperm, float16": lambda t: torch.randperm(2050, dtype=F16, device=t.device),
    "randperm into": lambda t: torch.randperm(300, out=t(1, dtype=U8)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_are_refused_as_on_the_cpu(name):
    expected = _outcome(REFUSED[name], "cpu")
    assert issubclass(expected, Exception)
    assert _outcome(REFUSED[name], "tpu") is expected


# ---- numbers ---------------------------------------------------------------------------------

NUMBERS = {
    "clamp": lambda x, n, t: x.clamp(0, n),
    "clamp_": lambda x, n, t: x.clamp_(max=n),
    "clamp, lower": lambda x, n, t: x.clamp(min=n),
    "clamp_max": lambda x, n, t: x.clamp_max(n),
    "hardtanh": lambda x, n, t: torch.nn.functional.hardtanh(x, 0, n),
    "threshold": lambda x, n, t: torch.threshold(x, 1, n),
    "masked_fill": lambda x, n, t: x.masked_fill(x > 0, n),
    "index_fill": lambda x, n, t: x.index_fill(0, t.places(1), n),
    "index_add": lambda x, n, t: x.index_add(0, t.places(1), x[:1], alpha=n),
    "scatter": lambda x, n, t: x.scatter(0, t.places(1), n),
    "scatter, add": lambda x, n, t: x.scatter(0, t.places(1), n, reduce="add"),
    "pad": lambda x, n, t: torch.nn.functional.pad(x, (1, 1), value=n),
    "fill_": lambda x, n, t: x.fill_(n),
    "full_like": lambda x, n, t: torch.full_like(x, n),
    "add": lambda x, n, t: x + n,
    "mul": lambda x, n, t: x * n,
}


@pytest.mark.parametrize(("dtype", "number"), [(U8, 300), (I16, 70000), (F16, 1e6)])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_the_dtype_are_as_on_the_cpu_with_a_program_at_hand(name, dtype, number):
    def call(t):
        return NUMBERS[name](t(3, dtype=dtype), number, t)

    def fitting(t):
        return NUMBERS[name](t(3, dtype=dtype), 3, t)

    assert _outcome(fitting, "tpu") is _outcome(fitting, "cpu")
    assert _outcome(call, "tpu") is _outcome(call, "cpu")


@pytest.mark.parametrize(
    ("count", "dtype"), [(256, U8), (128, I8), (2049, F16), (300, torch.bfloat16)]
)
def test_permutations_fill_their_dtype(count, dtype):
    drawn = torch.randperm(count, dtype=dtype, device="tpu").cpu()
    assert drawn.dtype is dtype
    assert torch.equal(
        drawn.to(torch.int64).sort()[0], torch.randperm(count, dtype=dtype).long().sort()[0]
    )


# ---- parameters of samplers ------------------------------------------------------------------

NAN, INF = math.nan, math.inf
PARAMETERS = {
    "gamma of infinity": (torch._standard_gamma, INF),
    "gamma of NaN": (torch._standard_gamma, NAN),
    "gamma of -1": (torch._standard_gamma, -1.0),
    "gamma of 0": (torch._standard_gamma, 0.0),
    "dirichlet of infinity": (torch._sample_dirichlet, INF),
    "dirichlet of NaN": (torch._sample_dirichlet, NAN),
    "dirichlet of -1": (torch._sample_dirichlet, -1.0),
    "dirichlet of 0": (torch._sample_dirichlet, 0.0),
    "binomial of -3": (torch.binomial, -3.0, 0.5),
    "binomial, chance 2": (torch.binomial, 3.0, 2.0),
    "binomial, chance -1": (torch.binomial, 300.0, -1.0),
    "binomial, chance NaN": (torch.binomial, 300.0, NAN),
    "binomial of half": (torch.binomial, 2.5, 1.0),
    "binomial of infinity, surely": (torch.binomial, INF, 1.0),
    "binomial of -3, chance NaN": (torch.binomial, -3.0, NAN),
    "binomial of NaN, never": (torch.binomial, NAN, 0.0),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_invalid_parameters_give_what_they_give_on_the_cpu(name):
    sample, *numbers = PARAMETERS[name]
    parameters = [torch.full((3,), number) for number in numbers]
    result = sample(*(p.to("tpu") for p in parameters)).cpu()
    torch.testing.assert_close(result, sample(*parameters), equal_nan=True)


def test_one_certain_share_stays_below_one():
    for alpha in (torch.tensor([1.0, 0.0]), torch.tensor(1.0)):
        shares = torch._sample_dirichlet(alpha.to("tpu")).cpu()
        torch.testing.assert_close(shares, torch._sample_dirichlet(alpha), rtol=0, atol=0)


def test_nothing_invalid_loops_forever():
    for number in (INF, NAN, -1.0):
        x = torch.full((3,), number, device="tpu")
        torch.poisson(x).cpu()
        torch.binomial(x, torch.full_like(x, 0.5)).cpu()


def test_normal_numbers_have_the_dtype_of_their_means():
    for mean, std in ((F16, torch.float32), (torch.float32, F64), (C64, F64)):
        mean, std = torch.zeros(2, 1, dtype=mean), torch.ones(3, dtype=std)
        drawn = torch.normal(mean.to("tpu"), std.to("tpu"))
        wanted = torch.normal(mean, std)
        assert (drawn.dtype, drawn.shape) == (wanted.dtype, wanted.shape)
