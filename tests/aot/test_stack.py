"""Equal layers as one loop: against the same layers one after another."""

from __future__ import annotations

import pytest
import torch
from aot.run import compare_step
from torch import nn

from torch_tpu.aot.capture import capture
from torch_tpu.aot.sharding import Mesh, constrain, fully_sharded
from torch_tpu.aot.stack import Stack
from torch_tpu.aot.training import training_step


class Layer(nn.Module):
    """A residual layer with a scale that is no weight."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x, scale):
        return x + torch.tanh(constrain(self.fc(self.norm(x)), ("data",))) * scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack, self.head = Stack(Layer, 3), nn.Linear(4, 2)

    def forward(self, x, scale):
        return self.head(self.stack(x, scale))


def loss(model, x, scale):
    return model(x, scale).square().mean()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def test_a_training_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = training_step(model, optimizer, loss)
    captured = compare_step(
        step, model, optimizer, (torch.randn(3, 4), torch.tensor([1.0, 2, 3, 4]))
    )
    assert captured.text.count("stablehlo.while") == 2
    assert '"stack/fc/aten::addmm"' in captured.text or "aten::addmm" in captured.text


def test_a_sharded_training_step(model):
    mesh = Mesh((2,), ("data",))
    table = {**fully_sharded(model, mesh, "data", least=1), "batch.0": ("data",)}
    assert table["stack.fc_weight"] == (None, "data", None)
    step = training_step(model, torch.optim.SGD, loss, {"lr": 0.1})
    captured = capture(step, (torch.randn(4, 4), torch.ones(4)), in_shardings=table, mesh=mesh)
    body = captured.text.split("stablehlo.while")[1]
    assert 'mhlo.sharding = "{devices=[2,1]<=[2]}"' in body


def test_what_cannot_be_stacked():
    with pytest.raises(ValueError, match="buffers"):
        Stack(lambda: nn.BatchNorm1d(2), 2)
    with pytest.raises(NotImplementedError, match="dropout"):
        capture(Stack(lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout()), 2), (torch.ones(2, 2),))
