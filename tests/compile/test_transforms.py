"""Transforms around and inside torch.compile: torch.func, checkpointing, compiled optimisers,
compiled autograd."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compile.both import compare, on, rand, same
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

X, Y = rand(4, 5), rand(4, 5, seed=1)


def _scalar(x):
    return (x.sin() * x).sum()


def _vector(x):
    return x.sin() * x.sum()


FUNCTIONS = {
    "vmap": lambda x, y: vmap(torch.dot)(x, y),
    "vmap in_dims": lambda x, y: vmap(lambda a, b: a * b.sum(), (1, None), out_dims=1)(x, y),
    "grad": lambda x, y: grad(lambda a: (a * y).tanh().sum())(x),
    "grad of grad": lambda x, y: grad(lambda a: grad(_scalar)(a).square().sum())(x * y),
    "jvp": lambda x, y: jvp(_vector, (x,), (y,)),
    "vjp": lambda x, y: vjp(_vector, x)[1](y),
    "jacrev": lambda x, y: jacrev(_vector)(x[0]),
    "jacfwd": lambda x, y: jacfwd(_vector)(x[0]),
    "hessian": lambda x, y: hessian(_scalar)(x[0]),
    "vmap of grad": lambda x, y: vmap(grad(_scalar))(x * y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    compare(FUNCTIONS[name], (X, Y), fullgraph=True)


def test_functional_call():
    model = nn.Sequential(nn.Linear(5, 3), nn.Tanh())
    moved = nn.Sequential(nn.Linear(5, 3), nn.Tanh()).to("tpu")
    parameters = {k: v.detach() for k, v in model.state_dict().items()}

    def loss(module, parameters, x):
        return functional_call(module, parameters, (x,)).square().sum()

    def per_sample(module, parameters, x):
        step = grad(lambda p, row: loss(module, p, row))
        return vmap(step, in_dims=(None, 0))(parameters, x)

    on_device = {k: v.to("tpu") for k, v in parameters.items()}
    for f in (loss, per_sample):
        actual = torch.compile(f, backend="tpu")(moved, on_device, X.to("tpu"))
        same(actual, f(model, parameters, X))


def test_ensemble():
    """vmap over stacked parameters."""
    weights = rand(3, 5, 2)

    def f(weights, x):
        return vmap(lambda w: (x @ w).relu())(weights)

    compare(f, (weights.requires_grad_(), X))


def test_grad_inside():
    """torch.autograd.grad of a compiled function, outside of it."""
    x = X.clone().requires_grad_()
    (moved,) = on("tpu", x)
    (actual,) = torch.autograd.grad(torch.compile(_scalar, backend="tpu")(moved), moved)
    same(actual, torch.autograd.grad(_scalar(x), x)[0])


def test_second_gradients_are_refused_as_by_aot_autograd():
    """AOTAutograd has no gradients of gradients, on no device; it says so."""
    (x,) = on("tpu", X.clone().requires_grad_())
    (first,) = torch.autograd.grad(torch.compile(_scalar, backend="tpu")(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 + x


def test_autograd_function():
    compare(lambda x: Twice.apply(x).sin(), (X.clone().requires_grad_(),), fullgraph=True)


# ---- activation checkpointing -------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(
            nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 8), nn.Tanh()
        )

    def forward(self, x):
        return self.layers(x).sin()


def _checkpointed(block):
    return lambda x: checkpoint(block, x, use_reentrant=False)


def _saved(run, x) -> int:
    """Elements that the graph behind a result holds, parameters and input aside."""
    held = []
    result = run(x)
    for name in dir(result.grad_fn):
        if name.startswith("_saved_") or name == "saved_tensors":
            values = getattr(result.grad_fn, name)
            values = values if isinstance(values, (list, tuple)) else [values]
            held += [v for v in values if isinstance(v, torch.Tensor) and v.grad_fn is None]
    return sum(v.numel() for v in held if not v.requires_grad)


def test_checkpoint_equals_eager():
    block, moved = Block(), Block().to("tpu")
    compiled = torch.compile(_checkpointed(moved), backend="tpu", fullgraph=True)
    x = rand(6, 8)
    for _ in range(2):
        block(x).sum().backward()
        compiled(x.to("tpu")).sum().backward()
    same([p.grad for p in moved.parameters()], [p.grad for p in block.parameters()])


def test_checkpoint_saves_less():
    moved, x = Block().to("tpu"), rand(64, 8).to("tpu")
    plain = _saved(torch.compile(moved, backend="tpu"), x)
    torch._dynamo.reset()
    less = _saved(torch.compile(_checkpointed(moved), backend="tpu"), x)
    assert less < plain


def test_checkpoint_with_dropout():
    """What is computed again in backward has the mask of forward."""
    (x,) = on("tpu", torch.ones(64, 8).requires_grad_())

    def double(x):
        return F.dropout(x * 3, 0.5) * 1.5

    compiled = torch.compile(_checkpointed(double), backend="tpu", fullgraph=True)
    for _ in range(3):
        x.grad = None
        result = compiled(x)
        result.sum().backward()
        same(x.grad, result.detach())
    assert 0.3 < (x.grad != 0).float().mean().item() < 0.7


# ---- optimisers ---------------------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"momentum": 0.9}),
    "Adam": (torch.optim.Adam, {}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1, "amsgrad": True}),
}


def _set_gradients(model, seed: int) -> None:
    """Equal gradients on every device: Adam divides by them, which magnifies rounding errors."""
    for i, p in enumerate(model.parameters()):
        p.grad = rand(*p.shape, seed=seed * 100 + i).to(p.device)


def _steps(name: str, device: str, compiled: str | None, tensor_lr: bool):
    kind, options = OPTIMIZERS[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).to(device)
    rate = torch.tensor(0.1, device=device) if tensor_lr else 0.1
    optimizer = kind(model.parameters(), lr=rate, **options)
    step = torch.compile(optimizer.step, backend=compiled) if compiled else optimizer.step
    counts = []
    for i in range(5):
        _set_gradients(model, i)
        step()
        if tensor_lr:
            rate.mul_(0.9)
        counts.append(torch.tpu.compile_count())
    return [p.detach().cpu() for p in model.parameters()], counts


@pytest.mark.parametrize("tensor_lr", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizers(name, tensor_lr):
    actual, counts = _steps(name, "tpu", "tpu", tensor_lr)
    same(actual, _steps(name, "cpu", "aot_eager", tensor_lr)[0])
    # Compiled, Adam computes 1 - beta ** step in float32, eager in float64: PyTorch's own error.
    same(actual, _steps(name, "cpu", None, tensor_lr)[0], rtol=1e-4, atol=1e-5)
    assert counts[1] == counts[-1], counts


def test_scheduled_rate():
    """A scheduler changes the learning rate, a tensor, between compiled steps."""

    def run(device, compiled):
        torch.manual_seed(0)
        model = nn.Linear(5, 3).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step():
            optimizer.step()
            scheduler.step()

        step = torch.compile(step, backend=compiled)
        counts = []
        for i in range(5):
            _set_gradients(model, i)
            step()
            counts.append(torch.tpu.compile_count())
        return [p.detach().cpu() for p in model.parameters()], counts

    (actual, counts), (expected, _) = run("tpu", "tpu"), run("cpu", "aot_eager")
    same(actual, expected)
    assert counts[1] == counts[-1], counts


# ---- compiled autograd --------------------------------------------------------------------------


def _network(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)


def _train(device, model):
    for i in range(3):
        model(rand(6, 5, seed=i).to(device)).square().sum().backward()


def test_compiled_autograd():
    moved, reference = _network("tpu"), _network("cpu")
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="tpu")):
        _train("tpu", moved)
    _train("cpu", reference)
    same([p.grad for p in moved.parameters()], [p.grad for p in reference.parameters()])


def test_compiled_autograd_inside():
    moved, reference = _network("tpu"), _network("cpu")

    @torch.compile(backend="tpu")
    def step(model, x):
        model(x).square().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        for i in range(3):
            step(moved, rand(6, 5, seed=i).to("tpu"))
    _train("cpu", reference)
    same([p.grad for p in moved.parameters()], [p.grad for p in reference.parameters()])
