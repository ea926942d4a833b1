"""Lists of numbers as vectors: the same values, fewer calls."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_tpu.compile.vectorize import vectorize

foreach = torch.ops.aten


def _traced(function, *arguments):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(a) for a in arguments]
    return make_fx(function, tracing_mode="fake")(*fakes)


def _check(function, count: int, calls: int):
    steps = [torch.tensor(float(i + 1)) for i in range(count)]
    traced = _traced(function, *steps)
    expected = traced(*steps)
    vectorize(traced.graph)
    traced.graph.eliminate_dead_code()
    traced.graph.lint()
    result = torch.fx.GraphModule(traced, traced.graph)(*steps)
    torch.testing.assert_close(result, expected)
    names = [str(n.target) for n in traced.graph.nodes if n.op == "call_function"]
    assert sum("_foreach" in n for n in names) == 0
    assert len([n for n in names if "getitem" not in n]) == calls


def test_a_chain_is_stacked_once():
    def adam(*steps):
        steps = foreach._foreach_add.Scalar(list(steps), 1)
        decay = foreach._foreach_pow.ScalarAndTensor(0.9, steps)
        return foreach._foreach_sqrt.default(
            foreach._foreach_neg.default(foreach._foreach_sub.Scalar(decay, 1))
        )

    _check(adam, 5, calls=7)  # stack, five operators, unbind


def test_parts_of_a_list_are_stacked_anew():
    def some(*steps):
        steps = foreach._foreach_add.Scalar(list(steps), 1)
        return foreach._foreach_mul.List([steps[2], steps[0]], [steps[0], steps[1]])

    _check(some, 3, calls=7)  # stack, add, unbind, two stacks, mul, unbind


def test_a_shorter_list_is_not_the_whole_vector():
    def some(*steps):
        steps = foreach._foreach_add.Scalar(list(steps), 1)
        return foreach._foreach_div.List(steps[:2], [steps[0], steps[0]])

    _check(some, 4, calls=7)


def test_tensors_that_differ_are_left_alone():
    x = [torch.ones(()), torch.ones(2)]
    traced = _traced(lambda *x: foreach._foreach_add.Scalar(list(x), 1), *x)
    vectorize(traced.graph)
    assert any("_foreach_add" in str(n.target) for n in traced.graph.nodes)
