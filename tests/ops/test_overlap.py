"""Written tensors that share memory with read ones: refused where CPU PyTorch refuses, else right.

Each call gets two tensors of one base of 13 elements: shifted by one, the same, or apart.
"""

import pytest
import torch

INDEX = torch.tensor([0, 2, 1])


def _index(x):
    return INDEX.to(x.device)


CALLS = {
    "add_": lambda a, b: a.add_(b),
    "logical_or_": lambda a, b: a.logical_or_(b),
    "neg out": lambda a, b: torch.neg(b, out=a),
    "addcmul_": lambda a, b: a.addcmul_(a, b),
    "lerp_": lambda a, b: a.lerp_(b, 0.5),
    "clamp_": lambda a, b: a.clamp_(min=b),
    "masked_fill_": lambda a, b: a.masked_fill_(b > 5, 2.0),
    "where out": lambda a, b: torch.where(a > 3, a, b, out=a),
    "copy_": lambda a, b: a.copy_(b),
    "cumsum out": lambda a, b: torch.cumsum(b, 0, out=a),
    "index_add_": lambda a, b: a.index_add_(0, _index(a), b),
    "index_copy_": lambda a, b: a.index_copy_(0, _index(a), b),
    "scatter_": lambda a, b: a.scatter_(
        0, torch.zeros(3, 4, dtype=torch.int64, device=a.device), b
    ),
    "index_put_": lambda a, b: a.index_put_((_index(a),), b),
    "gather out": lambda a, b: torch.gather(
        b, 0, torch.zeros(3, 4, dtype=torch.int64, device=a.device), out=a
    ),
    "sum out": lambda a, b: torch.sum(b, 0, out=a[0]),
    "amax out": lambda a, b: torch.amax(b, 0, out=a[1]),
}

PAIRS = {
    "shifted": lambda base: (base[:12].view(3, 4), base[1:].view(3, 4)),
    "same": lambda base: (base[:12].view(3, 4), base[:12].view(3, 4)),
    "apart": lambda base: (base[:6].view(3, 2), base[6:12].view(3, 2)),
}


def _attempt(call, pair, device):
    base = torch.arange(13.0).to(device)
    a, b = pair(base)
    try:
        call(a, b)
    except (RuntimeError, IndexError) as error:
        return type(error), None
    return None, base.cpu()


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("call", CALLS)
def test_refuses_what_the_cpu_refuses(call, pair):
    wanted, expected = _attempt(CALLS[call], PAIRS[pair], "cpu")
    got, result = _attempt(CALLS[call], PAIRS[pair], "tpu")
    assert got == wanted
    # Where a reduction writes to what it reads, the CPU's result depends on its loop order.
    if expected is not None and "sum" not in call and "amax" not in call:
        torch.testing.assert_close(result, expected)


def test_a_transposed_copy_of_itself_is_refused():
    x = torch.arange(9.0, device="tpu").view(3, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.t().copy_(x)


def test_matrix_products_may_write_to_their_argument():
    x = torch.arange(9.0).view(3, 3)
    expected = x @ x
    y = x.to("tpu")
    torch.mm(y, y, out=y)
    torch.testing.assert_close(y.cpu(), expected)
