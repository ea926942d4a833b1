"""Debug: an index out of range raises where it is used, and NaN is found where it arises."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F

FILE = __file__


@pytest.fixture
def debug():
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEBUG):
        yield


def x(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to("tpu")


def i(*values):
    return torch.tensor(values, device="tpu")


# Operator → (the call with an index, the lowest and highest that are valid).
INDEXING = {
    "index": (lambda n: x(5, 2)[i(0, n)], -5, 4),
    "index of the second dim": (lambda n: x(5, 3)[:, i(0, n)], -3, 2),
    "index_put": (lambda n: x(5).index_put_((i(n),), x(1)), -5, 4),
    "gather": (lambda n: x(2, 3).gather(1, i([n], [0])), 0, 2),
    "scatter": (lambda n: x(2, 3).scatter(1, i([n], [0]), 1.0), 0, 2),
    "scatter source": (lambda n: x(2, 3).scatter_(0, i([n, 0, 1]), x(1, 3)), 0, 1),
    "scatter_add": (lambda n: x(2, 3).scatter_add(1, i([n], [0]), x(2, 1)), 0, 2),
    "scatter_reduce": (lambda n: x(4).scatter_reduce(0, i(n), x(1), "amax"), 0, 3),
    "embedding": (lambda n: F.embedding(i(0, n), x(7, 2)), 0, 6),
    "embedding_bag": (lambda n: F.embedding_bag(i([0, n]), x(7, 2)), 0, 6),
    "index_select": (lambda n: x(3, 4).index_select(1, i(n)), 0, 3),
    "index_add": (lambda n: x(3, 4).index_add(0, i(n), x(1, 4)), 0, 2),
    "index_copy": (lambda n: x(3, 4).index_copy(0, i(n), x(1, 4)), 0, 2),
    "index_fill": (lambda n: x(3, 4).index_fill(0, i(n), 1.0), -3, 2),
    "take": (lambda n: x(2, 3).take(i(n)), -6, 5),
    "put": (lambda n: x(2, 3).put_(i(n), x(1)), -6, 5),
    "one_hot": (lambda n: F.one_hot(i(0, n), 4), 0, 3),
    "nll_loss": (lambda n: F.nll_loss(x(2, 3), i(0, n), ignore_index=-7), 0, 2),
    "nll_loss 2d": (lambda n: F.nll_loss(x(1, 3, 1, 1), i([[n]])), 0, 2),
    "cross_entropy": (lambda n: F.cross_entropy(x(2, 3), i(0, n)), 0, 2),
}


@pytest.mark.parametrize("name", INDEXING)
def test_out_of_range_by_one(name, debug):
    call, lowest, highest = INDEXING[name]
    line = inspect.getsourcelines(call)[1]
    call(lowest)
    call(highest)
    for wrong in (lowest - 1, highest + 1):
        with pytest.raises(IndexError) as caught:
            call(wrong)
        text = str(caught.value)
        assert "aten::" in text and str(wrong) in text
        assert f"{lowest} to {highest}" in text
        assert f"{FILE}:{line}" in text


def test_what_strict_does_instead():
    """Reading takes the nearest element, writing leaves everything as it was; no error."""
    a = x(4)
    assert a[i(9)].tolist() == [3.0]
    assert a.index_select(0, i(-1, 4)).tolist() == [0.0, 3.0]
    assert F.embedding(i(7), x(3, 1)).tolist() == [[2.0]]
    b = a.clone()
    b[i(9)] = 5.0
    assert b.tolist() == a.tolist()
    assert a.scatter(0, i(4), 5.0).tolist() == a.tolist()
    assert a.index_add(0, i(-1), x(1) + 1).tolist() == a.tolist()


def test_an_ignored_class_is_no_index(debug):
    loss = F.nll_loss(x(2, 3), i(0, -100))
    assert loss.item() == -0.0


def test_a_mask_is_no_index(debug):
    assert x(3)[torch.tensor([True, False, True], device="tpu")].tolist() == [0.0, 2.0]


def test_an_error_in_backward_reaches_the_caller(debug):
    weight = x(3, 2).requires_grad_()
    with pytest.raises(IndexError, match="embedding"):
        F.embedding(i(3), weight).sum().backward()


def test_results_are_there_when_an_operator_returns(debug):
    from torch_tpu import _core

    a = torch.ones(1024, 1024, device="tpu")
    _core.synchronize(0)
    for _ in range(5):
        a @ a
        assert torch.tpu.current_stream().query()


class TestNonfinite:
    def test_the_first_operator_is_named(self, debug):
        with torch.tpu.set_detect_nonfinite(True):
            a = x(3) - 1
            with pytest.raises(FloatingPointError, match=r"aten::log made nan") as caught:
                torch.log(a)
        assert FILE in str(caught.value)

    @pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float64, torch.complex64))
    def test_infinity_and_other_dtypes(self, dtype, debug):
        a = x(3).to(dtype)
        with torch.tpu.set_detect_nonfinite(True), pytest.raises(FloatingPointError, match="recip"):
            a.reciprocal()

    def test_in_place(self, debug):
        a = x(3)
        with torch.tpu.set_detect_nonfinite(True), pytest.raises(FloatingPointError, match="div_"):
            a.div_(0)

    @pytest.mark.parametrize("name", ("_foreach_div_", "_foreach_reciprocal_"))
    def test_operators_that_return_nothing(self, name, debug):
        lists = [x(3)], *([[x(3) * 0]] if "div" in name else [])
        with torch.tpu.set_detect_nonfinite(True), pytest.raises(FloatingPointError, match=name):
            getattr(torch, name)(*lists)

    def test_what_was_asked_for_is_no_fault(self, debug):
        with torch.tpu.set_detect_nonfinite(True):
            scores = x(2, 2).masked_fill(x(2, 2) > 1, float("-inf"))
            assert torch.isinf(scores).any()
            assert (scores - 1).softmax(-1)[0].sum().item() == pytest.approx(1)

    def test_backward(self, debug):
        a = torch.zeros(1, device="tpu", requires_grad=True)
        with torch.tpu.set_detect_nonfinite(True), pytest.raises(FloatingPointError):
            a.sqrt().sum().backward()

    def test_off_again(self, debug):
        torch.tpu.set_detect_nonfinite(True)
        torch.tpu.set_detect_nonfinite(False)
        assert x(1).log().item() == float("-inf")

    def test_strict_does_not_look(self):
        with torch.tpu.set_detect_nonfinite(True):
            assert x(1).log().item() == float("-inf")
