"""Rows of `torch_tpu/ops/fft.py`."""

import torch

from ops.row import Row, t

C, Z, F, D = torch.complex64, torch.complex128, torch.float32, torch.float64
KEEP = {"atol": 5e-6, "reason": "sums of up to 120 terms of size 2"}


def _half(*shape, dim=-1, dtype=C, dims=None):
    """A spectrum of a real array, as `_fft_c2r` expects."""
    real = t(*shape, dtype=F if dtype is C else D)
    return torch.ops.aten._fft_r2c(real, dims or [dim % len(shape)], 0, True)


ROWS = [
    *(
        Row("aten::_fft_c2c", (t(4, 5, 6, dtype=C), dims, norm, forward), **KEEP)
        for dims, norm, forward in [
            ([2], 0, True),
            ([1], 2, False),
            ([0, 2], 1, True),
            ([2, 0, 1], 0, False),
            ([], 0, True),
        ]
    ),
    Row("aten::_fft_c2c", (t(2, 3, 2, 5, dtype=C), [0, 1, 2, 3], 2, True)),
    Row("aten::_fft_c2c", (t(7, dtype=Z), [0], 0, False)),
    Row("aten::_fft_c2c", (t(1, 1, dtype=C), [0, 1], 1, True)),
    *(
        Row("aten::_fft_r2c", (t(4, 5, 6), dims, norm, onesided), **KEEP)
        for dims, norm, onesided in [
            ([2], 0, True),
            ([1], 1, True),
            ([1, 0], 2, True),
            ([0, 1, 2], 0, False),
            ([0, 2], 1, False),
        ]
    ),
    Row("aten::_fft_r2c", (t(3, 4, 3, 5, dtype=D), [0, 1, 2, 3], 0, True)),
    Row("aten::_fft_c2r", (_half(4, 5, 6), [2], 2, 6)),
    Row("aten::_fft_c2r", (_half(4, 5, 7), [2], 0, 7), **KEEP),
    Row("aten::_fft_c2r", (_half(4, 5, 6, dims=[2, 1]), [2, 1], 1, 5), **KEEP),
    Row(
        "aten::_fft_c2r",
        (_half(4, 6, 5, dims=[0, 2, 1]), [0, 2, 1], 0, 6),
        atol=3e-5,
        reason="sums of 120 terms up to 30",
    ),
    Row("aten::_fft_c2r", (_half(4, 6, dtype=Z, dims=[0, 1]), [0, 1], 2, 6)),
    Row("aten::_fft_c2r", (t(3, 1, dtype=C), [1], 0, 1)),
]
