"""A traced function as a StableHLO module: `finish` makes one, `Module.text` prints it.

The module holds one public function ``main``, and the functions that the builder was given for it
to call. Donation is an attribute of a parameter.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from ..lowering.builder import Builder, Value
from ..lowering.places import Place

_PARAMETER = re.compile(r"%arg(\d+)\b")


@dataclasses.dataclass(frozen=True)
class Module:
    """A function in parts, for printing alone or as part of a larger module (fused.py).

    Attributes:
      name: of the module, for people.
      kept: the parameters of the builder it takes, in order; ``body`` calls them ``%arg<index>``.
      types: MLIR types of these parameters.
      results: (MLIR name, MLIR type) of each result.
      body: the operations, one a line.
      functions: further functions, which the body calls.
      donate: place in ``kept`` → the result that may reuse the parameter's memory.
      places: of the operators in it.
      line_places: where each line of ``body`` comes from; empty if nobody knows.
      located_functions: ``functions`` with places, if they have any.
      parameter_shardings, result_shardings: how each lies over several devices, in XLA's words
        (aot/sharding.py); empty if there is one.
    """

    name: str
    kept: list[int]
    types: list[str]
    results: list[tuple[str, str]]
    body: str
    functions: list[str]
    donate: dict[int, int]
    places: Sequence[Place] = ()
    line_places: Sequence[Place | None] = ()
    located_functions: Sequence[str] = ()
    parameter_shardings: Sequence[str | None] = ()
    result_shardings: Sequence[str | None] = ()

    @property
    def text(self) -> str:
        """The module without places: what it computes, by which caches know it."""
        return self._print(self.function("public @main", self.donate), self.functions)

    def located(self) -> str:
        """The module as the compiler gets it, with places."""
        main = self.function("public @main", self.donate, located=True)
        return self._print(main, self.located_functions or self.functions)

    def _print(self, main: str, functions: Sequence[str]) -> str:
        safe = re.sub(r"[^A-Za-z0-9_]", "_", self.name)
        return "\n".join([f"module @{safe} {{", main, *functions, "}"])

    def located_body(self) -> str:
        if not self.line_places:
            return self.body
        pairs = zip(self.body.split("\n"), self.line_places, strict=True)
        return "\n".join(f"{line} {place.location}" if place else line for line, place in pairs)

    def function(
        self, head: str, donate: Mapping[int, int] | None = None, located: bool = False
    ) -> str:
        """The function with this visibility and name."""
        donate = donate or {}
        parameters = []
        for place, (index, kind) in enumerate(zip(self.kept, self.types, strict=True)):
            alias = [f"tf.aliasing_output = {donate[place]} : i32"] if place in donate else []
            attributes = alias + _sharding(self.parameter_shardings, place)
            parameters.append(f"%arg{index}: {kind}{_braced(attributes)}")
        types = ", ".join(kind for _, kind in self.results)
        returned = ", ".join(
            kind + _braced(_sharding(self.result_shardings, place))
            for place, (_, kind) in enumerate(self.results)
        )
        names = ", ".join(name for name, _ in self.results)
        lines = [
            f"  func.func {head}({', '.join(parameters)}) -> ({returned}) {{",
            self.located_body() if located else self.body,
            f"    return {names} : {types}" if self.results else "    return",
            "  }",
        ]
        return "\n".join(lines)


def _sharding(shardings: Sequence[str | None], place: int) -> list[str]:
    given = shardings[place] if shardings else None
    return [] if given is None else [f'mhlo.sharding = "{given}"']


def _braced(attributes: Sequence[str]) -> str:
    return f" {{{', '.join(attributes)}}}" if attributes else ""


def finish(
    builder: Builder,
    results: Sequence[Value],
    donate: Mapping[int, int] | None = None,
    name: str = "program",
    keep_unread: bool = False,
) -> Module:
    """The module of what ``builder`` collected.

    ``donate`` maps a parameter index to the result index that may reuse its memory. Parameters that
    nothing reads are left out unless ``keep_unread``.
    """
    body = builder.text()
    used = {int(i) for i in _PARAMETER.findall(body)}
    used |= {int(m.group(1)) for r in results if (m := _PARAMETER.fullmatch(r.name))}
    kept = list(range(len(builder.parameters))) if keep_unread else sorted(used)
    return Module(
        name=name,
        kept=kept,
        types=[builder.parameters[i].type for i in kept],
        results=[(r.name, r.type) for r in results],
        body=body,
        functions=list(builder.functions),
        donate={kept.index(p): r for p, r in (donate or {}).items() if p in kept},
        places=builder.places,
        line_places=builder.line_places,
    )
