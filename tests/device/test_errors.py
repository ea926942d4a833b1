"""Mistakes are Python exceptions with a reason, and the device works afterwards."""

from __future__ import annotations

import pytest
import torch


def ones(*shape, **options):
    return torch.ones(*shape, device="tpu", **options)


MISTAKES = {
    "broadcast": lambda: ones(10) + ones(20),
    "matmul shapes": lambda: ones(2, 3) @ ones(2, 3),
    "matmul dtypes": lambda: torch.mm(ones(2, 2), ones(2, 2, dtype=torch.int64)),
    "linear shapes": lambda: torch.nn.functional.linear(ones(2, 3), ones(4, 5)),
    "cat shapes": lambda: torch.cat([ones(2, 3), ones(2, 4)]),
    "cat nothing": lambda: torch.cat([]),
    "view": lambda: ones(6).view(4),
    "conv channels": lambda: torch.nn.functional.conv2d(ones(1, 3, 8, 8), ones(4, 2, 3, 3)),
    "bitwise float": lambda: ones(2) & ones(2),
    "in-place dtype": lambda: ones(2, dtype=torch.int64).add_(1.5),
    "in-place shape": lambda: ones(2).add_(ones(3, 2)),
    "in-place expanded": lambda: ones(1).expand(3).add_(1),
    "out dtype": lambda: torch.add(ones(2), 1, out=ones(2, dtype=torch.int64)),
    "mean of integers": lambda: ones(3, dtype=torch.int64).mean(),
    "item of many": lambda: ones(2).item(),
    "mixed devices": lambda: ones(2) + torch.ones(2),
    "two tpus": lambda: ones(2) + torch.ones(2, device="tpu:1"),
    "mixed in matmul": lambda: ones(2, 2) @ torch.ones(2, 2),
    "mixed in a list": lambda: torch.cat([ones(2), torch.ones(2)]),
    "gather shape": lambda: torch.gather(ones(2, 2), 0, ones(3, 3, 3, dtype=torch.int64)),
    "index dtype": lambda: torch.index_select(ones(3), 0, ones(1)),
    "embedding dtype": lambda: torch.nn.functional.embedding(ones(2), ones(3, 4)),
    "cholesky shape": lambda: torch.linalg.cholesky(ones(2, 3)),
    "numpy of nothing like it": lambda: torch.from_numpy(ones(2)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_exception(name):
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as caught:
        result = MISTAKES[name]()
        result.cpu()
    assert len(str(caught.value)) > 10
    assert not isinstance(caught.value, torch.OutOfMemoryError)
    assert "INTERNAL ASSERT" not in str(caught.value)
    assert (ones(2) * 2).sum().item() == 4


@pytest.mark.parametrize("name", ["dim of sum", "dim of select", "index"])
def test_out_of_range_is_an_index_error(name):
    call = {
        "dim of sum": lambda: ones(2).sum(3),
        "dim of select": lambda: ones(2).select(2, 0),
        "index": lambda: ones(2)[5],
    }[name]
    with pytest.raises(IndexError):
        call()


def test_the_same_mistake_twice_raises_twice():
    for _ in range(3):
        with pytest.raises(RuntimeError, match="[Ss]ize"):
            ones(10) + ones(20)


def test_messages_name_both_devices():
    with pytest.raises(RuntimeError, match="tpu:0.*cpu"):
        ones(2) + torch.ones(2)
    with pytest.raises(RuntimeError, match="tpu:0.*tpu:1"):
        ones(2) + torch.ones(2, device="tpu:1")


def test_a_failed_write_changes_nothing():
    x = torch.arange(3.0).to("tpu")
    for bad in (lambda: x.add_(ones(2)), lambda: x.copy_(ones(7)), lambda: x.add_(torch.ones(3))):
        with pytest.raises(RuntimeError):
            bad()
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", ["tpu:7", "tpu:100"])
def test_a_device_that_is_not_there(device):
    for call in (
        lambda: torch.ones(1, device=device),
        lambda: torch.ones(1).to(device),
        lambda: torch.tpu.set_device(device),
        lambda: torch.tpu.synchronize(device),
        lambda: torch.tpu.get_device_properties(device),
        lambda: torch.tpu.memory_allocated(device),
    ):
        with pytest.raises((RuntimeError, ValueError), match=device):
            call()
    assert torch.tpu.current_device() == 0
    assert ones(1).item() == 1


def test_other_layouts_are_refused():
    for convert in ("to_sparse_csr", "to_sparse_csc"):
        with pytest.raises(NotImplementedError, match=f"aten::_{convert}.* layouts"):
            getattr(torch.eye(2, device="tpu"), convert)()


def test_errors_of_ours_are_also_what_others_catch():
    from torch_tpu import errors

    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.TorchTpuError):
            assert kind is errors.TorchTpuError or len(kind.__mro__) > 4
            assert kind.__doc__
