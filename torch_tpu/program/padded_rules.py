"""What operators do along dims whose sizes calls decide (see `padded.py`).

Most use their rule as it is, after masking what it would mix with the garbage beyond an extent.
Those that place elements by position are in `padded_places.py`. An operator that is in neither, and
not pointwise, is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import sympy
import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from .padded import Call, Dims, Extent, is_dynamic, resized

HANDLERS: dict[str, Callable[[Call], object]] = {}
"""Overload → function that emits it and returns its result, or the list of its results."""

_POINTWISE = frozenset(
    """aten::hardswish aten::mish_backward aten::hardsigmoid_backward aten::hardswish_backward
    aten::hardtanh_backward aten::_prelu_kernel aten::leaky_relu_backward aten::hardshrink_backward
    aten::softshrink_backward aten::elu_backward aten::softplus_backward aten::rsub.Tensor
    aten::floor_divide aten::floor_divide.Scalar aten::alias aten::detach aten::_to_copy
    aten::lift_fresh_copy aten::native_dropout aten::bernoulli aten::bernoulli.p aten::rand_like
    aten::randn_like aten::zeros_like aten::ones_like aten::empty_like aten::full_like
    aten::expand aten::fill.Scalar aten::fill.Tensor prims::convert_element_type""".split()
)
"""Elementwise operators that PyTorch does not tag so; `expand` is the broadcast alone."""


def lower(call: Call):
    """Emit one operator, or raise NotImplementedError naming it."""
    handler = HANDLERS.get(call.rule.name)
    if handler is not None:
        return handler(call)
    tags = call.node.target.tags
    if torch.Tag.pointwise in tags or call.rule.name in _POINTWISE:
        return _pointwise(call)
    if any(map(is_dynamic, [*call.results, *all_dims(call)])):
        raise call.refuse()
    return call.emit()  # numbers only


def handles(*names: str):
    def decorate(handler: Callable[[Call], object]):
        for name in names:
            HANDLERS[name if "::" in name else f"aten::{name}"] = handler
        return handler

    return decorate


def all_dims(call: Call) -> list[Dims]:
    return [call.dims_of(n) for n in call.node.all_input_nodes if call.is_tensor(n)]


def _pointwise(call: Call):
    for dims in all_dims(call):
        for result in call.results:
            pairs = zip(reversed(dims), reversed(result), strict=False)
            fits = len(dims) <= len(result) and all(d in (r, 1) for d, r in pairs)
            call.require(fits, f"of sizes {dims} for {result}")
    return call.emit(**_without_sizes(call))


def _without_sizes(call: Call) -> dict:
    """List arguments that name sizes; the expected result says the same."""
    names = ("size", "stride", "shape", "physical_layout")
    return {n: call.sizes.capacities(map(call.number, call.named[n]))
            for n in names if isinstance(call.named.get(n), (list, tuple))}  # fmt: skip


def axes_of(call: Call, name: str = "self", dim="dim") -> list[int]:
    """The non-negative dims that an argument names; all for none."""
    rank, given = len(call.dims(name)), call.named.get(dim)
    if given is None or given in ([], ()):
        return list(range(rank))
    return [axis_of(d, rank) for d in ([given] if isinstance(given, int) else given)]


def axis_of(dim: int, rank: int) -> int:
    return dim % max(rank, 1)


def _cut(call: Call, name: str, dims: Sequence[int]) -> bool:
    """Whether one of the dims is dynamic."""
    return any(not call.dims(name)[d].is_Integer for d in dims if d < len(call.dims(name)))


# ---- the rule as it is -------------------------------------------------------------------------


@handles("permute", "transpose.int", "t", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims")
@handles("tril", "triu", "full", "new_full", "zeros", "new_zeros", "ones", "new_ones")
@handles("empty.memory_format", "new_empty", "empty_strided", "new_empty_strided")
@handles("empty_permuted", "rand", "randn", "arange.start_step")
def _as_it_is(call: Call):
    if call.rule.name == "aten::arange.start_step":
        numbers = {n: call.named[n] for n in ("start", "step")}
        changes = {n: resolved(call, v) for n, v in numbers.items()}
        return call.emit(**changes, end=0)  # the expected result has the number of steps
    return call.emit(**_without_sizes(call))


def resolved(call: Call, value):
    return call.extent(value.expression) if isinstance(value, Extent) else value


@handles("view", "_unsafe_view", "reshape", "_reshape_alias")
def _view(call: Call):
    return call.layout.repack(call.named["self"], call.dims("self"), call.result)


@handles("sort", "sort.stable", "topk", "cummax", "cummin", "unbind.int", "stack")
def _row_by_row(call: Call):
    if call.rule.name == "aten::stack":
        call.require(all(d == all_dims(call)[0] for d in all_dims(call)))
    else:
        call.require(not _cut(call, "self", [axis_of(call.named["dim"], len(call.dims("self")))]))
    return call.emit()


@handles("avg_pool2d", "max_pool2d_with_indices", "_adaptive_avg_pool2d")
@handles("avg_pool2d_backward", "max_pool2d_with_indices_backward")
@handles("_adaptive_avg_pool2d_backward", "convolution", "convolution_backward")
def _images(call: Call):
    """Only the number of images is dynamic."""
    rank = max(map(len, call.results))
    names = [n for n in call.given if call.dims(n)]
    for dims in (*(call.dims(n) for n in names), *call.results):
        call.require(not is_dynamic(dims[1:] if len(dims) == rank else dims))
    if call.rule.name == "aten::convolution_backward":  # sums over images
        call.masked("grad_output", [0], 0)
        call.masked("input", [0], 0)
    call.require("weight" not in call.given or not is_dynamic(call.dims("weight")))
    return call.emit()


# ---- reductions ----------------------------------------------------------------------------------


def _reduction(fill: Callable[[torch.dtype], object], *names: str) -> None:
    def handler(call: Call):
        call.masked("self", axes_of(call), fill(call.named["self"].dtype))
        return call.emit()

    handles(*names)(handler)


_reduction(lambda dtype: 0, "sum", "sum.dim_IntList", "nansum", "cumsum", "count_nonzero")
_reduction(lambda dtype: 0, "count_nonzero.dim_IntList", "any", "any.dim", "any.dims")
_reduction(lambda dtype: 1, "prod", "prod.dim_int", "cumprod", "all", "all.dim", "all.dims")
_reduction(hlo.lowest, "amax", "max", "max.dim")
_reduction(hlo.highest, "amin", "min", "min.dim")
_reduction(hlo.lowest, "logsumexp", "_softmax", "_log_softmax")


@handles("_softmax_backward_data", "_log_softmax_backward_data")
def _softmax_gradient(call: Call):
    dims = axes_of(call, "grad_output")
    call.masked("grad_output", dims, 0)
    call.masked("output", dims, 0)
    return call.emit()


@handles("argmax", "argmin")
def _place_of_extreme(call: Call):
    dims = call.dims("self")
    if call.named.get("dim") is None and len(dims) > 1:
        # The place is counted in the tensor, not in the padded array.
        flat = (sympy.Mul(*dims),)
        x, dims = call.layout.repack(call.named["self"], dims, flat), flat
    else:
        x = call.named["self"]
    axes = [0] if len(dims) == 1 else axes_of(call)
    worst = hlo.lowest if call.rule.name == "aten::argmax" else hlo.highest
    return call.emit(self=call.mask(x, dims, axes, worst(x.dtype)))


@handles("linalg_vector_norm")
def _norm(call: Call):
    order = call.named["ord"]
    call.require(isinstance(order, (int, float)) and order >= 0)
    call.masked("self", axes_of(call), 0)
    return call.emit()


def _count(call: Call, dims: Sequence[int], dtype: torch.dtype) -> Value:
    """How many elements of ``self`` there are along some dims."""
    count = call.extent(sympy.Mul(*(call.dims("self")[d] for d in dims)))
    return hlo.convert(count, dtype)


def _mean_over(call: Call, x: Value, dims: Sequence[int], keepdim: bool) -> Value:
    total = hlo.reduce(call.mask(x, call.dims("self"), dims, 0), "add", dims, keepdim)
    return total / _count(call, dims, total.dtype)


@handles("mean", "mean.dim")
def _mean(call: Call):
    dims = axes_of(call)
    x = hlo.convert(call.named["self"], call.meta.dtype)
    x = hlo.convert(x, promote.compute_dtype(x.dtype))
    mean = _mean_over(call, x, dims, bool(call.named.get("keepdim")))
    return hlo.convert(mean, call.meta.dtype)


@handles("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def _variance(call: Call):
    x, dims = call.named["self"], axes_of(call)
    call.require(not x.is_complex)
    x = hlo.convert(x, promote.compute_dtype(x.dtype))
    mean = _mean_over(call, x, dims, True)
    off = call.mask(x - mean, call.dims("self"), dims, 0)
    correction = call.named.get("correction")
    free = _count(call, dims, x.dtype) - resolved(call, 1 if correction is None else correction)
    free = hlo.maximum(hlo.convert(free, x.dtype), hlo.constant(0, x.dtype))
    variance = hlo.reduce(off * off, "add", dims, True) / free
    pair = [hlo.sqrt(variance) if "std" in call.rule.name else variance, mean]
    if not call.named.get("keepdim"):
        pair = [hlo.squeeze(v, *dims) for v in pair]
    metas = call.meta if "mean" in call.rule.name else [call.meta]
    pair = [hlo.convert(v, m.dtype) for v, m in zip(pair, metas, strict=False)]
    return pair if len(pair) > 1 else pair[0]


# ---- contractions --------------------------------------------------------------------------------

# Overload → (first operand, its contracted dim, second operand, its contracted dim).
_CONTRACTIONS = {
    "mm": ("self", 1, "mat2", 0),
    "bmm": ("self", 2, "mat2", 1),
    "mv": ("self", 1, "vec", 0),
    "dot": ("self", 0, "tensor", 0),
    "vdot": ("self", 0, "other", 0),
    "addmm": ("mat1", 1, "mat2", 0),
    "baddbmm": ("batch1", 2, "batch2", 1),
    "addmv": ("mat", 1, "vec", 0),
}


@handles(*_CONTRACTIONS)
def _contraction(call: Call):
    a, i, b, j = _CONTRACTIONS[call.rule.name.removeprefix("aten::")]
    left, right = call.dims(a), call.dims(b)
    call.require(left[i] == right[j], f"of sizes {left} and {right}")
    batches = left[: max(len(left) - 2, 0)]
    call.require(batches == right[: len(batches)], f"of sizes {left} and {right}")
    call.masked(a, [i], 0)
    call.masked(b, [j], 0)
    return call.emit()


_FUSED = "_scaled_dot_product_fused_attention_overrideable"


def _mask_keys(call: Call) -> None:
    """Keys beyond the extent get -inf, through the bias; queries and keys are four-dim."""
    call.require(all(len(call.dims(n)) == 4 for n in ("query", "key", "value")))
    call.require(not any(_cut(call, n, [1, 3]) for n in ("query", "key", "value")))
    call.require(call.named["dropout_p"] == 0, "with dropout and sizes that calls decide")
    call.masked("query", [2], 0)
    keys = call.dims("key")[2]
    if keys.is_Integer:
        return
    for name in ("key", "value"):
        call.masked(name, [2], 0)
    # PyTorch does not note that there are as many values as keys, but the operator says so.
    call.lowering.equal.append((keys, call.dims("value")[2]))
    call.named["value"] = resized(call.named["value"], 2, call.named["key"].shape[2])
    query, bias = call.named["query"], call.named["attn_bias"]
    sizes = call.dims("attn_bias") or (sympy.Integer(1),)
    call.require(sizes[-1] in (keys, 1))
    if bias is None:
        bias = hlo.constant(0, query.dtype, (1,))
    sizes = (*sizes[:-1], keys)
    bias = hlo.expand(bias, (*bias.shape[:-1], call.sizes.capacity(keys)))
    call.named["attn_bias"] = call.mask(bias, sizes, [len(sizes) - 1], -math.inf)


@handles(_FUSED)
def _attention(call: Call):
    _mask_keys(call)
    return call.emit()


@handles(_FUSED + "_backward")
def _attention_gradient(call: Call):
    wanted = call.named["grad_input_mask"][3] and call.given["attn_bias"] is not None
    call.require(not wanted, "with a gradient of the mask and sizes that calls decide")
    call.masked("grad_out", [2], 0)
    had_bias = call.named["attn_bias"] is not None
    call.require(call.dims("value")[2] == call.dims("key")[2])
    _mask_keys(call)
    d_query, d_key, d_value, d_bias = call.emit(grad_input_mask=[*call.named["grad_input_mask"][:3],
                                                                 False])  # fmt: skip
    return d_query, d_key, d_value, d_bias if had_bias else None


# ---- normalisation, losses -----------------------------------------------------------------------


def _inner_is_static(call: Call) -> int:
    """The number of outer dims of a layer norm whose inner dims are static."""
    dims = call.dims("input")
    outer = len(dims) - len(call.named["normalized_shape"])
    call.require(not is_dynamic(dims[outer:]))
    return outer


@handles("native_layer_norm")
def _layer_norm(call: Call):
    _inner_is_static(call)
    return call.emit()


@handles("native_layer_norm_backward")
def _layer_norm_gradient(call: Call):
    outer = range(_inner_is_static(call))
    for name in ("grad_out", "input", "mean", "rstd"):
        call.masked(name, outer, 0)
    return call.emit()


@handles("nll_loss_forward", "nll_loss_backward")
def _likelihood(call: Call):
    call.require(not is_dynamic(call.dims("self")[-1:]))
    call.masked("self", [0], 0)
    call.masked("target", [0], call.named["ignore_index"])
    return call.emit()


_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")
_MEAN, _SUM = 1, 2


@handles(*_LOSSES, *(f"{name}_backward" for name in _LOSSES))
def _loss(call: Call):
    """A sum over masked elements; the mean divides by the number of elements in the call."""
    dims = call.dims("self")
    call.require(call.dims("target") == dims)
    backward = call.rule.name.endswith("_backward")
    grad = call.dims("grad_output") if backward else ()
    call.require(grad in ((), dims))
    call.require(call.rule.name != "aten::soft_margin_loss" or call.named["reduction"] == 0)
    for name in ("self", "target"):
        call.masked(name, range(len(dims)), 0)
    if call.named["reduction"] != _MEAN:
        return call.emit()
    # A sum of 16-bit floats may overflow where their mean does not.
    meta = dataclasses.replace(call.meta, dtype=promote.compute_dtype(call.meta.dtype))
    total = call.emit(meta, reduction=_SUM)
    count = hlo.convert(call.extent(sympy.Mul(*dims)), total.dtype)
    return hlo.convert(total / count, call.meta.dtype)
