"""Numbers of a call are checked on every call, although they are no part of the key."""

from __future__ import annotations

import pytest
import torch

X = torch.zeros(2, dtype=torch.uint8)
MASK = torch.tensor([True, False])
FIRST = torch.tensor([0])

# Calls by name; each is refused on the CPU for the number it gives.
REFUSED = {
    "fill_": lambda d: X.to(d).fill_(300),
    "fill_ of an int": lambda d: X.to(d).int().fill_(float("inf")),
    "fill_ of a half": lambda d: X.to(d).half().fill_(1e6),
    "fill_ of a real": lambda d: X.to(d).float().fill_(1j),
    "full": lambda d: torch.full((2,), 300, dtype=torch.uint8, device=d),
    "masked_fill_": lambda d: X.to(d).half().masked_fill_(MASK.to(d), -1e9),
    "index_fill_": lambda d: X.to(d).index_fill_(0, FIRST.to(d), 300),
    "scatter_": lambda d: X.to(d).scatter_(0, FIRST.to(d), 300),
    "pad": lambda d: torch.nn.functional.pad(X.to(d), (1, 1), value=300),
    "clamp_min": lambda d: X.to(d).clamp_min(300),
    "cauchy_": lambda d: X.to(d).float().cauchy_(0, 0),
    "exponential_": lambda d: X.to(d).float().exponential_(-1),
    "geometric_": lambda d: X.to(d).float().geometric_(1.5),
    "log_normal_": lambda d: X.to(d).float().log_normal_(0, 0),
    "normal_": lambda d: X.to(d).float().normal_(0, -1),
    "bernoulli_": lambda d: X.to(d).float().bernoulli_(1.5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_on_the_cpu(name):
    with pytest.raises(RuntimeError):
        REFUSED[name]("cpu")
    for _ in range(2):  # the second call finds its program
        with pytest.raises(RuntimeError):
            REFUSED[name]("tpu")


def test_refused_after_a_good_call_with_the_same_key():
    x = torch.zeros(3, device="tpu")
    x.exponential_(2.0)
    with pytest.raises(RuntimeError, match="lambd > 0"):
        x.exponential_(0.0)
    h = torch.zeros(3, dtype=torch.float16, device="tpu").fill_(1.0)
    with pytest.raises(RuntimeError, match="c10::Half without overflow"):
        h.fill_(70000.0)
    assert h.tolist() == [1.0] * 3


def test_what_fits_is_taken():
    x = torch.zeros(2, dtype=torch.uint8)
    for value in (255, -1, True, 1.5, 2 + 0j):
        assert torch.equal(x.to("tpu").fill_(value).cpu(), x.clone().fill_(value))
    half = torch.zeros(2, dtype=torch.float16)
    assert torch.equal(half.to("tpu").fill_(float("inf")).cpu(), half.fill_(float("inf")))
    assert X.to("tpu").clamp_min(300.5).tolist() == [300.5, 300.5]
