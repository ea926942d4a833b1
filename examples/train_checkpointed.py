"""Trains a small CNN on handwritten digits with everything a long run needs, and can be resumed.

    python examples/train_checkpointed.py --device tpu --epochs 4 --folder run
    python examples/train_checkpointed.py --device tpu --epochs 8 --folder run --resume

A data loader with worker processes and pinned memory, mixed precision with a gradient scaler,
gradient accumulation and clipping, a learning rate schedule, a checkpoint after every epoch and a
profile of a few steps. Only the device string tells devices apart. A resumed run gives the losses
that the uninterrupted run would have given, bit for bit: the checkpoint holds the state of all that
changes, random numbers included.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

CHECKPOINT = "checkpoint.pt"
TRACE = "trace.json"
PROFILED = schedule(wait=2, warmup=1, active=2, repeat=1)


class Digits(Dataset):
    """1,797 images as float32 [1, 8, 8] around zero, with a little noise that the workers add."""

    def __init__(self, count: int | None = None) -> None:
        pixels, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(pixels[:count], dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
        self.labels = torch.tensor(labels[:count], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        return image + 0.05 * torch.randn_like(image), self.labels[index]


def network(dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(128, 10),
    )


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the CPU's generator and the device's."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state(device)
    return states


def set_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type in states and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states[device.type], device)


@dataclass
class Training:
    """All that changes during a run. `state` and `load` cover every part of it."""

    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    rates: torch.optim.lr_scheduler.LRScheduler
    scaler: torch.amp.GradScaler
    order: torch.Generator
    epoch: int = 0

    @classmethod
    def start(cls, options: argparse.Namespace) -> Training:
        torch.manual_seed(options.seed)
        model = network(options.dropout).to(options.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, eps=1e-6)
        return cls(
            device=options.device,
            model=model,
            optimizer=optimizer,
            rates=torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7),
            scaler=torch.amp.GradScaler(options.device.type, init_scale=2.0**12),
            order=torch.Generator().manual_seed(options.seed),
        )

    def _parts(self) -> dict:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "rates": self.rates,
            "scaler": self.scaler,
        }

    def save(self, path: Path) -> None:
        """Writes beside ``path`` and renames: an interrupted save leaves the last one whole."""
        state = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"epoch": self.epoch, "random": random_state(self.device)}
        state["order"] = self.order.get_state()
        draft = path.with_suffix(".draft")
        torch.save(state, draft)
        os.replace(draft, path)

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.epoch = state["epoch"]
        self.order.set_state(state["order"])
        set_random_state(state["random"], self.device)


def batches(training: Training, data: Dataset, options: argparse.Namespace) -> DataLoader:
    """One epoch's loader; the generator decides the order and seeds the workers."""
    return DataLoader(
        data,
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        pin_memory=training.device.type != "cpu",
        generator=training.order,
    )


def train_epoch(training: Training, loader: DataLoader, options: argparse.Namespace, profiler):
    """One epoch; the losses of its batches. They stay on the device until the epoch is over."""
    device, model, scaler = training.device, training.model, training.scaler
    losses = []
    model.train()
    for index, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with record_function("forward"), torch.autocast(device.type, dtype=options.dtype):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss / options.accumulate).backward()
        losses.append(loss.detach())
        if (index + 1) % options.accumulate == 0 or index + 1 == len(loader):
            scaler.unscale_(training.optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            scaler.step(training.optimizer)
            scaler.update()
            training.optimizer.zero_grad(set_to_none=True)
        profiler.step()
    training.rates.step()
    return torch.stack(losses).tolist()


def run(options: argparse.Namespace) -> dict[int, list[float]]:
    """Trains up to ``options.epochs``; the losses of every epoch that this call trained."""
    options.folder.mkdir(parents=True, exist_ok=True)
    console, data = Console(), Digits(options.images)
    training, losses = Training.start(options), {}
    if options.resume:
        training.load(options.folder / CHECKPOINT)
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, schedule=PROFILED, on_trace_ready=trace_to(options)) as p:
        while training.epoch < options.epochs:
            epoch = training.epoch
            losses[epoch] = train_epoch(training, batches(training, data, options), options, p)
            training.epoch += 1
            training.save(options.folder / CHECKPOINT)
            mean = sum(losses[epoch]) / len(losses[epoch])
            rate, scale = training.rates.get_last_lr()[0], training.scaler.get_scale()
            console.print(f"epoch {epoch}: loss {mean:.6f}  rate {rate:.2e}  scale {scale:g}")
    return losses


def trace_to(options: argparse.Namespace):
    return lambda profiler: profiler.export_chrome_trace(str(options.folder / TRACE))


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="checkpoint and trace")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, help="train on this many images instead of all")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=2, help="batches per optimiser step")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(parse_arguments())
