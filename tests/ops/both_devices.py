"""Calls that are made on the CPU and on the device: their tensors, and that both refuse alike.

A call is a function of a maker, so that one table of calls serves both devices.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


class Maker:
    """Makes the tensors of a call on one device, of ones unless it says otherwise."""

    def __init__(self, device: str):
        self.device = device

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device=self.device)

    def at(self, *numbers, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.tensor(numbers, dtype=dtype, device=self.device)

    def places(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self.device)

    def pair(
        self, dtype: torch.dtype = torch.float32, indices: torch.dtype = torch.int64
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self(0, dtype=dtype), self(0, dtype=indices)


def error_of(call: Callable, *arguments) -> type[Exception] | None:
    """The class of the exception that a call raises; None if it raises none."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 (its class is what is compared)
        return type(error)
    return None


def refused_alike(call: Callable, make: Callable = Maker) -> None:
    """The CPU refuses the call, and the device raises an exception of the same class."""
    expected = error_of(call, make("cpu"))
    assert expected is not None
    with pytest.raises(expected):
        call(make("tpu"))
