"""Rows of `torch_tpu/ops/grid_sample.py`.

PyTorch's vectorized float32 kernel may fuse multiply-add where XLA does not: hence the tolerance.
"""

import itertools

import torch

from ops.row import Row, t

REASON = "positions near a border amplify the last bit of float32 coordinates"
TOLERANCE = {"rtol": 2e-5, "atol": 1e-5, "reason": REASON}


def _rows(shape, out, mode, padding, align, dtype=torch.float32, mask=(True, True)):
    rank = len(out)
    x = t(*shape, dtype=dtype)
    grid = t(shape[0], *out, rank, dtype=dtype, low=-1.7, high=1.7, seed=5)
    grad = t(*shape[:2], *out, dtype=dtype, seed=6)
    name = f"aten::grid_sampler_{rank}d"
    options = (mode, padding, align)
    return [
        Row(name, (x, grid, *options), **TOLERANCE),
        Row(name + "_backward", (grad, x, grid, *options, list(mask)), **TOLERANCE),
    ]


F, D = torch.float32, torch.float64
EXACT = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5], [-2.0, 3.0], [-0.5, 0.25]])
ROWS = [
    *(
        row
        for mode, padding, align in itertools.product((0, 1, 2), (0, 1, 2), (False, True))
        for row in _rows((2, 3, 4, 5), (3, 6), mode, padding, align)
    ),
    *(
        row
        for mode, padding, align in itertools.product((0, 1), (0, 1, 2), (False, True))
        for row in _rows((2, 2, 3, 4, 5), (2, 3, 2), mode, padding, align)
    ),
    *(
        Row("aten::grid_sampler_2d", (t(1, 2, 5, 5), EXACT.reshape(1, 1, 5, 2), *rest))
        for rest in itertools.product((0, 1, 2), (0, 1, 2), (False, True))
    ),
    *(row for mode in (0, 1, 2) for row in _rows((1, 2, 4, 5), (3, 3), mode, 1, True, D)),
    *_rows((1, 2, 4, 5), (3, 3), 0, 0, False, mask=(False, True)),
    *_rows((1, 1, 1, 1), (2, 2), 0, 2, True),
    # Coordinates that are exact in bfloat16, in which PyTorch's CPU kernel computes them.
    Row(
        "aten::grid_sampler_2d",
        (t(1, 2, 4, 4).bfloat16(), EXACT.reshape(1, 1, 5, 2).bfloat16(), 0, 1, False),
    ),
    *_rows((1, 2, 4, 5), (3, 3), 0, 0, False, torch.float16)[:1],
]
