"""Views as program text: reading and writing a strided view of a storage's array.

The core analyses a tensor's strides (csrc/device/views.h) and hands a `Plan` over; here it becomes
StableHLO. Where a view starts is always a run-time operand. `build_internal` makes the programs the
core needs for itself (filling, reinterpreting, copying views, resizing storages).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from ..lowering import hlo
from ..lowering.builder import Builder, Value, building
from ..program import module
from ..program.lowered import Lowered
from . import reasons

WHOLE, SLICE, GATHER = range(3)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a view lies in the array; see csrc/device/views.h for the fields."""

    kind: int
    dims: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def start_count(self) -> int:
        return {WHOLE: 0, SLICE: len(self.dims), GATHER: 1}[self.kind]


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements, as PyTorch counts them (a size-0 dim counts as 1)."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _starts(plan: Plan, starts: Value) -> list[Value]:
    """0-d start of each dim of a slice plan; dims taken whole start at a constant zero."""
    result = []
    for i, (extent, count) in enumerate(zip(plan.dims, plan.counts, strict=True)):
        if count == extent:
            result.append(hlo.constant(0, torch.int64))
        else:
            result.append(hlo.reshape(hlo.slice_dim(starts, 0, i, i + 1), ()))
    return result


def _flat_index(sizes, strides, start: Value, numel: int) -> Value:
    """Position of every element of the view in the flat array."""
    dtype = torch.int32 if numel < 2**31 else torch.int64
    index = hlo.expand(hlo.convert(start, dtype), sizes)
    for dim, stride in enumerate(strides):
        if stride and sizes[dim] > 1:
            index = index + hlo.iota(sizes, dim, dtype) * hlo.constant(stride, dtype)
    return index


def prefix(array: Value, sizes: Sequence[int]) -> Value:
    """The first elements of an array in shape ``sizes``: all of them, unless it has slack."""
    count = math.prod(sizes)
    if count < array.numel:
        array = hlo.slice_dim(hlo.flatten(array), 0, 0, count)
    return hlo.reshape(array, sizes)


def read(array: Value, sizes, strides, plan: Plan, starts: Value | None) -> Value:
    """The elements of a view as a value of shape ``sizes``."""
    if plan.kind == WHOLE:
        return prefix(array, sizes)
    assert starts is not None
    if plan.kind == GATHER:
        start = hlo.reshape(starts, ())
        return hlo.take(hlo.flatten(array), _flat_index(sizes, strides, start, array.numel), 0)
    x = hlo.reshape(array, plan.dims)
    spans = [(c - 1) * s + 1 for c, s in zip(plan.counts, plan.steps, strict=True)]
    if tuple(spans) != plan.dims:
        x = hlo.dynamic_slice(x, _starts(plan, starts), spans)
    x = hlo.slice(x, [0] * len(spans), spans, plan.steps)
    placed = sorted(p for p in plan.places if p >= 0)
    x = hlo.reshape(x, [plan.counts[p] for p in placed])
    kept = [i for i, p in enumerate(plan.places) if p >= 0]
    x = hlo.transpose(x, [placed.index(plan.places[i]) for i in kept])
    return hlo.broadcast_in_dim(x, sizes, kept)


def write(array: Value, value: Value, strides, plan: Plan, starts: Value) -> Value:
    """The array with the view replaced by ``value``; a slice costs only the slice when donated."""
    sizes = value.shape
    if plan.kind == SLICE:
        kept = [i for i, p in enumerate(plan.places) if p >= 0]
        value = hlo.reshape(value, [sizes[i] for i in kept])
        order = sorted(range(len(kept)), key=lambda k: plan.places[kept[k]])
        value = hlo.reshape(hlo.transpose(value, order), plan.counts)
        if all(s == 1 for s in plan.steps):
            x = hlo.reshape(array, plan.dims)
            x = hlo.dynamic_update_slice(x, value, _starts(plan, starts))
            return hlo.reshape(x, array.shape)
        units = [math.prod(plan.dims[i + 1 :]) for i in range(len(plan.dims))]
        start = hlo.constant(0, torch.int64)
        for i, unit in enumerate(units):
            start = start + hlo.reshape(hlo.slice_dim(starts, 0, i, i + 1), ()) * hlo.constant(
                unit, torch.int64
            )
        strides = [s * u for s, u in zip(plan.steps, units, strict=True)]
    else:
        start = hlo.reshape(starts, ())
    index = _flat_index(value.shape, strides, start, array.numel)
    flat = hlo.scatter(
        hlo.flatten(array),
        hlo.reshape(index, (value.numel, 1)),
        hlo.flatten(value),
        "set",
        window_dims=[],
        inserted=[0],
        index_map=[0],
        index_vector_dim=1,
        unique=True,
    )
    return hlo.reshape(flat, array.shape)


def retype(x: Value, dtype: torch.dtype) -> Value:
    """The same bytes as a flat array of another dtype, as torch's ``view(dtype)`` reads them."""
    x = hlo.flatten(x)
    if x.is_complex:
        x = hlo.concatenate([hlo.unsqueeze(hlo.real(x), 1), hlo.unsqueeze(hlo.imag(x), 1)], 1)
        x = hlo.flatten(x)
    elif x.dtype is torch.bool:
        x = hlo.convert(x, torch.uint8)
    part = dtype
    if dtype.is_complex:
        part = torch.float32 if dtype is torch.complex64 else torch.float64
    elif dtype is torch.bool:
        part = torch.uint8
    if x.dtype is not part:
        if part.itemsize > x.dtype.itemsize:
            ratio = part.itemsize // x.dtype.itemsize
            x = hlo.reshape(x, (x.numel // ratio, ratio))
        x = hlo.flatten(hlo.bitcast(x, part))
    if dtype.is_complex:
        pairs = hlo.reshape(x, (x.numel // 2, 2))
        re, im = (hlo.flatten(hlo.slice_dim(pairs, 1, i, i + 1)) for i in range(2))
        return hlo.complex(re, im)
    return hlo.convert(x, dtype)


class _Words:
    """Reads the key of an internal program in the order the core pushed it."""

    def __init__(self, words: Sequence[int]):
        self._words = iter(words)

    def one(self) -> int:
        return next(self._words)

    def many(self, count: int | None = None) -> tuple[int, ...]:
        count = self.one() if count is None else count
        return tuple(next(self._words) for _ in range(count))

    def dtype(self) -> torch.dtype:
        return SCALAR_TYPES[self.one()]

    def view(self) -> tuple[tuple[int, ...], tuple[int, ...], Plan]:
        kind = self.one()
        sizes = self.many()
        if kind == SLICE:
            rank = self.one()
            parts = [self.many(rank) for _ in range(3)]
            return sizes, (), Plan(kind, *parts, self.many(len(sizes)))
        strides = self.many(len(sizes)) if kind == GATHER else ()
        return sizes, strides, Plan(kind)


# c10::ScalarType numbers, fixed by torch's serialization format.
SCALAR_TYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}


def build_internal(words: Sequence[int]):
    """The entry of an internal program (csrc/dispatch/internal.h) from its key."""
    reader = _Words(words)
    kind = reader.one()
    name, body = _INTERNAL[kind]
    builder = Builder()
    with building(builder):
        result, donate = body(builder, reader)
    finished = module.finish(builder, [result], donate, name)
    output = (
        result.dtype,
        result.shape,
        contiguous_strides(result.shape),
        result.shape,
        True,
        result.numel * result.dtype.itemsize,
    )
    program = Lowered(finished, name, lambda: reasons.of_internal(name, words))
    return program, finished.kept, list(finished.donate), [output], [-1], []


def _zeros(builder: Builder, words: _Words):
    dtype = words.dtype()
    return hlo.constant(0, dtype, words.many()), {}


def _retype(builder: Builder, words: _Words):
    dtype = words.dtype()
    x = builder.parameter(words.many(), dtype)
    target, shape = words.dtype(), words.many()
    count = math.prod(shape) * target.itemsize // dtype.itemsize
    return hlo.reshape(retype(prefix(x, (count,)), target), shape), {}


def _read(builder: Builder, words: _Words):
    dtype = words.dtype()
    array = builder.parameter(words.many(), dtype)
    sizes, strides, plan = words.view()
    starts = builder.parameter((plan.start_count,), torch.int64) if plan.kind != WHOLE else None
    return read(array, sizes, strides, plan, starts), {}


def _write(builder: Builder, words: _Words):
    dtype = words.dtype()
    array = builder.parameter(words.many(), dtype)
    sizes, strides, plan = words.view()
    value = builder.parameter(sizes, dtype)
    starts = builder.parameter((plan.start_count,), torch.int64)
    return write(array, value, strides, plan, starts), {0: 0}


def _resize(builder: Builder, words: _Words):
    dtype = words.dtype()
    x = hlo.flatten(builder.parameter(words.many(), dtype))
    size = words.one()
    return hlo.pad(x, hlo.constant(0, dtype), [0], [size - x.numel]), {}


# In the order of torch_tpu::Internal.
_INTERNAL = [
    ("zeros", _zeros),
    ("retype", _retype),
    ("read_view", _read),
    ("write_view", _write),
    ("resize_storage", _resize),
]
