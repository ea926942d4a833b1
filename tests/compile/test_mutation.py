"""What compiled functions mutate, alias and return: buffers, inputs, views, the same twice."""

import pytest
import torch
import torch.nn as nn
from compile.both import compare, on, rand, same

X, Y = rand(4, 5), rand(4, 5, seed=1)


class Counting(nn.Module):
    """A layer with a running buffer, a counter and a replaced attribute."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(rand(5, 5, seed=3))
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(5))

    def forward(self, x):
        self.steps += 1
        self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.norm(x @ self.weight) + self.average


def _train(model, device, compiled: bool, steps: int):
    model = model.to(device)
    run = torch.compile(model, backend="tpu") if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = run(rand(6, 5, seed=step).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return torch.stack(losses), {k: v.cpu() for k, v in model.state_dict().items()}


def test_buffers_over_ten_steps():
    same(_train(Counting(), "tpu", True, 10), _train(Counting(), "cpu", False, 10), atol=1e-5)


def test_list_of_modules_over_ten_steps():
    def make():
        torch.manual_seed(1)
        return nn.Sequential(*(Counting() for _ in range(3)), nn.Linear(5, 2))

    same(_train(make(), "tpu", True, 10), _train(make(), "cpu", False, 10), rtol=1e-4, atol=1e-5)


def test_list_of_tensors_over_ten_steps():
    def step(states, x):
        for i, state in enumerate(states):
            state.mul_(0.5).add_(x, alpha=i + 1)
        return sum(states)

    compiled = torch.compile(step, backend="tpu")
    cpu, device = [X.clone(), Y.clone()], list(on("tpu", X, Y))
    for i in range(10):
        x = rand(4, 5, seed=i)
        same(compiled(device, x.to("tpu")), step(cpu, x))
    same(device, cpu)


# ---- inputs -------------------------------------------------------------------------------------


def _in_place(x, y):
    x.add_(y)
    return x * 2


def _metadata(x, y):
    x.t_()
    return x + 1


def _resized(x, y):
    x[1:3] = y[:2]
    x[:, 0].zero_()
    return x.sum()


def _returned(x, y):
    x.mul_(2)
    return x, x[0], y


def _copied(x, y):
    x.copy_(y)
    y.fill_(1)


@pytest.mark.parametrize("g", [_in_place, _metadata, _resized, _returned, _copied])
def test_inputs_are_mutated(g):
    compare(g, (X, Y))


@pytest.mark.parametrize("g", [_in_place, _resized, _copied])
def test_views_are_mutated(g):
    def make(device):
        base = torch.zeros(8, 10).to(device)
        base[::2, ::2] = X.to(device)
        return base[::2, ::2], Y.clone().to(device)

    def h(view, y):
        return g(view, y), view._base.sum()

    compare(g, make)
    bases = []

    def tracked(device):
        view, y = make(device)
        bases.append(view._base)
        return view, y

    compare(g, tracked, calls=1)
    same(bases[1].cpu(), bases[0].cpu())


def test_mutated_input_of_grad():
    def g(x, y):
        z = x * 1
        z.mul_(y)
        return z.sin()

    compare(g, (X.clone().requires_grad_(), Y.clone().requires_grad_()))


def test_mutated_input_that_requires_grad():
    """An input that is no leaf is mutated; gradients flow through the mutation."""

    def g(x, y):
        x.mul_(y)
        return x.sin()

    def run(compiled, device):
        x, y = on(device, X.clone().requires_grad_(), Y)
        inner = x * 2
        result = (torch.compile(g, backend="tpu") if compiled else g)(inner, y)
        (result.sum() + inner.sum()).backward()
        return inner, result, x.grad

    same(run(True, "tpu"), run(False, "cpu"))


def test_leaf_under_no_grad():
    def g(x, y):
        with torch.no_grad():
            x.sub_(y, alpha=0.1)
        return x.sum()

    compare(g, (X.clone().requires_grad_(), Y))


# ---- aliases ------------------------------------------------------------------------------------


def test_the_same_tensor_twice():
    def g(x, y):
        x.add_(1)
        return x * y

    def make(device):
        x = X.clone().to(device)
        return x, x

    compare(g, make)
    compare(lambda x, y: x @ y.t(), make)


def test_different_then_the_same():
    def g(x, y):
        x.add_(1)
        return x * y

    compiled = torch.compile(g, backend="tpu")
    same(compiled(*on("tpu", X, Y)), g(*on("cpu", X, Y)))
    (x,), (moved,) = on("cpu", X), on("tpu", X)
    same(compiled(moved, moved), g(x, x))
    same(compiled(*on("tpu", X, Y)), g(*on("cpu", X, Y)))


@pytest.mark.parametrize("first", [True, False])
def test_a_view_and_its_base(first):
    def g(x, y):
        (x if first else y).mul_(3)
        return x.sum() + y.sum(), y * 1

    def make(device):
        x = X.clone().to(device)
        return x, x[1:3]

    compare(g, make)


def test_both_of_two_views():
    def g(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    def make(device):
        base = X.clone().to(device)
        return base[0:3], base[1:4]

    compare(g, make)


# ---- results ------------------------------------------------------------------------------------


def _run_and(change, g, device):
    (x,) = on(device, X)
    result = (torch.compile(g, backend="tpu") if device == "tpu" else g)(x)
    change(x, result)
    return x, result


VIEWS = {
    "row": lambda x: x[1],
    "transposed": lambda x: x.t(),
    "itself": lambda x: x,
    "view": lambda x: x.view(2, 10),
    "diagonal": lambda x: x.diagonal(1),
    "step": lambda x: x[1:, ::2],
    "chain": lambda x: x.t()[1:3].unsqueeze(0)[..., 1],
    "expanded": lambda x: x[:1].expand(4, 5),
    "strided": lambda x: x.as_strided((2, 2), (5, 1), 3),
    "unfolded": lambda x: x.unfold(1, 3, 1),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(2, 1),
    "unbind": lambda x: x.unbind()[2],
}


FEW = ("row", "transposed", "itself", "strided", "chunk")
KINDS = [k if k in FEW else pytest.param(k, marks=pytest.mark.sweep) for k in VIEWS]


@pytest.mark.parametrize("kind", KINDS)
def test_changing_the_input_changes_a_returned_view(kind):
    def change(x, result):
        x.mul_(2)

    actual, expected = (_run_and(change, VIEWS[kind], d) for d in ("tpu", "cpu"))
    same(actual, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_changing_a_returned_view_changes_the_input(kind):
    if kind in ("expanded", "unfolded"):  # nobody may write to memory that overlaps itself
        with pytest.raises(RuntimeError):
            _run_and(lambda x, result: result.add_(1), VIEWS[kind], "tpu")
        return

    def change(x, result):
        (result if isinstance(result, torch.Tensor) else result[0]).add_(1)

    actual, expected = (_run_and(change, VIEWS[kind], d) for d in ("tpu", "cpu"))
    same(actual, expected)


def test_views_of_a_mutated_input():
    def g(x):
        x.add_(1)
        return x[1:], x.t()

    def change(x, result):
        x.zero_()
        result[0].add_(5)

    actual, expected = (_run_and(change, g, d) for d in ("tpu", "cpu"))
    same(actual, expected)


def test_two_results_in_one_memory():
    def g(x):
        y = x * 2
        return y, y[0], y.t()

    def change(x, result):
        result[1].add_(7)

    actual, expected = (_run_and(change, g, d) for d in ("tpu", "cpu"))
    same(actual, expected)


def test_kinds_of_results():
    def g(x):
        y = x + 1
        return x, y, y, None, 3, 2.5, "text", {"a": x, "b": (y, None)}, x.shape[0], x.dtype

    compare(g, (X,))
    (x,) = on("tpu", X)
    result = torch.compile(g, backend="tpu")(x)
    assert result[0] is x and result[1] is result[2] and result[7]["a"] is x


def test_no_results():
    compare(lambda x: None, (X,))
    compare(lambda x: x.add_(1) and None, (X[0, 0],))


def test_results_that_require_grad():
    def g(x, y):
        z = x * y
        return z, z.detach(), (x > 0), z[0], x.t()

    compare(g, (X.clone().requires_grad_(), Y))


def test_in_place_on_a_result():
    def run(compiled, device):
        x, y = on(device, X.clone().requires_grad_(), Y)
        multiply = torch.compile(torch.mul, backend="tpu") if compiled else torch.mul
        result = multiply(x, y)
        result.mul_(2)
        result.sum().backward()
        return result, x.grad

    same(run(True, "tpu"), run(False, "cpu"))


def test_a_global_is_mutated():
    state = {"cpu": X.clone(), "tpu": X.to("tpu")}

    def g(x):
        state[x.device.type].add_(x)
        return state[x.device.type] * 2

    compare(g, (Y,), calls=3)
    same(state["tpu"].cpu(), state["cpu"])
