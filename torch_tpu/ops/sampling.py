"""Samplers that sort or loop: randperm, multinomial, gamma, Dirichlet, Poisson, binomial.

The rejection samplers draw for every element at once and loop until each has accepted once; the
expected number of rounds is a handful. Parameters are not checked on the device (that would need
their values on the host): an invalid one gives what it gives on the CPU, or NaN where CPU PyTorch
raises, as for a negative Poisson rate. An attempt must accept whatever no attempt can improve on:
NaN and infinity, or the loop had no end.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import is_infinite, undefined
from .random import UNSIGNED, exponential_unit, gaussian, open_unit, unit

# ---- permutations and categories -------------------------------------------------------------


_MOST_INDICES = {torch.float16: 2**11, torch.float32: 2**24, torch.float64: 2**53}
"""The last index that `randperm` gives in a float; PyTorch has no limit for bfloat16."""


def _check_randperm(n, dtype=None, out=None) -> None:
    dtype = dtype or (torch.int64 if out is None else out.dtype)
    if dtype in (torch.bool, *UNSIGNED) or dtype.is_complex:
        undefined("randperm", dtype)
    most = torch.iinfo(dtype).max if not dtype.is_floating_point else _MOST_INDICES.get(dtype, n)
    if n - 1 > most:
        raise RuntimeError(f"aten::randperm: {dtype} cannot hold the indices below n = {n}")


@op("aten::randperm", "aten::randperm.generator", random=True, check=_check_randperm)
def randperm(n, rng=None):
    result = expected()[0]
    # Ties between 64-bit keys are too rare to be seen.
    keys = hlo.rng_bits(rng, (n,), torch.uint64)
    index = hlo.iota((n,), 0, torch.int64)
    ordered = hlo.sort([keys, index], 0, lambda a, b, _i, _j: hlo.compare(a, b, "LT"))
    return ordered[1].to(result.dtype)


_MOST_CATEGORIES = 2**24


def _check_multinomial(self, num_samples, replacement=False, out=None) -> None:
    categories = self.shape[-1] if self.ndim else 0
    if not self.is_floating_point():
        wrong = f"only supports floating-point dtypes for input, got {self.dtype}"
    elif self.ndim not in (1, 2):
        wrong = f"takes the probabilities of 1 or 2 dim, got {list(self.shape)}"
    elif num_samples <= 0:
        wrong = f"cannot sample n_sample <= 0 samples, got {num_samples}"
    elif not replacement and num_samples > categories:
        wrong = f"cannot draw {num_samples} of {categories} categories without replacement"
    elif categories > _MOST_CATEGORIES:
        wrong = f"number of categories cannot exceed 2^24, got {categories}"
    elif out is not None and out.dtype is not torch.int64:
        wrong = f"expects Long tensor out, got {out.dtype}"
    else:
        return
    raise RuntimeError(f"multinomial {wrong}")


@op("aten::multinomial", random=True, check=_check_multinomial)
def multinomial(self, num_samples, replacement=False, rng=None):
    result = expected()[0]
    weights = self.to(promote.compute_dtype(self.dtype))
    weights = hlo.reshape(weights, (weights.numel // weights.shape[-1], weights.shape[-1]))
    if replacement and num_samples > 1:
        drawn = _by_inversion(rng, weights, num_samples)
    else:
        # The weight over an exponential is largest for each category with its probability.
        race = weights / exponential_unit(rng, weights.shape, weights.dtype)
        drawn = _first_places(race, num_samples)
    return hlo.reshape(drawn, result.shape)


def _first_places(race: Value, count: int) -> Value:
    """Column indices of the ``count`` largest of every row, largest first."""
    if count > 1:
        _, order = hlo.argsort(race, 1, descending=True)
        return hlo.slice_dim(order, 1, 0, count)

    def better(a, i, b, j):
        later = hlo.compare(b, a, "GT")
        return [hlo.select(later, b, a), hlo.select(later, j, i)]

    start = [hlo.constant(-1, race.dtype), hlo.constant(0, torch.int64)]
    return hlo.reduce_many([race, hlo.iota(race.shape, 1)], start, [1], better)[1]


def _by_inversion(rng: Value, weights: Value, count: int) -> Value:
    """Search uniform numbers in the running sums of every row, by bisection."""
    rows, size = weights.shape
    sums = hlo.cumulative(weights, "add", 1)
    total = hlo.slice_dim(sums, 1, size - 1, size)
    point = unit(rng, (rows, count), weights.dtype) * total
    # Rounding may reach the total: then the last category of any weight is meant.
    below = (sums < total).to(torch.int64)
    last = hlo.expand(hlo.reduce(below, "add", [1], keepdim=True), point.shape)
    flat, base = hlo.flatten(sums), hlo.iota(point.shape, 0) * size - 1
    place = hlo.zeros_like(last)
    step = 1 << max(size - 1, 0).bit_length()
    while step:
        trial = place + step
        inside = trial <= size
        probe = hlo.take(flat, base + hlo.minimum(trial, hlo.full_like(trial, size)), 0)
        place = hlo.select(inside & (probe <= point), trial, place)
        step //= 2
    return hlo.minimum(place, last)


# ---- rejection -------------------------------------------------------------------------------


def rejection(
    rng: Value, like: Value, attempt: Callable[[list[Value]], tuple[Value, Value]], draws: int
) -> Value:
    """Repeat ``attempt`` until it accepted once for every element.

    ``attempt`` gets ``draws`` generator states and returns (accepted, candidate) like ``like``.
    """
    shape, work = like.shape, like.dtype

    def unfinished(_state, _value, done):
        return hlo.not_(hlo.reduce(done, "and", range(len(shape))))

    def again(state, value, done):
        state, *states = hlo.rng_split(state, draws + 1)
        accepted, candidate = attempt(states)
        fresh = hlo.binary("and", accepted, hlo.not_(done))
        return [state, hlo.select(fresh, candidate, value), hlo.binary("or", done, accepted)]

    done = hlo.constant(False, torch.bool, shape)
    return hlo.while_loop(unfinished, again, [rng, hlo.constant(0, work, shape), done])[1]


def _is_bad(x: Value) -> Value:
    """Negative or NaN: a parameter no attempt would ever accept."""
    return hlo.not_(hlo.compare(x, hlo.zeros_like(x), "GE"))


def log_gamma_sample(rng: Value, alpha: Value) -> Value:
    """Logarithm of a standard gamma sample, by Marsaglia and Tsang's method.

    Shapes below one sample ``alpha + 1`` and multiply by ``u ** (1 / alpha)``, whose logarithm does
    not underflow. Where the method has no real ``d``, as for NaN, the result is NaN.
    """
    loop, boost = hlo.rng_split(rng, 2)
    small = alpha < 1.0
    d = hlo.select(small, alpha + 1.0, alpha) - 1 / 3
    c = hlo.rsqrt(d * 9.0)
    hopeless = hlo.not_(d > 0.0) | is_infinite(d)

    def attempt(states):
        x = gaussian(states[0], alpha.shape, alpha.dtype)
        v = c * x + 1.0
        v = v * v * v
        log_v = hlo.log(hlo.maximum(v, hlo.full_like(v, torch.finfo(v.dtype).tiny)))
        log_u = hlo.log(open_unit(states[1], alpha.shape, alpha.dtype))
        accepted = (v > 0.0) & (log_u < x * x * 0.5 + d * (1.0 - v + log_v))
        return accepted | hopeless, log_v

    log_v = rejection(loop, alpha, attempt, 2)
    log_u = hlo.log(open_unit(boost, alpha.shape, alpha.dtype)) / alpha
    return hlo.log(d) + log_v + hlo.select(small, log_u, hlo.zeros_like(alpha))


def _check_float(name: str) -> dict:
    def check(self) -> None:
        if not self.is_floating_point():
            undefined(name, self.dtype)

    return {"check": check}


def _positive(sample: Value, dtype: torch.dtype) -> Value:
    """At least the smallest normal number of ``dtype``, which NaN becomes as well, as in ATen."""
    least = hlo.full_like(sample, torch.finfo(dtype).tiny)
    return hlo.select(sample > least, sample, least).to(dtype)


@op("aten::_standard_gamma", random=True, layout="contiguous", **_check_float("_standard_gamma"))
def standard_gamma(self, rng=None):
    sample = hlo.exp(log_gamma_sample(rng, self.to(promote.compute_dtype(self.dtype))))
    return _positive(sample, self.dtype)


@op("aten::_sample_dirichlet", random=True, **_check_float("_sample_dirichlet"))
def sample_dirichlet(self, rng=None):
    alpha = self if self.ndim else hlo.reshape(self, (1,))
    logs = log_gamma_sample(rng, alpha.to(promote.compute_dtype(self.dtype)))
    # A sample of nothing is very small, but no less than the others when all are.
    least = hlo.full_like(logs, torch.finfo(logs.dtype).min)
    logs = hlo.select(logs > least, logs, least)
    dim = alpha.ndim - 1
    top = hlo.reduce(logs, "maximum", [dim], keepdim=True)
    parts = hlo.exp(logs - top)
    shares = parts / hlo.reduce(parts, "add", [dim], keepdim=True)
    most = hlo.full_like(shares, 1 - torch.finfo(shares.dtype).eps / 2)
    return hlo.reshape(_positive(hlo.minimum(shares, most), self.dtype), self.shape)


# ---- Poisson ---------------------------------------------------------------------------------


def _stirling(k: Value) -> Value:
    """``log(k!)`` minus Stirling's formula; exact enough from k = 1 on, and 0.0811 at 0."""
    k = k + 1.0
    r = 1.0 / (k * k)
    return (1 / 12 - (1 / 360 - r * (1 / 1260)) * r) / k


def _deviance(k: Value, mean: Value) -> Value:
    """``k log(k / mean) + mean - k`` without cancellation near the mean."""
    x = (k - mean) / mean
    near = hlo.zeros_like(x)
    for n in range(9, 1, -1):
        near = near * x + (-1) ** n / (n * (n - 1))
    near = near * x * x * mean
    ratio = hlo.maximum(k / mean, hlo.full_like(k, torch.finfo(k.dtype).tiny))
    return hlo.select(hlo.abs(x) < 0.1, near, k * hlo.log(ratio) + mean - k)


def _poisson_small(rng: Value, rate: Value) -> Value:
    """Knuth: count exponential steps until they exceed the rate (kept below 10)."""
    shape, work = rate.shape, rate.dtype

    def unfinished(_state, _count, left):
        return hlo.reduce(left >= 0.0, "or", range(len(shape)))

    def again(state, count, left):
        state, draw = hlo.rng_split(state, 2)
        left = left + hlo.log(open_unit(draw, shape, work))
        return [state, count + (left >= 0.0).to(work), left]

    return hlo.while_loop(unfinished, again, [rng, hlo.zeros_like(rate), rate])[1]


def _poisson_large(rng: Value, rate: Value) -> Value:
    """Hörmann's transformed rejection (PTRS), for rates of at least 10."""
    b = hlo.sqrt(rate) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse_alpha = 1.1328 / (b - 3.4) + 1.1239
    quick = 0.9277 - 3.6224 / (b - 2.0)

    def attempt(states):
        u = unit(states[0], rate.shape, rate.dtype) - 0.5
        v = open_unit(states[1], rate.shape, rate.dtype)
        us = 0.5 - hlo.abs(u)
        us = hlo.maximum(us, hlo.full_like(us, 1e-7))
        k = hlo.floor((a * 2.0 / us + b) * u + rate + 0.43)
        whole = hlo.maximum(k, hlo.full_like(k, 1))
        log_p = -_deviance(whole, rate) - _log_factorial_rest(whole)
        log_p = hlo.select(k > 0.0, log_p, -rate)
        exact = hlo.log(v * inverse_alpha / (a / (us * us) + b)) <= log_p
        easy = (us >= 0.07) & (v <= quick)
        never = (k < 0.0) | ((us < 0.013) & (v > us))
        return easy | (exact & hlo.not_(never)), k

    return rejection(rng, rate, attempt, 2)


def _log_factorial_rest(k: Value) -> Value:
    """``log(k!) - (k log k - k)`` for k >= 1."""
    r = 1.0 / (k * k)
    series = (1 / 12 - (1 / 360 - r * (1 / 1260)) * r) / k
    return series + hlo.log(k * 6.283185307179586) * 0.5


@op("aten::poisson", random=True, layout="contiguous", **_check_float("poisson"))
def poisson(self, rng=None):
    rate = self.to(promote.compute_dtype(self.dtype))
    bad, large = _is_bad(rate), rate >= 10.0
    first, second = hlo.rng_split(rng, 2)
    small = _poisson_small(first, hlo.select(large | bad, hlo.zeros_like(rate), rate))
    big = _poisson_large(second, hlo.select(large, rate, hlo.full_like(rate, 10)))
    drawn = hlo.select(large, big, small)
    return hlo.select(bad, hlo.full_like(rate, float("nan")), drawn).to(self.dtype)


# ---- binomial --------------------------------------------------------------------------------


def _binomial_small(rng: Value, count: Value, p: Value) -> Value:
    """Count successes by the geometric gaps between them (for few expected successes)."""
    shape, work = p.shape, p.dtype
    log_miss = hlo.unary("log_plus_one", hlo.neg(p))

    def unfinished(_state, _found, place):
        return hlo.reduce(place <= count, "or", range(len(shape)))

    def again(state, found, place):
        state, draw = hlo.rng_split(state, 2)
        gap = hlo.unary("ceil", hlo.log(open_unit(draw, shape, work)) / log_miss)
        place = place + hlo.maximum(gap, hlo.full_like(gap, 1))
        return [state, found + (place <= count).to(work), place]

    return hlo.while_loop(unfinished, again, [rng, hlo.zeros_like(p), hlo.zeros_like(p)])[1]


def _binomial_large(rng: Value, count: Value, p: Value) -> Value:
    """Hörmann's transformed rejection (BTRS), for ``count * p`` of at least 10 and p <= 0.5."""
    deviation = hlo.sqrt(count * p * (1.0 - p))
    b = deviation * 2.53 + 1.15
    a = b * 0.0248 - 0.0873 + p * 0.01
    quick = 0.92 - 4.2 / b
    odds = p / (1.0 - p)
    alpha = (5.1 / b + 2.83) * deviation
    m = hlo.floor((count + 1.0) * p)

    def attempt(states):
        u = unit(states[0], p.shape, p.dtype) - 0.5
        v = open_unit(states[1], p.shape, p.dtype)
        us = 0.5 - hlo.abs(u)
        us = hlo.maximum(us, hlo.full_like(us, 1e-7))
        k = hlo.floor((a * 2.0 / us + b) * u + count * p + 0.5)
        valid = (k >= 0.0) & (k <= count)
        x = hlo.minimum(hlo.maximum(k, hlo.zeros_like(k)), count)
        bound = (
            (m + 0.5) * hlo.log((m + 1.0) / (odds * (count - m + 1.0)))
            + (count + 1.0) * hlo.log((count - m + 1.0) / (count - x + 1.0))
            + (x + 0.5) * hlo.log(odds * (count - x + 1.0) / (x + 1.0))
            + _stirling(m)
            + _stirling(count - m)
            - _stirling(x)
            - _stirling(count - x)
        )
        exact = hlo.log(v * alpha / (a / (us * us) + b)) <= bound
        easy = (us >= 0.07) & (v <= quick)
        return valid & (easy | exact), k

    return rejection(rng, p, attempt, 2)


def _check_binomial(count, prob) -> None:
    for name, value in (("count", count), ("prob", prob)):
        if not value.is_floating_point():
            raise ValueError(
                f"binomial only supports floating-point dtypes for {name}, got: {value.dtype}"
            )
    if count.dtype is not prob.dtype:
        raise RuntimeError(
            f"binomial expects count and prob of one dtype, got {count.dtype} and {prob.dtype}"
        )


@op(
    "aten::binomial",
    random=True,
    meta=lambda count, **_: [torch.empty_like(count)],
    layout="contiguous",
    check=_check_binomial,
)
def binomial(count, prob, rng=None):
    result = expected()[0]
    work = promote.compute_dtype(result.dtype)
    count, p = promote.broadcast([count.to(work), prob.to(work)])
    zero = hlo.zeros_like(p)
    flipped = p > 0.5
    nothing, everything = (count <= 0.0) | (p <= 0.0), p >= 1.0
    bad = hlo.is_nan(count) | hlo.is_nan(p)
    drawless = nothing | everything | bad
    q = hlo.select(drawless, zero, hlo.select(flipped, 1.0 - p, p))
    large = hlo.not_(drawless) & (count * q >= 10.0)
    first, second = hlo.rng_split(rng, 2)
    # Elements of the other branch get parameters that finish at once.
    none = large | drawless
    small = _binomial_small(
        first, hlo.select(none, zero, count), hlo.select(none, hlo.full_like(q, 0.5), q)
    )
    big = _binomial_large(
        second,
        hlo.select(large, count, hlo.full_like(count, 100)),
        hlo.select(large, q, hlo.full_like(q, 0.5)),
    )
    drawn = hlo.select(large, big, small)
    drawn = hlo.select(flipped, count - drawn, drawn)
    drawn = hlo.select(bad, hlo.full_like(p, float("nan")), drawn)
    drawn = hlo.select(nothing, zero, hlo.select(everything, count, drawn))
    return drawn.to(result.dtype)
