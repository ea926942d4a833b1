"""Training on the device equals training on the CPU: models, optimisers, mixed precision.

Every case runs a few steps on both devices from the same weights and compares losses and weights.
Nothing may fall back to the CPU (`conftest.py` makes that an error).
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 3


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.rnn = kind(6, 5, batch_first=True, **options)
        width = 5 * (2 if options.get("bidirectional") else 1)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens):
        out, _ = self.rnn(self.embed(tokens))
        return self.head(out[:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8, padding_idx=0)
        self.place = nn.Parameter(torch.randn(1, 6, 8) * 0.1)
        # No biases: the gradient of the keys' bias is rounding noise, and Adam divides by it.
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, bias=False
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.RMSNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(6, device=tokens.device)
        x = self.body(self.embed(tokens) + self.place, mask=mask, is_causal=True)
        return self.head(self.norm(x)).flatten(0, 1)


def mlp():
    return nn.Sequential(
        nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3)
    )


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),  # its gradient would be rounding noise
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def tokens(n, high, length):
    return torch.randint(1, high, (n, length), generator=torch.Generator().manual_seed(1))


def values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


MODELS = {
    "mlp": (mlp, values(5, 6), 3),
    "cnn": (cnn, values(4, 2, 8, 8), 3),
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2), tokens(4, 7, 3), 3),
    "gru": (lambda: Recurrent(nn.GRU, bidirectional=True), tokens(4, 7, 3), 3),
    "rnn": (lambda: Recurrent(nn.RNN), tokens(4, 7, 3), 3),
    "transformer": (Transformer, tokens(3, 11, 6), 11),
}

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam loop": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
}


def train(model, x, target, make_optimiser, device):
    model = copy.deepcopy(model).to(device)
    x, target = x.to(device), target.to(device)
    optimiser = make_optimiser(model.parameters())
    losses = []
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), target, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        final = model(x)
    state = {k: v.cpu() for k, v in model.state_dict().items()}
    return torch.stack(losses).cpu(), final.cpu(), state


def check(model_name, optimiser_name):
    make, x, classes = MODELS[model_name]
    torch.manual_seed(0)
    model = make()
    rows = x.numel() if model_name == "transformer" else len(x)
    target = torch.arange(rows) % classes
    make_optimiser = OPTIMISERS[optimiser_name]
    torch.tpu.reset_fallback_stats()
    want = train(model, x, target, make_optimiser, "cpu")
    got = train(model, x, target, make_optimiser, "tpu")
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert torch.tpu.fallback_stats() == {}


@pytest.mark.parametrize("model", MODELS)
def test_models(model):
    check(model, "adamw")


@pytest.mark.parametrize("optimiser", [o for o in OPTIMISERS if o != "adamw"])
def test_optimisers(optimiser):
    check("mlp", optimiser)


def test_the_third_step_compiles_nothing(compiles):
    model = cnn().to("tpu")
    optimiser = torch.optim.Adam(model.parameters())
    x = values(4, 2, 8, 8).to("tpu")
    for i in range(4):
        if i == 2:
            compiles.reset()
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
    assert compiles() == 0


def test_autocast_uses_bfloat16_and_keeps_float32_gradients():
    model = cnn().to("tpu")
    x = values(4, 2, 8, 8).to("tpu")
    with torch.autocast("tpu"):
        y = model(x)
        assert (x.flatten(1) @ x.flatten(1).t()).dtype is torch.bfloat16
        assert F.softmax(y, -1).dtype is torch.float32
    assert y.dtype is torch.bfloat16
    y.float().square().sum().backward()
    for p in model.parameters():
        assert p.grad.dtype is torch.float32
        assert torch.isfinite(p.grad.cpu()).all()
    with torch.autocast("tpu", enabled=False):
        assert (x.flatten(1) @ x.flatten(1).t()).dtype is torch.float32


def test_autocast_is_close_to_the_cpu():
    model, x = mlp(), values(5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = model(x)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        got = copy.deepcopy(model).to("tpu")(x.to("tpu"))
    torch.testing.assert_close(got.cpu(), want, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler(fused):
    model = nn.Linear(4, 2).to("tpu")
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("tpu", init_scale=8.0, growth_interval=2)
    x = values(3, 4).to("tpu")
    before = model.weight.detach().cpu().clone()
    for _ in range(2):
        optimiser.zero_grad()
        with torch.autocast("tpu", dtype=torch.float16):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
    assert scaler.get_scale() == 16.0
    moved = model.weight.detach().cpu().clone()
    assert not torch.equal(moved, before)
    optimiser.zero_grad()
    scaler.scale(model(x).sum() * float("inf")).backward()
    scaler.step(optimiser)
    scaler.update()
    assert torch.equal(model.weight.detach().cpu(), moved)
    assert scaler.get_scale() == 8.0


def test_gradient_accumulation_and_hooks():
    results = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = mlp().to(device)
        seen = []
        model[0].weight.register_hook(lambda g, seen=seen: seen.append(g.norm().item()) or g * 2)
        for i in range(3):
            (model(values(5, 6).to(device)).sum() * i).backward()
        results.append([p.grad.cpu() for p in model.parameters()] + [torch.tensor(seen)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_functional_transforms():
    def loss(w, x):
        return (x @ w).tanh().square().sum()

    w, x = values(3, 2), values(4, 3)
    want = torch.func.vmap(torch.func.grad(loss), (None, 0))(w, x[:, None])
    got = torch.func.vmap(torch.func.grad(loss), (None, 0))(w.to("tpu"), x[:, None].to("tpu"))
    torch.testing.assert_close(got.cpu(), want)


def test_double_backward():
    grads = []
    for device in ("cpu", "tpu"):
        x = values(3).to(device).requires_grad_()
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        g.square().sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads)
