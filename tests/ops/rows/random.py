"""Rows of `torch_tpu/ops/random.py`: statistics of a few thousand draws, within wide bounds."""

import math

import torch

from ops.row import Row, t

BF16, F16, F64, I64 = torch.bfloat16, torch.float16, torch.float64, torch.int64
U8, BOOL, C64 = torch.uint8, torch.bool, torch.complex64


def z(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def about(mean, std, low=-math.inf, high=math.inf):
    """The mean is within six standard errors of ``mean``, the deviation about as near ``std``."""

    def check(results):
        x = results[0].to(torch.float64)
        error = 6 * std / math.sqrt(x.numel())
        near = abs(x.mean().item() - mean) < error and abs(x.std().item() - std) < 2 * error + 1e-6
        return near and x.min().item() >= low and x.max().item() <= high

    return check


def _uniform(low, high, dtype=torch.float32):
    top = high if dtype is torch.bfloat16 else math.nextafter(high, low)
    return about((low + high) / 2, (high - low) / math.sqrt(12), low, top)


def _quantiles(x, expected_):
    """Quartiles, for distributions without moments."""
    x = x[0].to(F64).flatten().sort()[0]
    found = [x[int(len(x) * q)].item() for q in (0.25, 0.5, 0.75)]
    return all(abs(a - b) < 0.15 for a, b in zip(found, expected_, strict=True))


def _normal_tails(results):
    x = results[0].to(F64).flatten()
    inside = (x.abs() < 1).to(F64).mean().item()
    return abs(inside - 0.6827) < 0.03 and 2.9 < x.abs().max().item() < 9.5


def _complex_normal(results):
    x = torch.view_as_real(results[0])
    correlation = (x[:, 0] * x[:, 1]).mean().item()
    return abs(x.var().item() - 0.5) < 0.06 and abs(correlation) < 0.06


def _unrelated(results):
    """Neighbours (and the halves Box-Muller makes of one pair) do not correlate."""
    x = results[0].flatten()
    half = len(x) // 2
    pairs = ((x[:-1], x[1:]), (x[:half], x[half : 2 * half]))
    return all(abs((a * b).mean().item()) < 0.1 for a, b in pairs)


def _dropout(p):
    def check(results):
        out, mask = results
        kept = mask.to(F64).mean().item()
        right = torch.allclose(out.float(), mask.float() * (2 / (1 - p) if p < 1 else 0), rtol=1e-2)
        return abs(kept - (1 - p)) < 0.06 and right

    return check


def rand(name, *args, check, **kwargs):
    return Row("aten::" + name, args, kwargs, random=True, check=check)


N = 4000
TWO = torch.full((N,), 2.0)
INTEGERS = [(torch.int8, 0, 127), (U8, 0, 255), (torch.float32, 0, 2.0**24)]

ROWS = [
    rand("uniform", z(N), check=_uniform(0, 1)),
    rand("uniform", z(N), -3.0, 5.0, check=_uniform(-3, 5)),
    rand("uniform", z(N, dtype=F64), 1.0, 2.0, check=_uniform(1, 2)),
    rand("uniform", z(N, dtype=BF16), 0.0, 1.0, check=_uniform(0, 1, BF16)),
    rand("uniform", z(N, dtype=F16), 0.0, 1.0, check=_uniform(0, 1)),
    rand("uniform", z(3), 2.0, 2.0, check=lambda r: bool((r[0] == 2).all())),
    rand("uniform", z(), check=lambda r: 0 <= r[0].item() < 1),
    rand("uniform", z(N, dtype=C64), check=lambda r: about(0.5, 0.2887)([r[0].imag])),
    rand("normal_functional", z(N), check=about(0, 1)),
    rand("normal_functional", z(N), check=_normal_tails),
    rand("normal_functional", z(N + 1), check=_unrelated),
    rand("normal_functional", z(N, dtype=F64), 3.0, 0.5, check=about(3, 0.5)),
    rand("normal_functional", z(41, 99, dtype=BF16), -1.0, 2.0, check=about(-1, 2)),
    rand("normal_functional", z(N, dtype=C64), check=_complex_normal),
    rand("normal_functional", z(3), 5.0, 0.0, check=lambda r: bool((r[0] == 5).all())),
    rand("normal.Tensor_float", TWO, 0.5, check=about(2, 0.5)),
    rand("normal.Tensor_float_out", TWO, 0.5, out=z(N), check=about(2, 0.5)),
    rand("normal.float_Tensor", 1.0, TWO, check=about(1, 2)),
    rand("normal.Tensor_Tensor", t(1), TWO, check=lambda r: about(t(1).item(), 2)(r)),
    rand("normal.Tensor_Tensor", TWO.to(F64), TWO.to(F64), check=about(2, 2)),
    rand("log_normal", z(N), 0.0, 0.25, check=about(1.0317, 0.2620, low=0)),
    rand("log_normal", z(N, dtype=BF16), 0.0, 0.25, check=about(1.0317, 0.2620, low=0)),
    rand("cauchy", z(N), 1.0, 0.5, check=lambda r: _quantiles(r, (0.5, 1, 1.5))),
    rand("cauchy", z(N, dtype=F64), check=lambda r: _quantiles(r, (-1, 0, 1))),
    rand("exponential", z(N), 2.0, check=about(0.5, 0.5, low=1e-12)),
    rand("exponential", z(N, dtype=F64), check=about(1, 1, low=1e-20)),
    rand("exponential", z(N, dtype=BF16), 0.5, check=about(2, 2, low=0)),
    rand("geometric", z(N), 0.25, check=about(4, 3.464, low=1)),
    rand("geometric", z(N, dtype=I64), 0.5, check=about(2, 1.414, low=1)),
    *(
        rand("random", z(N, dtype=d), check=about((lo + hi) / 2, (hi - lo) / math.sqrt(12), lo, hi))
        for d, lo, hi in INTEGERS
    ),
    rand("random", z(N, dtype=I64), check=lambda r: r[0].min() >= 0 and r[0].max() > 2**62),
    rand("random", z(N, dtype=BOOL), check=about(0.5, 0.5, 0, 1)),
    rand("random.to", z(N, dtype=I64), 10, check=about(4.5, 2.872, 0, 9)),
    rand("random.to", z(N, dtype=BF16), 1000, check=about(499.5, 288.7, 0, 996)),
    rand("random.from", z(N, dtype=torch.int32), -5, 3, check=about(-1.5, 2.291, -5, 2)),
    rand("random.from", z(N), -(2**40), 2**40, check=about(0, 2**41 / math.sqrt(12))),
    rand("random.from", z(N, dtype=U8), 250, None, check=about(252.5, 1.708, 250, 255)),
    rand("random.from", z(N, dtype=I64), -(2**63), None, check=lambda r: r[0].min() < -(2**62)),
    rand("bernoulli", torch.full((N,), 0.3), check=about(0.3, 0.458, 0, 1)),
    rand("bernoulli", torch.tensor([0.0, 1.0]), check=lambda r: r[0].tolist() == [0, 1]),
    rand("bernoulli.p", z(N), 0.7, check=about(0.7, 0.458, 0, 1)),
    rand("bernoulli.p", z(N, dtype=BOOL), 0.5, check=about(0.5, 0.5)),
    rand("bernoulli.p", z(9, dtype=I64), 1.0, check=lambda r: bool((r[0] == 1).all())),
    rand("bernoulli.Tensor", z(N), torch.tensor(0.2), check=about(0.2, 0.4, 0, 1)),
    rand("bernoulli.Tensor", z(N, dtype=BF16), TWO.to(F64) / 8, check=about(0.25, 0.433, 0, 1)),
    *(rand("native_dropout", TWO, p, True, check=_dropout(p)) for p in (0.0, 0.25, 1.0)),
    rand("native_dropout", TWO.to(BF16), 0.5, None, check=_dropout(0.5)),
    Row("aten::native_dropout", (t(3, 4), 0.5, False)),
    Row("aten::native_dropout", (t(3, 4, dtype=BF16), 1.0, False)),
    Row("aten::native_dropout_backward", (t(3, 4), t(3, 4, dtype=BOOL), 2.0)),
    Row("aten::native_dropout_backward", (t(3, dtype=BF16), t(3, dtype=BOOL), 1.25)),
    Row("aten::native_dropout_backward", (t(3, dtype=torch.int64), t(3, dtype=BOOL), 1.25)),
]
