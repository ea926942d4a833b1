"""Random numbers in compiled functions: fresh at each call, one seed one sequence, one mask for
forward and backward."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from compile.both import compare, same

X = torch.ones(64, 8)


def _sequence(f, *inputs, seed: int = 5, calls: int = 3):
    torch.manual_seed(seed)
    return [f(*inputs).cpu() for _ in range(calls)]


def _noisy(x):
    noise = (
        torch.rand_like(x)
        + torch.randn(8, device=x.device)
        + torch.randint(0, 5, x.shape, device=x.device)
    )
    return F.dropout(x, 0.5) + noise + torch.bernoulli(x * 0.3) + torch.normal(x, 2.0)


def test_masks_change():
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="tpu", fullgraph=True)
    first, second = (compiled(X.to("tpu")).cpu() for _ in range(2))
    assert not torch.equal(first, second)
    for mask in (first, second):
        assert set(mask.unique().tolist()) == {0.0, 2.0}
        assert 0.4 < (mask != 0).float().mean() < 0.6


def test_two_masks_in_one_graph_differ():
    first, second = torch.compile(lambda x: (F.dropout(x), F.dropout(x)), backend="tpu")(
        X.to("tpu")
    )
    assert not torch.equal(first.cpu(), second.cpu())


def test_one_seed_one_sequence():
    x = X.to("tpu")
    compiled = torch.compile(_noisy, backend="tpu", fullgraph=True)
    first, again, other = (_sequence(compiled, x, seed=s) for s in (5, 5, 6))
    same(again, first)
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], other[0])


def test_state_of_the_generator():
    x = X.to("tpu")
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="tpu")
    compiled(x)
    state = torch.tpu.get_rng_state()
    first = compiled(x).cpu()
    torch.tpu.set_rng_state(state)
    same(compiled(x).cpu(), first)


def test_cpu_generator_is_left_alone():
    state = torch.get_rng_state()
    compare_state = torch.compile(_noisy, backend="tpu")
    compare_state(X.to("tpu"))
    assert torch.equal(torch.get_rng_state(), state)


def test_random_program_is_compiled_once(compiles):
    compiled = torch.compile(_noisy, backend="tpu")
    compiled(X.to("tpu"))
    compiles.reset()
    _sequence(compiled, X.to("tpu"))
    assert compiles() == 0


def test_backward_uses_the_mask_of_forward():
    x = X.to("tpu").requires_grad_()
    compiled = torch.compile(lambda x: F.dropout(x * 3, 0.25), backend="tpu")
    for _ in range(3):
        x.grad = None
        result = compiled(x)
        result.sum().backward()
        # The input is 1, so that the gradient of an element is the element.
        same(x.grad, result.detach())
    assert 0.6 < (x.grad != 0).float().mean().item() < 0.9


def test_module_in_training_and_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to("tpu")
    compiled = torch.compile(model, backend="tpu")
    x = X.to("tpu")
    assert not torch.equal(compiled(x).detach().cpu(), compiled(x).detach().cpu())
    model.eval()
    same(compiled(x).detach(), model(x).detach())
    assert torch.equal(compiled(x).detach().cpu(), compiled(x).detach().cpu())


def test_manual_seed_inside():
    def f(x):
        torch.manual_seed(3)
        return F.dropout(x, 0.5)

    compiled = torch.compile(f, backend="tpu")
    first, second = (compiled(X.to("tpu")).cpu() for _ in range(2))
    same(first, second)


def test_random_in_place():
    def f(x):
        y = torch.empty_like(x).uniform_(2, 3)
        return y, x.normal_()

    x = X.to("tpu")
    y, returned = torch.compile(f, backend="tpu")(x)
    assert returned is x and not torch.equal(x.cpu(), X)
    assert 2 <= y.min().item() and y.max().item() <= 3


def test_random_permutation_and_multinomial():
    def f(x):
        return torch.randperm(16, device=x.device), torch.multinomial(x, 3)

    order, drawn = torch.compile(f, backend="tpu")(X.to("tpu"))
    assert sorted(order.tolist()) == list(range(16))
    assert drawn.shape == (64, 3) and drawn.max().item() < 8


def test_attention_with_dropout():
    q = torch.randn(2, 2, 6, 4)
    compare(lambda q: F.scaled_dot_product_attention(q, q, q), (q.requires_grad_(),))

    def f(q):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    compiled = torch.compile(f, backend="tpu")
    moved = q.detach().to("tpu").requires_grad_()
    first, second = compiled(moved), compiled(moved)
    assert not torch.equal(first.detach().cpu(), second.detach().cpu())
    first.sum().backward()
    assert moved.grad.isfinite().all().item()
