"""Run-time numbers are checked on every call, with a program at hand too (dispatch/numbers.cc)."""

import pytest
import torch

from ops.both_devices import error_of

BAD = {
    "random_ beyond uint8": lambda d: torch.zeros(3, dtype=torch.uint8, device=d).random_(0, 300),
    "random_ below uint8": lambda d: torch.zeros(3, dtype=torch.uint8, device=d).random_(-1, 3),
    "random_ to": lambda d: torch.zeros(3, dtype=torch.int8, device=d).random_(200),
    "random_ to 0": lambda d: torch.zeros(3, dtype=torch.int8, device=d).random_(0),
    "random_ bool": lambda d: torch.zeros(3, dtype=torch.bool, device=d).random_(0, 3),
    "random_ half": lambda d: torch.zeros(3, dtype=torch.float16, device=d).random_(0, 10**6),
    "randint": lambda d: torch.randint(0, 300, (3,), dtype=torch.uint8, device=d),
    "randint_like": lambda d: torch.randint_like(torch.zeros(3, dtype=torch.int8, device=d), 300),
    "uniform_ too wide": lambda d: torch.zeros(3, device=d).uniform_(-3e38, 3e38),
    "uniform_ beyond": lambda d: torch.zeros(3, device=d).uniform_(0, 1e39),
    "uniform_ half": lambda d: torch.zeros(3, dtype=torch.float16, device=d).uniform_(0, 1e5),
    "uniform_ backwards": lambda d: torch.zeros(3, device=d).uniform_(1, 0),
    "pow": lambda d: torch.arange(3, device=d) ** -7,
    "pow_": lambda d: torch.arange(3, device=d).pow_(-7),
    "pow of bool": lambda d: torch.pow(torch.ones(3, dtype=torch.bool, device=d), -7),
}

GOOD = {
    "random_": lambda d: torch.zeros(3, dtype=torch.uint8, device=d).random_(0, 256),
    "random_ to": lambda d: torch.zeros(3, dtype=torch.int8, device=d).random_(100),
    "random_ bool": lambda d: torch.zeros(3, dtype=torch.bool, device=d).random_(0, 2),
    "uniform_": lambda d: torch.zeros(3, device=d).uniform_(-1e38, 1e38),
    "pow": lambda d: torch.arange(3, device=d) ** 7,
    "pow of float": lambda d: torch.ones(3, device=d) ** -7,
}


@pytest.mark.parametrize("name", BAD)
def test_bad_numbers_are_refused_with_a_program_at_hand(name):
    for good in GOOD.values():
        good("tpu")
    assert error_of(BAD[name], "cpu") is not None
    assert error_of(BAD[name], "tpu") is error_of(BAD[name], "cpu")


@pytest.mark.parametrize("name", GOOD)
def test_good_numbers_pass(name):
    assert error_of(GOOD[name], "tpu") is None


def _first_element(device):
    x = torch.zeros(3, dtype=torch.float16, device=device)
    x[0] = 1e6
    return x


VALUES = {
    "f16 where": lambda d: torch.where(
        torch.tensor([True, False], device=d), torch.ones(2, dtype=torch.float16, device=d), -1e9
    ),
    "f16 element": _first_element,
    "uint64 full": lambda d: torch.full((2,), 2**64 - 1, dtype=torch.uint64, device=d),
    "f32 full of 2**63": lambda d: torch.full((2,), 2**63, dtype=torch.float32, device=d),
    "uint64 fill_ and compare": lambda d: (
        torch.zeros(2, dtype=torch.uint64, device=d).fill_(2**63) == 2**63
    ),
    "bool power of 1": lambda d: torch.ones(2, dtype=torch.bool, device=d) ** 1,
    "bool clamp_max": lambda d: torch.ones(2, dtype=torch.bool, device=d).clamp_max(
        torch.zeros(2, dtype=torch.bool, device=d)
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_large_numbers_become_what_they_are_on_the_cpu(name):
    torch.testing.assert_close(VALUES[name]("tpu").cpu(), VALUES[name]("cpu"), rtol=0, atol=0)
