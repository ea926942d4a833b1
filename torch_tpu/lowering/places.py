"""Where an operation of a program comes from: operator, module and line of the user.

The compiler writes places into its own output (HLO metadata, XProf traces), and the profiler names
programs by them. They never decide anything: two programs that differ in places only are one
program to the cache (program/cache.py).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_MOST = 3  # operators and modules in a title


class Place(NamedTuple):
    """An operator, the path of the module that called it, and ``file:line``; "" for unknown."""

    operator: str
    module: str = ""
    line: str = ""

    @property
    def location(self) -> str:
        """As MLIR writes it after an operation."""
        name = f"{self.module}/{self.operator}" if self.module else self.operator
        file, _, line = self.line.rpartition(":")
        if not line.isdecimal():
            return f"loc({_quoted(name)})"
        return f"loc({_quoted(name)}({_quoted(file)}:{line}:0))"


def _quoted(text: str) -> str:
    """An MLIR string: bytes outside printable ASCII are escaped in hex."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return '"' + "".join(plain) + '"'


def of_node(node) -> Place:
    """The place of a node of an FX graph, by what tracing noted about it.

    A graph that was kept from another process (compile/record.py) has the places themselves.
    """
    if "place" in node.meta:
        return node.meta["place"]
    target = node.target
    name = target.name() if hasattr(target, "name") and callable(target.name) else str(target)
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    return Place(name, _module_path(stack), _last_line(node.meta.get("stack_trace") or ""))


def _module_path(stack) -> str:
    """``layers/0/fc``: where the innermost module is; ``stack`` is {key: (its path, its class)}.

    Dynamo starts a path at a local variable: ``L['self'].layers[0].fc``.
    """
    if not stack:
        return ""
    path, owner = list(stack.values())[-1]
    parts = [part for part in re.findall(r"\w+", path.removeprefix("L['self']")) if part != "L"]
    owner = owner if isinstance(owner, str) else owner.__name__
    return "/".join(part for part in parts if part != "_modules") or owner.rpartition(".")[2]


@functools.lru_cache(maxsize=1024)
def _last_line(trace: str) -> str:
    """``file:line`` of the innermost frame of a printed stack."""
    frames = _FRAME.findall(trace)
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def _most_common(names: Iterable[str]) -> str:
    counts = Counter(names)
    shown = [name.removeprefix("aten::") for name, _ in counts.most_common(_MOST)]
    return ", ".join(shown) + (", ..." if len(counts) > _MOST else "")


def title(label: str, places: Iterable[Place]) -> str:
    """A program's name in the profiler: its label, and of many operators some with their module."""
    places = [p for p in places if p.operator != label]
    if not places:
        return label
    modules = [p.module.partition("/")[0] for p in places if p.module]
    inside = " in " + _most_common(modules) if modules else ""
    return f"{label} ({_most_common(p.operator for p in places)}{inside})"


def listing(places: Iterable[Place]) -> str:
    """Every operator with its modules and the number of its nodes, for people."""
    counts = Counter("/".join(filter(None, (p.module, p.operator))) for p in places)
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())
