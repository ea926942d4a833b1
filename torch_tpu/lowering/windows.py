"""The larger words of the vocabulary: reductions, windows, sorting, scans, control flow.

Part of `hlo.py` (rules import everything from there); kept apart for size. Reductions are named by
their combining word: "add", "multiply", "maximum", "minimum", "and", "or".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import hlo
from .builder import Value, current

_IDENTITY = {
    "add": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "maximum": lambda dtype: hlo.lowest(dtype),
    "minimum": lambda dtype: hlo.highest(dtype),
    "and": lambda dtype: True if dtype is torch.bool else -1,
    "or": lambda dtype: 0,
}


def identity(word: str, dtype: torch.dtype):
    """The neutral element of a combining word."""
    return _IDENTITY[word](dtype)


def reduce(x: Value, word: str, dims: Sequence[int], keepdim: bool = False) -> Value:
    """Reduce over non-negative ``dims`` with a combining word, in the dtype of ``x``."""
    dims = sorted(dims)
    if not dims:
        return x
    word = hlo.boolean_word(word, x.dtype)
    shape = [s for i, s in enumerate(x.shape) if i not in dims]
    initial = hlo.constant(identity(word, x.dtype), x.dtype)
    element = ((), x.dtype)
    result = current().emit(
        "stablehlo.reduce",
        [x, initial],
        [(shape, x.dtype)],
        f"dimensions = {hlo._ints(dims)}",
        regions=[lambda a, b: hlo.binary(word, a, b)],
        region_arguments=[[element, element]],
    )[0]
    return hlo.unsqueeze(result, *dims) if keepdim else result


def reduce_many(
    values: Sequence[Value],
    initials: Sequence[Value],
    dims: Sequence[int],
    body: Callable[..., Sequence[Value]],
) -> list[Value]:
    """Reduce several arrays of one shape at once (argmax, Welford). ``body`` takes all the
    accumulators, then all the new elements, as 0-d values, and returns the new accumulators."""
    shape = [s for i, s in enumerate(values[0].shape) if i not in dims]
    elements = [((), v.dtype) for v in values]
    return current().emit(
        "stablehlo.reduce",
        [*values, *initials],
        [(shape, v.dtype) for v in values],
        f"dimensions = {hlo._ints(sorted(dims))}",
        regions=[body],
        region_arguments=[elements + elements],
    )


def _pairs(padding: Sequence[tuple[int, int]]) -> str:
    rows = ", ".join(f"[{low}, {high}]" for low, high in padding)
    return (
        f"dense<[{rows}]> : tensor<{len(padding)}x2xi64>"
        if padding
        else ("dense<> : tensor<0x2xi64>")
    )


def reduce_window(
    x: Value,
    word: str | Callable[[Value, Value], Value],
    window: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    window_dilation: Sequence[int] | None = None,
    base_dilation: Sequence[int] | None = None,
    initial=None,
) -> Value:
    """Windowed reduction over every dim; padding counts as the identity of ``word``.

    ``word`` may be a function of two 0-d values with neutral element ``initial``.
    """
    n = x.ndim
    strides = list(strides or [1] * n)
    padding = list(padding or [(0, 0)] * n)
    window_dilation = list(window_dilation or [1] * n)
    base_dilation = list(base_dilation or [1] * n)
    shape = []
    for i in range(n):
        size = (x.shape[i] - 1) * base_dilation[i] + 1 if x.shape[i] else 0
        size += sum(padding[i])
        span = (window[i] - 1) * window_dilation[i] + 1
        shape.append(max(0, (size - span) // strides[i] + 1))
    if isinstance(word, str):
        word = hlo.boolean_word(word, x.dtype)
    start = hlo.constant(identity(word, x.dtype) if initial is None else initial, x.dtype)
    element = ((), x.dtype)
    return current().emit(
        "stablehlo.reduce_window",
        [x, start],
        [(shape, x.dtype)],
        f"window_dimensions = {hlo._ints(window)}, window_strides = {hlo._ints(strides)}, "
        f"base_dilations = {hlo._ints(base_dilation)}, "
        f"window_dilations = {hlo._ints(window_dilation)}, padding = {_pairs(padding)}",
        regions=[word if callable(word) else lambda a, b: hlo.binary(word, a, b)],
        region_arguments=[[element, element]],
    )[0]


def select_and_scatter(
    x: Value,
    source: Value,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    direction: str = "GE",
) -> Value:
    """Route each element of ``source`` to the element its window selects (max pooling backward)."""
    element = ((), x.dtype)
    return current().emit(
        "stablehlo.select_and_scatter",
        [x, source, hlo.constant(0, x.dtype)],
        [(x.shape, x.dtype)],
        f"window_dimensions = {hlo._ints(window)}, window_strides = {hlo._ints(strides)}, "
        f"padding = {_pairs(padding)}",
        regions=[
            lambda a, b: hlo.compare(a, b, direction),
            lambda a, b: hlo.binary("add", a, b),
        ],
        region_arguments=[[element, element], [element, element]],
    )[0]


# ---- sorting and scans ---------------------------------------------------------------------


def sort(
    values: Sequence[Value],
    dim: int,
    less: Callable[..., Value],
    stable: bool = True,
) -> list[Value]:
    """Sort several arrays together. ``less(a0, b0, a1, b1, ...)`` compares 0-d pairs."""
    arguments = [((), v.dtype) for v in values for _ in range(2)]
    return current().emit(
        "stablehlo.sort",
        list(values),
        [(v.shape, v.dtype) for v in values],
        f"dimension = {dim} : i64, is_stable = {str(stable).lower()}",
        regions=[less],
        region_arguments=[arguments],
    )


def total_less(a: Value, b: Value) -> Value:
    """Torch's ascending order: NaN is larger than everything and equal to itself."""
    less = hlo.compare(a, b, "LT")
    if not a.is_floating:
        return less
    only_b = hlo.binary("and", hlo.not_(hlo.is_nan(a)), hlo.is_nan(b))
    return hlo.binary("or", less, only_b)


def argsort(
    x: Value, dim: int, descending: bool = False, index_dtype: torch.dtype = torch.int64
) -> tuple[Value, Value]:
    """Stable (values, indices) in torch's order; NaN counts as largest."""
    index = hlo.iota(x.shape, dim, index_dtype)

    def less(a, b, _ia, _ib):
        return total_less(b, a) if descending else total_less(a, b)

    values, indices = sort([x, index], dim, less)
    return values, indices


def associative_scan(
    body: Callable[[list[Value], list[Value]], list[Value]],
    values: Sequence[Value],
    dim: int,
    fill: Sequence,
) -> list[Value]:
    """Inclusive prefix scan along ``dim`` by log2(n) doubling steps.

    ``body(left, right)`` combines two lists of arrays element-wise and must be associative;
    ``fill`` holds its identity, one number for each array.
    """
    values = list(values)
    size = values[0].shape[dim]
    step = 1
    while step < size:
        shifted = []
        for value, neutral in zip(values, fill, strict=True):
            low, high = [0] * value.ndim, [0] * value.ndim
            low[dim], high[dim] = step, -step
            shifted.append(hlo.pad(value, hlo.constant(neutral, value.dtype), low, high))
        values = body(shifted, values)
        step *= 2
    return values


def cumulative(
    x: Value, word: str | Callable[[Value, Value], Value], dim: int, initial=None
) -> Value:
    """Running "add", "multiply", "maximum" or "minimum" along ``dim`` (or see `reduce_window`).

    One window over everything before each element, which XLA rewrites into a tree of short
    windows: ten times faster on CPU than doubling steps, and as accurate.
    """
    size = x.shape[dim]
    window = [size if d == dim else 1 for d in range(x.ndim)]
    padding = [(size - 1, 0) if d == dim else (0, 0) for d in range(x.ndim)]
    return reduce_window(x, word, window, padding=padding, initial=initial) if size else x


# ---- control flow and the rest ---------------------------------------------------------------


def while_loop(
    condition: Callable[..., Value], body: Callable[..., Sequence[Value]], values: Sequence[Value]
) -> list[Value]:
    """Loop while ``condition(*values)`` (0-d bool) holds, with ``values = body(*values)``."""
    kinds = [(v.shape, v.dtype) for v in values]
    return current().emit(
        "stablehlo.while",
        list(values),
        kinds,
        regions=[condition, body],
        region_arguments=[kinds, kinds],
    )


def conditional(
    predicate: Value,
    on_true: Callable[[], Sequence[Value]],
    on_false: Callable[[], Sequence[Value]],
    results: Sequence[tuple[Sequence[int], torch.dtype]],
) -> list[Value]:
    """Run one of two branches; both must yield values of the ``results`` types."""
    return current().emit(
        "stablehlo.if",
        [predicate],
        results,
        regions=[on_true, on_false],
        region_arguments=[[], []],
    )


def rng_bits(state: Value, shape: Sequence[int], dtype: torch.dtype = torch.uint32) -> Value:
    """Uniform random bits from a counter-based generator; ``state`` is uint64[2] (key, counter)."""
    _, bits = current().emit(
        "stablehlo.rng_bit_generator",
        [state],
        [(state.shape, state.dtype), (shape, dtype)],
        "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>",
    )
    return bits


def rng_split(state: Value, count: int) -> list[Value]:
    """``count`` independent generator states made from one."""
    words = rng_bits(state, (count, 2), torch.uint64)
    return [hlo.reshape(hlo.slice_dim(words, 0, i, i + 1), (2,)) for i in range(count)]


def fft(x: Value, kind: str, lengths: Sequence[int], shape, dtype: torch.dtype) -> Value:
    """``kind`` is FFT, IFFT, RFFT or IRFFT over the last ``len(lengths)`` dims."""
    return current().emit(
        "stablehlo.fft",
        [x],
        [(shape, dtype)],
        f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {hlo._ints(lengths)}",
    )[0]


def cholesky(x: Value, lower: bool = True) -> Value:
    return current().emit(
        "stablehlo.cholesky", [x], [(x.shape, x.dtype)], f"lower = {str(lower).lower()}"
    )[0]


def triangular_solve(
    a: Value, b: Value, *, left: bool, lower: bool, unit: bool, transpose: str = "NO_TRANSPOSE"
) -> Value:
    """``transpose`` is NO_TRANSPOSE, TRANSPOSE or ADJOINT."""
    return current().emit(
        "stablehlo.triangular_solve",
        [a, b],
        [(b.shape, b.dtype)],
        f"left_side = {str(left).lower()}, lower = {str(lower).lower()}, "
        f"unit_diagonal = {str(unit).lower()}, "
        f"transpose_a = #stablehlo<transpose {transpose}>",
    )[0]


def call_custom(
    target: str, operands: Sequence[Value], results, attributes: str = ""
) -> list[Value]:
    extra = f", {attributes}" if attributes else ""
    return current().emit(
        "stablehlo.custom_call", list(operands), results, f'call_target_name = "{target}"{extra}'
    )
