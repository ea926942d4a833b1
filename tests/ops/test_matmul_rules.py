"""Products of 16-bit matrices with a float32 result, which the CPU has no kernel for.

A case takes ``call(name, *args)``, see `on_device.call`.
"""

from __future__ import annotations

import pytest
import torch

from ops import on_device
from ops.row import t

COVERS = ("aten::mm.dtype", "aten::bmm.dtype", "aten::addmm.dtype", "aten::baddbmm.dtype")


def close(got, want):
    # The products are exact in float32; only the order of the sum differs.
    assert got[0].dtype is torch.float32
    torch.testing.assert_close(got[0], want, rtol=1e-5, atol=1e-5)


def products(call):
    for dtype in (torch.bfloat16, torch.float16):
        a, b = t(3, 64, dtype=dtype), t(64, 5, dtype=dtype, seed=1)
        close(call("aten::mm.dtype", a, b, torch.float32), a.float() @ b.float())
        a, b = t(2, 3, 64, dtype=dtype), t(2, 64, 5, dtype=dtype, seed=1)
        close(call("aten::bmm.dtype", a, b, torch.float32), a.float() @ b.float())


def sums(call):
    for dtype in (torch.bfloat16, torch.float16):
        a, b, c = t(3, 64, dtype=dtype), t(64, 5, dtype=dtype, seed=1), t(3, 5, dtype=dtype, seed=2)
        want = 0.5 * c.float() + 2 * (a.float() @ b.float())
        close(call("aten::addmm.dtype", c, a, b, torch.float32, beta=0.5, alpha=2), want)
        nan = torch.full_like(c, float("nan"))
        got = call("aten::addmm.dtype", nan, a, b, torch.float32, beta=0)
        close(got, a.float() @ b.float())
        a, b, c = (x.unsqueeze(0).repeat(2, 1, 1) for x in (a, b, c))
        want = c.float() + a.float() @ b.float()
        close(call("aten::baddbmm.dtype", c, a, b, torch.float32), want)


CASES = [products, sums]


@pytest.mark.parametrize("case", CASES, ids=[c.__name__ for c in CASES])
def test_case(case):
    case(on_device.call)
