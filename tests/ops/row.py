"""What a row is: one call of one operator, checked against CPU PyTorch by `test_ops.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

ANY = object()
"""In what a `Row.reference` returns: a result that is not compared."""


@dataclasses.dataclass(eq=False)
class Row:
    """One call: ``torch.ops.<name>(*args, **kwargs)``.

    Attributes:
      rtol, atol: tolerance of the float32 comparison; a looser one needs a ``reason``.
      random: compare shapes and dtypes only, and apply ``check`` to the list of results.
      reference: called like the operator for the wanted results where its CPU kernel has others
        (also needs a ``reason``).
      views: "values" if the operator does the same on views of the arguments, "strides" if its
        results depend on their strides (the reference gets equal views), "refused" if PyTorch
        demands contiguous arguments.
    """

    name: str
    args: tuple = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6
    reason: str = ""
    random: bool = False
    check: Any = None
    reference: Callable | None = None
    views: str = "values"

    @property
    def label(self) -> str:
        def show(x):
            if isinstance(x, torch.Tensor):
                return str(x.dtype).removeprefix("torch.") + "x".join(map(str, x.shape))
            if isinstance(x, (list, tuple)):
                return "[" + ",".join(show(y) for y in x) + "]"
            return str(x)

        words = [show(a) for a in self.args] + [f"{k}={show(v)}" for k, v in self.kwargs.items()]
        return self.name.removeprefix("aten::") + "(" + ",".join(words) + ")"


_generator = torch.Generator()


def t(*shape: int, dtype=torch.float32, low: float = -2.0, high: float = 2.0, seed: int = 0):
    """A reproducible tensor, uniform in [low, high) (integers: rounded down; bool: fair coin)."""
    _generator.manual_seed(seed + 1)
    if dtype is torch.bool:
        return torch.rand(shape, generator=_generator) < 0.5
    if dtype.is_complex:
        parts = torch.rand((*shape, 2), generator=_generator, dtype=torch.float64)
        return torch.view_as_complex(parts * (high - low) + low).to(dtype)
    x = torch.rand(shape, generator=_generator, dtype=torch.float64) * (high - low) + low
    return x.floor().to(dtype) if not dtype.is_floating_point else x.to(dtype)
