"""What the parameters and results of an exported module are, and how that is written as JSON.

Not here: the tree in which arguments and outputs come; that is a pytree spec (`program.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from ..lowering.builder import ELEMENT_TYPES

GENERATOR = "generator"
WEIGHTS = ("parameter", "buffer", "constant")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of the module.

    ``kind`` is "parameter", "buffer" or "constant" (``name`` is the one in the nn.Module), "input"
    (an argument of the call) or "generator": the state of the random numbers, always the last one.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclasses.dataclass(frozen=True)
class Result:
    """A result of the module.

    ``kind`` is "output", or "mutation": the new value of parameter number ``mutates``. ``strides``
    are those that the exported module gave its output; the module's results are row-major.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]
    mutates: int | None = None


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf of the arguments or of the outputs: the position of a parameter (result), or a value
    that was fixed when the program was exported."""

    name: str
    position: int | None = None
    value: Any = None


@dataclasses.dataclass(frozen=True)
class Signature:
    """Parameters and results of the module, in order, and the leaves of arguments and outputs."""

    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    arguments: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]

    @property
    def random(self) -> bool:
        return any(p.kind == GENERATOR for p in self.parameters)

    @property
    def mutated(self) -> dict[int, int]:
        """Position of each parameter that is mutated → that of the result with its new value."""
        return {r.mutates: i for i, r in enumerate(self.results) if r.mutates is not None}

    def to_json(self) -> dict:
        """Plain lists, strings and numbers."""
        return dataclasses.asdict(self, dict_factory=_plain)

    @classmethod
    def from_json(cls, data: Mapping) -> Signature:
        """What `to_json` gave; raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            *(
                tuple(kind(**_typed(fields)) for fields in data[name])
                for name, kind in (
                    ("parameters", Parameter),
                    ("results", Result),
                    ("arguments", Leaf),
                    ("outputs", Leaf),
                )
            )
        )


def _plain(fields: list[tuple[str, Any]]) -> dict:
    return {k: dtype_name(v) if isinstance(v, torch.dtype) else v for k, v in fields}


def _typed(fields: Mapping) -> dict:
    typed = dict(fields)
    for name in ("shape", "strides"):
        if name in typed:
            typed[name] = tuple(int(n) for n in typed[name])
    if "dtype" in typed:
        typed["dtype"] = dtype_named(typed["dtype"])
    return typed


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    for dtype in ELEMENT_TYPES:
        if dtype_name(dtype) == name:
            return dtype
    raise ValueError(f"no dtype is called {name!r}")
