"""Tensors whose array is longer than their storage behave as any other."""

import pytest
import torch

from torch_tpu import _core

SIZES = [(5,), (2, 3), (3, 1, 4), (1,), ()]


def slack(x, extra=7):
    """``x`` on the device, at the beginning of a longer array."""
    return _core.exact_of(_core.flat_of(x.to("tpu"), x.numel() + extra), list(x.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("sizes", SIZES)
def test_reads_as_what_it_is(sizes, dtype):
    x = torch.arange(1, 1 + torch.Size(sizes).numel()).reshape(sizes).to(dtype)
    y = slack(x)
    assert (y.shape, y.stride(), y.is_contiguous()) == (x.shape, x.stride(), True)
    assert y.untyped_storage().nbytes() == x.untyped_storage().nbytes()
    torch.testing.assert_close(y.cpu(), x)
    assert y.tolist() == x.tolist()


USES = {
    "pointwise": lambda x: x + x,
    "reduction": lambda x: x.sum(0),
    "view": lambda x: x[1],
    "strided": lambda x: x[:, ::2] * 2,
    "transposed": lambda x: x.t().contiguous(),
    "flat": lambda x: x.view(-1)[3:],
    "item": lambda x: x[2, 1] + x[2, 1].item(),
    "bytes": lambda x: x.view(torch.int32),
    "halves": lambda x: x.view(torch.int16),
    "clone": lambda x: x.clone(),
    "matmul": lambda x: x @ x.t(),
    "in place": lambda x: x.add_(1),
    "write a view": lambda x: x[1:].mul_(2),
    "write an element": lambda x: x.index_fill_(0, torch.tensor([1], device=x.device), 5.0),
    "copy": lambda x: x.copy_(torch.ones(4, 3)),
    "resize": lambda x: x.resize_(2, 3),
    "save": lambda x: torch.frombuffer(
        bytearray(x.cpu().numpy().tobytes()), dtype=torch.float32
    ).clone(),
}


@pytest.mark.parametrize("use", USES)
def test_every_use_reads_its_elements_only(use):
    x = torch.arange(12.0).view(4, 3)
    y = slack(x)
    result, expected = USES[use](y), USES[use](x)
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(y.cpu(), x)


def test_growing_a_storage_keeps_what_there_was():
    y = slack(torch.arange(4.0))
    y.resize_(8)
    assert y[:4].tolist() == [0, 1, 2, 3]


def test_nothing_is_copied_or_compiled_between_two_calls(compiles):
    flat = _core.flat_of(torch.arange(4.0).to("tpu"), 16)
    exact = _core.exact_of(flat, [2, 2])
    compiles.reset()
    again = _core.flat_of(exact, 16)
    assert compiles() == 0
    assert again[:4].tolist() == [0, 1, 2, 3]


def test_memory_that_is_shared_is_not_overwritten():
    exact = slack(torch.zeros(3))
    flat = _core.flat_of(exact, 10)
    exact += 1
    flat += 5
    assert exact.tolist() == [1, 1, 1]
    assert flat[:3].tolist() == [5, 5, 5]


def test_from_bucket_to_bucket_is_one_program(compiles):
    for count in (5, 6, 7):
        flat = _core.flat_of(slack(torch.arange(float(count)), 16 - count), 32)
        assert flat[:count].tolist() == list(range(count))
        if count == 5:
            compiles.reset()
    assert compiles() == 0


def test_views_go_through_host_memory():
    x = torch.arange(12.0).view(3, 4).to("tpu")
    assert _core.flat_of(x.t(), 20)[:12].tolist() == x.t().flatten().tolist()


def test_saved_and_loaded(tmp_path):
    y = slack(torch.arange(6.0).view(2, 3))
    torch.save(y, tmp_path / "y.pt")
    assert torch.load(tmp_path / "y.pt").tolist() == y.tolist()


def test_too_small_a_length_is_refused():
    with pytest.raises(RuntimeError, match="more than 2 elements"):
        _core.flat_of(torch.ones(3, device="tpu"), 2)
    with pytest.raises(RuntimeError, match="cannot hold"):
        _core.exact_of(torch.ones(3, device="tpu"), [2, 2])
