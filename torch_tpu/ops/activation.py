"""Activation functions and their backward operators.

Formulas are those of ATen's CPU kernels; 16-bit floats compute in float32 (`promote="arith"`) and
round once. `silu_backward` and `mish_backward` also have composite kernels above us; PyTorch only
calls them with gradients off, and one program is faster than the five the composites would run.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op, unary
from . import common
from .common import FLOATS_ONLY, common_dtype, refusing, same_dtype, storable, stored_as


def _rule(*names: str, **options):
    return op(*(f"aten::{name}" for name in names), promote="arith", **options)


def _expm1(x: Value) -> Value:
    return hlo.unary("exponential_minus_one", x)


def _log1p(x: Value) -> Value:
    return hlo.unary("log_plus_one", x)


def _clip(x: Value, low: float, high: float) -> Value:
    return hlo.minimum(hlo.maximum(x, hlo.full_like(x, low)), hlo.full_like(x, high))


# ---- sigmoid and its relatives -------------------------------------------------------------


def _conjugate(x: Value) -> Value:
    return hlo.complex(hlo.real(x), -hlo.imag(x)) if x.is_complex else x


def _sigmoid(x: Value) -> Value:
    return 1 / (1 + hlo.exp(-x)) if x.is_complex else hlo.sigmoid(x)


def _mish_softplus(x: Value) -> Value:
    return hlo.maximum(x, hlo.zeros_like(x)) + _log1p(hlo.exp(-hlo.abs(x)))


def _hard_sigmoid(x: Value) -> Value:
    return _clip(x + 3, 0, 6) / 6


unary("aten::sigmoid", _sigmoid, promote="float")
unary("aten::silu", lambda x: x * _sigmoid(x))
unary("aten::mish", lambda x: x * hlo.tanh(_mish_softplus(x)))
unary("aten::hardsigmoid", _hard_sigmoid)
unary("aten::hardswish", lambda x: x * _clip(x + 3, 0, 6) / 6)


@_rule("sigmoid_backward")
def sigmoid_backward(grad_output, output):
    return grad_output * _conjugate((1 - output) * output)


@_rule("tanh_backward")
def tanh_backward(grad_output, output):
    return grad_output * _conjugate(1 - output * output)


@_rule("silu_backward")
def silu_backward(grad_output, self):
    sigmoid = _sigmoid(self)
    return grad_output * _conjugate(sigmoid * (1 + self * (1 - sigmoid)))


@_rule(
    "mish_backward",
    check=storable("self", "grad_output"),
    layout=("grad_output", "self"),
    **stored_as("aten::mish_backward", "self"),
)
def mish_backward(grad_output, self):
    tanh = hlo.tanh(_mish_softplus(self))
    return grad_output * (tanh + self * hlo.sigmoid(self) * (1 - tanh * tanh))


@_rule("hardsigmoid_backward")
def hardsigmoid_backward(grad_output, self):
    inside = (self > -3) & (self < 3)
    return hlo.where(inside, grad_output / 6, 0)


@_rule("hardswish_backward")
def hardswish_backward(grad_output, self):
    middle = hlo.where(self < 3, grad_output * (self / 3 + 0.5), grad_output)
    return hlo.where(self <= -3, 0, middle)


def _log_sigmoid_meta(self) -> list:
    result = torch.empty_like(self, memory_format=torch.contiguous_format)
    return [result, result]


@op(
    "aten::log_sigmoid_forward",
    meta=_log_sigmoid_meta,
    **refusing("log_sigmoid", **FLOATS_ONLY),
)
def log_sigmoid_forward(self):
    x = self.to(torch.float32) if self.dtype.itemsize == 2 else self
    decay = hlo.exp(-hlo.abs(x))
    result = hlo.minimum(x, hlo.zeros_like(x)) - _log1p(decay)
    # The second result spares CPU kernels an exp in the backward pass.
    return result.to(self.dtype), decay.to(self.dtype)


@op("aten::log_sigmoid_backward", check=same_dtype("self", "grad_output", "buffer"))
def log_sigmoid_backward(grad_output, self, buffer):
    del buffer  # recomputed: it may be empty, and a fused exp is cheaper than reading it
    dtype = expected()[0].dtype
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    x, grad = self.to(wide), grad_output.to(wide)
    return (grad * hlo.sigmoid(-x)).to(dtype)


# ---- piecewise linear ----------------------------------------------------------------------

unary(
    "aten::relu",
    lambda x: hlo.maximum(x, hlo.zeros_like(x)),
    promote=None,
    **common.refusing("relu", complex=NotImplementedError, bool=RuntimeError),
)


@_rule("hardtanh", bounds={"min_val": "fits self", "max_val": "fits self"})
def hardtanh(self, min_val=-1, max_val=1):
    return hlo.where(self < min_val, min_val, hlo.where(self > max_val, max_val, self))


@_rule("hardtanh_backward")
def hardtanh_backward(grad_output, self, min_val, max_val):
    return hlo.where((self <= min_val) | (self >= max_val), 0, grad_output)


@_rule(
    "threshold",
    bounds={"value": "fits self"},
    **refusing("threshold", bool=NotImplementedError),
)
def threshold(self, threshold, value):
    return hlo.where(self <= threshold, value, self)


def _promoted(grad_output, self, threshold) -> list[torch.Tensor]:
    result = torch.ops.aten.threshold_backward(grad_output, self, threshold)
    return [result.to(common_dtype(grad_output, self))]


@_rule("threshold_backward", meta=_promoted, layout=("self", "grad_output"))
def threshold_backward(grad_output, self, threshold):
    return hlo.where(self <= threshold, 0, grad_output)


@_rule("leaky_relu")
@_rule("_prelu_kernel", check=same_dtype("self", "weight"), layout="meta")
def leaky_relu(self, negative_slope=0.01, weight=None):
    slope = negative_slope if weight is None else weight
    return hlo.where(self > 0, self, self * slope)


@_rule("leaky_relu_backward", layout=("self", "grad_output"))
def leaky_relu_backward(grad_output, self, negative_slope, self_is_result):
    del self_is_result  # the result has the sign of the operand
    return hlo.where(self > 0, grad_output, grad_output * negative_slope)


@_rule(
    "_prelu_kernel_backward",
    check=same_dtype("self", "weight", "grad_output"),
    layout="meta",
)
def _prelu_kernel_backward(grad_output, self, weight):
    positive = self > 0
    input_grad = hlo.where(positive, grad_output, weight * grad_output)
    return input_grad, hlo.where(positive, 0, self * grad_output)


@_rule("hardshrink")
def hardshrink(self, lambd=0.5):
    return hlo.where((self >= -lambd) & (self <= lambd), 0, self)


@_rule("softshrink")
def softshrink(self, lambd=0.5):
    # x * 0 rather than 0, so that NaN stays NaN.
    middle = hlo.where(self < -lambd, self + lambd, self * 0)
    return hlo.where(self > lambd, self - lambd, middle)


@_rule("hardshrink_backward", "softshrink_backward")
def hardshrink_backward(grad_out=None, self=None, lambd=0.5, grad_output=None):
    grad = grad_output if grad_out is None else grad_out
    return hlo.where((self >= -lambd) & (self <= lambd), 0, grad)


# ---- exponential ---------------------------------------------------------------------------


@_rule("elu")
def elu(self, alpha=1, scale=1, input_scale=1):
    negative = _expm1(self * input_scale) * (alpha * scale)
    return hlo.where(self < 0, negative, self * scale)


@_rule("elu_backward")
def elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    x, factor = self_or_result, alpha * scale
    slope = (x + factor) * input_scale
    if not is_result:
        slope = hlo.exp(x * input_scale) * (input_scale * factor)
    return hlo.where(x <= 0, grad_output * slope, grad_output * scale)


@_rule("celu")
def celu(self, alpha=1.0):
    return hlo.where(self < 0, _expm1(self / alpha) * alpha, self)


@_rule("softplus")
def softplus(self, beta=1, threshold=20):
    scaled = self * beta
    return hlo.where(scaled > threshold, self, _log1p(hlo.exp(scaled)) / beta)


@_rule("softplus_backward")
def softplus_backward(grad_output, self, beta, threshold):
    scaled = self * beta
    return hlo.where(scaled > threshold, grad_output, grad_output * hlo.sigmoid(scaled))


_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


@_rule("gelu", **common.refusing("gelu", complex=NotImplementedError, bool=NotImplementedError))
def gelu(self, approximate="none"):
    x = self
    if approximate == "tanh":
        return 0.5 * x * (1 + hlo.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))
    return common.gelu(x)


@_rule("gelu_backward")
def gelu_backward(grad_output, self, approximate="none"):
    x = self
    if approximate == "tanh":
        tanh = hlo.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))
        inner_slope = _GELU_SCALE * (1 + 3 * _GELU_CUBE * x * x)
        return grad_output * 0.5 * (1 + tanh + x * (1 - tanh * tanh) * inner_slope)
    density = hlo.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
    return grad_output * (0.5 * (1 + common.erf(x * math.sqrt(0.5))) + x * density)


# ---- gated linear unit ---------------------------------------------------------------------


def _halves(x: Value, dim: int) -> tuple[Value, Value]:
    size = x.shape[dim] // 2
    return hlo.slice_dim(x, dim, 0, size), hlo.slice_dim(x, dim, size, 2 * size)


def _glu_rule(name: str, like: str = "", check=None):
    """A rule over operands of two shapes: widens 16-bit floats, resolves ``dim``, rounds once.

    ``like`` names the argument that the result resembles, for want of a meta kernel.
    """
    options = {"meta": lambda **named: [torch.empty_like(named[like])]} if like else {}

    def decorate(body):
        def wrapped(*, dim=-1, **tensors):
            dtype = expected()[0].dtype
            wide = torch.float32 if dtype.itemsize == 2 else dtype
            tensors = {name: value.to(wide) for name, value in tensors.items()}
            rank = next(iter(tensors.values())).ndim
            return body(**tensors, dim=dim % rank).to(dtype)

        wrapped.__wrapped__ = body
        return op(f"aten::{name}", check=check, **options)(wrapped) and body

    return decorate


@_glu_rule("glu", **refusing("glu", **FLOATS_ONLY))
def glu(self, dim):
    value, gate = _halves(self, dim)
    return value * _sigmoid(gate)


@_glu_rule("glu_backward", check=same_dtype("self", "grad_output"))
def glu_backward(grad_output, self, dim):
    value, gate = _halves(self, dim)
    sigmoid = _sigmoid(gate)
    value_grad = grad_output * sigmoid
    return hlo.concatenate([value_grad, value_grad * (1 - sigmoid) * value], dim)


@_glu_rule("glu_jvp", like="glu")
def glu_jvp(glu, x, dx, dim):
    sigmoid = _sigmoid(_halves(x, dim)[1])
    value_tangent, gate_tangent = _halves(dx, dim)
    return value_tangent * sigmoid + glu * gate_tangent * (1 - sigmoid)


@_glu_rule("glu_backward_jvp", like="x")
def glu_backward_jvp(grad_x, grad_glu, x, dgrad_glu, dx, dim):
    del grad_x
    value, gate = _halves(x, dim)
    value_tangent, gate_tangent = _halves(dx, dim)
    sigmoid = _sigmoid(gate)
    slope = sigmoid * (1 - sigmoid)
    first = dgrad_glu * sigmoid + grad_glu * slope * gate_tangent
    curvature = value * (1 - 2 * sigmoid) * gate_tangent
    second = slope * (dgrad_glu * value + grad_glu * (value_tangent + curvature))
    return hlo.concatenate([first, second], dim)


# ---- randomized leaky relu -----------------------------------------------------------------


def _rrelu_meta(self, training=False, **_) -> list[torch.Tensor]:
    kept = torch.contiguous_format if training else torch.preserve_format
    return [torch.empty_like(self, memory_format=kept)]


@op("aten::rrelu_with_noise", random=True, writes=("noise",), meta=_rrelu_meta)
@op("aten::rrelu_with_noise_", random=True, writes=("self", "noise"))
@op("aten::rrelu_with_noise_functional", random=True)
def rrelu_with_noise(self, noise, lower=0.125, upper=1 / 3, training=False, *, rng):
    """(result, noise): in training every element gets its own slope, kept for the backward pass."""
    x = self.to(torch.float32) if self.dtype.itemsize == 2 else self
    if not training:
        slope = ((lower + upper) / 2 + hlo.constant(0.0, x.dtype)).to(x.dtype)
        return hlo.where(x > 0, x, x * slope).to(self.dtype), noise
    bits = hlo.rng_bits(rng, self.shape, torch.uint32)
    bits = hlo.binary("shift_right_logical", bits, hlo.full_like(bits, 8))
    uniform = bits.to(torch.int32).to(x.dtype) * 2.0**-24
    slope = (lower + (upper - lower) * uniform).to(x.dtype)
    slope = hlo.where(x > 0, 1, slope)
    return (x * slope).to(self.dtype), slope.to(noise.dtype)


def _rrelu_gradient(grad_output, self, noise, lower, upper, training, self_is_result) -> list:
    if training and upper - lower > 1e-6:
        return [grad_output * noise]
    slope = (lower + upper) / 2
    return [torch.ops.aten.leaky_relu_backward(grad_output, self, slope, self_is_result)]


@_rule("rrelu_with_noise_backward", meta=_rrelu_gradient)
def rrelu_with_noise_backward(grad_output, self, noise, lower, upper, training, self_is_result):
    del self_is_result
    if training:
        return grad_output * noise
    return hlo.where(self > 0, grad_output, grad_output * ((lower + upper) / 2))
