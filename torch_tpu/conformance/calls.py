"""Calls: one function with its arguments, run on equal copies of them on any device.

What the checks of operators, modules and optimisers share: names, seeds, gradients of results and
the tolerances that an OpInfo brings. What is checked is in `opinfo`, `modules`, `optimizers` and
`fuzz`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch

from . import inputs
from .inputs import Copies

WIDE = {torch.complex64: torch.complex128}
WIDE |= dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
"""Dtypes of references in double precision."""


def op_name(info) -> str:
    """The name of an OpInfo with that of its variant."""
    return info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")


def seeded(*words: str) -> None:
    """Seed every generator from words, so that a unit is the same whenever it runs."""
    torch.manual_seed(zlib.crc32("/".join(words).encode()))


class Call:
    """One call with its arguments on the CPU; copies run elsewhere."""

    def __init__(self, function: Callable, arguments: tuple, out: Any = None):
        self.function = function
        self.arguments = arguments  # (input, args, kwargs)
        self.out = out
        # The one operator whose indices PyTorch wants on the CPU whatever the device.
        self.on_host = getattr(function, "__name__", "") == "tensor_split"

    def run(self, device: str, dtypes=None, mode=None):
        """(result, arguments after the call) on copies of the arguments on ``device``."""
        copies = Copies(device, dtypes)
        x, args, kwargs = copies(self.arguments)
        if self.on_host and args:
            args = (Copies("cpu")(self.arguments[1])[0], *args[1:])
        if dtypes:
            args, kwargs = _widened((args, kwargs), dtypes)
        if device != "cpu":
            kwargs = _on_device(kwargs)
        if self.out is not None:
            kwargs = {**kwargs, "out": copies(self.out)}
        given = (x, args, kwargs)
        torch.manual_seed(0)
        if mode is None:
            result = self.function(x, *args, **kwargs)
        else:
            with mode:
                result = self.function(x, *args, **kwargs)
        return result, given


def _on_device(kwargs: dict) -> dict:
    return {k: _device(v) if k == "device" else v for k, v in kwargs.items()}


def _device(value):
    plain = value is not None and torch.device(value).type == "cpu"
    return torch.device(inputs.DEVICE) if plain else value


def _widened(tree, dtypes):
    if isinstance(tree, torch.dtype):
        return dtypes.get(tree, tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_widened(t, dtypes) for t in tree)
    if isinstance(tree, dict):
        return {k: _widened(t, dtypes) for k, t in tree.items()}
    return tree


def exactly(call: Call):
    """(result, arguments) of the call in double precision, None where that raises.

    Integers whose results are float give doubles too: they follow the default dtype.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return attempt(lambda: call.run("cpu", dtypes=WIDE))[0]
    finally:
        torch.set_default_dtype(default)


def attempt(call: Callable):
    """(result, None) or (None, exception)."""
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 (compared with the other side's)
        return None, error


def accepts_other_values(call: Call) -> bool:
    """Whether the CPU takes the call with zeros or with ones in its tensors."""
    harmless = (inputs.transform(call.arguments, f) for f in (torch.zeros_like, torch.ones_like))
    calls = (Call(call.function, arguments, call.out) for arguments in harmless)
    return any(attempt(lambda c=c: c.run("cpu"))[1] is None for c in calls)


def cotangent(output: torch.Tensor, position: int) -> torch.Tensor:
    """The same reproducible gradient on every device and in every dtype."""
    generator = torch.Generator().manual_seed(position)
    shape = (*output.shape, 2) if output.is_complex() else output.shape
    values = torch.rand(shape, generator=generator) + 0.5
    values = values.to(torch.bfloat16).float()  # exact in every dtype
    values = torch.view_as_complex(values) if output.is_complex() else values
    return values.to(device=output.device, dtype=output.dtype)


def own_tolerance(info, dtype: torch.dtype) -> tuple[float, float] | None:
    """(rtol, atol) that the OpInfo itself allows for ``dtype`` when devices are compared."""
    from torch.testing._internal.common_device_type import toleranceOverride

    tests = (None, "test_compare_cpu", "test_noncontiguous_samples")
    tests += ("test_variant_consistency_eager",)
    best = None
    for entry in info.decorators:
        if getattr(entry, "test_name", "") not in tests:
            continue
        if entry.device_type not in (None, "cpu", "cuda"):
            continue
        for decorator in entry.decorators:
            allowed = isinstance(decorator, toleranceOverride) and decorator.d.get(dtype)
            if allowed:
                rtol, atol = allowed.rtol, allowed.atol
                best = (rtol, atol) if best is None else (max(best[0], rtol), max(best[1], atol))
    return best
