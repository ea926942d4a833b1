"""A training step of a network of ResNet-18's shape: SGD with momentum, float32 or bfloat16.

    python -m torch_tpu.aot estimate examples/aot/cnn.py --topology v6e:2x2

libtpu 0.0.42.1 ends on larger images for v6e and TPU7x (a failed check of its own in
fusion_util.cc, with 16 or 128 images of 64 x 64 and 32 of 224 x 224). For v5e, 16 of 64 x 64
compile.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name

from torch_tpu.aot.job import Job
from torch_tpu.aot.training import training_step


class Block(nn.Module):
    """Two convolutions with a residual; the first may halve the image."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def network(classes: int, width: int = 64) -> nn.Module:
    """Four stages of two blocks."""
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers, inputs = [*stem, nn.MaxPool2d(3, 2, 1)], width
    for stage in range(4):
        outputs = width << stage
        layers += [Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def build(topology, batch: int = 8, size: int = 32, bf16: bool = True) -> Job:
    """The job for ``batch`` images of ``size`` x ``size``, with ``bf16`` arithmetic by autocast."""

    def loss(model, images, labels):
        with torch.autocast("tpu", torch.bfloat16, enabled=bf16):
            logits = model(images)
        return F.cross_entropy(logits.float(), labels)

    with torch.device("meta"):
        model = network(1000)
        images = torch.empty(batch, 3, size, size)
        labels = torch.empty(batch, dtype=torch.int64)
    step = training_step(model, torch.optim.SGD, loss, {"lr": 0.1, "momentum": 0.9})
    return Job(fn=step, args=(images, labels), name=f"ResNet-18 shape, batch {batch} x {size}")
