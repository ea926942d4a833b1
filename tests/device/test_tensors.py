"""What a tensor on the device is: an ordinary `torch.Tensor` of any XLA dtype and any shape.

Contents after views and writes are in `test_views.py`; storages in `test_storage.py`.
"""

from __future__ import annotations

import pytest
import torch

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]


def test_is_an_ordinary_tensor():
    x = torch.ones(2, device="tpu")
    assert type(x) is torch.Tensor
    assert x.device == torch.device("tpu", 0)
    assert x.is_tpu
    assert not x.is_cpu
    assert type(torch.nn.Parameter(x)) is torch.nn.Parameter
    assert x.layout is torch.strided


@pytest.mark.parametrize("dtype", [*DTYPES, *UNSIGNED, *FLOAT8], ids=str)
def test_every_dtype_survives_the_round_trip(dtype):
    x = torch.tensor([0.0, 1.0, 2.0, 1.0]).to(dtype)
    there = x.to("tpu")
    assert there.dtype is dtype
    assert there.element_size() == x.element_size()
    back = there.cpu()
    assert back.dtype is dtype
    assert torch.equal(back.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_factories_of_every_dtype(dtype):
    for make in (torch.zeros, torch.ones):
        assert torch.equal(make(3, dtype=dtype, device="tpu").cpu(), make(3, dtype=dtype))
    filled = torch.full((2, 2), 1, dtype=dtype, device="tpu")
    assert torch.equal(filled.cpu(), torch.full((2, 2), 1, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex128], ids=str)
def test_wide_dtypes_are_not_narrowed(dtype):
    exact = 2**40 + 1
    x = torch.tensor([exact], dtype=dtype, device="tpu")
    assert (x + 1).cpu().real.item() == exact + 1


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.complex32, "ComplexHalf"), (torch.qint8, "Quantized"), (torch.quint8, "Quantized")],
    ids=["complex32", "qint8", "quint8"],
)
def test_dtypes_xla_lacks_are_refused_by_name(dtype, name):
    with pytest.raises((TypeError, RuntimeError, NotImplementedError), match=name):
        torch.empty(2, dtype=dtype, device="tpu")


def test_a_refused_dtype_is_refused_on_the_way_in():
    with pytest.raises((TypeError, RuntimeError, NotImplementedError), match="ComplexHalf"):
        torch.zeros(2, dtype=torch.complex32).to("tpu")


@pytest.mark.parametrize(
    "shape", [(0,), (), (3, 0), (0, 3), (2, 0, 4), (1,) * 8, (2, 1, 2, 1, 2, 1, 2, 3)], ids=str
)
def test_unusual_shapes(shape):
    x = torch.arange(max(1, torch.Size(shape).numel()), dtype=torch.float32)
    x = x[: torch.Size(shape).numel()].reshape(shape)
    there = x.to("tpu")
    assert there.shape == x.shape
    assert there.stride() == x.stride()
    assert torch.equal(there.cpu(), x)
    assert torch.equal((there + 1).cpu(), x + 1)
    assert torch.equal(there.sum().cpu(), x.sum())
    assert torch.equal(there.clone().cpu(), x)


def test_operators_on_tensors_without_elements():
    a = torch.zeros(0, 3, device="tpu")
    assert (a @ torch.zeros(3, 4, device="tpu")).shape == (0, 4)
    inner = torch.zeros(2, 0, device="tpu") @ torch.zeros(0, 2, device="tpu")
    assert torch.equal(inner.cpu(), torch.zeros(2, 2))
    assert torch.cat([a, torch.ones(1, 3, device="tpu")]).shape == (1, 3)
    assert a.sum(0).tolist() == [0, 0, 0]
    assert torch.isnan(torch.zeros(0, device="tpu").mean().cpu())
    assert a.t().contiguous().shape == (3, 0)


def test_zero_dim_tensors():
    x = torch.tensor(3.5, device="tpu")
    assert x.shape == ()
    assert x.item() == 3.5
    assert float(x) == 3.5
    assert int(x) == 3
    assert bool(x)
    assert f"{x:.2f}" == "3.50"
    x.add_(1)
    assert x.item() == 4.5
    assert [10, 20, 30][torch.tensor(1, device="tpu")] == 20


def test_expanded_tensors_are_read_like_any_other():
    x = torch.arange(3.0).to("tpu")
    e = x.expand(4, 3)
    assert e.stride() == (0, 1)
    assert torch.equal(e.cpu(), torch.arange(3.0).expand(4, 3))
    assert torch.equal((e + e.t().t()).cpu(), torch.arange(3.0).expand(4, 3) * 2)
    assert torch.equal(e.sum(0).cpu(), torch.arange(3.0) * 4)
    assert e.contiguous().stride() == (3, 1)


def test_data_ptr_identifies_storages():
    tensors = [torch.empty(4, device="tpu") for _ in range(200)]
    pointers = {x.data_ptr() for x in tensors}
    assert len(pointers) == 200
    assert 0 not in pointers
    ranges = sorted((x.data_ptr(), x.data_ptr() + x.nbytes) for x in tensors)
    assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:], strict=False))


def test_data_ptr_is_stable_and_offsets_add_up():
    x = torch.zeros(4, 6, device="tpu")
    before = x.data_ptr()
    x.add_(1)
    x.copy_(torch.ones(4, 6))
    x[1:].mul_(2)
    assert x.data_ptr() == before
    assert x[1].data_ptr() == before + 6 * 4
    assert x[2:, 3].data_ptr() == before + (2 * 6 + 3) * 4
    assert x.t().data_ptr() == before
    assert x.untyped_storage().data_ptr() == before
    assert (x + 0).data_ptr() != before


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(6.0).view(2, 3) * 1.5,
        torch.tensor(2.5),
        torch.tensor([True, False]),
        torch.arange(2000),
        torch.zeros(0, 3),
        torch.tensor([1 + 2j, -1j]),
        torch.tensor([float("nan"), float("inf"), 1e-8]),
        torch.arange(4, dtype=torch.bfloat16),
        torch.arange(12.0).view(3, 4).t()[1:],
    ],
    ids=["2d", "0d", "bool", "long", "empty", "complex", "special", "bf16", "view"],
)
def test_printing_shows_values_and_device(x):
    here, there = repr(x), repr(x.to("tpu"))
    assert "device='tpu:0'" in there
    words = there.replace(", device='tpu:0'", "").replace(",\n       device='tpu:0'", "")
    assert "".join(words.split()) == "".join(here.split())


def test_printing_a_parameter_and_a_module():
    layer = torch.nn.Linear(2, 2).to("tpu")
    assert repr(layer) == repr(torch.nn.Linear(2, 2))
    assert "requires_grad=True" in repr(layer.weight)
    assert "grad_fn" in repr(layer.weight * 2)


def test_conversions_to_python():
    x = torch.arange(6).to("tpu").view(2, 3)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    assert x.cpu().numpy().shape == (2, 3)
    with pytest.raises(TypeError, match="tpu"):
        x.numpy()


def test_strides_of_factories():
    x = torch.empty(2, 3, 4, 5, device="tpu", memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.empty_like(x).stride() == x.stride()
    s = torch.empty_strided((2, 3), (1, 2), device="tpu")
    assert s.stride() == (1, 2)
    assert torch.zeros_like(s).stride() == (1, 2)
    values = torch.arange(120.0).view(2, 3, 4, 5)
    there = values.to("tpu").contiguous(memory_format=torch.channels_last)
    assert there.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(there.cpu(), values)


def test_a_tensor_made_without_values_reads_as_something():
    x = torch.empty(3, device="tpu")
    assert x.cpu().shape == (3,)
    x.fill_(2)
    assert x.tolist() == [2, 2, 2]


def test_ranges_of_every_length():
    for length in (3, 9, 5, 0, 7):
        assert torch.arange(length, device="tpu").tolist() == list(range(length))
        assert torch.arange(2, length + 2, device="tpu").tolist() == list(range(2, length + 2))
        assert torch.linspace(0, 1, length, device="tpu").shape == (length,)
    assert torch.arange(0, 1, 0.25, device="tpu").tolist() == [0, 0.25, 0.5, 0.75]
    assert torch.arange(5, 0, -2, device="tpu").tolist() == [5, 3, 1]


def test_default_device():
    with torch.device("tpu"):
        x = torch.ones(2)
        assert x.device.type == "tpu"
        assert torch.nn.Linear(2, 2).weight.device.type == "tpu"
    assert torch.ones(2).device.type == "cpu"
    assert torch.ones(1).to("tpu").new_zeros(3).device.type == "tpu"
