"""Rows of `torch_tpu/ops/resample.py`."""

import torch

from ops.row import Row, t

F, D, B, H, U = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8
# per dim: (input size, output size, scale)
DIMS = [(5, 10, None), (7, 4, None), (4, 9, 2.3), (6, 1, None), (5, 5, None), (9, 3, 1 / 3.0)]
# A width of 1 beside a changed height is left out of the antialiased rows: PyTorch's CPU kernel
# then gives the first row everywhere.
BIG = [(4, 8, 2.0), (31, 50, None), (30, 13, 0.45), (3, 100, None), (200, 5, None)]


def whole(*shape, dtype=F, seed=0):
    return t(*shape, dtype=torch.int32, low=-3, high=4, seed=seed).to(dtype)


def _rows(name, dims, dtype=F, align=None, backward=True):
    sizes, outs, scales = (list(each) for each in zip(*dims, strict=True))
    flags = () if align is None else (align,)
    shape = (2, 3, *sizes)
    high = 256 if dtype is U else 4
    x = t(*shape, dtype=dtype, low=0 if dtype is U else -4, high=high)
    grad = t(2, 3, *outs, dtype=dtype, seed=4) if dtype in (F, D) else whole(2, 3, *outs, dtype=B)
    rows = [Row(name, (x, outs, *flags, *scales))]
    if backward:
        extra = (outs, list(shape), *flags, *scales)
        rows.append(Row(name + "_backward", (grad, *extra), atol=1e-5, reason=REASON))
    return rows


REASON = "float32 sums of up to 100 products that cancel"
NEAREST = [
    f"aten::{base}{d}d"
    for base in ("upsample_nearest", "_upsample_nearest_exact")
    for d in (1, 2, 3)
]
LINEAR = ["aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d"]
PLANES = [
    "aten::upsample_bilinear2d",
    "aten::upsample_bicubic2d",
    "aten::_upsample_bilinear2d_aa",
    "aten::_upsample_bicubic2d_aa",
    "aten::_upsample_lanczos2d_aa",
]


def _spread(count, rank, dims=None):
    """``count`` choices of ``rank`` neighbours in the list of dims."""
    dims = dims or DIMS
    return [[dims[(i + j) % len(dims)] for j in range(rank)] for i in range(count)]


ROWS = [
    *(row for name in NEAREST for dims in _spread(5, int(name[-2])) for row in _rows(name, dims)),
    *(row for name in NEAREST[::3] for dims in _spread(5, 1, BIG) for row in _rows(name, dims)),
    *(row for name in NEAREST[1::3] for row in _rows(name, DIMS[:2], U, backward=False)),
    *(row for name in NEAREST[1::3] for row in _rows(name, DIMS[1:3], B)),
    *(row for name in NEAREST[1::3] for row in _rows(name, DIMS[2:4], D)),
    *(
        row
        for name in LINEAR
        for align in (False, True)
        for dims in _spread(4, int(name[-2]))
        for row in _rows(name, dims, F, align)
    ),
    *(
        row
        for name in PLANES
        for align in (False, True)
        for dims in _spread(2 if name.endswith("_aa") else 4, 2) + _spread(3, 2, BIG)
        for row in _rows(name, dims, F, align)
    ),
    *(row for name in PLANES for row in _rows(name, DIMS[1:3], D, False)),
    *(
        row
        for name in PLANES
        for dims in (*_spread(3, 2), *_spread(3, 2, BIG))
        for row in _rows(name, dims, U, False, backward=False)
    ),
    *(row for name in PLANES[:2] for row in _rows(name, DIMS[1:3], B, True)),
    *(row for name in PLANES[:2] for row in _rows(name, DIMS[1:3], H, False, backward=False)),
]
