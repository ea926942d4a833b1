"""A training step in the eager modes and compiled: forward, backward, AdamW, ``loss.item()``.

    python benchmarks/eager_modes.py [--models transformer,cnn,mlp] [--rounds 9]

The ways to run take turns within a round, each on its own copy of the model; a ratio is the median
over the rounds of the ratios within a round. Then DeferAndFuse makes 1,000 more steps, and what
that adds to the memory of the process is printed.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8


class Transformer(nn.Module):
    """Four layers, 256 wide, on sequences of eight."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))

    @staticmethod
    def example():
        return torch.randn(BATCH, 8, 256)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        channels = [3, 8, 16, 16]
        pairs = zip(channels, channels[1:], strict=False)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in channels[1:])
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))

    @staticmethod
    def example():
        return torch.randn(BATCH, 3, 16, 16)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [64, 128, 128, 128, 10]
        pairs = zip(widths, widths[1:], strict=False)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.gelu(layer(x))
        return self.layers[-1](x)

    @staticmethod
    def example():
        return torch.randn(BATCH, 64)


MODELS = {"transformer": Transformer, "cnn": Cnn, "mlp": Mlp}


class Contestant:
    """A copy of a model with an optimiser, in one of the modes or compiled."""

    def __init__(self, name: str, kind: str):
        torch.manual_seed(0)
        model = MODELS[name]()
        inputs, targets = model.example(), torch.randint(0, 10, (BATCH,))
        device = "cpu" if kind == "cpu" else "tpu"
        self.model, self.inputs, self.targets = (v.to(device) for v in (model, inputs, targets))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        mode = torch.tpu.EagerMode
        self.mode = mode.DEFER_AND_FUSE if kind == "defer" else mode.STRICT
        compiled = torch.compile if kind == "compiled" else (lambda f: f)
        self.forward = compiled(lambda x, y: F.cross_entropy(self.model(x), y))
        self.update = compiled(self.optimizer.step)
        self.times: list[float] = []

    def step(self) -> float:
        loss = self.forward(self.inputs, self.targets)
        loss.backward()
        self.update()
        self.optimizer.zero_grad()
        return loss.item()

    def run(self, steps: int) -> float:
        """Seconds of one step."""
        with torch.tpu.set_eager_mode(self.mode):
            start = time.perf_counter()
            for _ in range(steps):
                self.loss = self.step()
            return (time.perf_counter() - start) / steps


def measure(name: str, rounds: int, steps: int) -> None:
    contestants = {kind: Contestant(name, kind) for kind in ("strict", "defer", "compiled", "cpu")}
    for contestant in contestants.values():
        contestant.run(3)
    compiles = torch.tpu.compile_count()
    for _ in range(rounds):
        for contestant in contestants.values():
            contestant.times.append(contestant.run(steps))
    compiles = torch.tpu.compile_count() - compiles
    print(f"{name}, {rounds} rounds of {steps} steps, compiles: {compiles}")
    ours = contestants["defer"]
    for kind, contestant in contestants.items():
        pairs = zip(contestant.times, ours.times, strict=True)
        ratio = statistics.median(theirs / mine for theirs, mine in pairs)
        print(
            f"  {kind:9} {1000 * statistics.median(contestant.times):8.2f} ms a step, "
            f"{ratio:.2f}x DeferAndFuse's time, loss {contestant.loss:.6f}",
            flush=True,
        )
    before = resident()
    ours.run(1000)
    print(f"  1,000 more steps of DeferAndFuse: {resident() - before:+.1f} MiB resident")


def resident() -> float:
    """MiB of memory that this process has now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=lambda t: t.split(","), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    for name in given.models:
        measure(name, given.rounds, given.steps)
    print(torch.tpu.flush_stats())


if __name__ == "__main__":
    main()
