"""Views share storage: a write through any chain of views reaches the base and every alias.

The last test draws random chains of views and writes, and compares with the CPU after each write.
Plans and their programs: `csrc/device/views.cc`, `torch_tpu/dispatch/views.py`.
"""

from __future__ import annotations

import random

import pytest
import torch

BASE = torch.arange(24.0).view(4, 6)

VIEWS = {
    "slice": lambda x: x[1:3],
    "slice both": lambda x: x[1:3, 2:5],
    "step": lambda x: x[::2, 1::3],
    "integer": lambda x: x[2],
    "element": lambda x: x[2, 3],
    "transpose": lambda x: x.t(),
    "transpose slice": lambda x: x.t()[1:4],
    "permute": lambda x: x.view(2, 2, 6).permute(2, 0, 1),
    "view": lambda x: x.view(3, 8),
    "flatten": lambda x: x.flatten()[5:9],
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[1:2].squeeze(),
    "select": lambda x: x.select(1, 4),
    "narrow": lambda x: x.narrow(1, 2, 3),
    "movedim": lambda x: x.view(2, 2, 6).movedim(0, -1),
    "diagonal": lambda x: x.diagonal(),
    "diagonal offset": lambda x: x.diagonal(1),
    "diagonal of slice": lambda x: x[1:, 1:].diagonal(-1),
    "as_strided": lambda x: x.as_strided((3, 2), (7, 2), 4),
    "as_strided of view": lambda x: x[1:].as_strided((2, 2), (6, 1), 7),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "chunk": lambda x: x.chunk(3, 1)[1],
    "split": lambda x: x.split([1, 2, 1])[1],
    "tensor_split": lambda x: x.tensor_split(4, 1)[2],
    "unbind": lambda x: x.unbind(1)[5],
    "hsplit": lambda x: x.hsplit(2)[1],
    "view_as": lambda x: x.view_as(torch.empty(2, 12)),
    "int32": lambda x: x.view(torch.int32).view(torch.float32),
    "mT": lambda x: x.mT[::2],
    "detach": lambda x: x.detach()[2:],
    "alias": lambda x: torch.ops.aten.alias(x)[:, 1],
    "real of complex": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2))),
    "swapaxes chain": lambda x: x.view(2, 2, 2, 3).swapaxes(0, 3)[1, :, 1],
}


def on_both(x: torch.Tensor):
    return x.clone(), x.clone().to("tpu")


@pytest.mark.parametrize("name", VIEWS)
def test_view_reads_shares_and_writes(name):
    here, there = on_both(BASE)
    a, b = VIEWS[name](here), VIEWS[name](there)
    assert b.untyped_storage().data_ptr() == there.untyped_storage().data_ptr()
    assert (b.shape, b.stride(), b.storage_offset()) == (a.shape, a.stride(), a.storage_offset())
    assert torch.equal(b.cpu(), a)
    alias = there.view(-1)
    for x in (a, b):
        x.mul_(2)
        x.add_(100)
    assert torch.equal(b.cpu(), a)
    assert torch.equal(there.cpu(), here)
    assert torch.equal(alias.cpu(), here.view(-1))


def test_a_write_to_the_base_reaches_views():
    here, there = on_both(BASE)
    views = [(f(here), f(there)) for f in VIEWS.values()]
    for x in (here, there):
        x.copy_(torch.full((4, 6), 7.0))
        x[1] = 3
    for a, b in views:
        assert torch.equal(b.cpu(), a)


def test_a_write_through_one_view_reaches_another():
    x = torch.zeros(4, 4, device="tpu")
    row, column, diagonal = x[1], x[:, 1], x.diagonal()
    row.fill_(1)
    column.add_(2)
    diagonal.mul_(5)
    want = torch.zeros(4, 4)
    want[1].fill_(1)
    want[:, 1].add_(2)
    want.diagonal().mul_(5)
    assert torch.equal(x.cpu(), want)
    assert torch.equal(row.cpu(), want[1])
    assert torch.equal(column.cpu(), want[:, 1])


def test_out_into_a_view():
    here, there = on_both(BASE)
    for x in (here, there):
        torch.add(x[0, :3], 10, out=x[1, :3])
        torch.mm(
            torch.ones(2, 3, device=x.device), torch.ones(3, 2, device=x.device), out=x[2:, :2]
        )
        torch.sum(x[:, :5].clone(), dim=1, out=x[:, 5])
    assert torch.equal(there.cpu(), here)


def test_overlapping_source_and_target():
    here, there = on_both(torch.arange(10.0))
    there[:-1].add_(there[:-1])
    here[:-1].add_(here[:-1])
    there[::2] = there[::2].flip(0)
    here[::2] = here[::2].flip(0)
    assert torch.equal(there.cpu(), here)
    t = torch.arange(9.0).to("tpu").view(3, 3)
    t.copy_(t.t().clone())
    assert torch.equal(t.cpu(), torch.arange(9.0).view(3, 3).t())


def test_writes_into_expanded_tensors_are_refused():
    x = torch.zeros(3, device="tpu")
    for write in (
        lambda e: e.add_(1),
        lambda e: e.fill_(1),
        lambda e: e.copy_(torch.ones(2, 3)),
        lambda e: torch.neg(torch.ones(2, 3, device="tpu"), out=e),
    ):
        with pytest.raises(RuntimeError, match="single memory location"):
            write(x.expand(2, 3))
    assert x.tolist() == [0, 0, 0]


def test_writes_into_overlapping_windows_are_refused():
    x = torch.zeros(5, device="tpu")
    with pytest.raises(RuntimeError, match="clone|overlap|memory"):
        x.as_strided((2, 3), (0, 1)).add_(1)
    x.add_(1)
    assert x.tolist() == [1] * 5


def test_as_strided_out_of_bounds_is_refused():
    x = torch.zeros(4, device="tpu")
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((3,), (2,))
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((2,), (1,), 3)


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        (torch.float32, torch.int32),
        (torch.float32, torch.uint8),
        (torch.float32, torch.float64),
        (torch.int64, torch.int16),
        (torch.bfloat16, torch.int16),
        (torch.bool, torch.uint8),
        (torch.complex64, torch.float32),
        (torch.float32, torch.complex64),
        (torch.uint8, torch.int64),
    ],
    ids=str,
)
def test_view_dtype(dtype, other):
    here = (torch.arange(32.0) % 2 if dtype is torch.bool else torch.arange(32.0)).view(2, 16)
    here, there = on_both(here.to(dtype))
    a, b = here.view(other), there.view(other)
    assert b.shape == a.shape
    assert b.data_ptr() == there.data_ptr()
    assert torch.equal(b.cpu().view(torch.uint8), a.view(torch.uint8))
    a[0, :1] = 1
    b[0, :1] = 1
    assert torch.equal(there.cpu().view(torch.uint8), here.view(torch.uint8))
    assert torch.equal(there[1].cpu().view(torch.uint8), here[1].view(torch.uint8))


@pytest.mark.xfail(strict=True, reason="a storage is read as a whole number of elements only")
def test_view_dtype_of_a_part_of_an_odd_storage():
    x = torch.zeros(6, dtype=torch.uint8, device="tpu")
    x[:4].view(torch.float32).fill_(1)
    assert x.tolist() == [0, 0, 128, 63, 0, 0]


def test_complex_parts_are_views():
    here, there = on_both(torch.arange(6.0).view(3, 2))
    for x in (here, there):
        z = torch.view_as_complex(x)
        z.mul_(1j)
        z.real.add_(10)
        z.imag[1] = -1
        torch.view_as_real(z)[2, 0] = 99
    assert torch.equal(there.cpu(), here)


def test_lazy_conjugate():
    z = torch.tensor([1 + 2j, 3 - 1j])
    d = z.to("tpu")
    c = d.conj()
    assert c.is_conj()
    assert c.data_ptr() == d.data_ptr()
    assert torch.equal(c.resolve_conj().cpu(), z.conj().resolve_conj())
    assert torch.equal(c.cpu(), z.conj())
    assert torch.equal((c * d).cpu(), z.conj() * z)
    assert torch.equal(c.imag.cpu(), z.conj().imag)
    c.add_(1j)
    assert torch.equal(d.cpu(), (z.conj() + 1j).conj())
    c[0] = 5 + 5j
    assert d[0].item() == 5 - 5j
    c.copy_(torch.tensor([1j, 2j], device="tpu"))
    assert d.tolist() == [-1j, -2j]
    assert torch.equal(torch.vdot(d, d).cpu(), torch.vdot(d.cpu(), d.cpu()))


@pytest.mark.parametrize("source", ["cpu", "tpu:1"])
def test_copies_from_elsewhere_into_a_lazy_conjugate(source):
    d = torch.zeros(2, dtype=torch.complex64, device="tpu")
    d.conj().copy_(torch.tensor([1j, 2j], device=source))
    assert d.tolist() == [-1j, -2j]


@pytest.mark.parametrize("source", ["cpu", "tpu:1"])
def test_copies_from_elsewhere_into_a_lazy_negation(source):
    x = torch.zeros(2, device="tpu")
    torch._neg_view(x).copy_(torch.tensor([1.0, 2.0], device=source))
    assert x.tolist() == [-1, -2]


def test_lazy_negation():
    z = torch.tensor([1 + 2j, 3 - 1j], device="tpu")
    n = z.conj().imag
    assert n.is_neg()
    assert n.tolist() == [-2, 1]
    assert n.resolve_neg().tolist() == [-2, 1]
    assert (n * 2).tolist() == [-4, 2]
    n.fill_(7)
    assert z.tolist() == [1 - 7j, 3 - 7j]
    assert torch._neg_view(torch.ones(2, device="tpu")).tolist() == [-1, -1]


def test_autograd_through_views_and_writes():
    grads = []
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0).to(device).view(2, 3).requires_grad_()
        y = x * 2
        y[0, 1:].mul_(3)
        y.t()[2] = y.t()[0] * 5
        y.diagonal().sum().add(y.sum()).backward()
        grads.append(x.grad.cpu())
    assert torch.equal(*grads)


def test_versions_count_writes():
    x = torch.zeros(3, device="tpu", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- random chains -------------------------------------------------------------------------

STEPS = 5  # a chain is at most this long


def draw_view(rng: random.Random, x: torch.Tensor):
    """A view of tensors shaped like ``x``, drawn among the kinds that apply."""
    kinds = ["transpose", "unsqueeze", "slice", "select", "flatten", "diagonal", "step", "bits"]
    kind = rng.choice(kinds)
    dim = rng.randrange(x.ndim) if x.ndim else 0
    if kind == "unsqueeze" and x.ndim < 4:
        return lambda t: t.unsqueeze(dim)
    if x.ndim == 0 or x.numel() == 0:
        return lambda t: t.view_as(t)
    size = x.shape[dim]
    if kind == "transpose":
        other = rng.randrange(x.ndim)
        return lambda t: t.transpose(dim, other)
    if kind == "slice" and size > 1:
        start = rng.randrange(2)
        return lambda t: t.narrow(dim, start, size - 1)
    if kind == "select" and x.ndim > 1 and rng.random() < 0.5:
        index = rng.randrange(size)
        return lambda t: t.select(dim, index)
    if kind == "flatten" and x.is_contiguous():
        return lambda t: t.view(-1)
    if kind == "diagonal" and x.ndim == 2 and min(x.shape) > 1:
        return lambda t: t.diagonal()
    if kind == "step" and size > 2:
        return lambda t: t[(slice(None),) * dim + (slice(None, None, 2),)]
    if kind == "bits":
        return lambda t: t.view(torch.int32).view(torch.float32)
    return lambda t: t.view_as(t)


def draw_write(rng: random.Random, x: torch.Tensor):
    number = rng.randrange(1, 50)
    kind = rng.choice(["add_", "mul_", "fill_", "copy_", "setitem", "out"])
    if kind == "copy_":
        values = torch.arange(float(x.numel())).reshape(x.shape) - number
        return lambda t: t.copy_(values)
    if kind == "setitem" and x.ndim:
        return lambda t: t.__setitem__(0, number)
    if kind == "out":
        return lambda t: torch.add(t, number, out=t)
    if kind == "mul_":
        return lambda t: t.mul_(number % 3 - 1)
    return lambda t: getattr(t, kind if kind.endswith("_") else "add_")(number)


@pytest.mark.parametrize("block", range(4))
def test_random_chains_of_views_and_writes(block):
    rng = random.Random(block)
    for chain in range(80):
        here, there = on_both(torch.arange(12.0).view(3, 4))
        views = [(here, there)]
        for _ in range(rng.randrange(1, STEPS + 1)):
            a, b = rng.choice(views[-2:])
            view = draw_view(rng, a)
            views.append((view(a), view(b)))
            a, b = views[-1]
            assert (a.shape, a.stride(), a.storage_offset()) == (
                (b.shape, b.stride(), b.storage_offset())
            ), chain
        for _ in range(2):
            a, b = rng.choice(views)
            write = draw_write(rng, a)
            write(a)
            write(b)
            assert torch.equal(there.cpu(), here), (block, chain, a.shape, a.stride())
        for a, b in views:
            assert torch.equal(b.cpu(), a), (block, chain, a.shape, a.stride())
