"""Rows of `torch_tpu/ops/norm.py`."""

import math

import torch

from ops.row import Row, t

A = torch.ops.aten
BF, F16, F64 = torch.bfloat16, torch.float16, torch.float64
ALL, NONE, SOME = [True] * 3, [True, False, False], [False, True, False]


def _channel(c, dtype=torch.float32, low=0.5, high=2.0, seed=3):
    return t(c, dtype=dtype, low=low, high=high, seed=seed)


def _running(c, dtype=torch.float32):
    return t(c, dtype=dtype, seed=5), _channel(c, dtype, seed=6)


W, BIAS = _channel(3), t(3, seed=4)


_BATCH = [
    Row("aten::native_batch_norm", (t(4, 3, 5), W, BIAS, *_running(3), True, 0.1, 1e-5)),
    Row("aten::native_batch_norm", (t(4, 3), None, None, None, None, True, 0.1, 1e-5)),
    Row(
        "aten::native_batch_norm",
        (t(4, 3, 2, 2), W, None, *_running(3), False, 0.1, 1e-3),
    ),
    Row(
        "aten::native_batch_norm",
        (t(4, 3) + 100, W, BIAS, *_running(3), True, 1.0, 1e-5),
        rtol=3e-5,
        reason="against float64 PyTorch is off by 1.4e-5, we by 0.9e-5 (it cancels x*a + b)",
    ),
    Row(
        "aten::native_batch_norm",
        (t(4, 3, 5, dtype=BF), W, BIAS, *_running(3), True, 0.1, 1e-5),
    ),
    Row(
        "aten::native_batch_norm",
        (t(4, 3, 5, dtype=BF), W.to(BF), BIAS.to(BF), *_running(3, BF), False, 0.1, 1e-5),
    ),
    Row(
        "aten::native_batch_norm",
        (t(4, 3, dtype=F64), W.to(F64), BIAS.to(F64), *_running(3, F64), True, 0.3, 1e-5),
    ),
    Row("aten::_native_batch_norm_legit", (t(4, 3), W, BIAS, *_running(3), True, 0.1, 1e-5)),
    Row(
        "aten::_native_batch_norm_legit",
        (t(4, 3), W, BIAS, *_running(3), False, 0.1, 1e-5),
    ),
    Row("aten::_native_batch_norm_legit.no_stats", (t(4, 3, 2), W, BIAS, True, 0.1, 1e-5)),
    Row("aten::_batch_norm_with_update", (t(4, 3, 2), W, BIAS, *_running(3), 0.1, 1e-5)),
    Row("aten::_batch_norm_with_update", (t(4, 3), None, None, *_running(3), 0.5, 1e-5)),
    Row(
        "aten::_batch_norm_with_update",
        (t(4, 3, dtype=BF), None, None, *_running(3, BF), 0.5, 1e-5),
    ),
    Row(
        "aten::_native_batch_norm_legit.no_stats",
        (t(4, 3, 2, dtype=BF), None, None, True, 0.1, 1e-5),
    ),
    Row(
        "aten::_native_batch_norm_legit.out",
        (t(4, 3), W, BIAS, *_running(3), True, 0.1, 1e-5),
        {"out": t(0), "save_mean": t(0), "save_invstd": t(0)},
        views="refused",
    ),
    Row(
        "aten::_native_batch_norm_legit.out",
        (t(4, 3, dtype=BF), None, None, *_running(3, BF), False, 0.1, 1e-5),
        {name: t(0, dtype=BF) for name in ("out", "save_mean", "save_invstd")},
        views="refused",
    ),
    Row(
        "aten::_batch_norm_with_update.out",
        (t(4, 3), None, BIAS, *_running(3), 0.1, 1e-5),
        {
            **{name: t(0) for name in ("out", "save_mean", "save_invstd")},
            "reserve": t(0, dtype=torch.uint8),
        },
        views="refused",
    ),
]


def _batch_backward(x, weight, train, mask=ALL, new=False):
    stats = _running(x.shape[1], torch.float32 if weight is None else weight.dtype)
    _, mean, rstd = A.native_batch_norm(x, weight, None, None, None, True, 0.1, 1e-5)
    head = (t(*x.shape, seed=9).to(x.dtype), x, weight, *stats, mean, rstd, train, 1e-5, mask)
    if new:
        return Row("aten::batch_norm_backward", (*head, torch.empty(0, dtype=torch.uint8)))
    return Row("aten::native_batch_norm_backward", head)


def _layer(x, n, weight, bias, eps=1e-5, **options):
    shape = list(x.shape[x.ndim - n :])
    return Row("aten::native_layer_norm", (x, shape, weight, bias, eps), **options)


def _layer_backward(x, n, weight, bias, mask=ALL, **tolerance):
    shape = list(x.shape[x.ndim - n :])
    _, mean, rstd = A.native_layer_norm(x, shape, weight, bias, 1e-5)
    grad = t(*x.shape, seed=9).to(x.dtype)
    head = (grad, x, shape, mean, rstd, weight, bias, mask)
    return Row("aten::native_layer_norm_backward", head, **tolerance)


def _group(x, weight, bias, groups):
    n, c = x.shape[:2]
    args = (x, weight, bias, n, c, x[0, 0].numel(), groups, 1e-5)
    return Row("aten::native_group_norm", args, views="refused")


def _group_backward(x, weight, groups, mask=ALL):
    n, c, size = *x.shape[:2], x[0, 0].numel()
    _, mean, rstd = A.native_group_norm(x, weight, None, n, c, size, groups, 1e-5)
    grad = t(*x.shape, seed=9).to(x.dtype)
    return Row(
        "aten::native_group_norm_backward",
        (grad, x, mean, rstd, weight, n, c, size, groups, mask),
    )


def _weight_backward(v, g, dim):
    w, norms = A._weight_norm_interface(v, g, dim)
    grad = t(*w.shape, seed=9).to(w.dtype)
    return Row("aten::_weight_norm_interface_backward", (grad, v, g, norms, dim))


_GRADIENTS = [
    _batch_backward(t(4, 3, 5), W, True),
    _batch_backward(t(4, 3), None, True),
    _batch_backward(t(4, 3, 2, 2), W, False),
    _batch_backward(t(4, 3), W, True, NONE),
    _batch_backward(t(4, 3, dtype=F64), W.to(F64), False),
    _batch_backward(t(4, 3, 5, dtype=BF), W, True),
    _batch_backward(t(4, 3, 5), W, True, new=True),
    _batch_backward(t(4, 3), W, False, new=True),
    _layer_backward(
        t(4, 3, 5),
        1,
        _channel(5),
        t(5),
        atol=1e-5,
        reason="against float64 PyTorch is off by 7e-6, we by 1e-6",
    ),
    _layer_backward(t(4, 3, 5), 2, None, None, NONE),
    _layer_backward(t(3, 5), 2, t(3, 5, seed=1), t(3, 5)),
    _layer_backward(t(4, 5, dtype=F64), 1, _channel(5, F64), None, [True, True, False]),
    _layer_backward(
        t(4, 5, dtype=BF),
        1,
        _channel(5),
        t(5),
        rtol=1e-2,
        atol=2e-2,
        reason="PyTorch rounds the float32 weight gradients to bfloat16 underway, we do not",
    ),
    _layer_backward(t(4, 5), 1, _channel(5), t(5), SOME),
    _group_backward(t(2, 4, 3), _channel(4), 2),
    _group_backward(t(2, 4, 3, 3), None, 4, NONE),
    _group_backward(t(2, 4), _channel(4), 1),
    _group_backward(t(2, 4, 3, dtype=F64), _channel(4, F64), 2, SOME),
]

_LAYERS = [
    _layer(t(4, 3, 5), 1, _channel(5), t(5)),
    _layer(t(4, 3, 5), 2, None, None),
    _layer(t(3, 5), 2, t(3, 5, seed=1), None, 1e-3),
    _layer(t(4, 5, dtype=F64), 1, _channel(5, F64), t(5, dtype=F64)),
    _layer(
        t(4, 50, dtype=BF),
        1,
        _channel(50, BF),
        t(50, dtype=BF),
    ),
    _layer(t(4, 50, dtype=BF), 1, _channel(50), t(50)),
    _group(t(2, 4, 3), _channel(4), t(4), 2),
    _group(t(2, 4, 3, 3), None, None, 4),
    _group(t(2, 4), _channel(4), None, 1),
    _group(t(2, 4, 30, dtype=BF), _channel(4, BF), t(4, dtype=BF), 2),
    _group(t(2, 4, 30, dtype=BF), None, t(4), 2),
]

_OTHERS = [
    Row("aten::_weight_norm_interface", (t(3, 4), t(3, 1, seed=1), 0)),
    Row("aten::_weight_norm_interface", (t(3, 4, 2), t(1, 1, 2, seed=1), 2)),
    Row("aten::_weight_norm_interface", (t(3, 4, dtype=BF), t(3, 1, dtype=BF), 0)),
    _weight_backward(t(3, 4), t(3, 1, seed=1), 0),
    _weight_backward(t(3, 4, 2, dtype=F64), t(1, 1, 2, dtype=F64, seed=1), 2),
    Row("aten::renorm", (t(3, 4), 2, 0, 1.5)),
    Row("aten::renorm", (t(3, 4, 2), 1, -1, 5)),
    Row("aten::renorm", (t(3, 4), math.inf, 1, 1.0)),
    Row("aten::renorm", (t(3, 4, dtype=BF), 2.5, 0, 1.0)),
    Row("aten::renorm", (t(3, 4, dtype=torch.complex64), 2, 1, 1.0)),
]

ROWS = [*_BATCH, *_LAYERS, *_GRADIENTS, *_OTHERS]
