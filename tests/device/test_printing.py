"""Tensors of the device print as on the CPU, and cheaply; defaults of device.

Not here: what the programs behind it compute. A tensor of a new shape, or with another number of
finite nonzero elements, compiles once: PyTorch formats with operators on the device.
"""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

TENSORS = {
    "float": torch.tensor([[0.0, 1.5], [-2.25, 3.0]]),
    "whole": torch.tensor([1.0, 2.0, -3.0]),
    "wide range": torch.tensor([1e-8, 1.0, 1e8]),
    "special": torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 1.0]),
    "only special": torch.tensor([float("nan"), 0.0]),
    "half": torch.tensor([0.5, 60000.0], dtype=torch.float16),
    "bfloat16": torch.tensor([0.5, 3.0], dtype=torch.bfloat16),
    "double": torch.tensor([0.1, 2.0], dtype=torch.float64),
    "int": torch.tensor([[1, -20], [300, 4]]),
    "small int": torch.tensor([1, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j, -0.5j]),
    "scalar": torch.tensor(2.5),
    "whole scalar": torch.tensor(7),
    "empty": torch.empty(0, 3),
    "no dims": torch.empty(0),
    "long": torch.arange(2000.0),
    "long matrix": torch.arange(3000).view(3, 1000),
    "cube": torch.arange(8.0).view(2, 2, 2),
}


def on_the_cpu(text: str) -> str:
    return text.replace(", device='tpu:0'", "").replace("device='tpu:0', ", "")


def squeezed(text: str) -> str:
    """Without line breaks: the device's name may move them."""
    return "".join(text.split())


@pytest.mark.parametrize("name", TENSORS)
def test_repr_is_that_of_the_cpu(name):
    x = TENSORS[name]
    text = repr(x.to("tpu"))
    assert "device='tpu:0'" in text
    assert squeezed(on_the_cpu(text)) == squeezed(repr(x))
    assert str(x.to("tpu")) == text


def test_views_gradients_parameters_and_modules():
    x = torch.arange(6.0, device="tpu").view(2, 3)
    assert repr(x.t()[1]) == "tensor([1., 4.], device='tpu:0')"
    y = x.requires_grad_()
    assert repr(y[0]).endswith("device='tpu:0', grad_fn=<SelectBackward0>)")
    assert "requires_grad=True" in repr(y)
    assert repr(nn.Parameter(x.detach())).startswith("Parameter containing:\ntensor([[0., 1., 2.]")
    assert repr(torch.ones(1, device="tpu:1")) == "tensor([1.], device='tpu:1')"
    assert "Linear(in_features=2" in repr(nn.Linear(2, 2).to("tpu"))
    assert repr(x.untyped_storage()).endswith("device=tpu:0) of size 24]")
    assert repr(x.device) == "device(type='tpu', index=0)"
    z = torch.tensor([1 + 2j], device="tpu").conj()
    assert repr(z) == "tensor([1.-2.j], device='tpu:0')"


def test_tolist_item_and_format():
    x = torch.tensor([[1.5, 2.0], [3.0, -4.0]], device="tpu")
    assert x.tolist() == [[1.5, 2.0], [3.0, -4.0]]
    assert x.t().tolist() == [[1.5, 3.0], [2.0, -4.0]]
    assert torch.empty(0, 2, device="tpu").tolist() == []
    assert x[0, 0].tolist() == x[0, 0].item() == 1.5
    assert (f"{x[0, 0]:.2f}", f"{x[1, 1]:+.1e}", f"{x.int()[0, 1]:03d}") == (
        "1.50",
        "-4.0e+00",
        "002",
    )
    assert f"{x[0, 0]}" == "1.5"
    assert f"{x[0]}" == repr(x[0])
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{x:.2f}"
    with pytest.raises(RuntimeError, match="4 elements"):
        x.item()


def test_print_options():
    x = torch.tensor([1.23456789, 1000.5], device="tpu")
    try:
        torch.set_printoptions(precision=2)
        assert repr(x) == "tensor([   1.23, 1000.50], device='tpu:0')"
        torch.set_printoptions(sci_mode=True, precision=1)
        assert repr(x) == "tensor([1.2e+00, 1.0e+03], device='tpu:0')"
        torch.set_printoptions(profile="default", threshold=4, edgeitems=1)
        assert "0.,  ..., 9." in repr(torch.arange(10.0, device="tpu"))
        with torch._tensor_str.printoptions(linewidth=20):
            assert "\n" in repr(x)
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.parametrize("mode", ("STRICT", "DEBUG", "DEFER_AND_FUSE"))
def test_printing_again_compiles_nothing(mode, compiles):
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode[mode]):
        x = torch.arange(1.0, 7.0, device="tpu").view(2, 3)
        for k in range(5):
            if k == 2:  # what is recorded together settles in the second round
                compiles.reset()
            y = x * (k + 1.5)  # other values, as many of them
            repr(y)
            str(y[0])
            str(y[:, k % 3])
            f"{y[0, k % 3]:.2f} {y.sum().item()} {y.tolist()}"
            print(end="", flush=True)
        assert compiles() == 0


def test_printing_changes_nothing():
    x = torch.randn(3, device="tpu")
    version, state = x._version, torch.tpu.get_rng_state()
    data = pickle.dumps(x.cpu())
    repr(x)
    assert x._version == version
    assert torch.equal(torch.tpu.get_rng_state(), state)
    assert torch.equal(pickle.loads(data), x.cpu())


def test_default_device():
    torch.set_default_device("tpu")
    try:
        assert torch.get_default_device().type == "tpu"
        assert torch.ones(2).device.type == "tpu"
        assert torch.tensor([1]).device.type == "tpu"
        assert nn.Linear(2, 2).weight.device.type == "tpu"
        assert torch.randn(2).device.type == "tpu"
        assert torch.ones(2, device="cpu").device.type == "cpu"
        assert "device='tpu:0'" in repr(torch.arange(3))
        layer = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1), nn.LayerNorm(3))
        layer(torch.randn(4, 2)).sum().backward()
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"


def test_devices_as_contexts():
    with torch.device("tpu"):
        assert torch.zeros(2).device == torch.device("tpu", 0)
        with torch.device("cpu"):
            assert torch.zeros(2).device.type == "cpu"
        with torch.device("tpu:1"):
            assert torch.zeros(2).device.index == 1
        assert repr(torch.full((2,), 3)) == "tensor([3, 3], device='tpu:0')"
    assert torch.zeros(2).device.type == "cpu"
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    assert model.to_empty(device="tpu").weight.device.type == "tpu"
