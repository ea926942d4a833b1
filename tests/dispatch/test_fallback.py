"""Operators without a lowering: counted, warned about once, an error where that is asked for.

The operators are defined here, so that they have no lowering for certain, one per kind of schema.
"""

from __future__ import annotations

import warnings

import pytest
import torch

from torch_tpu import errors
from torch_tpu.dispatch import register

DEFINITIONS = """
plain(Tensor x, float s) -> Tensor
many(Tensor[] xs, Tensor?[] ys) -> Tensor[]
pair(Tensor x) -> (Tensor, Tensor)
inplace_(Tensor(a!) x, Tensor y) -> Tensor(a!)
write_many(Tensor(a!)[] xs, float s) -> ()
maybe(Tensor? x, int n) -> Tensor
both(Tensor self, Tensor other) -> Tensor
both_(Tensor(a!) self, Tensor other) -> Tensor(a!)
both.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)
number(Tensor x) -> int
each(Tensor[] self, float s) -> Tensor[]
each_(Tensor(a!)[] self, float s) -> ()
each.out(Tensor[] self, float s, *, Tensor(a!)[] out) -> ()
"""


def write_many(xs, s):
    for x in xs:
        x.add_(s)


def each_out(xs, s, *, out):
    for x, o in zip(xs, out, strict=True):
        o.resize_(x.shape).copy_(x + s)


def both_out(x, y, *, out):
    return out.resize_(x.shape).copy_(x + 2 * y)


IMPLEMENTATIONS = {
    "plain": lambda x, s: x * s,
    "many": lambda xs, ys: [x if y is None else x + y for x, y in zip(xs, ys, strict=True)],
    "pair": lambda x: (x + 1, x + 2),
    "inplace_": lambda x, y: x.add_(y),
    "write_many": write_many,
    "maybe": lambda x, n: torch.full((n,), 3.0) if x is None else x + n,
    "both": lambda x, y: x + 2 * y,
    "both_": lambda x, y: x.add_(2 * y),
    "both.out": both_out,
    "each": lambda xs, s: [x + s for x in xs],
    "each_": write_many,
    "each.out": each_out,
    "number": lambda x: x.numel() + 1,
}


@pytest.fixture(scope="module")
def library():
    """Operators of our own with CPU kernels only."""
    lib = torch.library.Library("torch_tpu_test", "DEF")
    for definition in DEFINITIONS.strip().splitlines():
        lib.define(definition)
    for name, kernel in IMPLEMENTATIONS.items():
        lib.impl(name, kernel, "CPU")
    yield torch.ops.torch_tpu_test
    lib._destroy()


@pytest.fixture
def allowed(monkeypatch):
    """Fallbacks warn, as they do by default."""
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "warn")
    torch.tpu.reset_fallback_stats()
    yield
    torch.tpu.reset_fallback_stats()


def test_plain(library, allowed):
    x = torch.ones(3).to("tpu")
    with pytest.warns(errors.FallbackWarning, match="torch_tpu_test::plain"):
        y = library.plain(x, 2.5)
    assert y.device.type == "tpu"
    assert y.tolist() == [2.5] * 3
    assert library.plain(x[1:], 3.0).tolist() == [3, 3]
    assert library.plain(x, 4.0).tolist() == [4] * 3
    assert torch.tpu.fallback_stats() == {"torch_tpu_test::plain": 3}


def test_is_an_error_where_asked_for(library, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "error")
    torch.tpu.reset_fallback_stats()
    for _ in range(2):
        with pytest.raises(
            errors.FallbackError, match="torch_tpu_test::plain would run on the CPU"
        ):
            library.plain(torch.ones(11).to("tpu"), 2.5)
    assert isinstance(errors.FallbackError("x"), NotImplementedError)
    assert torch.tpu.fallback_stats() == {}


def test_warns_once_and_again_after_a_reset(library, allowed):
    x = torch.ones(2).to("tpu")
    for _ in range(2):
        with pytest.warns(errors.FallbackWarning, match="pair runs on the CPU because") as caught:
            for _ in range(3):
                library.pair(x)
        assert len(caught) == 1
        assert torch.tpu.fallback_stats() == {"torch_tpu_test::pair": 3}
        torch.tpu.reset_fallback_stats()


def test_a_decomposition_is_no_fallback(allowed):
    a, b = torch.rand(5), torch.rand(5)
    assert "aten::dist" not in register.SERVED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torch.dist(a.to("tpu"), b.to("tpu"), 3)
    torch.testing.assert_close(got.cpu(), torch.dist(a, b, 3))
    assert torch.tpu.fallback_stats() == {}


@pytest.mark.filterwarnings("ignore::torch_tpu.errors.FallbackWarning")
class TestSchemas:
    """Every kind of argument and result arrives whole."""

    def test_lists_and_optional_lists(self, library, allowed):
        xs = [torch.full((2,), float(i)).to("tpu") for i in range(3)]
        ys = [None, torch.ones(2).to("tpu"), None]
        got = library.many(xs, ys)
        assert [g.tolist() for g in got] == [[0, 0], [2, 2], [2, 2]]
        assert all(g.device.type == "tpu" for g in got)

    def test_several_results(self, library, allowed):
        a, b = library.pair(torch.zeros(2).to("tpu"))
        assert (a.tolist(), b.tolist()) == ([1, 1], [2, 2])

    def test_in_place(self, library, allowed):
        x = torch.zeros(4).to("tpu")
        assert library.inplace_(x, torch.ones(4).to("tpu")) is x
        assert x.tolist() == [1] * 4

    def test_in_place_through_a_view(self, library, allowed):
        x = torch.zeros(4).to("tpu")
        library.inplace_(x[1:3], torch.ones(2).to("tpu"))
        assert x.tolist() == [0, 1, 1, 0]

    def test_list_in_place(self, library, allowed):
        xs = [torch.zeros(2).to("tpu"), torch.ones(3).to("tpu")]
        library.write_many(xs, 1.0)
        assert [x.tolist() for x in xs] == [[1, 1], [2, 2, 2]]

    def test_functional_in_place_and_out_forms(self, library, allowed):
        x, y = torch.zeros(2).to("tpu"), torch.ones(2).to("tpu")
        assert library.both(x, y).tolist() == [2, 2]
        assert library.both_(x, y) is x
        assert x.tolist() == [2, 2]
        out = torch.empty(0, device="tpu")
        assert library.both.out(x, y, out=out) is out
        assert out.tolist() == [4, 4]
        base = torch.zeros(4).to("tpu")
        library.both.out(x, y, out=base[2:])
        assert base.tolist() == [0, 0, 4, 4]
        library.both_(base.view(2, 2)[:, 0], y)
        assert base.tolist() == [2, 0, 6, 4]

    def test_in_place_form_of_a_list(self, library, allowed):
        xs = [torch.zeros(2).to("tpu"), torch.ones(3).to("tpu")]
        assert [x.tolist() for x in library.each(xs, 1.0)] == [[1, 1], [2, 2, 2]]
        library.each_(xs, 1.0)
        assert [x.tolist() for x in xs] == [[1, 1], [2, 2, 2]]

    def test_out_form_of_a_list(self, library, allowed):
        xs = [torch.zeros(2).to("tpu"), torch.ones(3).to("tpu")]
        out = [torch.empty(0, device="tpu"), torch.zeros(3).to("tpu")]
        library.each.out(xs, 1.0, out=out)
        assert [x.tolist() for x in out] == [[1, 1], [2, 2, 2]]

    def test_a_number_comes_back(self, library, allowed):
        assert library.number(torch.zeros(4).to("tpu")) == 5

    def test_tensors_without_elements(self, library, allowed):
        assert library.plain(torch.zeros(0, 3, device="tpu"), 2.0).shape == (0, 3)

    def test_optional_tensor(self, library, allowed):
        assert library.maybe(torch.ones(1).to("tpu"), 2).tolist() == [3]

    def test_same_tensor_twice(self, library, allowed):
        x = torch.ones(2).to("tpu")
        library.inplace_(x, x)
        assert x.tolist() == [2, 2]

    def test_second_device(self, library, allowed):
        assert str(library.plain(torch.ones(2, device="tpu:1"), 2.0).device) == "tpu:1"


def test_mode_is_read_at_every_new_call(library, monkeypatch):
    """A call that was allowed once is not allowed for ever."""
    x = torch.ones(5).to("tpu")
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.plain(x, 2.0)
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "error")
    with pytest.raises(errors.FallbackError):
        library.plain(x, 2.0)
