"""Runs a function eagerly on the CPU and compiled on the device, and compares all that shows.

Results, inputs afterwards (they may be mutated) and gradients of leaf inputs. Inputs are made by a
function of the device, so that they may alias each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils import _pytree as pytree

DEVICE = "tpu"


def rand(*shape: int, seed: int = 0, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def on(device, *tensors: torch.Tensor):
    """A function that copies ``tensors`` to its device: leaves that require grad as they do."""

    def one(tensor):
        return tensor.detach().clone().to(device).requires_grad_(tensor.requires_grad)

    return tuple(map(one, tensors))


def same(actual, expected, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Equal structure, dtypes, shapes and values; integers and booleans exactly."""
    left, structure = pytree.tree_flatten(actual)
    right, wanted = pytree.tree_flatten(expected)
    assert structure == wanted
    for a, e in zip(left, right, strict=True):
        assert type(a) is type(e)
        if not isinstance(e, torch.Tensor):
            assert a == (pytest.approx(e, rel=rtol) if isinstance(e, float) else e)
            continue
        assert (a.dtype, a.shape, a.requires_grad) == (e.dtype, e.shape, e.requires_grad)
        exact = not (e.dtype.is_floating_point or e.dtype.is_complex)
        limits = {"rtol": 0, "atol": 0} if exact else {"rtol": rtol, "atol": atol}
        torch.testing.assert_close(a.detach().cpu(), e.detach().cpu(), **limits)


def _backward(results) -> None:
    wanted = [
        r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad
    ]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(r) for r in wanted])


def _gradients(inputs) -> list:
    tensors = [i for i in pytree.tree_leaves(inputs) if isinstance(i, torch.Tensor)]
    return [t.grad for t in tensors if t.is_leaf]


def compare(f: Callable, make: Callable | tuple, calls: int = 2, backend="tpu", **options) -> None:
    """``f`` compiled on the device does what it does on the CPU, at the first call and later.

    ``make`` makes the inputs on its device, or is a tuple of CPU tensors to copy there.
    """
    compiled = torch.compile(f, backend=backend, **options)
    for _ in range(calls):
        if isinstance(make, tuple):
            reference, inputs = on("cpu", *make), on(DEVICE, *make)
        else:
            reference, inputs = make("cpu"), make(DEVICE)
        expected, actual = f(*reference), compiled(*inputs)
        same(actual, expected)
        _backward(expected)
        _backward(actual)
        same(inputs, reference)
        same(_gradients(inputs), _gradients(reference))
