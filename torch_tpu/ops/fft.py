"""Fourier transforms: the three primitives below `torch.fft` and `torch.stft`.

`torch.fft` has already padded the input, picked the dims and decided on the normalization, which
is an integer: 0 none, 1 divides by the root of the number of points, 2 by that number. XLA
transforms the last dims only, at most three at a time, and divides inverse transforms itself.
"""

from __future__ import annotations

import math

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..lowering import hlo
from ..lowering.registry import expected, op
from .shape import wrap

_MOST_DIMS = 3


def _scaled(x, points, normalization, divided):
    """Normalize; ``divided`` is what XLA has divided by already."""
    factor = divided * {0: 1.0, 1: 1.0 / math.sqrt(points), 2: 1.0 / points}[normalization]
    return x if factor == 1.0 else hlo.binary("multiply", x, hlo.full_like(x, factor))


def _last(x, dims):
    """(``x`` with ``dims`` moved to the end, the permutation that moves them back)."""
    order = [i for i in range(x.ndim) if i not in dims] + list(dims)
    return hlo.transpose(x, order), [order.index(i) for i in range(x.ndim)]


def _complex_transform(x, dims, kind):
    for start in range(0, len(dims), _MOST_DIMS):
        part = dims[start : start + _MOST_DIMS]
        moved, back = _last(x, part)
        moved = hlo.fft(moved, kind, [x.shape[i] for i in part], moved.shape, moved.dtype)
        x = hlo.transpose(moved, back)
    return x


def _dims(x, dim):
    return [wrap(i, x.ndim) for i in dim]


def _results(operator):
    """What ``operator`` gives on the CPU: meta tensors get the strides of another device's."""

    def meta(self, dim, **arguments):
        _dims(self, dim)
        with FakeTensorMode():
            x = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype)
            result = operator(x, dim, **arguments)
            shape, strides, dtype = tuple(result.shape), result.stride(), result.dtype
        return [torch.empty_strided(shape, strides, dtype=dtype, device="meta")]

    return meta


@op("aten::_fft_c2c", meta=_results(torch.ops.aten._fft_c2c), out="copies")
def _fft_c2c(self, dim, normalization, forward):
    dims = _dims(self, dim)
    points = math.prod(self.shape[i] for i in dims)
    result = _complex_transform(self, dims, "FFT" if forward else "IFFT")
    return _scaled(result, points, normalization, 1 if forward else points)


@op("aten::_fft_r2c", meta=_results(torch.ops.aten._fft_r2c), out="copies")
def _fft_r2c(self, dim, normalization, onesided):
    dims, dtype = _dims(self, dim), expected()[0].dtype
    points = math.prod(self.shape[i] for i in dims)
    if not onesided:
        result = _complex_transform(hlo.convert(self, dtype), dims, "FFT")
        return _scaled(result, points, normalization, 1)
    moved, back = _last(self, dims[-1:])
    length = moved.shape[-1]
    shape = (*moved.shape[:-1], length // 2 + 1)
    result = hlo.transpose(hlo.fft(moved, "RFFT", [length], shape, dtype), back)
    result = _complex_transform(result, dims[:-1], "FFT")
    return _scaled(result, points, normalization, 1)


@op("aten::_fft_c2r", meta=_results(torch.ops.aten._fft_c2r), out="copies")
def _fft_c2r(self, dim, normalization, last_dim_size):
    dims = _dims(self, dim)
    real = torch.float32 if self.dtype is torch.complex64 else torch.float64
    points = last_dim_size * math.prod(self.shape[i] for i in dims[:-1])
    moved, back = _last(_complex_transform(self, dims[:-1], "IFFT"), dims[-1:])
    low = high = [0] * moved.ndim
    high = [*high[:-1], last_dim_size // 2 + 1 - moved.shape[-1]]
    moved = hlo.pad(moved, hlo.constant(0, moved.dtype), low, high)
    shape = (*moved.shape[:-1], last_dim_size)
    result = hlo.transpose(hlo.fft(moved, "IRFFT", [last_dim_size], shape, real), back)
    return _scaled(result, points, normalization, points)
