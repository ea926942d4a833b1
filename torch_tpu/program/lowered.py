"""A program that is lowered and not compiled yet: what an entry of the dispatch cache starts from.

The core compiles it when it has to run alone (csrc/dispatch/miss.cc), or makes it part of a larger
program (fused.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from ..lowering import places
from .compile import compile_text
from .module import Module

listeners: list[Callable[[Lowered], None]] = []
"""Called with every program that was compiled to run alone (compile-only conformance)."""


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A module with what compiling it takes.

    Attributes:
      module: the function.
      label: what it is for, for people.
      why: says, if it is asked, why it was not there yet.
      options: XLA options, by name, beside the plugin's own.
    """

    module: Module
    label: str
    why: Callable[[], str]
    options: Mapping | None = None

    @property
    def deferrable(self) -> bool:
        """Whether it may become part of a larger program, which has options of its own."""
        return not self.options

    def compile(self):
        """A `torch_tpu._core.Executable`; raises RuntimeError with XLA's message."""
        module = self.module
        found = compile_text(module.text, self.label, self.why, self.options, module.located)
        for listener in listeners:
            listener(self)
        return found

    @property
    def title(self) -> str:
        """What the profiler calls it."""
        return places.title(self.label, self.module.places)

    @property
    def operators(self) -> str:
        return places.listing(self.module.places)
