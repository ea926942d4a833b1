"""The inference fast paths of `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`.

In eval mode and without gradients these modules call one operator (the device check in
`torch/nn/modules` lets PrivateUse1 through), here one program each. Also the masked softmax and
the qkv split they are made of. There is no autograd formula for the fast paths; attention with
gradients is in `attention.py`. Nested tensors never come here: they have a dispatch key of their
own.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import op, procedure
from .common import FLOATS_ONLY, gelu, refuse, same_dtype


def _linear(x: Value, weight: Value, bias: Value) -> Value:
    """``x @ weight.T + bias`` over the last dim, in the compute dtype of ``weight``."""
    dtype = promote.compute_dtype(weight.dtype)
    product = hlo.dot_general(x.to(weight.dtype), weight, ([x.ndim - 1], [1]), dtype=dtype)
    return hlo.binary("add", product, hlo.expand(bias.to(dtype), product.shape))


def _softmax(x: Value, dim: int, masked: Value | None = None) -> Value:
    """Softmax over ``dim``; masked entries are left out, a row of them is NaN as on CPU."""
    if masked is not None:
        x = hlo.select(masked, hlo.full_like(x, -math.inf), x)
    top = hlo.reduce(x, "maximum", [dim], keepdim=True)
    weights = hlo.exp(hlo.binary("subtract", x, hlo.expand(top, x.shape)))
    total = hlo.reduce(weights, "add", [dim], keepdim=True)
    return hlo.binary("divide", weights, hlo.expand(total, x.shape))


def _mask_for(mask: Value, shape, mask_type: int | None) -> Value:
    """True where masked out, expanded to the scores [B, H, L, S].

    ``mask_type`` 0 is [L, S], 1 is [B, S] (key padding), otherwise it has the shape of the scores.
    A float mask counts as bool, as the CPU kernel has it: -inf is true, 0 is false.
    """
    mask = mask.to(torch.bool)
    if mask_type == 1 and mask.ndim == 2:
        return hlo.broadcast_in_dim(mask, shape, [0, 3])
    return hlo.expand(mask, shape)


# These have no meta kernel in PyTorch; the results are made like their inputs.
def _check_mask(mask, self=None, grad_output=None, output=None) -> None:
    if self is not None:
        refuse("_masked_softmax", self, **FLOATS_ONLY)
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"_masked_softmax: Mask should be a boolean tensor, not {mask.dtype}")
    same_dtype("grad_output", "output")(grad_output=grad_output, output=output)


@op(
    "aten::_masked_softmax",
    meta=lambda self, **_: [torch.empty_like(self)],
    check=_check_mask,
)
def _masked_softmax(self, mask, dim=None, mask_type=None):
    x = self.to(promote.compute_dtype(self.dtype))
    x = hlo.reshape(x, self.shape or (1,))
    dim = x.ndim - 1 if dim is None else dim % x.ndim
    mask = _mask_for(mask, x.shape, mask_type) if mask.ndim else hlo.expand(mask, x.shape)
    return hlo.reshape(_softmax(x, dim, mask), self.shape).to(self.dtype)


@op(
    "aten::_masked_softmax_backward",
    meta=lambda grad_output, **_: [torch.empty_like(grad_output)],
    check=_check_mask,
)
def _masked_softmax_backward(grad_output, output, mask, dim=None):
    dtype = promote.compute_dtype(grad_output.dtype)
    shape = output.shape or (1,)
    grad, out = (hlo.reshape(x.to(dtype), shape) for x in (grad_output, output))
    dim = len(shape) - 1 if dim is None else dim % len(shape)
    mask = hlo.reshape(mask.to(torch.bool), shape)
    weighted = hlo.select(mask, hlo.zeros_like(out), hlo.binary("multiply", grad, out))
    inner = hlo.expand(hlo.reduce(weighted, "add", [dim], keepdim=True), shape)
    result = hlo.binary("multiply", out, hlo.binary("subtract", grad, inner))
    result = hlo.select(mask, hlo.zeros_like(result), result)
    return hlo.reshape(result, output.shape).to(grad_output.dtype)


def _heads(qkv: Value, num_heads: int) -> list[Value]:
    """[B, T, 3 * D] as three [B, H, T, D / H], the first scaled by ``1 / sqrt(D / H)``."""
    batch, length, width = qkv.shape
    per_head = width // 3 // num_heads
    parts = []
    for i in range(3):
        part = hlo.slice_dim(qkv, 2, i * width // 3, (i + 1) * width // 3)
        part = hlo.reshape(part, (batch, length, num_heads, per_head))
        parts.append(hlo.transpose(part, [0, 2, 1, 3]))
    parts[0] = parts[0] * (1 / math.sqrt(per_head))
    return parts


def _split_meta(qkv, qkv_bias, num_heads):
    batch, length, width = qkv.shape
    shape = (batch, num_heads, length, width // 3 // num_heads)
    return [qkv.new_empty(shape) for _ in range(3)]


@op("aten::_transform_bias_rescale_qkv", meta=_split_meta)
def _transform_bias_rescale_qkv(qkv, qkv_bias, num_heads):
    dtype = promote.compute_dtype(qkv.dtype)
    total = hlo.binary("add", qkv.to(dtype), hlo.expand(qkv_bias.to(dtype), qkv.shape))
    return [part.to(qkv.dtype) for part in _heads(total, num_heads)]


def _projected_heads(inputs, num_heads: int, weight: Value, bias: Value) -> list[Value]:
    """Query, key and value heads; one product if all three are the same tensor."""
    query, key, value = inputs
    if query is key and key is value:
        return _heads(_linear(query, weight, bias), num_heads)
    width = query.shape[-1]
    parts = []
    for i, x in enumerate(inputs):
        rows = hlo.slice_dim(weight, 0, i * width, (i + 1) * width)
        part = hlo.slice_dim(bias, 0, i * width, (i + 1) * width)
        parts.append(_linear(x, rows, part))
    return _heads(hlo.concatenate(parts, 2), num_heads)


def _attention(
    inputs, num_heads: int, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type
) -> tuple[Value, Value]:
    """Multi-head attention of [B, T, D] tensors: the projected result and the probabilities."""
    small = qkv_weight.dtype
    dtype = promote.compute_dtype(small)
    q, k, v = (x.to(small) for x in _projected_heads(inputs, num_heads, qkv_weight, qkv_bias))
    batch = ([0, 1], [0, 1])
    scores = hlo.dot_general(q, k, ([3], [3]), batch, dtype)
    masked = None if mask is None else _mask_for(mask, scores.shape, mask_type)
    weights = _softmax(scores, 3, masked)
    context = hlo.dot_general(weights.to(small), v, ([3], [2]), batch, dtype)
    context = hlo.reshape(hlo.transpose(context, [0, 2, 1, 3]), inputs[0].shape)
    return _linear(context, proj_weight, proj_bias), weights


def _reported(weights: Value, need: bool, average: bool, dtype: torch.dtype) -> Value | None:
    if not need:
        return None
    if average:
        weights = hlo.reduce(weights, "add", [1]) * (1 / weights.shape[1])
    return weights.to(dtype)


@op("aten::_native_multi_head_attention")
def _native_multi_head_attention(
    query,
    key,
    value,
    embed_dim,
    num_head,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    mask=None,
    need_weights=True,
    average_attn_weights=True,
    mask_type=None,
):
    out, weights = _attention(
        (query, key, value), num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type
    )
    return out.to(query.dtype), _reported(weights, need_weights, average_attn_weights, query.dtype)


def _layer_norm(x: Value, weight: Value, bias: Value, eps: float) -> Value:
    """Over the last dim, in the dtype of ``x``."""
    count = 1 / x.shape[-1]

    def mean(y: Value) -> Value:
        return hlo.expand(hlo.reduce(y, "add", [y.ndim - 1], keepdim=True) * count, y.shape)

    centred = x - mean(x)
    return centred * hlo.rsqrt(mean(centred * centred) + eps) * weight.to(x.dtype) + bias.to(
        x.dtype
    )


def _activation(x: Value, use_gelu: bool) -> Value:
    if use_gelu:
        return gelu(x)
    return hlo.maximum(x, hlo.zeros_like(x))


@op("aten::_transformer_encoder_layer_fwd")
def _transformer_encoder_layer_fwd(
    src,
    embed_dim,
    num_heads,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    use_gelu,
    norm_first,
    eps,
    norm_weight_1,
    norm_bias_1,
    norm_weight_2,
    norm_bias_2,
    ffn_weight_1,
    ffn_bias_1,
    ffn_weight_2,
    ffn_bias_2,
    mask=None,
    mask_type=None,
):
    x = residual = src.to(promote.compute_dtype(src.dtype))
    if norm_first:
        x = _layer_norm(x, norm_weight_1, norm_bias_1, eps)
    x, _ = _attention(
        (x, x, x), num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type
    )
    x = x + residual
    if not norm_first:
        x = _layer_norm(x, norm_weight_1, norm_bias_1, eps)
    residual = x
    if norm_first:
        x = _layer_norm(x, norm_weight_2, norm_bias_2, eps)
    x = _activation(_linear(x, ffn_weight_1, ffn_bias_1), use_gelu)
    x = _linear(x, ffn_weight_2, ffn_bias_2) + residual
    if not norm_first:
        x = _layer_norm(x, norm_weight_2, norm_bias_2, eps)
    return x.to(src.dtype)


@procedure("aten::_nested_tensor_from_mask_left_aligned")
def _nested_tensor_from_mask_left_aligned(t, mask):
    """Whether a padded batch may become a nested tensor: never, XLA has no ragged arrays.

    `nn.TransformerEncoder` asks this in eval mode and takes its dense path when told no.
    """
    return False
