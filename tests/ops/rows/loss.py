"""Rows of `torch_tpu/ops/loss.py`."""

import torch

from ops.row import Row, t

BF16, F64, I64, U8 = torch.bfloat16, torch.float64, torch.int64, torch.uint8
REDUCTIONS = (0, 1, 2)
ATEN = torch.ops.aten


def classes(*shape, of=5, dtype=I64, seed=0):
    return t(*shape, dtype=dtype, low=0, high=of, seed=seed)


def prob(*shape, dtype=torch.float32, seed=0):
    return t(*shape, dtype=dtype, low=0.05, high=0.95, seed=seed)


def grad(shape, reduction, dtype=torch.float32):
    """An incoming gradient: one number for a reduced loss."""
    return t(*(shape if reduction == 0 else ()), dtype=dtype, low=0.5, high=2, seed=9)


def pointwise(name, x, y, *extra):
    """Forward and backward rows of an element-wise loss in three reductions, f32 and bf16."""
    made = []
    for reduction in REDUCTIONS:
        for dtype in (torch.float32, BF16):
            a, b = x.to(dtype), y.to(dtype)
            made.append(Row(f"aten::{name}", (a, b, reduction, *extra)))
            g = grad(x.shape, reduction, dtype)
            made.append(Row(f"aten::{name}_backward", (g, a, b, reduction, *extra)))
    return made


X, Y = t(3, 4, low=-3, high=3), t(3, 4, low=-3, high=3, seed=1)
PX, PY, W = prob(3, 4), prob(3, 4, seed=1), prob(3, 4, seed=2)
SIGNS = torch.where(t(3, 4) > 0, 1.0, -1.0)


def bce():
    made = []
    for reduction in REDUCTIONS:
        for weight in (None, W):
            made.append(Row("aten::binary_cross_entropy", (PX, PY, weight, reduction)))
            args = (grad((3, 4), reduction), PX, PY, weight, reduction)
            made.append(Row("aten::binary_cross_entropy_backward", args))
            for pos_weight in (None, t(4, low=0.5, high=2, seed=4)):
                args = (X, PY, weight, pos_weight, reduction)
                made.append(Row("aten::binary_cross_entropy_with_logits", args))
    edge = torch.tensor([0.0, 1.0, 0.0, 1.0])
    made.append(
        Row("aten::binary_cross_entropy", (edge, torch.tensor([0.0, 0.0, 1.0, 1.0]), None, 0))
    )
    made.append(Row("aten::binary_cross_entropy", (PX.to(BF16), PY.to(BF16))))
    return made


def nll(name, x, target, *, ignore=-100, dtype=torch.float32):
    made = []
    for reduction in REDUCTIONS:
        for weight in (None, prob(5, dtype=dtype, seed=3)):
            args = (x.to(dtype), target, weight, reduction, ignore)
            made.append(Row(f"aten::{name}_forward", args))
            total = getattr(ATEN, f"{name}_forward")(*args)[1]
            args = (grad(target.shape, reduction, dtype), *args, total)
            made.append(Row(f"aten::{name}_backward", args))
    return made


def multi_margin(x, target, p=1, margin=1.0, weight=None):
    made = []
    for reduction in REDUCTIONS:
        args = (x, target, p, margin, weight, reduction)
        made.append(Row("aten::multi_margin_loss", args))
        g = grad(target.shape, reduction, x.dtype)
        made.append(Row("aten::multi_margin_loss_backward", (g, *args)))
    return made


def multilabel(x, target):
    made = []
    for reduction in REDUCTIONS:
        made.append(Row("aten::multilabel_margin_loss_forward", (x, target, reduction)))
        flags = ATEN.multilabel_margin_loss_forward(x, target, reduction)[1]
        g = grad(x.shape[:-1], reduction, x.dtype)
        args = (g, x, target, reduction, flags)
        made.append(Row("aten::multilabel_margin_loss_backward", args))
    return made


LOGITS = t(6, 5)
LABELS = torch.tensor([[3, 0, -1, 1, 2], [-1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [2, -1, -1, -1, 4]])

ROWS = [
    *pointwise("mse_loss", X, Y),
    Row("aten::mse_loss", (t(0, 3), t(0, 3), 1)),
    Row("aten::mse_loss", (X.to(F64), Y.to(F64), 2)),
    *pointwise("smooth_l1_loss", X, Y, 1.0),
    *pointwise("smooth_l1_loss", X, Y, 0.3),
    *pointwise("huber_loss", X, Y, 1.0),
    *pointwise("huber_loss", X, Y, 0.4),
    *pointwise("soft_margin_loss", X, SIGNS),
    *bce(),
    *nll("nll_loss", LOGITS, classes(6)),
    *nll("nll_loss", LOGITS, torch.tensor([0, 2, -100, 4, 2, -100])),
    *nll("nll_loss", LOGITS, classes(6, dtype=U8), ignore=2),
    *nll("nll_loss", LOGITS[0], torch.tensor(3)),
    *nll("nll_loss", LOGITS, classes(6), dtype=BF16),
    *nll("nll_loss", LOGITS, torch.full((6,), 1), ignore=1),
    *nll("nll_loss2d", t(2, 5, 3, 2), classes(2, 3, 2)),
    *nll("nll_loss2d", t(2, 5, 3, 2), classes(2, 3, 2), ignore=1),
    *multi_margin(LOGITS, classes(6)),
    *multi_margin(LOGITS, classes(6), 2, 0.7, prob(5)),
    *multi_margin(LOGITS[0], torch.tensor(2)),
    *multilabel(t(4, 5), LABELS),
    *multilabel(t(5), LABELS[0]),
]
