"""Rows of `torch_tpu/ops/padding.py`."""

import torch

from ops.row import Row, t

BF16, I32, I64, BOOL = torch.bfloat16, torch.int32, torch.int64, torch.bool
PADS = {1: [[2, 1], [-1, 2], [0, -2]], 2: [[2, 1, 0, 1], [-1, 1, 2, -1]], 3: [[1, 0, 2, 1, 0, 1]]}
SHAPES = {1: (2, 5), 2: (2, 4, 5), 3: (2, 3, 4, 3)}


def _grad(n, pad, lead=()):
    shape = list(SHAPES[n])
    for i in range(n):
        shape[-1 - i] += pad[2 * i] + pad[2 * i + 1]
    return t(*lead, *shape, seed=1)


ROWS = [
    Row("aten::constant_pad_nd", (t(2, 3), [1, 2])),
    Row("aten::constant_pad_nd", (t(2, 3), [1, -1, -1, 2], 0.5)),
    Row("aten::constant_pad_nd", (t(2, 3, dtype=I64), [0, 1], 7)),
    Row("aten::constant_pad_nd", (t(2, dtype=BOOL), [1, 1], True)),
    Row("aten::constant_pad_nd", (t(0, dtype=BF16), [1, 1], -3)),
    *(
        Row(f"aten::{kind}_pad{n}d", (t(*SHAPES[n]), pad))
        for kind in ("reflection", "replication")
        for n, pads in PADS.items()
        for pad in pads
    ),
    Row("aten::reflection_pad1d", (t(2, 2, 4, dtype=BF16), [3, 1])),
    Row("aten::reflection_pad2d", (t(2, 2, 4, 4), [1, 1, 1, 1])),
    Row("aten::replication_pad1d", (t(2, 4, dtype=torch.complex64), [3, 1])),
    Row("aten::replication_pad2d", (t(1, 2, 4, 4), [5, 1, 1, 1])),
    Row("aten::replication_pad3d", (t(1, 2, 2, 4, 4), [1, 1, 1, 0, 2, 1])),
    *(
        Row(f"aten::{kind}_pad{n}d_backward", (_grad(n, pad), t(*SHAPES[n]), pad))
        for kind in ("reflection", "replication")
        for n, pads in PADS.items()
        for pad in pads
    ),
    Row("aten::reflection_pad1d_backward", (t(2, 6, dtype=BF16), t(2, 4, dtype=BF16), [1, 1])),
    Row(
        "aten::replication_pad2d_backward",
        (_grad(2, [3, 3, 2, 2], (2,)), t(2, 2, 4, 5), [3, 3, 2, 2]),
    ),
    Row("aten::channel_shuffle", (t(2, 6, 3), 3)),
    Row("aten::channel_shuffle", (t(2, 4, 2, 2, dtype=BF16), 2)),
    Row("aten::pixel_shuffle", (t(2, 8, 2, 3), 2)),
    Row("aten::pixel_shuffle", (t(9, 1, 2, dtype=I64), 3)),
    Row("aten::pixel_unshuffle", (t(2, 2, 4, 6), 2)),
    Row("aten::pixel_unshuffle", (t(3, 2, 2, dtype=BF16), 2)),
    Row("aten::unfold_backward", (t(2, 3, 2), [2, 6], 1, 2, 2)),
    Row("aten::unfold_backward", (t(3, 2, 3), [6, 2], 0, 3, 1)),
    Row("aten::unfold_backward", (t(2, 3, 5), [2, 10], -1, 5, 2)),
    Row("aten::unfold_backward", (t(2, 2, 1, dtype=BF16), [2, 6], 1, 1, 4)),
    Row("aten::unfold_backward", (t(1), [], 0, 1, 1)),
    Row("aten::im2col", (t(2, 3, 5, 6), [2, 3], [1, 1], [0, 0], [1, 1])),
    Row("aten::im2col", (t(3, 6, 7), [2, 2], [2, 1], [1, 2], [2, 3])),
    Row("aten::im2col", (t(1, 1, 4, 4, dtype=BF16), [2, 2], [1, 1], [0, 0], [2, 2])),
    Row("aten::col2im", (t(2, 12, 15), [4, 5], [2, 3], [1, 1], [0, 1], [1, 1])),
    Row("aten::col2im", (t(2, 8, 12), [6, 7], [2, 2], [2, 1], [1, 2], [2, 3])),
    Row("aten::col2im", (t(4, 4, dtype=BF16), [4, 4], [2, 2], [1, 1], [0, 0], [2, 2])),
    Row("aten::col2im", (t(1, 6, 4), [4, 4], [3, 2], [1, 1], [1, 0], [3, 2])),
]
