"""Normalization layers: batch, layer, group and weight norm with their backward, and renorm.

Statistics are the two-pass moments of `reduce.py`, in float32 for 16-bit inputs; they are returned
in the dtype in which CPU PyTorch does. Batch norm in training mutates its running statistics, which
the rules return after the results (`writes`); `momentum` is a run-time number because
``momentum=None`` makes it change at every step. `_fused_rms_norm` is composite in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.registry import expected, op, procedure
from .common import laid_out_as, same_dtype
from .reduce import count_over, moments, vector_norm, widen

# ---- shared helpers ------------------------------------------------------------------------


def _finish(values: Sequence[Value | None]) -> list[Value | None]:
    """Cast and shape values as the results are; results PyTorch does not want become None."""
    return [
        None if wanted is None else hlo.reshape(hlo.convert(value, wanted.dtype), wanted.shape)
        for value, wanted in zip(values, expected(), strict=True)
    ]


def _along(x: Value | None, like: Value, dims: Sequence[int]) -> Value | None:
    """``x``, whose elements run over ``dims`` of ``like``, widened and broadcast to ``like``."""
    if x is None:
        return None
    x = hlo.reshape(widen(x), [like.shape[d] for d in dims])
    return hlo.broadcast_in_dim(x, like.shape, dims)


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _normalized(x: Value, dims: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """(x normalized over ``dims``, mean, reciprocal standard deviation); the latter keep dims."""
    variance, mean = moments(x, dims, correction=0)
    rstd = hlo.rsqrt(variance + eps)
    return (x - mean) * rstd, mean, rstd


def _input_gradient(flow: Value, xhat: Value, rstd: Value, dims: Sequence[int]) -> Value:
    """Gradient through normalization over ``dims``, for the gradient ``flow`` of ``xhat``."""
    count = count_over(flow, dims)
    mean_flow = hlo.reduce(flow, "add", dims, keepdim=True) / count
    mean_dot = hlo.reduce(flow * xhat, "add", dims, keepdim=True) / count
    return (flow - mean_flow - xhat * mean_dot) * rstd


def _statistics_dtype(input, *parameters) -> torch.dtype:
    """Dtype of the statistics that CPU PyTorch returns, which PyTorch's meta kernels do not know:
    16-bit inputs may have float32 parameters, and then statistics."""
    dtypes = {p.dtype for p in parameters if p is not None}
    if dtypes <= {input.dtype}:
        return input.dtype
    if input.dtype not in (torch.float16, torch.bfloat16) or dtypes != {torch.float32}:
        raise RuntimeError(
            f"mixed dtypes: parameters of {sorted(map(str, dtypes))} for an input of "
            f"{input.dtype}; only 16-bit inputs may have others, of float32"
        )
    return torch.float32


def _saved(mean: Value, rstd: Value, x: Value, dims: Sequence[int], along: Sequence[int]):
    """(mean, rstd) over ``dims`` as the forward pass saved them, along the dims ``along`` of ``x``.

    Rounded to 16 bits they would cost gradients their accuracy: there the mean is computed again,
    and so is rstd where its ``eps``, which is not known here, did not matter.
    """
    dtype, mean, rstd = mean.dtype, _along(mean, x, along), _along(rstd, x, along)
    if dtype.itemsize > 2:
        return mean, rstd
    variance, mean = moments(x, dims, correction=0)
    exact = hlo.expand(hlo.rsqrt(variance), x.shape)
    agrees = hlo.abs(exact - rstd) <= rstd * torch.finfo(dtype).eps
    return mean, hlo.where(agrees, exact, rstd)


# ---- batch norm ----------------------------------------------------------------------------


def _blend(running: Value | None, fresh: Value, momentum) -> Value | None:
    if running is None:
        return None
    old, fresh = widen(running), hlo.reshape(fresh, running.shape)
    return hlo.convert(old + (fresh - old) * momentum, running.dtype)


def _batch_norm_train(x, weight, bias, running_mean, running_var, momentum, eps):
    """([output, mean, rstd], new running mean, new running variance)."""
    wide = widen(x)
    dims = [d for d in range(x.ndim) if d != 1]
    variance, mean = moments(wide, dims, correction=0)
    rstd = hlo.rsqrt(variance + eps)
    weight, bias = _along(weight, x, [1]), _along(bias, x, [1])
    output = _affine((wide - mean) * rstd, weight, bias)
    count = count_over(x, dims)
    unbiased = variance * (count / (count - 1) if count > 1 else float("nan"))
    return (
        [output, mean, rstd],
        _blend(running_mean, mean, momentum),
        _blend(running_var, unbiased, momentum),
    )


def _batch_norm_eval(x, weight, bias, running_mean, running_var, eps):
    mean = _along(running_mean, x, [1])
    rstd = hlo.rsqrt(widen(running_var) + eps)
    output = (widen(x) - mean) * _along(rstd, x, [1])
    output = _affine(output, _along(weight, x, [1]), _along(bias, x, [1]))
    return [output, *(hlo.constant(0, r.dtype, r.shape) for r in expected()[1:3])]


def _check_statistics(input, training=True, running_mean=None, running_var=None, **_) -> None:
    for name, x in (("running_mean", running_mean), ("running_var", running_var)):
        if x is not None and x.ndim != 1:
            raise RuntimeError(f"{name} must have one dimension, got shape {list(x.shape)}")
    if training and input.numel() == 0:
        shape = list(input.shape)
        raise RuntimeError(f"input tensor must have at least one element, but got {shape}")


def _check_gradient(grad_out, input, reserve=None, **named) -> None:
    """Parameters and statistics have the dtype of the input, or float32 beside 16-bit floats."""
    del reserve  # opaque bytes of cuDNN
    same_dtype("input", "grad_out")(input=input, grad_out=grad_out)
    allowed = {input.dtype} | ({torch.float32} if input.dtype.itemsize == 2 else set())
    for name, x in named.items():
        if isinstance(x, torch.Tensor) and x.dtype not in allowed:
            raise RuntimeError(
                f"mixed dtypes: {name} is {x.dtype}, it must have the dtype of the input, "
                f"{input.dtype} (or be float32 beside 16-bit floats)"
            )


def _batch_norm_meta(
    input, weight, bias, running_mean=None, running_var=None, training=True, **_
) -> list:
    # PyTorch's meta kernels answer for CUDA: statistics in evaluation too, and always in float32.
    # They are asked for what they check.
    output = torch.ops.aten.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, 0.0, 0.0
    )[0]
    dtype = _statistics_dtype(input, weight, bias, running_mean, running_var)
    saved = input.new_empty((input.shape[1] if training else 0,), dtype=dtype)
    return [laid_out_as(output, input), saved, saved]


@op(
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    writes=("running_mean", "running_var"),
    runtime=("momentum",),
    meta=_batch_norm_meta,
    check=_check_statistics,
)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        results = _batch_norm_eval(input, weight, bias, running_mean, running_var, eps)
        return [*_finish(results), running_mean, running_var]
    results, *running = _batch_norm_train(
        input, weight, bias, running_mean, running_var, momentum, eps
    )
    return [*_finish(results), *running]


def _no_stats_meta(input, weight, bias, **_) -> list:
    return _batch_norm_meta(input, weight, bias)


@op(
    "aten::_native_batch_norm_legit.no_stats",
    runtime=("momentum",),
    meta=_no_stats_meta,
    check=_check_statistics,
)
def _native_batch_norm_legit_no_stats(input, weight, bias, training, momentum, eps):
    # Without running statistics there is nothing else to normalize by, training or not.
    results, *_ = _batch_norm_train(input, weight, bias, None, None, momentum, eps)
    return _finish(results)


def _with_update_meta(input, **named) -> list:
    return [*_batch_norm_meta(input, **named), input.new_empty((0,), dtype=torch.uint8)]


@op(
    "aten::_batch_norm_with_update",
    writes=("running_mean", "running_var"),
    runtime=("momentum",),
    meta=_with_update_meta,
    check=_check_statistics,
)
def _batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps):
    results, *running = _batch_norm_train(
        input, weight, bias, running_mean, running_var, momentum, eps
    )
    reserve = expected()[3]
    results.append(hlo.constant(0, reserve.dtype, reserve.shape))
    return [*_finish(results), *running]


# The out= forms of operators that write arguments are no one's variants to the core. That of
# native_batch_norm does the same, and its schema does not say that it writes.


@procedure("aten::_native_batch_norm_legit.out", check=_check_statistics)
def _native_batch_norm_legit_out(out, save_mean, save_invstd, **inputs):
    targets = {"out": out, "save_mean": save_mean, "save_invstd": save_invstd}
    torch.ops.aten.native_batch_norm.out(**inputs, **targets)


@procedure("aten::_batch_norm_with_update.out", check=_check_statistics)
def _batch_norm_with_update_out(out, save_mean, save_invstd, reserve, **inputs):
    targets = {"out": out, "save_mean": save_mean, "save_invstd": save_invstd}
    torch.ops.aten.native_batch_norm.out(**inputs, training=True, **targets)
    reserve.resize_(0)


@op("aten::native_batch_norm_backward", check=_check_gradient)
def native_batch_norm_backward(
    grad_out,
    input,
    weight,
    running_mean,
    running_var,
    save_mean,
    save_invstd,
    train,
    eps,
    output_mask,
):
    grad, x = widen(grad_out), widen(input)
    dims = [d for d in range(x.ndim) if d != 1]
    if train:
        mean, rstd = _saved(save_mean, save_invstd, x, dims, [1])
    else:
        mean, rstd = _along(running_mean, x, [1]), hlo.rsqrt(widen(running_var) + eps)
        rstd = _along(rstd, x, [1])
    xhat = (x - mean) * rstd
    flow = _affine(grad, _along(weight, x, [1]), None)
    grad_input = _input_gradient(flow, xhat, rstd, dims) if train else flow * rstd
    grad_weight, grad_bias = hlo.reduce(grad * xhat, "add", dims), hlo.reduce(grad, "add", dims)
    return _finish([grad_input, grad_weight, grad_bias])


@op("aten::batch_norm_backward", check=_check_gradient)
def batch_norm_backward(
    grad_out,
    input,
    weight,
    running_mean,
    running_var,
    save_mean,
    save_var,
    update,
    eps,
    output_mask,
    reserve,
):
    return native_batch_norm_backward(
        grad_out,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        update,
        eps,
        output_mask,
    )


# ---- layer norm ----------------------------------------------------------------------------


def _layer_norm_meta(input, normalized_shape, weight, bias, eps) -> list:
    results = torch.ops.aten.native_layer_norm(input, normalized_shape, weight, bias, eps)
    dtype = _statistics_dtype(input, weight, bias)
    return [results[0], *(r.to(dtype) for r in results[1:])]


@op("aten::native_layer_norm", meta=_layer_norm_meta)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    x = widen(input)
    inner = list(range(x.ndim - len(normalized_shape), x.ndim))
    xhat, mean, rstd = _normalized(x, inner, eps)
    output = _affine(xhat, _along(weight, x, inner), _along(bias, x, inner))
    return _finish([output, mean, rstd])


@op("aten::native_layer_norm_backward", check=_check_gradient)
def native_layer_norm_backward(
    grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
):
    grad, x = widen(grad_out), widen(input)
    split = x.ndim - len(normalized_shape)
    inner, outer = list(range(split, x.ndim)), list(range(split))
    mean, rstd = _saved(mean, rstd, x, inner, outer)
    xhat = (x - mean) * rstd
    flow = _affine(grad, _along(weight, x, inner), None)
    grad_input = _input_gradient(flow, xhat, rstd, inner)
    grad_weight, grad_bias = hlo.reduce(grad * xhat, "add", outer), hlo.reduce(grad, "add", outer)
    return _finish([grad_input, grad_weight, grad_bias])


# ---- group norm ----------------------------------------------------------------------------


def _group_norm_meta(input, weight, bias, **named) -> list:
    # The rule would serve any layout; CPU PyTorch takes those its group_norm passes on.
    if not input.is_contiguous() and input.stride() != laid_out_as(input, input).stride():
        raise RuntimeError(
            f"native_group_norm: an input of shape {list(input.shape)} and strides "
            f"{list(input.stride())} is neither contiguous nor has it channels last"
        )
    for name, x in (("weight", weight), ("bias", bias)):
        if x is not None and (x.ndim != 1 or x.numel() != input.shape[1]):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in "
                f"input, but got {name} of shape {list(x.shape)} and input of shape "
                f"{list(input.shape)}"
            )
    results = torch.ops.aten.native_group_norm(input, weight, bias, **named)
    dtype = _statistics_dtype(input, weight, bias)
    return [results[0], *(r.to(dtype) for r in results[1:])]


@op("aten::native_group_norm", meta=_group_norm_meta)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    x = hlo.reshape(widen(input), (N, group, C // group, HxW))
    xhat, mean, rstd = _normalized(x, [2, 3], eps)
    output = _affine(xhat, _along(weight, x, [1, 2]), _along(bias, x, [1, 2]))
    return _finish([output, mean, rstd])


@op("aten::native_group_norm_backward", check=_check_gradient)
def native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    shape = (N, group, C // group, HxW)
    grad, x = hlo.reshape(widen(grad_out), shape), hlo.reshape(widen(input), shape)
    mean, rstd = _saved(mean, rstd, x, [2, 3], [0, 1])
    xhat = (x - mean) * rstd
    flow = _affine(grad, _along(weight, x, [1, 2]), None)
    grad_input = _input_gradient(flow, xhat, rstd, [2, 3])
    grad_weight = hlo.reduce(grad * xhat, "add", [0, 3])
    return _finish([grad_input, grad_weight, hlo.reduce(grad, "add", [0, 3])])


# ---- weight norm and renorm ----------------------------------------------------------------


def _other_dims(x: Value, dim: int) -> list[int]:
    return [d for d in range(x.ndim) if d != dim % x.ndim]


@op("aten::_weight_norm_interface")
def _weight_norm_interface(v, g, dim=0):
    wide = widen(v)
    norm = vector_norm(wide, 2, _other_dims(v, dim))
    return _finish([wide * (widen(g) / norm), norm])


@op("aten::_weight_norm_interface_backward")
def _weight_norm_interface_backward(grad_w, saved_v, saved_g, saved_norms, dim):
    grad, v, g, norm = map(widen, (grad_w, saved_v, saved_g, saved_norms))
    along = hlo.reduce(grad * v, "add", _other_dims(v, dim), keepdim=True) / norm
    grad_v = (grad - v * (along / norm)) * (g / norm)
    return _finish([grad_v, along])


@op("aten::renorm", static=("p",))
def renorm(self, p, dim, maxnorm):
    x = widen(self)
    norm = vector_norm(x, p, _other_dims(x, dim))
    limit = hlo.convert(maxnorm, norm.dtype) if isinstance(maxnorm, Value) else maxnorm
    factor = hlo.where(norm > limit, limit / (norm + 1e-7), hlo.full_like(norm, 1))
    return hlo.convert(x * factor, self.dtype)
