"""Fused optimizer steps and the gradient scaler's two kernels: one program per training step.

`torch.optim` with ``fused=True`` and `torch.amp.GradScaler` call these; the per-tensor forms of the
optimizers are in `foreach.py`. They only exist in place, so every rule names what it writes; a None
among the new values leaves that argument alone. Scalars of the schedule (learning rate, betas, ...)
are run-time numbers. Gradients are divided by ``grad_scale`` and stored so; when ``found_inf`` is 1
nothing changes at all. Steps are counted by the caller. 16-bit parameters compute in float32.
"""

from __future__ import annotations

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import op
from .common import plain

_UNSET = {"weight_decay": (0,)}


# ---- scalars -------------------------------------------------------------------------------


def _complement(number, dtype: torch.dtype) -> Value:
    """``1 - number``, taken in float64: beta2 is so near 1 that float32 loses half the digits."""
    one = hlo.constant(1, torch.float64)
    return hlo.binary("subtract", one, promote.as_value(number, torch.float64)).to(dtype)


def _bias_correction(complement: Value, step: Value) -> Value:
    """``1 - beta ** step`` from ``1 - beta``, without cancellation for small steps."""
    log_beta = hlo.unary("log_plus_one", -complement)
    return -hlo.unary("exponential_minus_one", step.to(complement.dtype) * log_beta)


def _number(value, dtype: torch.dtype) -> Value:
    """A run-time number or 0-d (or one-element) tensor as a 0-d value of ``dtype``."""
    value = promote.as_value(value, dtype)
    return hlo.reshape(value, ()) if value.ndim else value


# ---- what the optimizers share -------------------------------------------------------------


class _Step:
    """Gradients as an optimizer sees them, and the new values as they are stored."""

    def __init__(self, grad_scale: Value | None, found_inf: Value | None, maximize: bool):
        self.grad_scale = grad_scale
        self.maximize = maximize
        self.skip = None if found_inf is None else hlo.reshape(found_inf, ()) == 1

    def gradient(self, grad: Value, dtype: torch.dtype) -> tuple[Value, Value | None]:
        """The gradient to descend by, and the value to store if it was unscaled."""
        wide, stored = grad.to(dtype), None
        if self.grad_scale is not None:
            wide = wide / _number(self.grad_scale, dtype)
            stored = self.store(wide, grad)
        return (-wide if self.maximize else wide), stored

    def store(self, new: Value, old: Value) -> Value:
        """``new`` as the next value of ``old``, unless the step is skipped."""
        new = new.to(old.dtype)
        return new if self.skip is None else hlo.select(self.skip, old, new)


def _columns(rows: list, width: int) -> list[list]:
    """Lists per written argument from tuples per parameter."""
    return [[row[i] for row in rows] for i in range(width)]


# ---- Adam and AdamW ------------------------------------------------------------------------

_ADAM_OPTIONS = {
    "writes": ("self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "runtime": ("lr", "beta1", "beta2", "weight_decay", "eps"),
    "specialize": _UNSET,
}


def _adam_one(param, grad, avg, square, top, count, options, step: _Step, decoupled: bool) -> tuple:
    dtype = promote.compute_dtype(param.dtype)
    lr, beta1, beta2, decay, eps = (
        x if plain(x) else _number(x, dtype)
        for x in (options[k] for k in ("lr", "beta1", "beta2", "weight_decay", "eps"))
    )
    rest1, rest2 = _complement(options["beta1"], dtype), _complement(options["beta2"], dtype)
    g, stored = step.gradient(grad, dtype)
    x, m, v = param.to(dtype), avg.to(dtype), square.to(dtype)
    if not plain(decay, 0):
        if decoupled:
            x = x - x * (lr * decay)
        else:
            g = g + x * decay
    m = m * beta1 + g * rest1
    v = v * beta2 + g * g * rest2
    largest = v if top is None else hlo.maximum(top.to(dtype), v)
    correction1, correction2 = _bias_correction(rest1, count), _bias_correction(rest2, count)
    x = x - (lr / correction1) * m / (hlo.sqrt(largest) / hlo.sqrt(correction2) + eps)
    new_top = None if top is None else step.store(largest, top)
    return step.store(x, param), stored, step.store(m, avg), step.store(v, square), new_top


def _register_adam(name: str, decoupled: bool) -> None:
    def body(
        self,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        amsgrad,
        maximize,
        grad_scale=None,
        found_inf=None,
        **options,
    ):
        step = _Step(grad_scale, found_inf, maximize)
        tops = max_exp_avg_sqs if amsgrad else [None] * len(self)
        rows = [
            _adam_one(*tensors, options, step, decoupled)
            for tensors in zip(self, grads, exp_avgs, exp_avg_sqs, tops, state_steps, strict=True)
        ]
        columns = _columns(rows, 5)
        if not amsgrad:
            columns[4] = [None] * len(max_exp_avg_sqs)
        return columns

    op(f"aten::{name}", f"aten::{name}.tensor_lr", **_ADAM_OPTIONS)(body)


_register_adam("_fused_adam_", decoupled=False)
_register_adam("_fused_adamw_", decoupled=True)


# ---- SGD -----------------------------------------------------------------------------------


def _sgd_one(param, grad, buffer, decay, momentum, lr, dampening, nesterov, first, step) -> tuple:
    dtype = promote.compute_dtype(param.dtype)
    g, stored = step.gradient(grad, dtype)
    x = param.to(dtype)
    if not plain(decay, 0):
        g = g + x * _number(decay, dtype)
    new_buffer = None
    if not plain(momentum, 0):
        momentum = _number(momentum, dtype)
        b = g if first else buffer.to(dtype) * momentum + g * _complement(dampening, dtype)
        new_buffer = step.store(b, buffer)
        g = g + b * momentum if nesterov else b
    return step.store(x - g * _number(lr, dtype), param), stored, new_buffer


@op(
    "aten::_fused_sgd_",
    "aten::_fused_sgd_.tensor_lr",
    writes=("self", "grads", "momentum_buffer_list"),
    runtime=("weight_decay", "momentum", "lr", "dampening"),
    specialize={**_UNSET, "momentum": (0,)},
)
def _fused_sgd_(
    self,
    grads,
    momentum_buffer_list,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
    is_first_step,
    grad_scale=None,
    found_inf=None,
):
    step = _Step(grad_scale, found_inf, maximize)
    buffers = momentum_buffer_list or [None] * len(self)
    rows = [
        _sgd_one(*tensors, weight_decay, momentum, lr, dampening, nesterov, is_first_step, step)
        for tensors in zip(self, grads, buffers, strict=True)
    ]
    params, stored, new_buffers = _columns(rows, 3)
    return params, stored, new_buffers if momentum_buffer_list else []


# ---- Adagrad -------------------------------------------------------------------------------


def _adagrad_one(param, grad, total, count, lr, lr_decay, decay, eps, step: _Step) -> tuple:
    dtype = promote.compute_dtype(param.dtype)
    g, stored = step.gradient(grad, dtype)
    x = param.to(dtype)
    if not plain(decay, 0):
        g = g + x * _number(decay, dtype)
    squares = total.to(dtype) + g * g
    slowed = _number(lr, dtype) / (1 + (_number(count, dtype) - 1) * _number(lr_decay, dtype))
    x = x - slowed * g / (hlo.sqrt(squares) + _number(eps, dtype))
    return step.store(x, param), stored, step.store(squares, total), None


@op(
    "aten::_fused_adagrad_",
    "aten::_fused_adagrad_.tensor_lr",
    # The schema says that the steps are written; no kernel does, the caller counts.
    writes=("self", "grads", "state_sums", "state_steps"),
    runtime=("lr", "lr_decay", "weight_decay", "eps"),
    specialize=_UNSET,
)
def _fused_adagrad_(
    self,
    grads,
    state_sums,
    state_steps,
    lr,
    lr_decay,
    weight_decay,
    eps,
    maximize,
    grad_scale=None,
    found_inf=None,
):
    step = _Step(grad_scale, found_inf, maximize)
    rows = [
        _adagrad_one(*tensors, lr, lr_decay, weight_decay, eps, step)
        for tensors in zip(self, grads, state_sums, state_steps, strict=True)
    ]
    return _columns(rows, 4)


# ---- gradient scaler -----------------------------------------------------------------------


@op("aten::_amp_foreach_non_finite_check_and_unscale_", writes=("self", "found_inf"))
def _amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale):
    finite = hlo.constant(True, torch.bool)
    scaled = []
    for grad in self:
        wide = grad.to(promote.compute_dtype(grad.dtype))
        # Checked before scaling, as PyTorch does: an overflow of the product is not reported.
        whole = hlo.reduce(hlo.is_finite(wide), "and", range(wide.ndim))
        finite = hlo.binary("and", finite, whole)
        scaled.append((wide * _number(inv_scale, wide.dtype)).to(grad.dtype))
    seen = hlo.select(finite, hlo.reshape(found_inf, ()), hlo.constant(1, found_inf.dtype))
    return scaled, hlo.reshape(seen, found_inf.shape)


@op("aten::_amp_update_scale_", writes=("self", "growth_tracker"))
def _amp_update_scale_(
    self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval
):
    scale, tracker = hlo.reshape(self, ()), hlo.reshape(growth_tracker, ())
    overflowed = hlo.reshape(found_inf, ()) != 0
    count = tracker + 1
    due = count == growth_interval
    grown = scale * scale_growth_factor
    grown = hlo.select(due & hlo.is_finite(grown), grown, scale)
    new_scale = hlo.select(overflowed, scale * scale_backoff_factor, grown)
    new_tracker = hlo.select(overflowed | due, hlo.zeros_like(count), count)
    return hlo.reshape(new_scale, self.shape), hlo.reshape(new_tracker, growth_tracker.shape)
