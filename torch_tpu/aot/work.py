"""What an instruction does: flop of its products, bytes that it moves to and from HBM.

Counted from shapes. A fusion is what is in it: products inside, and of its operands only the part
that is read, where a slice of a large one is taken. Time is `estimate.py`'s.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from .hlo import HBM, Computation, HloModule, Instruction, Shape
from .wire import Message

_SLICES = {"dynamic-slice", "slice", "gather"}
_SAME = {"bitcast", "get-tuple-element", "reshape", "copy-done", "opt-barrier"}
# They move nothing: names for what is there.
FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"),
    *("partition-id", "replica-id", "opt-barrier", "domain", "add-dependency"),
}


class Work:
    """Counts for the instructions of one module; remembers what it counted."""

    def __init__(self, module: HloModule):
        self.module = module
        self._flops: dict[int, dict[str, int]] = {}

    def flops(self, computation: Computation, one: Instruction) -> dict[str, int]:
        """Multiply-adds as two, of one execution, by the dtype of the left operand."""
        if one.id not in self._flops:
            self._flops[one.id] = self._count(computation, one)
        return self._flops[one.id]

    def _count(self, computation: Computation, one: Instruction) -> dict[str, int]:
        if one.opcode in ("convolution", "dot"):
            left, right = (computation.operand(one, i).shape for i in (0, 1))
            number = _convolution(one, left, right) if one.opcode == "convolution" else None
            return {left.dtype: _dot(one, left) if number is None else number}
        total: dict[str, int] = {}
        if one.opcode in ("fusion", "call", "async-start"):
            for inner in self.module.called(one):
                for each in inner.instructions:
                    for dtype, number in self.flops(inner, each).items():
                        total[dtype] = total.get(dtype, 0) + number
        return total

    def bytes(self, computation: Computation, one: Instruction) -> int:
        """To and from HBM, of one execution."""
        if one.opcode in FREE or one.opcode.endswith(("-done", "-update")):
            return 0
        if one.opcode in ("while", "conditional", "call"):
            return 0  # what they run is counted by itself
        if one.opcode in ("copy-start", "slice-start"):
            leaves = one.shape.elements
            return leaves[0].hbm_bytes + leaves[1].hbm_bytes if len(leaves) > 1 else 0
        if one.opcode == "fusion":
            return self._of_fusion(computation, one)
        if one.opcode == "dynamic-update-slice":
            return 2 * _in_hbm(computation.operand(one, 0).shape, computation.operand(one, 1).shape)
        operands = [computation.by_id[i] for i in dict.fromkeys(one.operands)]
        if one.opcode in _SLICES:
            rest = sum(operand.shape.hbm_bytes for operand in operands[1:])
            return _in_hbm(operands[0].shape, one.shape) + one.shape.hbm_bytes + rest
        return sum(operand.shape.hbm_bytes for operand in operands) + one.shape.hbm_bytes

    def _of_fusion(self, computation: Computation, one: Instruction) -> int:
        inner = self.module.called(one)[0]
        if inner.root.opcode == "custom-call":
            # It begins a collective, which reads the operands, or ends it, with the result there.
            if one.shape.dtype != "tuple":
                return one.shape.hbm_bytes
            return sum(computation.by_id[i].shape.hbm_bytes for i in dict.fromkeys(one.operands))
        read = sum(self._read(inner, parameter) for parameter in inner.parameters)
        return read + self._written(inner, inner.root, one.shape)

    def _read(self, inner: Computation, source: Instruction) -> int:
        """Of a parameter of a fusion, what its users take of it."""
        whole = source.shape.hbm_bytes
        if not whole:
            return 0
        taken = 0
        for user in inner.users.get(source.id, ()):
            taken += self._taken(inner, source, user)
            if taken >= whole:
                return whole
        return taken

    def _taken(self, inner: Computation, source: Instruction, user: Instruction) -> int:
        first = bool(user.operands) and user.operands[0] == source.id
        if user.opcode in _SLICES and first and source.id not in user.operands[1:]:
            return min(source.shape.bytes, user.shape.bytes)
        if user.opcode == "dynamic-update-slice" and first:
            return 0
        if user.opcode in ("custom-call", "tuple") or self._is_carried(inner, user):
            return 0
        if user.opcode in _SAME and user is not inner.root:
            # The result has no memory of its own, and inside a fusion no memory space either.
            return sum(
                self._taken(inner, user, further) for further in inner.users.get(user.id, ())
            )
        if user.opcode == "fusion":
            nested = self.module.called(user)[0]
            places = [i for i, operand in enumerate(user.operands) if operand == source.id]
            return sum(self._read(nested, nested.parameters[i]) for i in places)
        return source.shape.hbm_bytes

    def _is_carried(self, inner: Computation, user: Instruction) -> bool:
        """Whether this is a collective that the fusion only hands on while it does other work."""
        users = inner.users.get(user.id, ())
        return len(users) == 1 and users[0].opcode == "custom-call"

    def _written(self, inner: Computation, root: Instruction, shape: Shape) -> int:
        """Of a fusion's result: of a tensor that is updated in place only the update."""
        if root.opcode == "tuple" and len(root.operands) == len(shape.elements):
            pairs = zip(root.operands, shape.elements, strict=True)
            return sum(self._written(inner, inner.by_id[i], element) for i, element in pairs)
        if not shape.hbm_bytes or root.opcode in ("custom-call", "parameter"):
            return 0
        if root.opcode == "dynamic-update-slice":
            return min(shape.hbm_bytes, inner.operand(root, 1).shape.bytes)
        if root.opcode in ("bitcast", "convert", "get-tuple-element"):
            return min(shape.hbm_bytes, self._written(inner, inner.operand(root, 0), shape))
        if root.opcode == "fusion":
            nested = self.module.called(root)[0]
            return self._written(nested, nested.root, shape)
        return shape.hbm_bytes

    def main(self, one: Instruction) -> Instruction:
        """The instruction a fusion is best named by: its largest product, else itself, its root."""
        inside = list(self._inside(one))
        named = [each for _, each in inside if each.op_name]
        products = [each for flops, each in inside if flops and each.op_name]
        if products:
            return max(products, key=lambda each: sum(self._flops[each.id].values()))
        if one.op_name or not named:
            return one
        return named[-1]  # the root comes last

    def origin(self, computation: Computation, one: Instruction) -> Instruction:
        """As `main`; where the compiler kept no name, of what made the first operand."""
        found, at = self.main(one), one
        for _ in range(4):
            if found.op_name or not at.operands:
                break
            at = computation.operand(at, 0)
            if at.opcode == "parameter":
                break
            found = self.main(at)
        return found if found.op_name else self.main(one)

    def _inside(self, one: Instruction) -> Iterator[tuple[int, Instruction]]:
        """What is in a fusion, in fusions of it too, each with its flop."""
        outer = one.opcode in ("fusion", "call", "async-start")
        for inner in self.module.called(one) if outer else ():
            for each in inner.instructions:
                if each.opcode in ("fusion", "call"):
                    yield from self._inside(each)
                else:
                    yield sum(self.flops(inner, each).values()), each


def _in_hbm(where: Shape, what: Shape) -> int:
    return what.bytes if where.space == HBM else 0


def _dot(one: Instruction, left: Shape) -> int:
    contracted = one.raw.message(30).integers(1)
    return 2 * one.shape.count * math.prod(left.dims[d] for d in contracted)


def _convolution(one: Instruction, left: Shape, right: Shape) -> int:
    """Products with padding and with the zeros between dilated elements are not counted.

    The TPU compiler writes batched products as convolutions with much of both.
    """
    numbers, windows = one.raw.message(16), one.raw.message(15).messages(1)
    groups, batch_groups = one.raw.integer(50) or 1, one.raw.integer(58) or 1
    inputs, outputs = numbers.integers(11), numbers.integers(12)
    total = 2 * left.dims[numbers.integer(7)] * left.dims[numbers.integer(8)]
    total *= one.shape.dims[numbers.integer(10)]
    total //= groups * batch_groups
    for window, source, result in zip(windows, inputs, outputs, strict=True):
        total *= _valid(window, left.dims[source], one.shape.dims[result])
    return total


def _valid(window: Message, size: int, results: int) -> int:
    """How many (result, kernel) positions meet an element of the input."""
    stride, low = window.integer(2) or 1, window.integer(3)
    spread, between = window.integer(5) or 1, window.integer(6) or 1
    return _positions(window.integer(1), stride, low, spread, between, size, results)


@functools.lru_cache(maxsize=4096)
def _positions(
    kernel: int, stride: int, low: int, spread: int, between: int, size: int, results: int
) -> int:
    end = (size - 1) * between  # the last element's place
    found = 0
    for k in range(kernel):
        offset = k * spread - low  # of result 0; result o reads at o * stride + offset
        first = max(0, -(offset // stride))
        last = min(results - 1, (end - offset) // stride)
        if between == 1:
            found += max(0, last - first + 1)
            continue
        # Those that meet an element and not a zero between two: o * stride = -offset (mod between).
        common = math.gcd(stride, between)
        if offset % common:
            continue
        period = between // common
        inverse = pow(stride // common, -1, period) if period > 1 else 0
        start = -(offset // common) * inverse % period
        first += (start - first) % period
        found += max(0, (last - first) // period + 1)
    return found
