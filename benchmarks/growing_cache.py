"""Greedy decoding with a key-value cache that grows by one row a token, compiled with dynamic=True.

    python benchmarks/growing_cache.py [--tokens 256]

The model is that of Hugging Face's decoders in small: rotary attention, RMS norm, a gated MLP; the
cache is concatenated in every layer, as DynamicCache does. Prints the tokens' agreement with eager
decoding on the CPU, the number of programs, and tokens per second after the first run.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from models.torch_models import RmsNorm, rotate
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x, angles, cache):
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = (rotate(t, angles.cos(), angles.sin()) for t in (q, k))
        keys = torch.cat([cache[0], k], 2)
        values = torch.cat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (keys, values)


class Decoder(nn.Module):
    def __init__(self, words=512, width=128, heads=4, layers=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = RmsNorm(width)
        half = width // heads // 2
        rates = 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("rates", rates.repeat(2))
        self.empty = (1, heads, 0, width // heads)

    def forward(self, token, place, caches):
        """One token of shape (1, 1) at ``place`` (0-dim); returns the next and the new caches."""
        x = self.words(token)
        grown = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, place * self.rates, cache)
            grown.append(cache)
        scores = self.norm(x[:, -1]) @ self.words.weight.t()
        return scores.argmax(-1, keepdim=True), grown


@torch.no_grad()
def decode(model, step, count: int) -> list[int]:
    device = model.rates.device
    token = torch.full((1, 1), 3, device=device)
    make = lambda: torch.zeros(model.empty, device=device)  # noqa: E731
    caches = [(make(), make()) for _ in model.layers]
    tokens = []
    for place in range(count):
        token, caches = step(token, torch.tensor(float(place), device=device), caches)
        tokens.append(token)
    return torch.cat(tokens, 1)[0].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=256)
    given = parser.parse_args()
    torch.manual_seed(0)
    reference = Decoder()
    expected = decode(reference, reference, given.tokens)
    model = Decoder().to("tpu")
    model.load_state_dict(reference.state_dict())
    step = torch.compile(model, dynamic=True)
    before = torch.tpu.cache_stats()["programs"]
    start = time.perf_counter()
    tokens = decode(model, step, given.tokens)
    first = time.perf_counter() - start
    programs = torch.tpu.cache_stats()["programs"] - before
    start = time.perf_counter()
    decode(model, step, given.tokens)
    rate = given.tokens / (time.perf_counter() - start)
    again = torch.tpu.cache_stats()["programs"] - before - programs
    equal = sum(a == b for a, b in zip(tokens, expected, strict=True))
    print(f"{equal} of {given.tokens} tokens equal eager decoding on the CPU")
    print(f"{programs} programs in the first run ({first:.1f} s), {again} more in the second")
    print(f"{rate:.0f} tokens/s in the second run")


if __name__ == "__main__":
    main()
