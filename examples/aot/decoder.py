"""A decoder-only transformer of the Llama and Qwen3 shape, for the examples beside it: grouped
query heads, rotary positions, SwiGLU, optionally normalised queries and keys, and a KV cache.

Weights are float32 masters; each product casts its weight to the dtype of the activations.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name
from torch.utils.checkpoint import checkpoint

from torch_tpu.aot.sharding import constrain
from torch_tpu.aot.stack import Stack


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of a model.

    ``remat`` recomputes every layer in the backward pass; ``scan`` makes the layers one loop, which
    implies that. ``batch_axis`` is the axis of the mesh that batches are split over.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    qk_norm: bool = False
    theta: float = 1e6
    eps: float = 1e-6
    dtype: torch.dtype = torch.bfloat16
    remat: bool = False
    scan: bool = False
    batch_axis: str | None = None

    def flops_per_token(self, length: int) -> int:
        """Of one training step: 6 per weight of a product, and the two products of attention."""
        inner = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        weights = self.layers * (inner + 3 * self.hidden * self.intermediate)
        weights += self.hidden * self.vocab
        return 6 * weights + 12 * self.layers * self.heads * self.head_dim * length


class Linear(nn.Module):
    """A product with a float32 weight, in the dtype of its input."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class RMSNorm(nn.Module):
    """Root mean square normalisation, in float32."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype)


def rotary(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotates the halves of [B, H, L, D] by the positions [L]."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angles = positions.float()[:, None] * torch.exp(-steps * math.log(theta))
    cos, sin = angles.cos(), angles.sin()
    first, second = x.float().chunk(2, -1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    return turned.to(x.dtype)


class Attention(nn.Module):
    """Causal attention; with a cache, that of its keys and values at ``positions``."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.wq = Linear(c.hidden, c.heads * c.head_dim)
        self.wk = Linear(c.hidden, c.kv_heads * c.head_dim)
        self.wv = Linear(c.hidden, c.kv_heads * c.head_dim)
        self.wo = Linear(c.heads * c.head_dim, c.hidden)
        self.q_norm = RMSNorm(c.head_dim, c.eps) if c.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(c.head_dim, c.eps) if c.qk_norm else nn.Identity()

    def forward(self, x, positions, cache=None):
        c, (b, length, _) = self.c, x.shape
        q, k, v = (
            w(x).view(b, length, -1, c.head_dim).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        q = rotary(self.q_norm(q), positions, c.theta)
        k = rotary(self.k_norm(k), positions, c.theta)
        if cache is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            keys, values = cache
            keys.index_copy_(2, positions, k)
            values.index_copy_(2, positions, v)
            seen = torch.arange(keys.shape[2], device=x.device) <= positions[:, None]
            out = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
        return self.wo(out.transpose(1, 2).reshape(b, length, -1))


class Layer(nn.Module):
    """Attention and a gated feed-forward part, each on the normalised stream."""

    def __init__(self, c: Config):
        super().__init__()
        self.attention_norm = RMSNorm(c.hidden, c.eps)
        self.attention = Attention(c)
        self.mlp_norm = RMSNorm(c.hidden, c.eps)
        self.w1 = Linear(c.hidden, c.intermediate)
        self.w3 = Linear(c.hidden, c.intermediate)
        self.w2 = Linear(c.intermediate, c.hidden)

    def forward(self, x, positions, cache=None):
        x = _split(x, self.attention.c)
        x = x + self.attention(self.attention_norm(x), positions, cache)
        y = self.mlp_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Decoder(nn.Module):
    """Tokens [B, L] to logits [B, L, vocab]."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        if c.scan:
            self.layers = Stack(lambda: Layer(c), c.layers)
        else:
            self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.hidden, c.eps)
        self.head = Linear(c.hidden, c.vocab)

    def forward(self, tokens, positions=None, caches=None):
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = _split(self.embedding(tokens).to(self.c.dtype), self.c)
        if self.c.scan:
            if caches is not None:
                raise ValueError("a model with scan=True takes no caches")
            x = self.layers(x, positions)
        else:
            x = self._each(x, positions, caches)
        return self.head(self.norm(_split(x, self.c)))

    def _each(self, x, positions, caches):
        for i, layer in enumerate(self.layers):
            cache = None if caches is None else caches[i]
            if self.c.remat and torch.is_grad_enabled():
                x = checkpoint(layer, x, positions, cache, use_reentrant=False)
            else:
                x = layer(x, positions, cache)
        return x


def _split(x: torch.Tensor, c: Config) -> torch.Tensor:
    """Activations lie like the batch."""
    return x if c.batch_axis is None else constrain(x, (c.batch_axis, None, None))


def empty_caches(c: Config, batch: int, length: int, device="meta") -> list:
    """(keys, values) of every layer, to be filled."""
    shape = (batch, c.kv_heads, length, c.head_dim)
    return [
        tuple(torch.zeros(shape, dtype=c.dtype, device=device) for _ in range(2))
        for _ in range(c.layers)
    ]


def next_token_loss(model: Decoder, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, in float32."""
    logits = model(tokens).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
