"""Lowers a graph with symbolic sizes to one program for all sizes up to a bucket.

A dim whose size calls decide is *dynamic*. In the program it has its *capacity*, what its
expression can be at most within the bucket; its *extent*, the size of the call, is a run-time
number. Beyond the extent lies garbage, NaN included, so whatever mixes elements along a dynamic
dim masks it first. Dims are told apart by their expressions, never by their capacities. How each
operator deals with dynamic dims is in `padded_rules.py` and `padded_places.py`; what is in neither
raises NotImplementedError.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence

import sympy
import torch
from torch.fx.node import map_arg

from ..lowering import hlo, registry
from ..lowering.builder import Value
from ..lowering.registry import Meta
from . import graph as lowering

Dims = tuple[sympy.Expr, ...]


@dataclasses.dataclass(frozen=True)
class Extent:
    """A number of the graph that follows from sizes; a program value only where it is used."""

    expression: sympy.Expr


class Sizes:
    """What size expressions are: at most (`capacity`), and in the call (`extent`)."""

    def __init__(self, fixed: Mapping, buckets: Mapping, values: Mapping):
        """Symbols of three kinds: integers of the key; buckets and run-time values of the others.

        ``values`` may be empty where nothing is emitted.
        """
        self._fixed = {symbol: sympy.Integer(number) for symbol, number in fixed.items()}
        self._buckets = buckets
        self._values = values
        self._extents: dict[sympy.Expr, Value] = {}

    def expression(self, number) -> sympy.Expr:
        found = number.node.expr if isinstance(number, lowering.SYMBOLIC) else sympy.sympify(number)
        return found.xreplace(self._fixed)

    def known(self, expression: sympy.Expr) -> bool:
        """Whether it depends on sizes only, not on data."""
        return all(symbol in self._buckets for symbol in expression.free_symbols)

    def dims(self, tensor: torch.Tensor) -> Dims:
        return tuple(map(self.expression, tensor.shape))

    def capacity(self, expression: sympy.Expr) -> int:
        return max(_bounds(expression, self._buckets)[1], 0)

    def capacities(self, dims: Sequence[sympy.Expr]) -> tuple[int, ...]:
        return tuple(map(self.capacity, dims))

    def extent(self, expression: sympy.Expr) -> Value:
        """The run-time value of an expression, int64[]."""
        if expression not in self._extents:
            self._extents[expression] = self._emit(expression)
        return self._extents[expression]

    def _emit(self, e: sympy.Expr) -> Value:
        if e.is_Integer:
            return hlo.constant(int(e), torch.int64)
        if e.is_Symbol and e in self._values:
            return self._values[e]
        name, parts = _operands(e)
        values = [self.extent(part) for part in parts]
        if name == "FloorDiv":
            return _floor_divide(*values)
        word = {"Add": "add", "Mul": "multiply", "Max": "maximum"}.get(name)
        if word is None or not values:
            raise NotImplementedError(f"the size {e} is no affine expression")
        return functools.reduce(lambda a, b: hlo.binary(word, a, b), values)

    def meta(self, value):
        """`Meta` of a fake tensor at its capacities, of each in a list; None as None."""
        if isinstance(value, torch.Tensor):
            dims = self.dims(value)
            shape = self.capacities(dims)
            if all(d.is_Integer for d in (*dims, *map(self.expression, value.stride()))):
                return Meta(shape, value.dtype, tuple(map(int, value.stride())))
            strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
            return Meta(shape, value.dtype, tuple(strides))
        if isinstance(value, (list, tuple)):
            return [self.meta(v) for v in value]
        if isinstance(value, torch.SymInt):
            return self.capacity(self.expression(value))
        if isinstance(value, lowering.SYMBOLIC):
            raise NotImplementedError(f"the number {value} depends on sizes")
        return value


def _floor_divide(a: Value, b: Value) -> Value:
    """Python's ``a // b``; division by the sizes of nothing gives 0."""
    zero, one = (hlo.constant(n, torch.int64) for n in (0, 1))
    b = hlo.select(b == 0, one, b)
    quotient, rest = hlo.binary("divide", a, b), hlo.binary("remainder", a, b)
    below = (rest != 0) & ((rest < 0) ^ (b < 0))
    return hlo.binary("subtract", quotient, hlo.select(below, one, zero))


def _operands(e: sympy.Expr) -> tuple[str, list]:
    """What is done to what; small powers are products."""
    name = type(e).__name__
    if name == "Pow" and e.args[1].is_Integer and 0 < e.args[1] <= 8:
        return "Mul", [e.args[0]] * int(e.args[1])
    return "FloorDiv" if name == "CleanDiv" else name, list(e.args)


def _bounds(e: sympy.Expr, buckets: Mapping) -> tuple[int, int]:
    """The least and the most that an expression can be; every symbol is at least 1."""
    if e.is_Integer:
        return int(e), int(e)
    if e.is_Symbol and e in buckets:
        return min(1, buckets[e]), buckets[e]
    name, operands = _operands(e)
    parts = [_bounds(a, buckets) for a in operands]
    if name == "Add":
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if name == "Max":
        return max(low for low, _ in parts), max(high for _, high in parts)
    if name == "Mul" and parts:
        low, high = 1, 1
        for part in parts:
            corners = [a * b for a in (low, high) for b in part]
            low, high = min(corners), max(corners)
        return low, high
    if name == "FloorDiv" and e.args[1].is_Integer and e.args[1] > 0:
        return parts[0][0] // int(e.args[1]), parts[0][1] // int(e.args[1])
    raise NotImplementedError(f"the size {e} is no affine expression")


def is_dynamic(dims: Sequence[sympy.Expr]) -> bool:
    return any(not d.is_Integer for d in dims)


# ---- layouts ---------------------------------------------------------------------------------


def _segments(dims: Dims) -> list:
    """Dynamic dims with the products of the static ones between them."""
    found: list = [sympy.Integer(1)]
    for d in dims:
        if d.is_Integer:
            found[-1] *= d
        else:
            found += [d, sympy.Integer(1)]
    return found


def _is_prefix(dims: Dims) -> bool:
    """Whether the elements of a padded array are its first ones: only the outermost dim is cut."""
    segments = _segments(dims)
    return len(segments) == 1 or len(segments) == 3 and segments[0] == 1


class Layout:
    """Repacks arrays between row-major orders; every array is padded, or flat (``dims`` None).

    The first elements of a flat array are the elements of the tensor; what follows is garbage.
    """

    def __init__(self, sizes: Sizes):
        self._sizes = sizes

    def repack(self, x: Value, source: Dims | None, target: Dims | None) -> Value:
        """The elements of ``x`` in the order of ``target``, which has as many."""
        known = source if source is not None else target
        if source is None or target is None:
            shape = self._sizes.capacities(target) if target is not None else (x.numel,)
            plain = _is_prefix(known)
        else:
            shape = self._sizes.capacities(target)
            plain = _segments(source) == _segments(target)
            plain |= _is_prefix(source) and _is_prefix(target)
        if plain:
            return hlo.reshape(_resized(x, math.prod(shape)), shape)
        block = math.gcd(*(self._row(d) for d in (source, target) if d is not None))
        if not block or not math.prod(shape) or not x.numel:
            return hlo.constant(0, x.dtype, shape)
        rows = hlo.reshape(x, (x.numel // block, block))
        index = self._logical(target, shape, block)
        if source is not None:
            index = self._physical(index, source, block)
        taken = hlo.take(rows, _clamped(index, rows.shape[0]), 0)
        return hlo.reshape(taken, shape)

    @staticmethod
    def _row(dims: Dims) -> int:
        """Elements that lie together: the static dims after the last dynamic one."""
        return int(_segments(dims)[-1])

    def _blocks(self, dims: Dims, block: int) -> Dims:
        """The dims of an array of blocks."""
        last = max(i for i, d in enumerate(dims) if not d.is_Integer)
        return (*dims[: last + 1], sympy.Integer(self._row(dims) // block))

    def _logical(self, dims: Dims | None, shape: Sequence[int], block: int) -> Value:
        """For every block of an array: its number in the tensor, row-major."""
        if dims is None:
            return hlo.iota((math.prod(shape) // block,), 0)
        dims = self._blocks(dims, block)
        shape = self._sizes.capacities(dims)
        index, stride = hlo.constant(0, torch.int64, shape), sympy.Integer(1)
        for d in reversed(range(len(dims))):
            index = index + hlo.iota(shape, d) * self._sizes.extent(stride)
            stride *= dims[d]
        return hlo.flatten(index)

    def _physical(self, index: Value, dims: Dims, block: int) -> Value:
        """Where blocks lie in a padded array, from their numbers in the tensor."""
        dims = self._blocks(dims, block)
        shape = self._sizes.capacities(dims)
        place, rest = hlo.zeros_like(index), index
        for d in reversed(range(len(dims))):
            size = self._sizes.extent(dims[d])
            size = hlo.expand(hlo.maximum(size, hlo.constant(1, torch.int64)), index.shape)
            coordinate = hlo.binary("remainder", rest, size) if d else rest
            place = place + coordinate * math.prod(shape[d + 1 :])
            rest = hlo.binary("divide", rest, size)
        return place


def _clamped(index: Value, count: int) -> Value:
    zero, last = (hlo.constant(n, torch.int64) for n in (0, count - 1))
    return hlo.clamp(zero, index, last)


def _resized(x: Value, count: int) -> Value:
    """``x`` flat, cut off or padded with zeros to ``count`` elements."""
    return resized(hlo.flatten(x), 0, count)


def resized(x: Value, dim: int, size: int) -> Value:
    """``x`` cut off or padded with zeros to ``size`` along one dim."""
    high = [0] * x.ndim
    high[dim] = size - x.shape[dim]
    return hlo.pad(x, hlo.constant(0, x.dtype), [0] * x.ndim, high)


# ---- nodes -----------------------------------------------------------------------------------


class PaddedLowering(lowering.Lowering):
    """Emits graphs at the capacities of their sizes."""

    def __init__(self, sizes: Sizes, rng: Value | None = None):
        super().__init__(sizes.meta, rng)
        self.sizes = sizes
        self.layout = Layout(sizes)
        self.equal: list[tuple[sympy.Expr, sympy.Expr]] = []  # what operators want of a call

    def dims(self, node: torch.fx.Node) -> Dims:
        value = node.meta.get("val")
        if value is None and node.op == "get_attr":
            value = lowering.held(node)
        return self.sizes.dims(value)

    def _call(self, node: torch.fx.Node, values: Mapping, states: Iterator[Value]):
        if lowering.is_number(node):
            return self._size(node, values)
        if node.target is operator.getitem or not self._is_dynamic(node, values):
            return super()._call(node, values, states)
        if node.target in lowering.ASSERTIONS:
            return None
        if lowering.rule_of(node) is None:
            raise NotImplementedError(f"{node.target} with sizes that calls decide")
        call = Call(self, node, values)
        if call.rule.random:
            call.state = next(states)
        from . import padded_places, padded_rules

        assert padded_places  # it fills the table
        return padded_rules.lower(call)

    def _size(self, node: torch.fx.Node, values: Mapping):
        number = node.meta["val"]
        if not isinstance(number, lowering.SYMBOLIC):
            return number
        expression = self.sizes.expression(number)
        if self.sizes.known(expression):
            return Extent(expression)
        # It depends on data: arithmetic on run-time values.
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        resolved = [self.sizes.extent(a.expression) if isinstance(a, Extent) else a for a in args]
        return self._number(node, resolved, kwargs)

    def _is_dynamic(self, node: torch.fx.Node, values: Mapping) -> bool:
        if any(isinstance(values[n], Extent) for n in node.all_input_nodes):
            return True
        nodes = (node, *node.all_input_nodes)
        tensors = torch.utils._pytree.tree_leaves([n.meta.get("val") for n in nodes])
        return any(is_dynamic(self.sizes.dims(t)) for t in tensors if isinstance(t, torch.Tensor))


class Call:
    """One operator of a graph, some dims of which are dynamic.

    ``given`` are its arguments in the graph (nodes and numbers) by name, ``named`` their values.
    """

    def __init__(self, lowering_: PaddedLowering, node: torch.fx.Node, values: Mapping):
        self.lowering, self.node = lowering_, node
        self.sizes, self.layout = lowering_.sizes, lowering_.layout
        self.rule = registry.RULES[node.target.name()]
        self.state: Value | None = None
        schema = node.target._schema.arguments
        self._types = {a.name: str(a.real_type) for a in schema}
        self.given = {
            a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
            for i, a in enumerate(schema)
        }
        self.named = {n: map_arg(a, values.__getitem__) for n, a in self.given.items()}
        self.meta = self.sizes.meta(node.meta["val"])

    def refuse(self, reason: str = "with sizes that calls decide") -> NotImplementedError:
        return NotImplementedError(f"{self.node.target} ({self.node.name}) {reason}")

    def require(self, holds: bool, reason: str = "with sizes that calls decide") -> None:
        if not holds:
            raise self.refuse(reason)

    # ---- sizes -------------------------------------------------------------------------------

    def dims(self, name: str) -> Dims | None:
        """The dims of a tensor argument; None if it is none."""
        node = self.given.get(name)
        return self.dims_of(node) if self.is_tensor(node) else None

    def dims_of(self, node: torch.fx.Node) -> Dims:
        return self.lowering.dims(node)

    @staticmethod
    def is_tensor(given) -> bool:
        if not isinstance(given, torch.fx.Node):
            return False
        return given.op == "get_attr" or isinstance(given.meta.get("val"), torch.Tensor)

    @property
    def results(self) -> list[Dims]:
        """The dims of every tensor in the result."""
        leaves = torch.utils._pytree.tree_leaves(self.node.meta["val"])
        return [self.sizes.dims(v) for v in leaves if isinstance(v, torch.Tensor)]

    @property
    def result(self) -> Dims:
        return self.sizes.dims(self.node.meta["val"])

    def number(self, given) -> sympy.Expr:
        """An integer argument as an expression."""
        if isinstance(given, Extent):
            return given.expression
        self.require(isinstance(given, int), "with a number that depends on data")
        return sympy.Integer(given)

    def extent(self, expression: sympy.Expr) -> Value:
        return self.sizes.extent(expression)

    # ---- masks and indices -------------------------------------------------------------------

    def masked(self, name: str, dims: Sequence[int], fill) -> None:
        """Put ``fill`` beyond the extents of an argument along those of ``dims`` that have one."""
        if self.named[name] is not None:
            self.named[name] = self.mask(self.named[name], self.dims(name), dims, fill)

    def mask(self, x: Value, sizes: Dims, dims: Sequence[int], fill) -> Value:
        kept = None
        for d in dims:
            if not sizes[d].is_Integer:
                inside = hlo.iota(x.shape, d) < self.extent(sizes[d])
                kept = inside if kept is None else kept & inside
        if kept is None:
            return x
        return hlo.select(kept, x, hlo.full_like(x, fill))

    @staticmethod
    def take(x: Value, index: Value, dim: int) -> Value:
        """``x[index]`` along one dim, for indices that may be out of range."""
        return hlo.take(x, _clamped(index, x.shape[dim]), dim)

    # ---- the rule ----------------------------------------------------------------------------

    def emit(self, /, meta=None, **changes):
        """The operator by its rule at the capacities; sizes become run-time numbers."""
        named = {n: self._argument(n, a) for n, a in (self.named | changes).items()}
        meta = self.meta if meta is None else meta
        single = len(self.node.target._schema.returns) == 1
        produced = registry.call(self.rule, named, [meta] if single else meta, self.state)
        self.require(not self.rule.writes, "writes to its arguments")
        return produced[0] if single else produced

    def _argument(self, name: str, value):
        if isinstance(value, (list, tuple)) and any(isinstance(v, Extent) for v in value):
            raise self.refuse(f"takes {name} as sizes that calls decide")
        if not isinstance(value, Extent):
            return value
        kind = self._types[name]
        runtime = name in self.rule.runtime or kind == "Tensor" and self.rule.promote is not None
        self.require(
            runtime or kind == "number" and name not in self.rule.static,
            f"takes {name} as a size that calls decide",
        )
        number = self.extent(value.expression)
        return Value(number.builder, number.name, (), number.dtype, weak=True)
