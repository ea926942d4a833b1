"""Trains a small vision transformer and a small CNN on scikit-learn's handwritten digits.

    python examples/train_digits.py --device tpu
    python examples/train_digits.py --device cpu --model vit --steps 50

The data are 1,797 real 8x8 images that come with scikit-learn. This is an ordinary PyTorch program:
The data are 1,797 real 8x8 images that come with scikit-learn. This is an ordinary PyTorch program:
devices start from the same weights and see the same batches, so their losses can be compared.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

LOSS_STEP = 50  # the loss after this many steps is printed with all digits, to compare devices
WARM_STEPS = 10  # speed is also measured without the first steps, in which programs are compiled


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * width, width),
            nn.Dropout(dropout),
        )

    def attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """A convolutional stem to 16 tokens, a few transformer blocks, the mean of the tokens."""

    def __init__(
        self, width: int = 64, depth: int = 2, heads: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.GELU(),
            nn.Conv2d(32, width, kernel_size=4, stride=2, padding=1),
        )
        self.positions = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        mixed = self.blocks(tokens + self.positions)
        return self.head(self.norm(mixed).mean(dim=1))


def cnn(dropout: float = 0.0) -> nn.Module:
    """Three convolutions with batch norm, two poolings, one hidden layer."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(64, 10),
    )


@dataclass(frozen=True)
class Digits:
    """The images as float32 [N, 1, 8, 8] around zero, and their digits."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load() -> Digits:
    """Four fifths to train on, one fifth to test on; the same split every time."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    index = torch.arange(len(labels))
    train, test = train_test_split(index, test_size=0.2, random_state=0, stratify=labels)
    targets = torch.tensor(labels, dtype=torch.int64)
    return Digits(images[train], targets[train], images[test], targets[test])


def shuffled_batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index tensors of one epoch, all of one size: a smaller last batch is left out."""
    order = torch.randperm(count, generator=generator)
    for start in range(0, count - size + 1, size):
        yield order[start : start + size]


def learning_rate(step: int, steps: int, warm_up: int = 30) -> float:
    """Linear warm-up, then a cosine down to zero, as a share of the largest rate."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, size: int) -> float:
    """The share of right answers. The last batch is filled up, so that all have one size."""
    model.eval()
    right = 0
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        padding = batch.new_zeros(size - len(batch), *batch.shape[1:])
        guesses = model(torch.cat([batch, padding]).to(labels.device)).argmax(dim=1)
        truth = labels[start : start + size]
        right += int((guesses[: len(truth)] == truth).sum())
    model.train()
    return right / len(images)


@dataclass
class Result:
    """What one training run gives."""

    name: str
    accuracy: float
    loss: float
    loss_at_step: float | None
    seconds: float
    images_per_second: float
    warm_images_per_second: float


def train(name: str, data: Digits, options: argparse.Namespace, progress: Progress) -> Result:
    """Trains one model from scratch."""
    torch.manual_seed(options.seed)
    order = torch.Generator().manual_seed(options.seed)
    # Made on the CPU and then moved: the same first weights on every device.
    model = VisionTransformer(dropout=options.dropout) if name == "vit" else cnn(options.dropout)
    model.to(options.device)
    size = options.batch_size
    steps = options.steps or options.epochs * (len(data.train_images) // size)
    # With the default eps, gradients that are zero up to rounding still move parameters by a whole
    # learning rate, in a direction that rounding decides: no two devices would agree on the loss.
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, weight_decay=0.05, eps=1e-6
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, steps))
    bar = progress.add_task(name, total=steps, loss=float("nan"))

    step, loss, loss_at_step = 0, torch.tensor(float("nan")), None
    start = warm_start = time.perf_counter()
    while step < steps:
        for index in shuffled_batches(len(data.train_images), size, order):
            images = data.train_images[index].to(options.device)
            labels = data.train_labels[index].to(options.device)
            loss = F.cross_entropy(model(images), labels, label_smoothing=options.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step == WARM_STEPS:
                loss.item()
                warm_start = time.perf_counter()
            if step == LOSS_STEP:
                loss_at_step = loss.item()
            if step % 10 == 0 or step == steps:  # reading the loss waits for the device
                progress.update(bar, completed=step, loss=loss.item())
            if step == steps:
                break
    end = time.perf_counter()
    test_labels = data.test_labels.to(options.device)
    score = accuracy(model, data.test_images, test_labels, size)
    warm_speed = (step - WARM_STEPS) * size / (end - warm_start) if step > WARM_STEPS else math.nan
    speed = step * size / (end - start)
    return Result(name, score, loss.item(), loss_at_step, end - start, speed, warm_speed)


def counters(device: torch.device) -> dict[str, int]:
    """Programs compiled and operators run elsewhere, if the device counts such things."""
    module = torch.get_device_module(device)
    compiled = getattr(module, "compile_count", None)
    fallbacks = getattr(module, "fallback_stats", None)
    found = {}
    if compiled is not None:
        found["compiled programs"] = compiled()
    if fallbacks is not None:
        found["CPU fallbacks"] = sum(fallbacks().values())
    return found


def report(console: Console, results: list[Result], device: torch.device) -> None:
    table = Table(title=f"digits on {device}")
    columns = "model", "test accuracy", "loss", "seconds", "images/s", "images/s, warm"
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    for r in results:
        table.add_row(
            r.name,
            f"{r.accuracy:.2%}",
            f"{r.loss:.4f}",
            f"{r.seconds:.1f}",
            f"{r.images_per_second:,.0f}",
            f"{r.warm_images_per_second:,.0f}",
        )
    console.print(table)
    for r in results:
        if r.loss_at_step is not None:
            console.print(f"{r.name}: loss after {LOSS_STEP} steps: {r.loss_at_step:.8f}")
    for label, count in counters(device).items():
        console.print(f"{label}: {count}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--model", choices=("vit", "cnn", "both"), default="both")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--steps", type=int, help="stop after this many steps instead")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--require", type=float, help="fail below this test accuracy, e.g. 0.97")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    console = Console()
    data = load()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    names = ("vit", "cnn") if options.model == "both" else (options.model,)
    with Progress(*columns, console=console) as progress:
        results = [train(name, data, options, progress) for name in names]
    report(console, results, options.device)
    worst = min(result.accuracy for result in results)
    if options.require is not None and worst < options.require:
        console.print(f"test accuracy {worst:.2%} is below the required {options.require:.2%}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
