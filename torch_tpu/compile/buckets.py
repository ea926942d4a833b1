"""Graphs with symbolic sizes as a few programs: sizes are rounded up to buckets.

A program is built for the buckets of a call's sizes, the sizes themselves are run-time numbers
(`program/padded.py`). A tensor with a dynamic dim travels as a *flat* one, as long as its buckets
say, whose first elements are its own. Graphs with an operator that cannot be lowered like this have
one program for each set of exact sizes, as `operator.py` makes it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from .. import _core, config
from ..lowering import hlo
from ..lowering.builder import Builder, Value, building
from ..lowering.registry import Meta
from ..program import graph as lowering
from ..program.padded import Extent, Layout, PaddedLowering, Sizes
from . import inspect
from .operator import GraphOperator, meta_of, register, split
from .symbols import expression, symbols_of


def bucket(size: int) -> int:
    """The least of 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, … that is not less than ``size``."""
    if size <= 2:
        return size
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


def flat_of(tensor: torch.Tensor, length: int) -> torch.Tensor:
    """A tensor of ``length`` elements that begins with those of ``tensor``, row-major."""
    return _core.flat_of(tensor, length)


def exact_of(flat: torch.Tensor, sizes: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    """A tensor in the memory of ``flat``, of its first elements: of ``sizes``, then permuted."""
    exact = _core.exact_of(flat, sizes)
    if all(i == d for i, d in enumerate(order)):
        return exact
    # Below autograd: what a graph returns is no view for it.
    with torch._C._AutoDispatchBelowAutograd():
        return exact.permute(order)


def operator_of(module: torch.fx.GraphModule, label: str, options: Mapping) -> Callable:
    """What runs a graph: with a program per set of buckets, if that can be."""
    exact = GraphOperator(module, label, options)
    if not _symbols_of(module):
        return exact
    try:
        return BucketedOperator(exact, options)
    except (NotImplementedError, TypeError) as error:
        if "compile" in config.log_topics():
            print(f"torch_tpu: {exact.name} is built for exact sizes: {error}", file=sys.stderr)
        return exact


def _symbols_of(module: torch.fx.GraphModule) -> list[sympy.Symbol]:
    """The symbols of tensor sizes."""
    every = (t for node in module.graph.nodes for t in inspect.tensors_of(inspect.example(node)))
    return sorted(set().union(*map(symbols_of, every)), key=str)


class Flat:
    """How a tensor with dynamic dims lies in a flat one: its dims, outermost first."""

    def __init__(self, fake: torch.Tensor, hints: Mapping):
        shape, strides = (
            [sympy.sympify(expression(n)) for n in numbers]
            for numbers in (fake.shape, fake.stride())
        )
        sizes, steps = ([int(e.xreplace(hints)) for e in es] for es in (shape, strides))
        order = sorted(range(len(sizes)), key=lambda d: (-steps[d], d))
        dense = [math.prod(sizes[e] for e in order[i + 1 :]) for i in range(len(order))]
        pairs = zip(order, dense, strict=True)
        if not all(sizes[d] == 1 or steps[d] == step for d, step in pairs):
            order = list(range(len(sizes)))  # strides that no dense tensor has
        self.order = order
        self.back = [order.index(d) for d in range(len(order))]
        self.dims = tuple(shape[d] for d in order)
        self.dtype = fake.dtype

    def meta(self, sizes: Sizes) -> Meta:
        length = math.prod(sizes.capacities(map(sizes.expression, self.dims)))
        return Meta((length,), self.dtype, (1,))

    def read(self, layout: Layout, x: Value) -> Value:
        """The padded tensor, its dims in the order of the graph."""
        return hlo.transpose(layout.repack(x, None, self.dims), self.back)

    def write(self, layout: Layout, x: Value) -> Value:
        return layout.repack(hlo.transpose(x, self.order), self.dims, None)


class BucketedOperator:
    """Runs the graph of a `GraphOperator` with one program for each set of buckets.

    Raises NotImplementedError for a graph that cannot be lowered at the capacities of its sizes.
    """

    def __init__(self, exact: GraphOperator, options: Mapping | None = None):
        self.exact, self.parts = exact, exact.parts
        self.name = f"{exact.name}_bucketed"
        self._symbols = _symbols_of(exact.parts.module)
        self._examples = [inspect.example(node) for node in self.parts.inputs]
        self._origins = [self._origin(symbol) for symbol in self._symbols]
        self._hints = {s: sympy.Integer(_HINTS[i]) for i, s in enumerate(self._symbols)}
        self._own = [
            self._kind(*pair) for pair in zip(self.parts.kinds, self._examples, strict=True)
        ]
        count = len(self._symbols)
        self._kinds = [*self._own, *["size"] * count, *["value"] * count]
        read = {i: e for i, e in enumerate(self._examples) if self._own[i] == "tensor"}
        results = {i: inspect.example(n) for i, n in enumerate(self.parts.results)}
        self._in, self._out = self._flats(read), self._flats(results)
        self._try()
        self._wanted = _function(self._symbols, self._equal)
        self._sizes_of = _function(self._symbols, [flat.dims for flat in self._out.values()])
        self._lengths = functools.lru_cache(256)(self._lengths_of)
        random = lowering.is_random(self.parts.module)
        outputs = list(range(len(results)))
        self._handle = register(self, self._kinds, outputs, random, options)

    # ---- what the graph is -------------------------------------------------------------------

    def _origin(self, symbol: sympy.Symbol) -> tuple[int, int | None]:
        """The input, and its dim, that says what a symbol stands for."""
        for i, value in enumerate(self._examples):
            if isinstance(value, torch.Tensor):
                for d, size in enumerate(value.shape):
                    if expression(size) == symbol:
                        return i, d
            elif expression(value) == symbol:
                return i, None
        raise NotImplementedError(f"the size {symbol} depends on data")

    def _kind(self, kind: str, value) -> str:
        """What an input is to the bucketed program; numbers that follow from sizes are none."""
        dynamic = not symbols_of(value).isdisjoint(self._symbols)
        if kind == "written" and dynamic:
            raise NotImplementedError(f"the graph writes to an input of sizes {tuple(value.shape)}")
        return "nothing" if dynamic and kind in ("size", "value") else kind

    def _flats(self, values: Mapping[int, object]) -> dict[int, Flat]:
        return {
            i: Flat(value, self._hints)
            for i, value in values.items()
            if isinstance(value, torch.Tensor) and symbols_of(value)
        }

    def _try(self) -> None:
        """Lower once, for any sizes, to see whether every operator can be."""
        builder = Builder()
        with building(builder):
            buckets = [int(hint) for hint in self._hints.values()]
            numbers = dict(zip(self._symbols, buckets, strict=True))
            sizes = Sizes({}, numbers, {})
            lists: dict[str, list] = {
                k: [] for k in ("tensor", "written", "size", "value", "number")
            }
            for i, (kind, value) in enumerate(zip(self._own, self._examples, strict=True)):
                if kind in ("tensor", "written"):
                    meta = self._in[i].meta(sizes) if i in self._in else sizes.meta(value)
                    lists[kind].append(builder.parameter(meta.shape, meta.dtype))
                elif kind == "size":
                    lists[kind].append(int(value) if isinstance(value, int) else value.node.hint)
                elif kind in ("value", "number"):
                    dtype = torch.int64 if kind == "value" else torch.float64
                    lists[kind].append(builder.parameter((), dtype, weak=True))
            constants = self.exact.constants
            lists["tensor"] += [builder.parameter(tuple(c.shape), c.dtype) for c in constants]
            lists["size"] += buckets
            lists["value"] += [builder.parameter((), torch.int64) for _ in buckets]
            results, written = self.body(*lists.values(), builder.parameter((2,), torch.uint64))
            for value, wanted in zip(results, self._metas(sizes), strict=True):
                if value.shape != wanted.shape or value.dtype is not wanted.dtype:
                    raise NotImplementedError(f"a result is {value.type}, not {wanted}")

    # ---- a call ------------------------------------------------------------------------------

    def __call__(self, inputs: list) -> list:
        real = [inputs[i] if d is None else inputs[i].shape[d] for i, d in self._origins]
        if min(real) < 1 or any(a != b for a, b in self._wanted(*real)):
            return self.exact(inputs)
        kept = list(inputs)
        buckets = tuple(map(bucket, real))
        for (i, flat), length in zip(self._in.items(), self._lengths(buckets), strict=True):
            inputs[i] = flat_of(inputs[i].permute(flat.order), length)
        inputs += [*buckets, *real]
        produced = self._handle(inputs, self.exact.constants)
        for (i, flat), sizes in zip(self._out.items(), self._sizes_of(*real), strict=True):
            produced[i] = exact_of(produced[i], sizes, flat.back)
        return self.exact.outputs(kept, produced)

    def _lengths_of(self, buckets: tuple[int, ...]) -> list[int]:
        """How long the flat inputs are."""
        sizes = Sizes({}, dict(zip(self._symbols, buckets, strict=True)), {})
        return [flat.meta(sizes).shape[0] for flat in self._in.values()]

    # ---- a miss ------------------------------------------------------------------------------

    def _sizes(self, inputs: list) -> Sizes:
        """From the inputs of the bucketed program; integers of the key are what they are."""
        count = len(self._symbols)
        buckets, real = inputs[-2 * count : -count], inputs[-count:]
        fixed = {
            expression(value): number
            for kind, value, number in zip(self._own, self._examples, inputs, strict=False)
            if kind == "size" and getattr(expression(value), "is_Symbol", False)
        }
        return Sizes(fixed, *(dict(zip(self._symbols, n, strict=True)) for n in (buckets, real)))

    def _metas(self, sizes: Sizes) -> list[Meta]:
        return [
            self._out[i].meta(sizes) if i in self._out else meta_of(node, sizes.meta)
            for i, node in enumerate(self.parts.results)
        ]

    def meta(self, **arguments) -> list:
        return [self._metas(self._sizes(split(self._kinds, **arguments)))]

    def body(self, reads, writes, sizes, values, numbers, rng):
        inputs = split(self._kinds, reads, writes, sizes, values, numbers)
        lowered = PaddedLowering(self._sizes(inputs), rng)
        given = [self._given(lowered, i, x) for i, x in enumerate(inputs[: len(self._own)])]
        results, written = self.exact.emit(lowered, given, reads)
        self._equal = lowered.equal
        for i, flat in self._out.items():
            results[i] = flat.write(lowered.layout, results[i])
        return results, written

    def _given(self, lowered: PaddedLowering, i: int, x):
        """An input as the nodes of the graph see it."""
        if i in self._in:
            return self._in[i].read(lowered.layout, x)
        value = self._examples[i]
        if self._own[i] == "nothing" and isinstance(value, torch.SymInt):
            return Extent(lowered.sizes.expression(value))
        return x


# Any sizes, different ones, that are buckets: operators must not confuse two sizes.
_HINTS = [size for power in range(3, 32) for size in (1 << power, 3 << power - 1)]


def _function(symbols: Sequence[sympy.Symbol], sizes: Sequence[Sequence[sympy.Expr]]) -> Callable:
    """From the values of the symbols, in order, to the sizes."""
    names = [f"n{i}" for i in range(len(symbols))]
    renamed = dict(zip(symbols, map(sympy.Symbol, names), strict=True))
    text = PythonPrinter().doprint
    rows = ("(" + "".join(f"{text(e.xreplace(renamed))}, " for e in dims) + ")" for dims in sizes)
    return eval(f"lambda {', '.join(names)}: [{', '.join(rows)}]", {"max": max, "min": min})
