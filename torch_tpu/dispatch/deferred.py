"""Builds the program of a region of deferred calls; called by csrc/dispatch/region.cc on a miss."""

from __future__ import annotations

from collections import Counter

from ..lowering import places
from ..program.compile import compile_text
from ..program.fused import Node, fuse
from . import reasons

# Rounding of 16-bit floats must be that of calls that run one by one; XLA's default keeps more bits
# between fused operations.
_OPTIONS = {"xla_allow_excess_precision": False}
_NAMED = 3


def build_region(nodes: list[Node], inputs: int, live: list[tuple[int, int]]):
    """The program of a region, see `fused.fuse`: `Executable`, [(input, result that may take its
    memory)], and for the profiler its title and its operators."""
    label = _label(nodes)
    module, donate = fuse(nodes, inputs, live, "deferred")
    facts = {"operators": tuple(lowered.label for lowered, _ in nodes), "results": len(live)}
    why = lambda: reasons.compare(label, facts)  # noqa: E731
    found = compile_text(module.text, label, why, _OPTIONS, module.located)
    return found, list(donate.items()), label, places.listing(module.places)


def _label(nodes: list[Node]) -> str:
    counts = Counter(lowered.label.removeprefix("aten::") for lowered, _ in nodes)
    most = ", ".join(name for name, _ in counts.most_common(_NAMED))
    more = ", ..." if len(counts) > _NAMED else ""
    return f"{len(nodes)} deferred operators ({most}{more})"
