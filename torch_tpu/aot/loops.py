"""How often the computations of a program run: trip counts of while loops, and what follows.

The TPU compiler counts loop bodies once in its own costs, and rarely writes a trip count down. It
is found again where the loop counts an integer from a constant in constant steps to a constant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from .hlo import Computation, HloModule, Instruction

# These hand an integer on.
_THROUGH = {"copy", "bitcast", "convert", "reshape", "copy-done", "broadcast"}
_PASSES: dict[str, Callable[[int, int], bool]] = {
    "LT": lambda i, n: i < n,
    "LE": lambda i, n: i <= n,
    "GT": lambda i, n: i > n,
    "GE": lambda i, n: i >= n,
    "NE": lambda i, n: i != n,
}
# A computation, an instruction of it, and the operands of the fusion it stands in, outermost last.
_Site = tuple[Computation, Instruction, "tuple | None"]


class Loop:
    """A while instruction, its body and its condition, within the computation that holds it."""

    def __init__(self, module: HloModule, holder: Computation, instruction: Instruction):
        self.module, self.holder, self.instruction = module, holder, instruction
        self.body, self.condition = module.loop(instruction)

    @functools.cached_property
    def trips(self) -> int | None:
        """How often the body runs; None if it is not known."""
        if self.instruction.known_trips is not None:
            return self.instruction.known_trips
        compare = self._resolved((self.condition, self.condition.root, None))
        if compare is None or compare[1].opcode != "compare":
            return None
        left, right = (self._operand(compare, number) for number in (0, 1))
        counter, bound = self._state(left), self._value(right)
        passes = _PASSES.get(compare[1].direction)
        if counter is None or bound is None or passes is None:
            return None
        start, step = self._initial(counter), self._step(counter)
        return None if start is None or not step else _count(start, step, bound, passes)

    def _resolved(self, site: _Site | None) -> _Site | None:
        """Past copies, out of fusions and through a fusion's parameters."""
        while site is not None:
            computation, one, outer = site
            if one.opcode in _THROUGH and one.operands:
                site = computation, computation.operand(one, 0), outer
            elif one.opcode == "fusion":
                inner = self.module.called(one)[0]
                site = inner, inner.root, (computation, one, outer)
            elif one.opcode == "parameter" and outer is not None:
                holder, fusion, further = outer
                site = holder, holder.operand(fusion, one.parameter_number), further
            elif one.opcode == "get-tuple-element":
                below = computation.operand(one, 0)
                if below.opcode != "tuple":
                    return site
                site = computation, computation.operand(below, one.tuple_index), outer
            else:
                return site
        return None

    def _operand(self, site: _Site, number: int) -> _Site | None:
        computation, one, outer = site
        return self._resolved((computation, computation.operand(one, number), outer))

    def _state(self, site: _Site | None) -> int | None:
        """The place in the loop's state that this reads."""
        if site is None or site[1].opcode != "get-tuple-element":
            return None
        computation, one, outer = site
        source = computation.operand(one, 0)
        return one.tuple_index if source.opcode == "parameter" and outer is None else None

    def _value(self, site: _Site | None) -> int | None:
        """A constant, also one that the loop carries unchanged."""
        if site is None:
            return None
        if site[1].opcode == "constant":
            return site[1].scalar
        place = self._state(site)
        if place is None or not self._carried(place):
            return None
        return self._initial(place)

    def _carried(self, place: int) -> bool:
        root = self.body.root
        if root.opcode != "tuple":
            return False
        return self._state(self._operand((self.body, root, None), place)) == place

    def _initial(self, place: int) -> int | None:
        state = self.holder.operand(self.instruction, 0)
        if state.opcode != "tuple":
            return None
        found = self._resolved((self.holder, self.holder.operand(state, place), None))
        return found[1].scalar if found is not None else None

    def _step(self, place: int) -> int | None:
        root = self.body.root
        if root.opcode != "tuple":
            return None
        site = self._operand((self.body, root, None), place)
        if site is None or site[1].opcode not in ("add", "subtract"):
            return None
        left, right = self._operand(site, 0), self._operand(site, 1)
        if self._state(left) != place:
            left, right = right, left
        step = self._value(right)
        if self._state(left) != place or step is None:
            return None
        return -step if site[1].opcode == "subtract" else step


def _count(start: int, step: int, bound: int, passes: Callable[[int, int], bool]) -> int | None:
    """Steps from ``start`` until ``passes(value, bound)`` is false; None if that is never."""
    if not passes(start, bound):
        return 0
    # Away from the bound it would go on until the integer overflows.
    if passes is not _PASSES["NE"] and (step > 0) == passes(1, 0):
        return None
    steps, rest = divmod(bound - start, step)
    if passes is _PASSES["NE"]:
        return steps if not rest and steps > 0 else None
    return steps + (1 if rest or passes(bound, bound) else 0)


class Executions:
    """How often each computation runs in one execution of the program.

    Attributes:
      counts: computation id → executions; every branch of a conditional counts.
      guessed: names of the loops whose trip count is not known; they count as 1.
      in_branch: ids of the computations that run only if a conditional takes them.
    """

    def __init__(self, module: HloModule):
        self.counts: dict[int, int] = {}
        self.guessed: list[str] = []
        self.in_branch: set[int] = set()
        self._module = module
        self._visit(module.entry, 1, False)

    def _visit(self, computation: Computation, times: int, branch: bool) -> None:
        self.counts[computation.id] = self.counts.get(computation.id, 0) + times
        if branch:
            self.in_branch.add(computation.id)
        for one in computation.instructions:
            if one.opcode == "while":
                loop = Loop(self._module, computation, one)
                if loop.trips is None:
                    self.guessed.append(one.name)
                trips = 1 if loop.trips is None else loop.trips
                self._visit(loop.body, times * trips, branch)
                self._visit(loop.condition, times * (trips + 1), branch)
            elif one.called:
                for inner in self._module.called(one):
                    self._visit(inner, times, branch or one.opcode == "conditional")
