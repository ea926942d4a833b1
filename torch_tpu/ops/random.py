"""Random fills: uniform, normal, integers, coin flips, dropout and what follows from one draw.

Bits come from XLA's counter-based generator through ``rng``, a uint64[2] (key, counter) that is
fresh for every call; distribution parameters are run-time values. Most operators here are in-place
fills that never read ``self``. Samplers that loop or sort are in `sampling.py`.

Uniform numbers have as many random bits as the result has mantissa bits, as in ATen. Normals are
made by Box-Muller from full-width words: tails reach 6.6 (float32) or 9.4 (float64) sigma.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op, procedure
from .common import undefined

_FILL = {"overwrites": True, "random": True}
_SPREAD = {"std": ">= 0"}
_CHANCE = {"p": "in [0, 1]"}
_MANTISSA = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


# ---- sources ---------------------------------------------------------------------------------


def _words(rng: Value, shape, dtype: torch.dtype) -> tuple[Value, int]:
    """Random words wide enough for ``dtype``, and their width."""
    wide = dtype is torch.float64
    return hlo.rng_bits(rng, shape, torch.uint64 if wide else torch.uint32), 64 if wide else 32


def unit(rng: Value, shape, dtype: torch.dtype) -> Value:
    """Uniform in [0, 1), in the compute dtype of ``dtype``, with the bits of its mantissa."""
    work, bits = promote.compute_dtype(dtype), _MANTISSA[dtype]
    words, width = _words(rng, shape, work)
    top = hlo.binary("shift_right_logical", words, hlo.full_like(words, width - bits))
    return top.to(work) * hlo.constant(2.0**-bits, work)


def open_unit(rng: Value, shape, work: torch.dtype) -> Value:
    """Uniform in (0, 1], dense near zero: made for logarithms."""
    words, width = _words(rng, shape, work)
    scale = hlo.constant(2.0**-width, work)
    return (words.to(work) + hlo.constant(1, work)) * scale


def gaussian(rng: Value, shape, work: torch.dtype) -> Value:
    """Standard normal numbers, two from each pair of uniforms."""
    count = math.prod(shape)
    first, second = hlo.rng_split(rng, 2)
    half = ((count + 1) // 2,)
    radius = hlo.sqrt(hlo.log(open_unit(first, half, work)) * -2)
    angle = unit(second, half, work) * (2 * math.pi)
    pair = [radius * hlo.unary("cosine", angle), radius * hlo.unary("sine", angle)]
    return hlo.reshape(hlo.slice_dim(hlo.concatenate(pair, 0), 0, 0, count), shape)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """What real numbers a result of ``dtype`` is computed from."""
    if dtype.is_complex:
        return torch.float32 if dtype is torch.complex64 else torch.float64
    return promote.compute_dtype(dtype) if dtype.is_floating_point else torch.float32


# ---- what is refused -------------------------------------------------------------------------

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Unsigned integers for which PyTorch has conversions and few operators."""


def _floating(name: str, complex_too: bool = False, empty: bool = True) -> dict:
    """The `check` of a fill with real (or complex) numbers; of nothing, most fills take any."""

    def check(self) -> None:
        if self.is_floating_point() or (complex_too and self.is_complex()):
            return
        if self.numel() or not empty:
            undefined(name, self.dtype)

    return {"check": check}


def _check_normal(mean, std=1.0, out=None, **_) -> None:
    tensors = [x for x in (mean, std) if isinstance(x, torch.Tensor)]
    if tensors[-1] is std and std.is_complex():
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std is tensors[-1] and std.numel() and std.dtype in UNSIGNED:
        undefined("normal", std.dtype)
    # The first tensor says what is drawn.
    _floating("normal", complex_too=True)["check"](tensors[0] if out is None else out)


def _continuous(name: str, empty: bool) -> dict:
    def check(self) -> None:
        if not self.is_floating_point() and (self.numel() or not empty):
            raise RuntimeError(
                f"{name} distribution is a continuous probability distribution. dtype must be a "
                f"floating point but you specified {self.dtype}"
            )

    return {"check": check}


def _check_geometric(self) -> None:
    if (self.dtype in (torch.bool, *UNSIGNED) or self.is_complex()) and self.numel():
        undefined("geometric", self.dtype)


def _check_coins(self, p=None, out=None) -> None:
    """Chances are floats (those of `bernoulli` stand in ``self``); the coins may be integers."""
    if not self.numel():
        return
    chance = self if p is None else p
    if isinstance(chance, torch.Tensor) and not chance.is_floating_point():
        undefined("bernoulli", chance.dtype)
    coins = self if out is None else out
    if coins.dtype in UNSIGNED or coins.is_complex():
        undefined("bernoulli", coins.dtype)


def _check_integers(self, to=None, **given) -> None:
    bounded = to is not None or "from_" in given
    if self.is_complex() and bounded:
        raise RuntimeError(
            "random_ with bounds handles only integral, floating-point and boolean types, not "
            f"{self.dtype}"
        )
    if self.numel() and (self.is_complex() or (self.dtype in UNSIGNED and not bounded)):
        undefined("random", self.dtype)


def _scalar(number, work: torch.dtype, shape) -> Value:
    return hlo.expand(promote.as_value(number, work), shape)


# ---- continuous ------------------------------------------------------------------------------


@op(
    "aten::uniform",
    runtime=("from", "to"),
    **_floating("uniform", complex_too=True, empty=False),
    **_FILL,
)
def uniform(self, from_=0.0, to=1.0, rng=None):
    if self.is_complex:
        real = real_dtype(self.dtype)
        parts = [_uniform(r, self.shape, real, from_, to) for r in hlo.rng_split(rng, 2)]
        return hlo.complex(*parts)
    return _uniform(rng, self.shape, self.dtype, from_, to)


def _uniform(rng, shape, dtype, low, high) -> Value:
    work = promote.compute_dtype(dtype)
    low, high = _scalar(low, work, shape), _scalar(high, work, shape)
    drawn = (unit(rng, shape, dtype) * (high - low) + low).to(dtype)
    # Rounding may reach the excluded bound.
    return hlo.select(drawn >= high.to(dtype), low.to(dtype), drawn)


def _normal(rng: Value, shape, dtype: torch.dtype, mean, std) -> Value:
    work = real_dtype(dtype)
    if dtype.is_complex:
        # The variance is shared between the parts.
        parts = [gaussian(r, shape, work) for r in hlo.rng_split(rng, 2)]
        noise = hlo.complex(*(p * math.sqrt(0.5) for p in parts))
        work = dtype
    else:
        noise = gaussian(rng, shape, work)
    return (noise * _scalar(std, work, shape) + _scalar(mean, work, shape)).to(dtype)


@op(
    "aten::normal_functional",
    inplace="aten::normal_",
    runtime=("mean", "std"),
    bounds=_SPREAD,
    **_floating("normal", complex_too=True),
    **_FILL,
)
def normal_functional(self, mean=0.0, std=1.0, rng=None):
    return _normal(rng, self.shape, self.dtype, mean, std)


_NORMAL = {"layout": "contiguous", "check": _check_normal, "random": True}


@procedure("aten::normal.Tensor_float_out", check=_check_normal)
def normal_out(mean, std=1.0, generator=None, out=None):
    """Draws for every place of ``out``, to which ``mean`` is expanded."""
    shape = torch.broadcast_shapes(mean.shape, out.shape)
    if out.shape != shape:
        out.resize_(shape)
    return out.normal_(0, std, generator=generator).add_(mean)


@op(
    "aten::normal.Tensor_Tensor",
    meta=lambda mean, std, **_: [(torch.empty_like(mean) + std.real).to(mean.dtype)],
    **_NORMAL,
)
@op("aten::normal.Tensor_float", runtime=("std",), bounds=_SPREAD, **_NORMAL)
@op("aten::normal.float_Tensor", runtime=("mean",), **_NORMAL)
def normal_Tensor(mean, std=1.0, rng=None):
    result = expected()[0]
    return _normal(rng, result.shape, result.dtype, mean, std)


@op(
    "aten::log_normal",
    runtime=("mean", "std"),
    bounds={"std": "> 0"},
    **_floating("log_normal"),
    **_FILL,
)
def log_normal(self, mean=1.0, std=2.0, rng=None):
    return hlo.exp(_normal(rng, self.shape, real_dtype(self.dtype), mean, std)).to(self.dtype)


@op(
    "aten::cauchy",
    runtime=("median", "sigma"),
    bounds={"sigma": "> 0"},
    **_continuous("Cauchy", empty=False),
    **_FILL,
)
def cauchy(self, median=0.0, sigma=1.0, rng=None):
    work = real_dtype(self.dtype)
    turn = (open_unit(rng, self.shape, work) - 0.5) * math.pi
    drawn = hlo.unary("tan", turn) * _scalar(sigma, work, self.shape)
    return (drawn + _scalar(median, work, self.shape)).to(self.dtype)


def exponential_unit(rng: Value, shape, work: torch.dtype) -> Value:
    """Exponential with rate 1, never zero: samplers divide by it."""
    log = hlo.log(open_unit(rng, shape, work))
    least = torch.finfo(work).eps / 2
    return hlo.maximum(hlo.neg(log), hlo.full_like(log, least))


@op(
    "aten::exponential",
    runtime=("lambd",),
    bounds={"lambd": "> 0"},
    **_continuous("Exponential", empty=True),
    **_FILL,
)
def exponential(self, lambd=1.0, rng=None):
    work = real_dtype(self.dtype)
    drawn = exponential_unit(rng, self.shape, work) / _scalar(lambd, work, self.shape)
    return drawn.to(self.dtype)


# ---- discrete --------------------------------------------------------------------------------


@op(
    "aten::geometric",
    runtime=("p",),
    bounds={"p": "in (0, 1)"},
    check=_check_geometric,
    **_FILL,
)
def geometric(self, p, rng=None):
    work = real_dtype(self.dtype)
    miss = hlo.unary("log_plus_one", hlo.neg(_scalar(p, work, self.shape)))
    drawn = hlo.unary("ceil", hlo.log(open_unit(rng, self.shape, work)) / miss)
    return hlo.maximum(drawn, hlo.full_like(drawn, 1)).to(self.dtype)


def _top(dtype: torch.dtype) -> int:
    """The largest integer ``random_`` gives: every integer up to it is exact in ``dtype``."""
    if dtype is torch.bool:
        return 1
    return 2 ** _MANTISSA[dtype] if dtype.is_floating_point else torch.iinfo(dtype).max


def _integers(rng: Value, shape, low, span: Value) -> Value:
    """``low`` plus a uniform integer below ``span`` (uint64; 0 means 2**64).

    64-bit words are reduced modulo ``span``, whose bias is below span / 2**64.
    """
    words = hlo.rng_bits(rng, shape, torch.uint64)
    span = hlo.expand(span, shape)
    bounded = hlo.binary("remainder", words, hlo.maximum(span, hlo.full_like(span, 1)))
    offset = hlo.select(span == hlo.zeros_like(span), words, bounded)
    low = hlo.expand(promote.as_value(low, torch.int64), shape)
    return hlo.bitcast(offset, torch.int64) + low


def _span(low: Value, high: Value) -> Value:
    return hlo.bitcast(high - low, torch.uint64)


@op(
    "aten::random",
    "aten::random.to",
    "aten::random.from",
    runtime=("from", "to"),
    check=_check_integers,
    **_FILL,
)
def random(self, from_=0, to=None, rng=None):
    low = promote.as_value(from_, torch.int64)
    if to is None:
        # The upper bound is included here, so the span may be 2**64, which wraps to 0.
        span = _span(low, hlo.constant(_top(self.dtype), torch.int64))
        span = span + hlo.constant(1, torch.uint64)
        return _integers(rng, self.shape, low, span).to(self.dtype)
    high = promote.as_value(to, torch.int64)
    drawn = _integers(rng, self.shape, low, _span(low, high)).to(self.dtype)
    if not self.is_floating:
        return drawn
    # Integers that the dtype cannot hold may round up to the excluded bound.
    high, low = (hlo.expand(v.to(self.dtype), self.shape) for v in (high, low))
    return hlo.select(drawn >= high, low, drawn)


def coin(rng: Value, p, shape) -> Value:
    """True with probability ``p``, a value or a run-time number."""
    wide = isinstance(p, Value) and not p.weak and p.dtype is torch.float64
    work = torch.float64 if wide else torch.float32
    return hlo.compare(unit(rng, shape, work), _scalar(p, work, shape), "LT")


@op("aten::bernoulli", random=True, out="any", check=_check_coins)
def bernoulli(self, rng=None):
    return coin(rng, self, self.shape).to(self.dtype)


@op(
    "aten::bernoulli.p",
    inplace="aten::bernoulli_.float",
    runtime=("p",),
    bounds=_CHANCE,
    check=_check_coins,
    **_FILL,
)
def bernoulli_p(self, p=0.5, rng=None):
    return coin(rng, p, self.shape).to(self.dtype)


@op("aten::bernoulli.Tensor", check=_check_coins, **_FILL)
def bernoulli_Tensor(self, p, rng=None):
    return coin(rng, p, self.shape).to(self.dtype)


# ---- dropout and noisy activations -----------------------------------------------------------


@op("aten::native_dropout", runtime=("p",), random=True)
def native_dropout(input, p, train, rng=None):  # noqa: A002 - the schema's name
    if train is False:
        return input, hlo.constant(True, torch.bool, input.shape)
    work = promote.compute_dtype(input.dtype)
    keep = hlo.constant(1, torch.float64) - promote.as_value(p, torch.float64)
    mask = coin(rng, keep.to(torch.float32), input.shape)
    # Dropping everything scales by 0, not by infinity.
    none = keep == 0.0
    scale = hlo.select(none, keep, hlo.constant(1, torch.float64) / keep)
    return _masked_scale(input, mask, scale.to(real_dtype(work))), mask


def _masked_scale(x: Value, mask: Value, scale) -> Value:
    # A product rather than a selection: NaN stays NaN where it is dropped, as in PyTorch.
    work = promote.compute_dtype(x.dtype)
    return (x.to(work) * mask.to(work) * promote.as_value(scale, work)).to(x.dtype)


@op(
    "aten::native_dropout_backward",
    runtime=("scale",),
    meta=lambda grad_output, mask, scale: [grad_output * mask * scale],
)
def native_dropout_backward(grad_output, mask, scale):
    return _masked_scale(grad_output.to(expected()[0].dtype), mask, scale)


# ---- as captured graphs have them: eager calls are an empty tensor filled in place ------------


def _graph(*names: str):
    return op(*names, random=True, graph_only=True)


@_graph("aten::rand", "aten::rand_like")
def rand(size=None, self=None, rng=None):
    result = expected()[0]
    return _uniform(rng, result.shape, result.dtype, 0.0, 1.0)


@_graph("aten::randn", "aten::randn_like", "aten::normal.float_float")
def randn(size=None, self=None, mean=0.0, std=1.0, rng=None):
    result = expected()[0]
    return _normal(rng, result.shape, result.dtype, mean, std)


@_graph(
    "aten::randint",
    "aten::randint.low",
    "aten::randint_like",
    "aten::randint_like.low_dtype",
)
def randint(high, low=0, size=None, self=None, rng=None):
    result = expected()[0]
    low, high = (promote.as_value(bound, torch.int64) for bound in (low, high))
    return _integers(rng, result.shape, low, _span(low, high)).to(result.dtype)
