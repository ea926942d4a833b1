"""Scaled dot product attention, forward and backward, and the softmax that allows empty rows.

`scaled_dot_product_attention` reaches the two *overrideable* slots when `_fused_sdp_choice` says
so; PyTorch has then turned a bool mask into 0/-inf but has not expanded it, and has not repeated
grouped key/value heads. Scores are [B, Hkv, G, L, S], with the G query heads of a key head beside
its L queries, so grouped heads cost no copy. Scores and softmax are float32 for 16-bit inputs, the
two products take 16-bit operands and accumulate in float32, as fused attention does elsewhere.
A row without an unmasked key gives zeros, and zero gradients.

The inference fast path of `nn.MultiheadAttention` is in `transformer.py`, plain softmax is with
the reductions.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op

_NAME = "aten::_scaled_dot_product_fused_attention_overrideable"
_HEADS = ([0, 1], [0, 1])  # the batch dims of every product here


def _four(x: Value | None) -> Value | None:
    """[H, L, E] inputs, and masks of any rank, with leading ones up to four dims."""
    return x if x is None else hlo.reshape(x, (1,) * (4 - x.ndim) + x.shape)


def _split_heads(x: Value, heads: int) -> Value:
    """[B, H, L, E] as [B, heads, H / heads, L, E]."""
    b, h, *rest = x.shape
    if h % heads:
        raise NotImplementedError(f"{_NAME}: {h} query heads do not divide over {heads} key heads")
    return hlo.reshape(x, (b, heads, h // heads, *rest))


def _scale(q: Value, scale: float | None) -> float:
    if scale is not None:
        return scale
    return 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0


def _masked_scores(q: Value, k: Value, bias: Value | None, is_causal: bool, scale) -> Value:
    """``q @ k.T * scale + bias`` as [B, Hkv, G, L, S] in the compute dtype."""
    dtype = promote.compute_dtype(q.dtype)
    scores = hlo.dot_general(q, k, ([4], [3]), _HEADS, dtype) * _scale(q, scale)
    if bias is not None:
        heads = k.shape[1] if bias.shape[1] > 1 else 1
        bias = _split_heads(bias.to(dtype), heads)
        scores = hlo.binary("add", scores, hlo.expand(bias, scores.shape))
    if is_causal:  # aligned at the top left: query i sees keys 0..i
        shape = scores.shape[-2:]
        seen = hlo.iota(shape, 0, torch.int32) >= hlo.iota(shape, 1, torch.int32)
        scores = hlo.select(
            hlo.expand(seen, scores.shape), scores, hlo.full_like(scores, -math.inf)
        )
    return scores


def _per_row(row: Value, shape) -> Value:
    """[B, Hkv, G, L] spread over a last dim."""
    return hlo.broadcast_in_dim(row, shape, [0, 1, 2, 3])


def _exponentials(scores: Value) -> tuple[Value, Value, Value]:
    """``exp(scores - top)``, its row sums and ``top``; ``top`` is 0 where every key is masked."""
    top = hlo.reduce(scores, "maximum", [4])
    top = hlo.where(top == -math.inf, 0.0, top).to(scores.dtype)
    weights = hlo.exp(hlo.binary("subtract", scores, _per_row(top, scores.shape)))
    return weights, hlo.reduce(weights, "add", [4]), top


def _kept(state: Value, shape, p: float) -> Value:
    """The dropout mask that ``state`` (uint64[2]) stands for; True is kept."""
    if p >= 1:
        return hlo.constant(False, torch.bool, shape)
    threshold = hlo.constant(round(p * 2**32), torch.uint32, shape)
    return hlo.compare(hlo.rng_bits(state, shape), threshold, "GE")


def _dropped(x: Value, kept: Value, p: float) -> Value:
    factor = 1 / (1 - p) if p < 1 else 0.0
    return hlo.select(kept, x * factor, hlo.zeros_like(x))


def _forward_meta(**arguments) -> list:
    """PyTorch's own, without the two sequence lengths: these are numbers, not tensors to check."""
    results = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(**arguments)
    return [None if isinstance(r, int) else r for r in results]


@op(_NAME, random=True, meta=_forward_meta)
def _scaled_dot_product_fused_attention_overrideable(
    query,
    key,
    value,
    rng,
    attn_bias=None,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    scale=None,
):
    q, k, v, bias = (_four(x) for x in (query, key, value, attn_bias))
    q = _split_heads(q, k.shape[1])
    scores = _masked_scores(q, k, bias, is_causal, scale)
    weights, total, top = _exponentials(scores)
    zero = hlo.constant(0, torch.int64)
    seed, offset = zero, zero
    if dropout_p > 0:
        weights = _dropped(weights, _kept(rng, weights.shape, dropout_p), dropout_p)
        seed, offset = (
            hlo.reshape(hlo.bitcast(hlo.slice_dim(rng, 0, i, i + 1), torch.int64), ())
            for i in range(2)
        )
    # The division by the row sum is left to the [L, E] product, which is the smaller.
    empty = hlo.compare(total, hlo.zeros_like(total), "EQ")
    product = hlo.dot_general(weights.to(v.dtype), v, ([4], [2]), _HEADS, weights.dtype)
    divisor = hlo.select(empty, hlo.full_like(total, 1), total)
    out = hlo.binary("divide", product, _per_row(divisor, product.shape)).to(query.dtype)
    # +inf for an empty row, so that exp(score - logsumexp) is 0 there and not NaN.
    logsumexp = hlo.select(empty, hlo.full_like(top, math.inf), top + hlo.log(total))
    b, heads, group, length, _ = q.shape
    logsumexp = hlo.reshape(logsumexp, (b, heads * group, length)).to(torch.float32)
    out = hlo.reshape(out, (*query.shape[:-1], value.shape[-1]))
    return out, logsumexp, None, None, length, k.shape[2], seed, offset, None


def _probabilities(scores: Value) -> Value:
    """The softmax of the forward pass, normalised afresh.

    ``exp(scores - logsumexp)`` would save two reductions, but the float32 logsumexp of scores in
    the thousands is off by 1e-4, and so would be every probability.
    """
    weights, total, _ = _exponentials(scores)
    total = hlo.select(total == 0.0, hlo.full_like(total, 1), total)
    return hlo.binary("divide", weights, _per_row(total, scores.shape))


def _sum_to(x: Value, shape) -> Value:
    """Sum four-dim ``x`` over the dims along which a tensor of ``shape`` was broadcast."""
    wanted = (1,) * (4 - len(shape)) + tuple(shape)
    dims = [i for i in range(4) if wanted[i] == 1 and x.shape[i] != 1]
    return hlo.reshape(hlo.reduce(x, "add", dims), shape)


def _score_gradients(scores, grad, v, dropout_p, philox) -> tuple[Value, Value]:
    """The dropped probabilities and the gradient of the scores."""
    p = _probabilities(scores)
    d_p = hlo.dot_general(grad, v, ([4], [3]), _HEADS, scores.dtype)
    p_dropped = p
    if dropout_p > 0:
        state = [hlo.reshape(hlo.bitcast(x, torch.uint64), (1,)) for x in philox]
        kept = _kept(hlo.concatenate(state, 0), p.shape, dropout_p)
        p_dropped, d_p = (_dropped(x, kept, dropout_p) for x in (p, d_p))
    # sum(grad * out) over the features is the same and cheaper, but rounds differently from d_p:
    # for saturated rows, whose gradient is a difference of equals, that leaves 10 times the error.
    inner = hlo.reduce(hlo.binary("multiply", p, d_p), "add", [4])
    centred = hlo.binary("subtract", d_p, _per_row(inner, d_p.shape))
    return p_dropped, hlo.binary("multiply", p, centred)


@op(_NAME + "_backward")
def _scaled_dot_product_fused_attention_overrideable_backward(
    grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp,
    cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset,
    scale=None,
):  # fmt: skip
    k, v, bias = (_four(x) for x in (key, value, attn_bias))
    q, grad = (_split_heads(_four(x), k.shape[1]) for x in (query, grad_out))
    scores = _masked_scores(q, k, bias, is_causal, scale)
    philox = (philox_seed, philox_offset)
    p_dropped, d_scores = _score_gradients(scores, grad, v, dropout_p, philox)
    dtype, small, scale = scores.dtype, q.dtype, _scale(q, scale)
    want_q, want_k, want_v, want_bias = grad_input_mask
    d_query = d_key = d_value = d_bias = None
    if want_q:
        d_q = hlo.dot_general(d_scores.to(small), k, ([4], [2]), _HEADS, dtype) * scale
        d_query = hlo.reshape(d_q.to(small), query.shape)
    if want_k:
        d_k = hlo.dot_general(d_scores.to(small), q, ([2, 3], [2, 3]), _HEADS, dtype) * scale
        d_key = hlo.reshape(d_k.to(small), key.shape)
    if want_v:
        d_v = hlo.dot_general(p_dropped.to(small), grad, ([2, 3], [2, 3]), _HEADS, dtype)
        d_value = hlo.reshape(d_v.to(small), value.shape)
    if want_bias and attn_bias is not None:
        b, heads, group, *rest = d_scores.shape
        d_scores = hlo.reshape(d_scores, (b, heads * group, *rest))
        d_bias = _sum_to(d_scores, attn_bias.shape).to(attn_bias.dtype)
    return d_query, d_key, d_value, d_bias


@op("aten::_safe_softmax")
def _safe_softmax(self, dim):
    dtype = expected()[0].dtype
    x = self.to(dtype).to(promote.compute_dtype(dtype))
    x = hlo.reshape(x, self.shape or (1,))
    dim %= x.ndim
    top = hlo.reduce(x, "maximum", [dim], keepdim=True)
    masked = hlo.compare(top, hlo.full_like(top, -math.inf), "EQ")
    top = hlo.select(masked, hlo.zeros_like(top), top)
    weights = hlo.exp(hlo.binary("subtract", x, hlo.expand(top, x.shape)))
    total = hlo.reduce(weights, "add", [dim], keepdim=True)
    total = hlo.select(masked, hlo.full_like(total, 1), total)
    result = hlo.binary("divide", weights, hlo.expand(total, x.shape))
    return hlo.reshape(result, self.shape).to(dtype)
