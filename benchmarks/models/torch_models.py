"""Three shapes of network, plain PyTorch: a GPT-2 stack, a Llama stack and a ResNet-18.

Each is built from a `Size` and takes what `example` gives; `loss` is that of training. The JAX
versions (`jax_models.py`) use the same parameters, by name, and the same arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Size:
    """How large a model is: layers, width, heads, sequence length, batch, words."""

    layers: int
    width: int
    heads: int
    length: int
    batch: int
    words: int = 1024


SIZES = {
    "gpt": Size(layers=4, width=768, heads=12, length=64, batch=2),
    "gpt-small-op": Size(layers=4, width=64, heads=4, length=32, batch=4),
    "llama": Size(layers=4, width=512, heads=8, length=64, batch=2),
    "resnet": Size(layers=2, width=64, heads=1, length=32, batch=4),
}


class GptBlock(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.ln1 = nn.LayerNorm(size.width)
        self.ln2 = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(self.ln1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(GptBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * (x.float() * scale).to(x.dtype)


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.norm1 = RmsNorm(size.width)
        self.norm2 = RmsNorm(size.width)
        self.q = nn.Linear(size.width, size.width, bias=False)
        self.k = nn.Linear(size.width, size.width, bias=False)
        self.v = nn.Linear(size.width, size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.gate = nn.Linear(size.width, 3 * size.width, bias=False)
        self.up = nn.Linear(size.width, 3 * size.width, bias=False)
        self.down = nn.Linear(3 * size.width, size.width, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, length, width = x.shape
        y = self.norm1(x)
        shape = batch, length, self.heads, width // self.heads
        q, k, v = (p(y).view(shape).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5 + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.blocks = nn.ModuleList(LlamaBlock(size) for _ in range(size.layers))
        self.norm = RmsNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)
        half = size.width // size.heads // 2
        rates = 10000.0 ** (-torch.arange(half) / half)
        angles = torch.arange(size.length)[:, None] * rates[None].repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        mask = torch.full((size.length, size.length), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        same = stride == 1 and channels == out
        self.skip = None if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class ResNet(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.stem = nn.Conv2d(3, size.width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(size.width)
        blocks, channels = [], size.width
        for stage in range(4):
            for i in range(size.layers):
                out = size.width * 2**stage
                blocks.append(ResidualBlock(channels, out, 2 if stage and not i else 1))
                channels = out
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, size.words)

    def forward(self, images):
        x = F.relu(self.bn(self.stem(images)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


MODELS = {"gpt": Gpt, "gpt-small-op": Gpt, "llama": Llama, "resnet": ResNet}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name](SIZES[name])


def example(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, on the CPU."""
    size = SIZES[name]
    draw = torch.Generator().manual_seed(1)
    if name == "resnet":
        images = torch.randn(size.batch, 3, size.length, size.length, generator=draw)
        return images, torch.randint(0, size.words, (size.batch,), generator=draw)
    tokens = torch.randint(0, size.words, (size.batch, size.length + 1), generator=draw)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.float().reshape(-1, outputs.shape[-1]), targets.reshape(-1))
