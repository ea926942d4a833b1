"""Operators without a rule run PyTorch's decomposition on the device: no fallback, right values."""

import pytest
import torch
import torch.nn.functional as F

from torch_tpu.lowering.registry import RULES

CASES = {
    "aten::hardswish": F.hardswish,
    "aten::mish": F.mish,
    "aten::_softmax": lambda x: x.softmax(1),
    "aten::reflection_pad1d": lambda x: F.pad(x[None], (1, 2), mode="reflect"),
    "aten::upsample_bilinear2d": lambda x: F.interpolate(
        x[None, None], size=(7, 9), mode="bilinear"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_decomposition_equals_cpu(name, monkeypatch, compiles):
    monkeypatch.delitem(RULES, name)
    # A shape no other test uses, so that the entry is not in the cache already.
    x = torch.randn(5, 11, generator=torch.Generator().manual_seed(1))
    before = torch.tpu.fallback_stats()
    result = CASES[name](x.to("tpu"))
    assert compiles() > 0
    assert torch.tpu.fallback_stats() == before
    torch.testing.assert_close(result.cpu(), CASES[name](x), rtol=1e-5, atol=1e-6)
