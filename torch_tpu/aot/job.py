"""`Job`: a program with all that compiling it takes. Examples build one (examples/aot/)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .capture import Captured, capture
from .sharding import Mesh


@dataclasses.dataclass
class Job:
    """A program to compile.

    Attributes:
      fn: function or module. args, kwargs: examples of its arguments, on "meta" or anywhere.
      name: of the model, for people.
      mesh, in_shardings: how it lies over the devices, see `capture`.
      parameter_count: None if it is that of the weights.
      flops: of the model in one call, by which utilisation is measured; None if it is what the
        program does, recomputations not counted.
      options: the compiler's, by name.
    """

    fn: Callable
    args: Sequence = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = ""
    mesh: Mesh | None = None
    in_shardings: Any = None
    parameter_count: int | None = None
    flops: int | None = None
    options: Mapping[str, bool | int | str] = dataclasses.field(default_factory=dict)

    def captured(self) -> Captured:
        """The program, traced."""
        found = capture(self.fn, self.args, self.kwargs, self.in_shardings, self.mesh)
        return found if self.flops is None else dataclasses.replace(found, flops=self.flops)
