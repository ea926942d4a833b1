"""One module out of many: the programs of deferred calls, called one after another.

Every program becomes a private function; ``main`` calls them and wires results to operands. XLA
inlines the calls, drops what nothing reads and fuses the rest. Small run-time operands (numbers,
starts of views, random states) come packed in one vector per dtype, so that a program of hundreds
of calls has a few more inputs and not hundreds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .lowered import Lowered
from .module import Module

# Where an operand comes from, as csrc/dispatch/region.h numbers it.
RESULT, INPUT, PACKED = range(3)
# The element types that are packed, in the order of their vectors.
PACKS = ("i64", "f64", "ui64")

Node = tuple[Lowered, Sequence[tuple[int, int, int]]]
"""A program and its operands: (RESULT, node, result), (INPUT, index, 0) or (PACKED, pack, start).
"""

_FUNCTION = re.compile(r"func\.func private @([A-Za-z0-9_$.]+)\(")
_VECTOR = re.compile(r"tensor<(\d+)x\w+>")


def _count(kind: str) -> int:
    """Elements of a number's or vector's type."""
    vector = _VECTOR.fullmatch(kind)
    return int(vector.group(1)) if vector else 1


def _lengths(nodes: Sequence[Node]) -> dict[int, int]:
    """Pack → elements of its vector, for those that occur."""
    lengths: dict[int, int] = {}
    for lowered, sources in nodes:
        for kind, (source, pack, start) in zip(lowered.module.types, sources, strict=True):
            if source == PACKED:
                lengths[pack] = max(lengths.get(pack, 0), start + _count(kind))
    return lengths


def _renamed(module: Module, name: str, function: str) -> str:
    """``function`` with the functions of ``module`` that it calls, under names of their own."""
    text = "\n".join([function, *module.functions])
    for inner in _FUNCTION.findall("\n".join(module.functions)):
        text = re.sub(rf"@{re.escape(inner)}\b", f"@{name}_{inner}", text)
    return text


class _Main:
    """The lines of ``main`` and the functions it calls."""

    def __init__(self, nodes: Sequence[Node], inputs: int):
        self.nodes = nodes
        self.types: list[str | None] = [None] * inputs
        self._vectors: dict[int, tuple[str, str]] = {}  # pack → name and type of its parameter
        for pack, length in sorted(_lengths(nodes).items()):
            kind = f"tensor<{length}x{PACKS[pack]}>"
            self._vectors[pack] = f"%arg{len(self.types)}", kind
            self.types.append(kind)
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.located_functions: list[str] = []
        self._names: dict[int, str] = {}
        self._fresh = 0

    def function_of(self, lowered: Lowered) -> str:
        """The name of the function of a program; equal programs share one."""
        module = lowered.module
        if id(module) not in self._names:
            name = f"f{len(self._names)}"
            self._names[id(module)] = name
            head = f"private @{name}"
            self.functions.append(_renamed(module, name, module.function(head)))
            located = module.function(head, located=True)
            self.located_functions.append(_renamed(module, name, located))
        return self._names[id(module)]

    def operand(self, wanted: str, source: tuple[int, int, int]) -> str:
        kind, first, second = source
        if kind == RESULT:
            return self.result(first, second)
        if kind == INPUT:
            self.types[first] = wanted
            return f"%arg{first}"
        return self._unpacked(wanted, first, second)

    def result(self, node: int, index: int) -> str:
        single = len(self.nodes[node][0].module.results) == 1
        return f"%n{node}" if single else f"%n{node}#{index}"

    def _unpacked(self, wanted: str, pack: int, start: int) -> str:
        whole, kind = self._vectors[pack]
        count = _count(wanted)
        self._fresh += 1
        name, part = f"%s{self._fresh}", f"tensor<{count}x{PACKS[pack]}>"
        self.lines.append(
            f"    {name} = stablehlo.slice {whole} [{start}:{start + count}] : ({kind}) -> {part}"
        )
        if part == wanted:
            return name
        self.lines.append(f"    {name}r = stablehlo.reshape {name} : ({part}) -> {wanted}")
        return f"{name}r"

    def call(self, index: int) -> None:
        lowered, sources = self.nodes[index]
        module = lowered.module
        operands = [self.operand(t, s) for t, s in zip(module.types, sources, strict=True)]
        count = f":{len(module.results)}" if len(module.results) > 1 else ""
        types = ", ".join(kind for _, kind in module.results)
        self.lines.append(
            f"    %n{index}{count} = func.call @{self.function_of(lowered)}"
            f"({', '.join(operands)}) : ({', '.join(module.types)}) -> ({types})"
        )


def fuse(
    nodes: Sequence[Node], inputs: int, live: Sequence[tuple[int, int]], name: str
) -> tuple[Module, dict[int, int]]:
    """The module of ``nodes``, and which inputs the results may take over.

    ``inputs`` counts the arrays that come first among the parameters; vectors of packed operands
    follow, one for each of `PACKS` that occurs. The results are those in ``live``: (node, result).
    """
    main = _Main(nodes, inputs)
    for index in range(len(nodes)):
        main.call(index)
    results = [(main.result(n, r), nodes[n][0].module.results[r][1]) for n, r in live]
    donate = _donations(nodes, live)
    module = Module(
        name=name,
        kept=list(range(len(main.types))),
        types=main.types,
        results=results,
        body="\n".join(main.lines),
        functions=main.functions,
        donate=donate,
        places=[place for lowered, _ in nodes for place in lowered.module.places],
        located_functions=main.located_functions,
    )
    return module, donate


def _donations(nodes: Sequence[Node], live: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Inputs that calls update in place, and the live result in which the updates end."""
    wanted = {place: i for i, place in enumerate(live)}
    origin: dict[tuple[int, int], int] = {}  # (node, result) → the input it is a new version of
    last: dict[int, int] = {}
    for index, (lowered, sources) in enumerate(nodes):
        for place, result in lowered.module.donate.items():
            kind, first, second = sources[place]
            if kind == PACKED:
                continue
            before = first if kind == INPUT else origin.get((first, second))
            if before is None:
                continue
            origin[index, result] = before
            if (index, result) in wanted:
                last[before] = wanted[index, result]
    taken: set[int] = set()
    donate = {}
    for before, result in last.items():
        if result not in taken:
            taken.add(result)
            donate[before] = result
    return donate
