"""Training steps as one program: forward, backward and optimizer against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from aot.run import compare_step, program, state_of
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name
from torch.utils.checkpoint import checkpoint

from torch_tpu.aot.capture import capture
from torch_tpu.aot.training import training_step

OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "adam amsgrad": (torch.optim.Adam, {"lr": 1e-2, "amsgrad": True}),
    "sgd": (torch.optim.SGD, {"lr": 1e-2}),
    "momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-2}),
}


def mse(model, x, y):
    return F.mse_loss(model(x), y)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    kind, options = OPTIMIZERS[name]
    optimizer = kind(model.parameters(), **options)
    step = training_step(model, optimizer, mse)
    captured = compare_step(step, model, optimizer, (torch.randn(3, 4), torch.randn(3, 2)))
    mutated = {
        captured.parameters[r.mutates].name for r in captured.results if r.kind == "mutation"
    }
    assert {n for n, _ in model.named_parameters()} <= mutated
    assert captured.text.count("tf.aliasing_output") == len(mutated)


def test_a_convolution_with_batch_norm():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = training_step(model, optimizer, lambda model, x, y: F.cross_entropy(model(x), y))
    captured = compare_step(
        step, model, optimizer, (torch.randn(3, 2, 4, 4), torch.tensor([0, 2, 1]))
    )
    mutated = {
        captured.parameters[r.mutates].name for r in captured.results if r.mutates is not None
    }
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= mutated


class Gated(nn.Module):
    """A layer with residual, normalisation and attention.

    A bias of the keys has the gradient zero, of which Adam would make steps of noise.
    """

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.RMSNorm(8), nn.Linear(8, 24, bias=False), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.silu(self.out(y.transpose(1, 2).reshape(2, 6, 8)))


class Transformer(nn.Module):
    """Two layers, checkpointed if asked, with tied embeddings."""

    def __init__(self, remat: bool = False):
        super().__init__()
        self.remat, self.embedding = remat, nn.Embedding(11, 8)
        self.layers = nn.ModuleList([Gated(), Gated()])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.remat else layer(x)
        return self.head(x)


def token_loss(model, tokens):
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("remat", [False, True])
def test_a_transformer(remat):
    model = Transformer(remat)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 11, (2, 6))
    captured = compare_step(
        training_step(model, optimizer, token_loss), model, optimizer, (tokens,), steps=1
    )
    # Tied weights are one parameter.
    assert [p.name for p in captured.parameters if p.shape == (11, 8)][0] == "embedding.weight"
    assert "head.weight" not in [p.name for p in captured.parameters]
    assert captured.text.count("stablehlo.optimization_barrier") == (2 if remat else 0)


def test_recomputation_costs_no_model_flops():
    counts = []
    for remat in (False, True):
        model = Transformer(remat)
        step = training_step(model, torch.optim.SGD, token_loss, {"lr": 0.1})
        counts.append(capture(step, (torch.randint(0, 11, (2, 6)),)).flops)
    assert counts[0] == counts[1] > 0


def test_recomputed_dropout_draws_the_same_numbers():
    """With the mask of the forward pass, the gradient of the input is the output over the input."""

    def step(x):
        y = checkpoint(lambda x: F.dropout(x * x, 0.5), x, use_reentrant=False)
        y.sum().backward()
        return y, F.dropout(x, 0.5)

    x = torch.rand(64) + 1
    captured = capture(step, (x.clone().requires_grad_(),))
    assert captured.parameters[-1].kind == "generator"
    text = captured.text
    compiled = program(captured, {})
    gradient = next(i for i, r in enumerate(captured.results) if r.kind == "gradient")
    torch.tpu.manual_seed(3)
    y, other = (t.cpu() for t in compiled(x.to("tpu")))
    torch.tpu.manual_seed(3)
    again, _ = compiled(x.to("tpu"))
    assert torch.equal(again.cpu(), y) and text.count("optimization_barrier") == 1
    assert 10 < (y == 0).sum() < 54 and not torch.equal(y == 0, other == 0)
    assert captured.results[gradient].name == "x.grad"


def test_a_step_written_by_hand():
    """Closures are followed, through functions; gradients that stay are results."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x):
        return model(x).square().sum()

    def step(x):
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    captured = capture(step, (torch.randn(4, 3),))
    assert [r.name for r in captured.results] == [
        "output.0",
        "weight.grad",
        "bias.grad",
        "weight",
        "bias",
    ]


def test_gradients_by_function():
    def gradient(x, y):
        return torch.autograd.grad((x * y).exp().sum(), x)

    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    captured = capture(gradient, (x, y))
    (actual,) = program(captured, {})(x.detach().to("tpu"), y.to("tpu"))
    torch.testing.assert_close(actual.cpu(), gradient(x, y)[0], rtol=1e-5, atol=1e-6)


def test_a_learning_rate_that_is_a_tensor_is_an_operand():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2))
    captured = capture(training_step(model, optimizer, mse), (torch.randn(4, 3), torch.randn(4, 2)))
    (rate,) = [p for p in captured.parameters if p.name == "optimizer.groups.0.lr"]
    assert rate.shape == () and rate.kind == "optimizer"


def test_autocast():
    model = nn.Linear(8, 8)

    def loss(model, x):
        with torch.autocast("tpu", torch.bfloat16):
            return model(x).float().square().mean()

    captured = capture(
        training_step(model, torch.optim.SGD, loss, {"lr": 0.1}), (torch.randn(4, 8),)
    )
    products = [line for line in captured.text.splitlines() if "dot_general" in line]
    assert products and all("bf16" in line for line in products)
    assert {p.dtype for p in captured.parameters} == {torch.float32}


def test_meta_weights_give_the_same_program():
    def text(device):
        with torch.device(device):
            model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
            batch = (torch.randn(2, 4), torch.randn(2, 4))
        return capture(training_step(model, torch.optim.AdamW, mse), batch).text

    assert text("meta") == text("cpu")


def test_the_program_and_its_optimizer_are_left_as_they_were():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    before = state_of(model, optimizer)
    state = torch.random.get_rng_state()
    capture(training_step(model, optimizer, mse), (torch.randn(2, 4), torch.randn(2, 4)))
    assert not optimizer.state and optimizer.param_groups[0]["capturable"] is False
    assert all(torch.equal(t, before[n]) for n, t in state_of(model, optimizer).items())
    assert all(type(p) is nn.Parameter and p.grad is None for p in model.parameters())
    assert torch.random.get_rng_state().shape == state.shape


def test_options_of_an_optimizer_that_is_made_already():
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="made already"):
        training_step(model, torch.optim.SGD(model.parameters(), lr=0.1), mse, {"lr": 1})


def test_an_optimizer_of_another_model():
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    step = training_step(nn.Linear(2, 2), other, mse)
    with pytest.raises(ValueError, match="no captured module has"):
        capture(step, (torch.randn(2, 2), torch.randn(2, 2)))
