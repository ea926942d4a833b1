"""Rows of `torch_tpu/ops/pool.py`."""

import torch

from ops.row import Row, t

F, B, H, L = torch.float32, torch.bfloat16, torch.float16, torch.int64
INF, NAN = float("inf"), float("nan")


def whole(*shape, dtype=F, seed=0):
    """Small whole numbers: many ties, and sums that are exact in every dtype."""
    return t(*shape, dtype=torch.int32, low=-3, high=4, seed=seed).to(dtype)


def spiked(*shape):
    """-inf everywhere but for a few numbers and NaNs."""
    x = torch.full(shape, -INF)
    x.view(-1)[::5] = 1.0
    x.view(-1)[1::7] = NAN
    x[..., : shape[-1] // 2] = -INF
    return x


# input shape, kernel, stride, padding, dilation, ceil_mode
MAX = [
    ((2, 3, 6, 7), [2, 2], [], [0], [1], False),
    ((3, 7, 8), [3], [2], [1], [1], False),
    ((1, 2, 7, 6), [3, 2], [2, 1], [1, 1], [2, 1], True),
    ((1, 2, 20, 5), [18, 3], [1, 2], [2, 0], [1, 1], False),
    ((1, 2, 5, 6, 7), [2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 2], True),
    ((2, 4, 5, 3), [2, 2, 2], [], [0], [1], False),
]
# input shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
AVG = [
    ((2, 3, 6, 7), [2, 2], [], [0], False, True, None),
    ((3, 7, 8), [3, 3], [2], [1], False, False, None),
    ((1, 2, 7, 6), [3, 2], [2, 2], [1, 1], True, True, None),
    ((1, 2, 7, 6), [3, 2], [2, 2], [1, 1], True, False, None),
    ((1, 2, 7, 6), [2, 2], [2, 3], [1, 0], False, True, 3),
    ((1, 2, 20, 21), [18, 17], [1, 2], [2, 1], False, True, None),
    ((1, 2, 6, 6), [6, 6], [], [0], False, True, None),
    ((1, 2, 5, 6, 4), [2, 3, 2], [2, 1, 2], [1, 1, 0], True, False, None),
    ((2, 5, 6, 4), [2, 2, 3], [2, 2, 1], [0], False, True, 5),
]
ADAPTIVE = [
    ((2, 3, 6, 8), [3, 2]),
    ((2, 3, 6, 8), [1, 1]),
    ((3, 7, 5), [3, 4]),
    ((1, 2, 3, 40), [5, 2]),
    ((1, 2, 3, 41), [5, 2]),
    ((1, 2, 4, 5, 7), [2, 3, 1]),
    ((2, 4, 5, 7), [2, 3, 9]),
]


def _rank(shape, sizes):
    return len(sizes) if len(sizes) > 1 else 2


def _max(case, x):
    shape, *options = case
    name = f"aten::max_pool{_rank(shape, case[1])}d_with_indices"
    kernel, stride = options[0], options[1] or options[0]
    out, indices = getattr(torch.ops.aten, name[6:])(x.float(), *options)
    grad = whole(*out.shape, dtype=x.dtype, seed=2)
    rows = [Row(name, (x, *options))]
    if x.dtype.is_floating_point and not x.isnan().any():
        extra = (kernel, stride, *options[2:], indices)
        rows.append(Row(name + "_backward", (grad, x, *extra)))
    return rows


def _avg(case, dtype=F):
    shape, *options = case
    name = f"aten::avg_pool{_rank(shape, case[1])}d"
    x = whole(*shape, dtype=dtype) if dtype is not F else t(*shape)
    out = getattr(torch.ops.aten, name[6:])(x.double(), *options)
    grad = whole(*out.shape, dtype=dtype, seed=2)
    options[1] = options[1] or options[0]
    return [Row(name, (x, *case[1:])), Row(name + "_backward", (grad, x, *options))]


def _adaptive(shape, out, dtype=F):
    rank = len(out)
    x = whole(*shape, dtype=dtype)
    grad = whole(*shape[:-rank], *out, dtype=dtype, seed=3)
    mean, top = f"aten::_adaptive_avg_pool{rank}d", f"aten::adaptive_max_pool{rank}d"
    indices = getattr(torch.ops.aten, top[6:])(x.float(), out)[1]
    return [
        Row(mean, (x, out)),
        Row(mean + "_backward", (grad, x)),
        Row(top, (x, out)),
        Row(top + "_backward", (grad, x, indices)),
    ]


def _fractional(shape, kernel, out, dtype=F):
    rank = len(out)
    x = whole(*shape, dtype=dtype)
    name = f"aten::fractional_max_pool{rank}d"
    lead = shape[:-rank] if len(shape) == rank + 2 else (1, *shape[:-rank])
    samples = t(*lead, rank, low=0, high=1, dtype=dtype)
    forward = Row(name, (x, kernel, out, samples))
    result, indices = getattr(torch.ops.aten, name[6:])(x, kernel, out, samples)
    grad = whole(*result.shape, dtype=dtype, seed=3)
    return [forward, Row(name + "_backward", (grad, x, kernel, out, indices))]


def _unpool(shape, out, extra=(), dtype=F):
    rank = len(out)
    planes, count = torch.Size(shape[:-rank]).numel(), torch.Size(shape[-rank:]).numel()
    places = torch.Size(out).numel()
    indices = torch.stack([torch.arange(count) * 7 % places + i for i in range(planes)]) % places
    return Row(
        f"aten::max_unpool{rank}d",
        (t(*shape, dtype=dtype, low=-9, high=9), indices.reshape(shape), out, *extra),
    )


ROWS = [
    *(row for case in MAX for row in _max(case, whole(*case[0]))),
    *(row for case in MAX for row in _max(case, spiked(*case[0]))),
    *(row for i in (1, 4) for d in (B, H) for row in _max(MAX[i], whole(*MAX[i][0], dtype=d))),
    *(
        row
        for i, d in ((1, torch.uint8), (2, torch.int8), (3, L), (4, torch.int32))
        for row in _max(MAX[i], t(*MAX[i][0], dtype=d, low=0 if d is torch.uint8 else -9, high=9))
    ),
    *(row for case in AVG for row in _avg(case)),
    *(row for i in (2, 7) for row in _avg(AVG[i], L)),
    *(row for i in (1, 4) for d in (B, H, torch.float64) for row in _avg(AVG[i], d)),
    *(row for case in ADAPTIVE for row in _adaptive(*case)),
    *(row for case in (ADAPTIVE[2], ADAPTIVE[5]) for row in _adaptive(*case, B)),
    Row("aten::adaptive_max_pool2d", (spiked(2, 7, 8), [3, 2])),
    Row("aten::_adaptive_avg_pool2d", (t(1, 2, 4, 4), [0, 2])),
    Row("aten::_adaptive_avg_pool3d", (t(1, 2, 4, 4, 4), [2, 0, 2])),
    Row("aten::adaptive_max_pool2d", (t(1, 2, 4, 4), [0, 2])),
    *_fractional((2, 3, 7, 6), [2, 3], [3, 2]),
    *_fractional((3, 7, 6), [3, 2], [4, 1]),
    *_fractional((2, 1, 40, 9), [2, 2], [17, 5], B),
    *_fractional((2, 1, 40, 9), [2, 2], [17, 5], H),
    *_fractional((2, 2, 6, 5, 7), [2, 2, 3], [3, 2, 2]),
    *_fractional((2, 6, 5, 7), [2, 2, 3], [1, 2, 4]),
    # More samples than planes: an image without a batch takes the first.
    Row("aten::fractional_max_pool2d", (whole(2, 5, 7), [2, 3], [3, 2], t(3, 2, 2, low=0, high=1))),
    _unpool((2, 3, 2, 3), [5, 6]),
    _unpool((3, 2, 3), [5, 6], dtype=torch.float64),
    _unpool((2, 2, 2, 2, 3), [4, 5, 6], ([2, 2, 2], [0, 0, 0])),
]
