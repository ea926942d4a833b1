"""Losses and their backward operators: regression, cross entropy, likelihood, margins.

``reduction`` is PyTorch's code: 0 none, 1 mean, 2 sum. A class is looked up by gather in the
forward pass and by comparison with an iota in the backward pass, whose result is dense anyway.
PyTorch checks targets on the CPU only; here a class out of range is clamped. CTC is in `ctc.py`.
"""

from __future__ import annotations

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import checks, same_dtype, storable, stored_as, widened

NONE, MEAN, SUM = 0, 1, 2


def _rule(*names: str, **options):
    return op(*(f"aten::{name}" for name in names), promote="arith", **options)


def _like_self(name: str, check=None, **options) -> dict:
    """Options of a loss that computes in the common dtype and has the dtype of ``self``."""
    return {"check": check, **stored_as(f"aten::{name}", "self"), **options}


def _reduced(loss: Value, reduction: int) -> Value:
    if reduction == NONE:
        return loss
    total = hlo.reduce(loss, "add", range(loss.ndim))
    return total if reduction == SUM else total / loss.numel


def _share(grad_output: Value, like: Value, reduction: int) -> Value:
    """The gradient that reaches each element: a mean splits it evenly."""
    return grad_output / like.numel if reduction == MEAN else grad_output


_FITS_SELF = storable("self", "target", "grad_output")
_ONE_DTYPE = same_dtype("self", "target", "grad_output")


# ---- regression ----------------------------------------------------------------------------


@_rule("mse_loss")
def mse_loss(self, target, reduction=MEAN):
    distance = self - target
    return _reduced(distance * distance, reduction)


@_rule("mse_loss_backward", layout="contiguous", **_like_self("mse_loss_backward", _FITS_SELF))
def mse_loss_backward(grad_output, self, target, reduction):
    return _share(grad_output, self, reduction) * (2 * (self - target))


@_rule("smooth_l1_loss")
def smooth_l1_loss(self, target, reduction=MEAN, beta=1.0):
    distance = hlo.abs(self - target)
    linear = distance - 0.5 * beta
    if beta == 0:
        return _reduced(linear, reduction)
    quadratic = 0.5 * distance * distance / beta
    return _reduced(hlo.where(distance < beta, quadratic, linear), reduction)


@_rule(
    "smooth_l1_loss_backward",
    layout="contiguous",
    **_like_self("smooth_l1_loss_backward", _FITS_SELF),
)
def smooth_l1_loss_backward(grad_output, self, target, reduction, beta):
    difference = self - target
    slope = hlo.where(difference > 0, 1.0, hlo.where(difference < 0, -1.0, 0.0))
    if beta != 0:
        slope = hlo.where(hlo.abs(difference) < beta, difference / beta, slope.to(self.dtype))
    return _share(grad_output, self, reduction) * slope


@_rule("huber_loss", **_like_self("huber_loss", _FITS_SELF))
def huber_loss(self, target, reduction=MEAN, delta=1.0):
    distance = hlo.abs(self - target)
    linear = delta * (distance - 0.5 * delta)
    return _reduced(hlo.where(distance <= delta, 0.5 * distance * distance, linear), reduction)


@_rule("huber_loss_backward", check=_ONE_DTYPE, layout="contiguous")
def huber_loss_backward(grad_output, self, target, reduction, delta):
    slope = self - target
    slope = hlo.where(slope < -delta, -delta, hlo.where(slope > delta, delta, slope))
    return _share(grad_output, self, reduction) * slope


# ---- binary cross entropy ------------------------------------------------------------------


def _weighted(loss: Value, weight: Value | None) -> Value:
    return loss if weight is None else loss * weight


_FITS_WEIGHTED = checks(_ONE_DTYPE, storable("self", "weight"))


@_rule(
    "binary_cross_entropy",
    layout=("self",),
    **_like_self("binary_cross_entropy", _FITS_WEIGHTED),
)
def binary_cross_entropy(self, target, weight=None, reduction=MEAN):
    # Logarithms are cut at -100 so that a certain but wrong guess has a finite loss.
    floor = hlo.full_like(self, -100)
    log_off = hlo.maximum(hlo.unary("log_plus_one", -self), floor)
    log_on = hlo.maximum(hlo.log(self), floor)
    return _reduced(_weighted((target - 1) * log_off - target * log_on, weight), reduction)


@_rule(
    "binary_cross_entropy_backward",
    layout=("self",),
    **_like_self("binary_cross_entropy_backward", _FITS_WEIGHTED),
)
def binary_cross_entropy_backward(grad_output, self, target, weight=None, reduction=MEAN):
    variance = (1 - self) * self
    slope = (self - target) / hlo.maximum(variance, hlo.full_like(variance, 1e-12))
    return _share(grad_output, self, reduction) * _weighted(slope, weight)


def _check_logits(self, target, weight=None, pos_weight=None) -> None:
    storable("target", "weight")(target=target, weight=weight)
    if pos_weight is None:
        return
    if pos_weight.dtype is torch.bool:
        raise RuntimeError("binary_cross_entropy_with_logits: pos_weight must not be bool")
    storable("self", "target", "pos_weight")(self=self, target=target, pos_weight=pos_weight)


@_rule("binary_cross_entropy_with_logits", check=_check_logits, layout="meta")
def binary_cross_entropy_with_logits(self, target, weight=None, pos_weight=None, reduction=MEAN):
    off = hlo.minimum(self, hlo.zeros_like(self))
    log_on = off - hlo.unary("log_plus_one", hlo.exp(-hlo.abs(self)))
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    return _reduced(_weighted((1 - target) * self - factor * log_on, weight), reduction)


def _check_floating(self, target) -> None:
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"soft_margin_loss is not defined for {self.dtype}")
    _FITS_SELF(self=self, target=target)
    shape = torch.broadcast_shapes(self.shape, target.shape)
    if shape != self.shape:
        raise RuntimeError(
            f"soft_margin_loss: output with shape {list(self.shape)} doesn't match the broadcast "
            f"shape {list(shape)}"
        )


@_rule("soft_margin_loss", **_like_self("soft_margin_loss", _check_floating))
def soft_margin_loss(self, target, reduction=MEAN):
    return _reduced(hlo.unary("log_plus_one", hlo.exp(-target * self)), reduction)


def _check_signs(grad_output, self, target) -> None:
    if target.dtype is torch.bool:
        raise RuntimeError("soft_margin_loss_backward: target is negated and cannot be bool")
    _FITS_SELF(self=self, target=target, grad_output=grad_output)


@_rule("soft_margin_loss_backward", **_like_self("soft_margin_loss_backward", _check_signs))
def soft_margin_loss_backward(grad_output, self, target, reduction):
    slope = -target * hlo.sigmoid(-target * self)
    return _share(grad_output, self, reduction) * slope


# ---- negative log likelihood ---------------------------------------------------------------


def _with_batch(self: Value, target: Value) -> tuple[Value, Value]:
    """``self`` as (batch, class, ...) and ``target`` as (batch, ...) of int64."""
    if self.ndim < 2:
        return hlo.reshape(self, (1, self.numel)), hlo.reshape(target, (1,)).to(torch.int64)
    return self, target.to(torch.int64)


def _pick(x: Value, index: Value) -> Value:
    """``x[n, index[n, ...], ...]`` for an index without the class dim."""
    batching = [0, *range(2, x.ndim)]
    return hlo.gather(
        x,
        index,
        offset_dims=[],
        collapsed=[1],
        index_map=[1],
        index_vector_dim=index.ndim,
        slice_sizes=[1] * x.ndim,
        shape=index.shape,
        batching=batching,
        index_batching=range(index.ndim),
    )


def _class_weights(x: Value, target: Value, weight: Value | None, ignore_index: int):
    """(class to look up, its weight): ignored targets look up class 0 and weigh nothing."""
    kept = target != ignore_index
    index = hlo.where(kept, target, 0)
    if weight is None:
        return index, kept.to(x.dtype)
    return index, hlo.where(kept, hlo.take(weight.to(x.dtype), index, 0), 0)


def _check_classes(target) -> None:
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {target.dtype} for the classes"
        )


def _check_likelihood(self, target, weight=None, reduction=MEAN, **gradient) -> None:
    _check_classes(target)
    named = {"self": self, "weight": weight, **gradient}
    if reduction == NONE and self.ndim > 1:
        named["total_weight"] = None  # not read
    same_dtype("self", "grad_output", "weight", "total_weight")(**named)


def _int64_target(op_):
    """Metadata of a likelihood loss: PyTorch's meta kernels refuse the uint8 targets it takes."""

    def meta(target, **named) -> list:
        results = op_(target=target.to(torch.int64), **named)
        return list(results) if isinstance(results, tuple) else [results]

    return meta


@op(
    "aten::nll_loss_forward",
    meta=_int64_target(torch.ops.aten.nll_loss_forward),
    check=_check_likelihood,
)
@op("aten::nll_loss2d_forward", check=_check_likelihood)
def nll_loss_forward(self, target, weight, reduction, ignore_index):
    output, total = expected()
    x, target = _with_batch(widened(self), target)
    index, weights = _class_weights(x, target, weight, ignore_index)
    loss = -_pick(x, index) * weights
    # An infinite loss of an ignored target is still ignored.
    loss = hlo.where(target != ignore_index, loss, 0)
    if reduction == NONE and self.ndim > 1:
        loss = hlo.reshape(loss, output.shape).to(output.dtype)
        return loss, hlo.constant(0, total.dtype, total.shape)
    everything = range(loss.ndim)
    loss = hlo.reduce(loss, "add", everything)
    total_weight = hlo.reduce(weights, "add", everything)
    loss = loss / total_weight if reduction == MEAN else loss
    return loss.to(output.dtype), total_weight.to(total.dtype)


@op(
    "aten::nll_loss_backward",
    meta=_int64_target(torch.ops.aten.nll_loss_backward),
    check=_check_likelihood,
)
@op("aten::nll_loss2d_backward", check=_check_likelihood)
def nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight):
    x, target = _with_batch(widened(self), target)
    index, weights = _class_weights(x, target, weight, ignore_index)
    grad = grad_output.to(x.dtype)
    if reduction == MEAN:
        grad = grad / total_weight.to(x.dtype)
    grad = hlo.expand(grad, target.shape) if grad.numel == 1 else grad
    grad = hlo.where(target != ignore_index, -grad * weights, 0)
    chosen = hlo.iota(x.shape, 1) == hlo.unsqueeze(index, 1)
    result = hlo.where(chosen, hlo.unsqueeze(grad, 1), 0).to(self.dtype)
    return hlo.reshape(result, self.shape)


# ---- margins -------------------------------------------------------------------------------


def _margin_terms(self: Value, target: Value, margin, weight: Value | None):
    """What both passes of the multi-margin loss need: (is the target, hinge, class weight)."""
    x, target = _with_batch(widened(self), target)
    is_target = hlo.iota(x.shape, 1) == hlo.unsqueeze(target, 1)
    hinge = x - hlo.unsqueeze(_pick(x, target), 1) + margin
    hinge = hlo.where((hinge > 0) & ~is_target, hinge.to(x.dtype), 0)
    if weight is None:
        return is_target, hinge, hlo.constant(1, x.dtype, (x.shape[0], 1))
    return is_target, hinge, hlo.unsqueeze(hlo.take(weight.to(x.dtype), target, 0), 1)


def _check_margins(self, target, weight=None, grad_output=None, is_target=None) -> None:
    if target.dtype is not torch.int64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype} for target")
    same_dtype("self", "weight", "grad_output", "is_target")(
        self=self, weight=weight, grad_output=grad_output, is_target=is_target
    )


def _multi_margin_meta(target, **named) -> list:
    # PyTorch's meta kernel says (1,) for the loss of a single sample, its CPU kernel ().
    loss = torch.ops.aten.multi_margin_loss(target=target, **named)
    return [loss.reshape(target.shape) if loss.ndim else loss]


@op("aten::multi_margin_loss", static=("p",), meta=_multi_margin_meta, check=_check_margins)
def multi_margin_loss(self, target, p=1, margin=1, weight=None, reduction=MEAN):
    _, hinge, weights = _margin_terms(self, target, margin, weight)
    hinge = hinge if p == 1 else hinge * hinge
    loss = hlo.reduce(hinge * weights, "add", [1]) / hinge.shape[1]
    output = expected()[0]
    return hlo.reshape(_reduced(loss, reduction), output.shape).to(output.dtype)


@op("aten::multi_margin_loss_backward", static=("p",), check=_check_margins)
def multi_margin_loss_backward(grad_output, self, target, p, margin, weight=None, reduction=MEAN):
    is_target, hinge, weights = _margin_terms(self, target, margin, weight)
    batch, classes = hinge.shape
    slope = (hinge > 0).to(hinge.dtype) if p == 1 else 2 * hinge
    slope = slope * weights / (classes * (batch if reduction == MEAN else 1))
    slope = hlo.where(is_target, -hlo.reduce(slope, "add", [1], keepdim=True), slope)
    return hlo.reshape(slope * _per_sample(grad_output, hinge), self.shape).to(self.dtype)


def _per_sample(grad_output: Value, like: Value) -> Value:
    """The incoming gradient as (batch, 1), or as one number for a reduced loss."""
    grad = grad_output.to(like.dtype)
    return hlo.reshape(grad, (like.shape[0], 1) if grad.numel == like.shape[0] else (1, 1))


def _label_terms(self: Value, target: Value):
    """Over (sample, label, class): the class is the label's, the class is any label's (without the
    label dim), the pair counts, its hinge."""
    classes = self.shape[-1] if self.ndim else 1
    rows = self.shape[0] if self.ndim == 2 else 1
    x = hlo.reshape(widened(self), (rows, classes))
    labels = hlo.reshape(target, (rows, classes)).to(torch.int64)
    # The labels of a row end at the first negative one.
    valid = hlo.cumulative(labels >= 0, "multiply", 1)
    cube = (rows, classes, classes)
    matches = hlo.iota(cube, 2) == hlo.unsqueeze(labels, 2)
    matches = matches & hlo.unsqueeze(valid, 2)
    is_target = hlo.reduce(matches, "or", [1])
    wide = hlo.broadcast_in_dim(x, cube, [0, 2])
    at_label = hlo.reduce(hlo.where(matches, wide, 0), "add", [2], keepdim=True)
    hinge = 1 - at_label + wide
    counted = hlo.unsqueeze(valid, 2) & hlo.unsqueeze(~is_target, 1) & (hinge > 0)
    return matches, is_target, counted, hinge


def _multilabel_meta(self, **named) -> list:
    # See `_multi_margin_meta`.
    loss, flags = torch.ops.aten.multilabel_margin_loss_forward(self, **named)
    return [loss.reshape(self.shape[:-1]) if loss.ndim else loss, flags]


@op("aten::multilabel_margin_loss_forward", meta=_multilabel_meta, check=_check_margins)
def multilabel_margin_loss_forward(self, target, reduction):
    output, flags = expected()
    _, is_target, counted, hinge = _label_terms(self, target)
    loss = hlo.reduce(hlo.where(counted, hinge, 0), "add", [1, 2]) / hinge.shape[2]
    loss = hlo.reshape(_reduced(loss, reduction), output.shape).to(output.dtype)
    return loss, hlo.reshape(is_target, flags.shape).to(flags.dtype)


@op("aten::multilabel_margin_loss_backward", check=_check_margins)
def multilabel_margin_loss_backward(grad_output, self, target, reduction, is_target):
    del is_target  # found again from the labels, which are needed anyway
    matches, _, counted, hinge = _label_terms(self, target)
    rows, classes = hinge.shape[0], hinge.shape[2]
    counted = counted.to(hinge.dtype)
    pushed_up = hlo.reduce(counted, "add", [1])
    per_label = hlo.reduce(counted, "add", [2], keepdim=True)
    pulled_down = hlo.reduce(matches.to(hinge.dtype) * per_label, "add", [1])
    slope = (pushed_up - pulled_down) / (classes * (rows if reduction == MEAN else 1))
    return hlo.reshape(slope * _per_sample(grad_output, slope), self.shape).to(self.dtype)
