"""Control flow that torch.compile captures: cond, while_loop, scan, associative_scan.

One graph, one program: branches and bodies become regions of it. Every function is compared with
itself on the CPU, where it runs as plain Python.
"""

import pytest
import torch
import torch.nn.functional as F
from compile.both import compare, on, rand, same
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from torch_tpu import errors

X, Y = rand(4, 5), rand(4, 5, seed=1)
ROWS = rand(6, 3, seed=2)


def leaf(tensor):
    return tensor.clone().requires_grad_()


def _compare(f, *tensors, **options):
    compare(f, tensors, fullgraph=True, **options)


# ---- cond ---------------------------------------------------------------------------------------


def _cond(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: x.sin() * y, lambda x, y: (x - y).cos(), (x, y))


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(sign):
    _compare(_cond, sign * X.abs(), Y)


@pytest.mark.parametrize("sign", [1, -1])
def test_cond_backward(sign):
    _compare(_cond, leaf(sign * X.abs()), leaf(Y))


def test_cond_runs_one_program_for_both_branches(compiles):
    compiled = torch.compile(_cond, backend="tpu", fullgraph=True)
    compiled(*on("tpu", X.abs(), Y))
    compiles.reset()
    same(compiled(*on("tpu", -X.abs(), Y)), _cond(-X.abs(), Y))
    assert compiles() == 0


def test_cond_captures_outer_tensors_and_nests():
    weight = {"cpu": rand(5, 5, seed=4), "tpu": rand(5, 5, seed=4).to("tpu")}

    def f(x, flag):
        w = weight[x.device.type]

        def yes(x):
            return torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: x @ w.t() + 1, (x,))

        return torch.cond(flag, yes, lambda x: x * w[0], (x,)) + 1

    for x in (X.abs(), -X.abs()):
        for flag in (True, False):
            _compare(f, x, torch.tensor(flag))


def test_cond_with_several_results():
    def f(x, n):
        return torch.cond(
            (n > 2).any(),
            lambda x, n: (x * 2, {"n": n + 1, "m": x > 0}),
            lambda x, n: (x + 1, {"n": n * n, "m": x < 0}),
            (x, n),
        )

    _compare(f, X, torch.arange(3))
    _compare(f, X, torch.arange(5))


def test_cond_on_a_shape():
    def f(x):
        return torch.cond(x.shape[0] > 3, lambda x: x + 1, lambda x: x - 1, (x,))

    compiled = torch.compile(f, backend="tpu", dynamic=True)
    for rows in (5, 3):
        x = rand(rows, 2)
        same(compiled(x.to("tpu")), f(x))


def test_cond_on_a_number_read_from_a_tensor():
    def f(x, n):
        return torch.cond(n.max() < 4, lambda x: x.clone(), lambda x: x * 3, (x,))

    _compare(f, X, torch.arange(4))
    _compare(f, X, torch.arange(9))


# ---- while_loop ---------------------------------------------------------------------------------


def _halve(n, x):
    return while_loop(lambda n, x: x.abs().sum() > 1, lambda n, x: (n + 1, x / 2), (n, x))


def test_while_loop():
    _compare(_halve, torch.tensor(0), X)
    _compare(_halve, torch.tensor(0), X * 1000)
    _compare(_halve, torch.tensor(0), X * 0)


def test_while_loop_with_outer_tensors():
    def f(x, w):
        def body(i, x):
            return i + 1, (x @ w).tanh()

        return while_loop(
            lambda i, x: i < 3, body, (torch.zeros((), dtype=torch.int64, device=x.device), x)
        )

    _compare(f, X, rand(5, 5))


def test_while_loop_with_a_number():
    def f(x):
        return while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 1.5 + i), (0, x))

    _compare(f, X)


def test_nested_loops_and_branches():
    def inner(j, x):
        step = torch.cond(x.sum() > 0, lambda x: x - 1, lambda x: x + 0.5, (x,))
        return j + 1, step

    def outer(i, x):
        j, x = while_loop(lambda j, x: j < 2, inner, (torch.zeros_like(i), x))
        return i + j, x * 1.1

    def f(i, x):
        return while_loop(lambda i, x: i < 5, outer, (i, x))

    _compare(f, torch.tensor(0), X)


def test_while_loop_backward(monkeypatch):
    def f(x, w):
        i = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, (x @ w).sin()), (i, x))[1]

    # How much backward needs depends on the number of turns, so that no program can give it.
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "warn")
    with pytest.warns(errors.FallbackWarning, match="while_loop_stack_output"):
        _compare(f, leaf(X), leaf(rand(5, 5) / 3))


# ---- scan ---------------------------------------------------------------------------------------


def _decay(carry, x):
    # Not `carry.sin()`: AOTAutograd takes what its backward saves for an alias of the carry.
    carry = carry * 0.9 + x
    return carry, carry.clone()


def _scan(init, xs):
    return scan(_decay, init, xs)


def test_scan():
    _compare(_scan, torch.zeros(3), ROWS)


def test_scan_backward():
    _compare(_scan, leaf(torch.ones(3)), leaf(ROWS))


@pytest.mark.parametrize("dim,reverse", [(0, True), (1, False), (-1, True)])
def test_scan_over_a_dim(dim, reverse):
    init = torch.zeros(ROWS.select(dim, 0).shape)
    _compare(lambda init, xs: scan(_decay, init, xs, dim=dim, reverse=reverse), init, ROWS)


def test_scan_of_structures():
    def step(carry, x):
        total = {"sum": carry["sum"] + x[0], "count": carry["count"] + x[1]}
        return total, (total["sum"] / 2, total["count"] * 3)

    def f(total, count, a, b):
        return scan(step, {"sum": total, "count": count}, (a, b))

    _compare(f, torch.zeros(3), torch.tensor(0), ROWS, torch.arange(6))


def _recurrent(init, xs, w, u):
    def step(h, x):
        h = torch.tanh(h @ w + x @ u)
        return h, h.clone()

    return scan(step, init, xs)


def test_scan_as_recurrent_layer():
    tensors = torch.zeros(2, 4), rand(5, 2, 3), rand(4, 4, seed=5), rand(3, 4, seed=6)
    _compare(_recurrent, *tensors)
    _compare(_recurrent, *map(leaf, tensors))


def test_scan_of_one_row_and_one_program(compiles):
    _compare(_scan, torch.zeros(3), ROWS[:1])
    compiled = torch.compile(_scan, backend="tpu", fullgraph=True)
    inputs = on("tpu", torch.zeros(3), rand(64, 3))
    compiles.reset()
    compiled(*inputs)
    assert compiles() == 1


# ---- associative_scan ---------------------------------------------------------------------------


def _affine(left, right):
    return left[0] * right[0], left[1] * right[0] + right[1]


@pytest.mark.parametrize("dim,reverse", [(0, False), (0, True), (1, False)])
def test_associative_scan(dim, reverse):
    def f(a, b):
        options = {"dim": dim, "reverse": reverse, "combine_mode": "generic"}
        pair = associative_scan(_affine, (a, b), **options)
        return pair, associative_scan(torch.add, a, **options)

    _compare(f, ROWS, rand(6, 3, seed=7))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_associative_scan_lengths(rows):
    def f(x):
        return associative_scan(lambda a, b: a * b + a, x, dim=0, combine_mode="generic")

    # Not associative: the order of combination shows, which only one and two rows fix.
    x = rand(rows, 3)
    if rows < 3:
        _compare(f, x)
    _compare(lambda x: associative_scan(torch.maximum, x, dim=0, combine_mode="generic"), x)


def test_associative_scan_of_matrices():
    def f(x):
        return associative_scan(torch.matmul, x, dim=0, combine_mode="generic")

    _compare(f, rand(5, 3, 3))


def test_associative_scan_backward():
    def f(a, b):
        return associative_scan(_affine, (a, b), dim=0, combine_mode="generic")

    _compare(f, leaf(ROWS), leaf(rand(6, 3, seed=7)))


# ---- random numbers -----------------------------------------------------------------------------


def test_dropout_inside_a_loop():
    """Each turn draws another mask; one seed gives one sequence of them."""

    def f(x):
        def body(i, masks):
            drawn = F.dropout(torch.ones_like(masks[0]), 0.5)
            return i + 1, torch.cat([drawn[None], masks[:-1]])

        i = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, m: i < 3, body, (i, x))[1]

    compiled = torch.compile(f, backend="tpu", fullgraph=True)
    x = torch.zeros(3, 64, device="tpu")
    torch.manual_seed(7)
    first, second = compiled(x).cpu(), compiled(x).cpu()
    torch.manual_seed(7)
    assert torch.equal(compiled(x).cpu(), first)
    masks = [*first, *second]
    for i, mask in enumerate(masks):
        assert set(mask.unique().tolist()) == {0.0, 2.0}
        assert not any(torch.equal(mask, other) for other in masks[:i])


def test_dropout_inside_a_branch():
    def f(x):
        y = torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5), lambda x: x * 1, (x,))
        return y, F.dropout(x.abs(), 0.5)

    compiled = torch.compile(f, backend="tpu", fullgraph=True)
    ones = torch.ones(256, device="tpu")
    first, second = compiled(ones), compiled(ones)
    masks = [m.cpu() for m in (*first, *second)]
    for i, mask in enumerate(masks):
        assert set(mask.unique().tolist()) == {0.0, 2.0}
        assert not any(torch.equal(mask, other) for other in masks[:i])
    same(compiled(-ones)[0], -ones)


def test_dropout_inside_a_scan():
    def f(init, xs):
        return scan(lambda c, x: (c + 1, F.dropout(x, 0.5)), init, xs)[1]

    result = torch.compile(f, backend="tpu", fullgraph=True)(
        torch.zeros((), device="tpu"), torch.ones(4, 64, device="tpu")
    ).cpu()
    assert set(result.unique().tolist()) == {0.0, 2.0}
    assert len({tuple(row.tolist()) for row in result}) == 4
