"""Softmax, log-softmax and their backward.

The safe and masked kinds are with the attention that uses them (`attention.py`, `transformer.py`).
16-bit floats compute in float32 and round once, whatever dtype the result has (`half_to_float`).
"""

from __future__ import annotations

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import same_dtype
from .reduce import axes, widen


def _rounded(x: Value) -> Value:
    return hlo.convert(x, expected()[0].dtype)


def _total(x: Value, dims) -> Value:
    return hlo.reduce(x, "add", dims, keepdim=True)


def _shifted(x: Value, dims) -> Value:
    """``x`` less its maximum, so that its exponential cannot overflow."""
    return x - hlo.reduce(x, "maximum", dims, keepdim=True)


def _softmax_of(x: Value, dims) -> Value:
    weight = hlo.exp(_shifted(x, dims))
    return weight / _total(weight, dims)


def _check_floating(self) -> None:
    if not (self.is_floating_point() or self.is_complex()):
        raise NotImplementedError(f'"softmax_lastdim_kernel_impl" not implemented for {self.dtype}')


@op("aten::_softmax", check=_check_floating)
def _softmax(self, dim, half_to_float):
    return _rounded(_softmax_of(widen(self), axes(self, dim)))


@op("aten::_log_softmax", check=_check_floating)
def _log_softmax(self, dim, half_to_float):
    dims = axes(self, dim)
    x = _shifted(widen(self), dims)
    return _rounded(x - hlo.log(_total(hlo.exp(x), dims)))


def _check_gradient(grad_output, output) -> None:
    if grad_output.shape != output.shape:
        raise RuntimeError(
            "Expected tensor for argument 'grad_output' to have same size as tensor for argument "
            f"'output'; but {list(grad_output.shape)} does not equal {list(output.shape)}"
        )
    same_dtype("grad_output", "output")(grad_output=grad_output, output=output)


def _gradient(grad_output, output, dim, input_dtype) -> list[torch.Tensor]:
    # PyTorch's meta kernel says `input_dtype`; its kernels look at that for halves only.
    half = input_dtype is torch.float16 and grad_output.dtype is torch.float32
    result = torch.ops.aten._softmax_backward_data(grad_output, output, dim, input_dtype)
    return [result.to(input_dtype if half else grad_output.dtype)]


@op("aten::_softmax_backward_data", check=_check_gradient, meta=_gradient)
def _softmax_backward_data(grad_output, output, dim, input_dtype):
    grad, output = widen(grad_output), widen(output)
    flow = grad * output
    return _rounded(flow - output * _total(flow, axes(output, dim)))


@op("aten::_log_softmax_backward_data", check=_check_gradient, meta=_gradient)
def _log_softmax_backward_data(grad_output, output, dim, input_dtype):
    grad, output = widen(grad_output), widen(output)
    return _rounded(grad - hlo.exp(output) * _total(grad, axes(output, dim)))
