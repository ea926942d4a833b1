"""Copies: host to device and back, between devices, with other dtypes and strides, data loading."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "slice": lambda x: x[1:3, 2:5],
    "step": lambda x: x[::2, ::3],
    "column": lambda x: x[:, 3],
    "expanded": lambda x: x[:1].expand(4, 6),
    "diagonal": lambda x: x.diagonal(),
}


def base():
    return torch.arange(24.0).view(4, 6)


@pytest.mark.parametrize("name", LAYOUTS)
def test_strided_host_to_device(name):
    x = LAYOUTS[name](base())
    there = x.to("tpu")
    assert torch.equal(there.cpu(), x)
    target = torch.zeros_like(x, device="tpu")
    assert target.copy_(x) is target
    assert torch.equal(target.cpu(), x)


@pytest.mark.parametrize("name", LAYOUTS)
def test_strided_device_to_host(name):
    x, there = base(), base().to("tpu")
    assert torch.equal(LAYOUTS[name](there).cpu(), LAYOUTS[name](x))
    if name == "expanded":
        return
    target = torch.zeros(4, 6)
    LAYOUTS[name](target).copy_(LAYOUTS[name](there))
    want = torch.zeros(4, 6)
    LAYOUTS[name](want).copy_(LAYOUTS[name](x))
    assert torch.equal(target, want)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "expanded"])
def test_host_into_strided_device(name):
    want, there = torch.zeros(4, 6), torch.zeros(4, 6, device="tpu")
    values = LAYOUTS[name](base()) + 1
    LAYOUTS[name](want).copy_(values)
    LAYOUTS[name](there).copy_(values)
    assert torch.equal(there.cpu(), want)


def test_to_copies_the_host_memory():
    for size in (3, 16, 4096):
        x = torch.zeros(size)
        there = x.to("tpu")
        x.fill_(1)
        assert there.sum().item() == 0
        back = there.cpu()
        back.fill_(2)
        assert there.sum().item() == 0


def test_non_blocking():
    x = torch.arange(1000.0)
    there = x.to("tpu", non_blocking=True)
    x.zero_()
    assert there.sum().item() == 499500
    back = there.to("cpu", non_blocking=True)
    torch.tpu.synchronize()
    assert back.sum().item() == 499500


@pytest.mark.parametrize(
    "source", [torch.float32, torch.int64, torch.bool, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("target", [torch.float32, torch.int32, torch.bool, torch.float64], ids=str)
def test_dtype_changes_on_every_way(source, target):
    x = torch.tensor([0.0, 1.0, 2.75, -3.5]).to(source)
    want = x.to(target)
    assert torch.equal(x.to("tpu", target).cpu(), want)
    assert torch.equal(x.to("tpu").to(target).cpu(), want)
    assert torch.equal(x.to("tpu").to("cpu", target), want)
    into = torch.empty(4, dtype=target, device="tpu")
    into.copy_(x)
    assert torch.equal(into.cpu(), want)
    into.copy_(x.to("tpu").flip(0))
    assert torch.equal(into.cpu(), want.flip(0))
    home = torch.empty(4, dtype=target)
    home.copy_(x.to("tpu"))
    assert torch.equal(home, want)


def test_broadcasting_copies():
    there = torch.zeros(2, 3, device="tpu")
    there.copy_(torch.arange(3.0))
    assert there.tolist() == [[0, 1, 2]] * 2
    there.copy_(torch.tensor(5.0, device="tpu"))
    assert there.sum().item() == 30
    home = torch.zeros(2, 3)
    home.copy_(torch.arange(3.0).to("tpu"))
    assert home.tolist() == [[0, 1, 2]] * 2
    with pytest.raises(RuntimeError, match="size|shape|expand"):
        there.copy_(torch.zeros(4))


def test_to_is_the_identity_where_nothing_changes():
    x = torch.ones(2, device="tpu")
    assert x.to("tpu") is x
    assert x.to("tpu:0") is x
    assert x.to(torch.float32) is x
    copied = x.to("tpu", copy=True)
    assert copied.data_ptr() != x.data_ptr()
    assert x.tpu() is x
    assert torch.ones(2).tpu().device.type == "tpu"


def test_between_devices():
    x = base().to("tpu:0")
    y = x.to("tpu:1")
    assert str(y.device) == "tpu:1"
    assert torch.equal(y.cpu(), base())
    assert str((y + 1).device) == "tpu:1"
    y.add_(1)
    assert torch.equal(x.cpu(), base())
    x.copy_(y)
    assert torch.equal(x.cpu(), base() + 1)


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "expanded"])
def test_strided_between_devices(name):
    x = base().to("tpu:0")
    target = torch.zeros(4, 6, device="tpu:1")
    LAYOUTS[name](target).copy_(LAYOUTS[name](x))
    want = torch.zeros(4, 6)
    LAYOUTS[name](want).copy_(LAYOUTS[name](base()))
    assert torch.equal(target.cpu(), want)
    assert torch.equal(LAYOUTS[name](x).to("tpu:1").cpu(), LAYOUTS[name](base()))


def test_between_devices_with_dtype():
    x = torch.tensor([1.5, -2.5], device="tpu:0")
    assert x.to("tpu:1", torch.int32).tolist() == [1, -2]
    y = torch.zeros(2, 2, dtype=torch.float64, device="tpu:1")
    y.copy_(x)
    assert y.tolist() == [[1.5, -2.5]] * 2


def test_current_device_and_autograd_on_the_second_device():
    with torch.tpu.device(1):
        assert torch.tpu.current_device() == 1
        x = torch.ones(2, device="tpu", requires_grad=True)
    assert str(x.device) == "tpu:1"
    assert torch.tpu.current_device() == 0
    y = x.to("tpu:0") * 3
    (y.sum().to("tpu:1") + x.sum()).backward()
    assert str(x.grad.device) == "tpu:1"
    assert x.grad.tolist() == [4, 4]


def test_pinned_memory():
    x = torch.arange(5.0).pin_memory()
    assert x.is_pinned()
    assert not torch.arange(5.0).is_pinned()
    there = x.to("tpu", non_blocking=True)
    x.zero_()
    assert there.tolist() == [0, 1, 2, 3, 4]
    assert torch.empty(3, pin_memory=True).is_pinned()
    y = torch.empty(5, pin_memory=True).copy_(there, non_blocking=True)
    torch.tpu.synchronize()
    assert y.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(2, device="tpu").pin_memory()


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader(workers):
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    total, count = 0.0, 0
    for x, y in loader:
        assert x.is_pinned()
        total += (x.to("tpu", non_blocking=True) + y.to("tpu")).sum().item()
        count += 1
    assert (total, count) == (90, 3)


def test_complex_lazies_through_copies():
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(z.conj().to("tpu").cpu(), z.conj())
    assert torch.equal(z.to("tpu").conj().cpu(), z.conj())
    assert torch.equal(z.to("tpu").conj().to("tpu:1").cpu(), z.conj())
    target = torch.zeros(2, dtype=torch.complex64)
    target.conj().copy_(z.to("tpu"))
    assert torch.equal(target, z.conj().resolve_conj())
