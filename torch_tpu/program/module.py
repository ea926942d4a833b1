"""Prints a traced function as a StableHLO module.

The module holds one public function ``main``, and the functions that the builder was given for it
to call. Donation is an attribute of a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..lowering.builder import Builder, Value

_PARAMETER = re.compile(r"%arg(\d+)\b")


def finish(
    builder: Builder,
    results: Sequence[Value],
    donate: Mapping[int, int] | None = None,
    name: str = "program",
    keep_unread: bool = False,
) -> tuple[str, list[int]]:
    """MLIR text of the module, and the indices of the parameters it takes, in order.

    ``donate`` maps a parameter index to the result index that may reuse its memory. Parameters that
    nothing reads are left out unless ``keep_unread``.
    """
    body = builder.text()
    used = {int(i) for i in _PARAMETER.findall(body)}
    used |= {int(m.group(1)) for r in results if (m := _PARAMETER.fullmatch(r.name))}
    kept = list(range(len(builder.parameters))) if keep_unread else sorted(used)
    donate = donate or {}
    parameters = []
    for i in kept:
        value = builder.parameters[i]
        alias = f" {{tf.aliasing_output = {donate[i]} : i32}}" if i in donate else ""
        parameters.append(f"{value.name}: {value.type}{alias}")
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
    types = ", ".join(r.type for r in results)
    names = ", ".join(r.name for r in results)
    lines = [
        f"module @{safe} {{",
        f"  func.func public @main({', '.join(parameters)}) -> ({types}) {{",
        body,
        f"    return {names} : {types}" if results else "    return",
        "  }",
        *builder.functions,
        "}",
    ]
    return "\n".join(lines), kept
