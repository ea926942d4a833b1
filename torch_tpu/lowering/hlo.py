"""The vocabulary of lowering rules: thin, typed words over StableHLO.

Each word takes and returns `Value`s and works on the program being traced. Words do no dtype
promotion and no broadcasting unless they say so (`expand`, `where`, the operators of `Value`);
shape and dtype mistakes raise here rather than in XLA's parser. Windowed, sorting and
control-flow words are in `windows.py`, products in `products.py`; they are re-exported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from .builder import Value, current, element_type, tensor_type

# ---- constants -----------------------------------------------------------------------------


def constant(value, dtype: torch.dtype, shape: Sequence[int] = ()) -> Value:
    """Splat constant."""
    return current().constant(value, dtype, shape)


def array(values: Sequence, dtype: torch.dtype, shape: Sequence[int] | None = None) -> Value:
    """Constant array from a flat list (1-d unless ``shape`` is given)."""
    return current().array(values, dtype, (len(values),) if shape is None else shape)


def full_like(like: Value, value) -> Value:
    return constant(value, like.dtype, like.shape)


def zeros_like(like: Value) -> Value:
    return constant(0, like.dtype, like.shape)


def iota(shape: Sequence[int], dim: int, dtype: torch.dtype = torch.int64) -> Value:
    """Index along ``dim``, broadcast over the other dims."""
    if dtype is torch.bool:
        return convert(iota(shape, dim, torch.int32), torch.bool)
    return current().emit("stablehlo.iota", [], [(shape, dtype)], f"iota_dimension = {dim} : i64")[
        0
    ]


def lowest(dtype: torch.dtype):
    """The smallest value of a dtype (-inf for floats)."""
    if dtype is torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype):
    """The largest value of a dtype (+inf for floats)."""
    if dtype is torch.bool:
        return True
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


# ---- element-wise --------------------------------------------------------------------------


def unary(word: str, x: Value, dtype: torch.dtype | None = None) -> Value:
    """Any one-operand element-wise operation by its StableHLO (or ``chlo.``) name."""
    name = word if "." in word else f"stablehlo.{word}"
    return current().emit(name, [x], [(x.shape, dtype or x.dtype)])[0]


def binary(word: str, a: Value, b: Value) -> Value:
    """Any two-operand element-wise operation; shapes and dtypes must already agree."""
    _same(word, a, b)
    if a.is_complex and word == "remainder":
        # XLA's compiler ends the process.
        raise NotImplementedError("complex numbers have no remainder")
    name = word if "." in word else f"stablehlo.{word}"
    return current().emit(name, [a, b], [(a.shape, a.dtype)])[0]


def _same(word: str, a: Value, b: Value) -> None:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise TypeError(f"{word} of {a.type} and {b.type}: shapes and dtypes must agree")


def neg(x: Value) -> Value:
    return unary("negate", x)


def not_(x: Value) -> Value:
    return unary("not", x)


def abs(x: Value) -> Value:  # noqa: A001 - the field's word
    if x.dtype is torch.bool or str(x.dtype).startswith("torch.uint"):
        return x
    if x.is_complex:
        return unary("abs", x, torch.float32 if x.dtype is torch.complex64 else torch.float64)
    return unary("abs", x)


def exp(x: Value) -> Value:
    return unary("exponential", x)


def log(x: Value) -> Value:
    return unary("log", x)


def sqrt(x: Value) -> Value:
    return unary("sqrt", x)


def rsqrt(x: Value) -> Value:
    if x.dtype is torch.float64:
        # XLA:CPU has no f64 rsqrt: it would do this itself and log a line to stderr about it.
        return binary("divide", full_like(x, 1), sqrt(x))
    return unary("rsqrt", x)


def tanh(x: Value) -> Value:
    return unary("tanh", x)


def sigmoid(x: Value) -> Value:
    return unary("logistic", x)


def floor(x: Value) -> Value:
    return unary("floor", x)


def real(x: Value) -> Value:
    if not x.is_complex:
        return x
    return unary("real", x, torch.float32 if x.dtype is torch.complex64 else torch.float64)


def imag(x: Value) -> Value:
    return unary("imag", x, torch.float32 if x.dtype is torch.complex64 else torch.float64)


def complex(re: Value, im: Value) -> Value:  # noqa: A001
    _same("complex", re, im)
    dtype = torch.complex64 if re.dtype is torch.float32 else torch.complex128
    return current().emit("stablehlo.complex", [re, im], [(re.shape, dtype)])[0]


def is_finite(x: Value) -> Value:
    return unary("is_finite", x, torch.bool)


def is_nan(x: Value) -> Value:
    if x.is_complex:
        return binary("or", is_nan(real(x)), is_nan(imag(x)))
    if not x.is_floating:
        return constant(False, torch.bool, x.shape)
    return compare(x, x, "NE")


def _ordered(x: Value) -> None:
    # XLA orders complex numbers where it can, and ends the process where it cannot.
    if x.is_complex:
        raise NotImplementedError("complex numbers have no order")


def maximum(a: Value, b: Value) -> Value:
    """NaN-propagating maximum."""
    _ordered(a)
    return binary("maximum", a, b)


def minimum(a: Value, b: Value) -> Value:
    """NaN-propagating minimum."""
    _ordered(a)
    return binary("minimum", a, b)


def compare(a: Value, b: Value, direction: str) -> Value:
    """``direction`` is one of EQ NE LT LE GT GE; the result is bool."""
    _same("compare", a, b)
    if direction not in ("EQ", "NE"):
        _ordered(a)
    if a.dtype is torch.bool or str(a.dtype).startswith("torch.uint"):
        kind = "UNSIGNED"
    elif a.is_floating or a.is_complex:
        kind = "FLOAT"
    else:
        kind = "SIGNED"
    attributes = (
        f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
        f"compare_type = #stablehlo<comparison_type {kind}>"
    )
    return current().emit("stablehlo.compare", [a, b], [(a.shape, torch.bool)], attributes)[0]


def select(mask: Value, on_true: Value, on_false: Value) -> Value:
    """Element-wise choice; ``mask`` may be 0-d, the branches must agree."""
    _same("select", on_true, on_false)
    return current().emit(
        "stablehlo.select", [mask, on_true, on_false], [(on_true.shape, on_true.dtype)]
    )[0]


def where(mask: Value, on_true, on_false) -> Value:
    """`select` with torch's promotion and broadcasting; the branches may be numbers."""
    from . import promote

    dtype = promote.result_dtype((on_true, on_false))
    on_true, on_false = (promote.as_value(v, dtype) for v in (on_true, on_false))
    shape = promote.broadcast_shapes(mask.shape, on_true.shape, on_false.shape)
    return select(expand(mask, shape), expand(on_true, shape), expand(on_false, shape))


def convert(x: Value, dtype: torch.dtype) -> Value:
    """Cast as torch does: to bool is ``!= 0``, float to int truncates, complex drops ``imag``."""
    if x.dtype is dtype:
        return x
    if dtype is torch.bool:
        return compare(x, zeros_like(x), "NE")
    if x.is_complex and not dtype.is_complex:
        return convert(real(x), dtype)
    if x.is_floating and not (dtype.is_floating_point or dtype.is_complex):
        return _float_to_int(x, dtype)
    if dtype is torch.float8_e4m3fn:
        return _to_float8(x)
    if x.dtype is torch.bool and not dtype.itemsize == 1:
        # XLA turns the product of a converted bool and a float into a select, which loses NaN and
        # infinity where the bool is false. It does not look through two conversions.
        x = current().emit("stablehlo.convert", [x], [(x.shape, torch.uint8)])[0]
    return current().emit("stablehlo.convert", [x], [(x.shape, dtype)])[0]


def _float_to_int(x: Value, dtype: torch.dtype) -> Value:
    # C++ (and so torch) wraps narrow integers by way of int64/int32, where XLA saturates.
    if dtype.itemsize < 4:
        wide = current().emit("stablehlo.convert", [x], [(x.shape, torch.int32)])[0]
        return current().emit("stablehlo.convert", [wide], [(x.shape, dtype)])[0]
    direct = current().emit("stablehlo.convert", [x], [(x.shape, dtype)])[0]
    if dtype not in (torch.uint32, torch.uint64):
        return direct
    signed = current().emit("stablehlo.convert", [x], [(x.shape, torch.int64)])[0]
    wrapped = current().emit("stablehlo.convert", [signed], [(x.shape, dtype)])[0]
    return select(compare(x, zeros_like(x), "LT"), wrapped, direct)


def _to_float8(x: Value) -> Value:
    # This format has no infinity: torch saturates where XLA gives NaN.
    dtype = torch.float8_e4m3fn
    if not x.is_floating:
        x = convert(x, torch.float32)
    most = torch.finfo(dtype).max
    if torch.finfo(x.dtype).max > most:
        x = clamp(constant(-most, x.dtype), x, constant(most, x.dtype))
    return current().emit("stablehlo.convert", [x], [(x.shape, dtype)])[0]


def bitcast(x: Value, dtype: torch.dtype) -> Value:
    """Reinterpret bits; a change of width adds or drops a trailing dimension."""
    old, new = x.dtype.itemsize, dtype.itemsize
    shape = x.shape
    if new < old:
        shape = (*shape, old // new)
    elif new > old:
        if not shape or shape[-1] != new // old:
            raise TypeError(f"bitcast of {x.type} to {dtype}: last dim must be {new // old}")
        shape = shape[:-1]
    return current().emit("stablehlo.bitcast_convert", [x], [(shape, dtype)])[0]


def clamp(low: Value, x: Value, high: Value) -> Value:
    """``low`` and ``high`` are 0-d or of the shape of ``x``; NaN passes through."""
    _ordered(x)
    return current().emit("stablehlo.clamp", [low, x, high], [(x.shape, x.dtype)])[0]


# ---- shape ---------------------------------------------------------------------------------


def _ints(values: Sequence[int]) -> str:
    values = list(values)
    return "array<i64" + (": " + ", ".join(map(str, values)) if values else "") + ">"


def reshape(x: Value, shape: Sequence[int]) -> Value:
    shape = tuple(shape)
    if shape == x.shape:
        return x
    if math.prod(shape) != x.numel:
        raise TypeError(f"reshape of {x.type} to {shape}")
    return current().emit("stablehlo.reshape", [x], [(shape, x.dtype)])[0]


def flatten(x: Value) -> Value:
    return reshape(x, (x.numel,))


def broadcast_in_dim(x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    """Place dim ``i`` of ``x`` at ``dims[i]`` (equal or 1) of ``shape``; repeat along the rest."""
    shape = tuple(shape)
    if shape == x.shape and list(dims) == list(range(len(shape))):
        return x
    return current().emit(
        "stablehlo.broadcast_in_dim",
        [x],
        [(shape, x.dtype)],
        f"broadcast_dimensions = {_ints(dims)}",
    )[0]


def expand(x: Value, shape: Sequence[int]) -> Value:
    """Numpy-style broadcast to ``shape`` (aligned at the right)."""
    shape = tuple(shape)
    lead = len(shape) - x.ndim
    return broadcast_in_dim(x, shape, range(lead, lead + x.ndim))


def unsqueeze(x: Value, *dims: int) -> Value:
    """Insert size-1 dims at the given (final, non-negative) positions."""
    shape = list(x.shape)
    for dim in sorted(dims):
        shape.insert(dim, 1)
    return reshape(x, shape)


def squeeze(x: Value, *dims: int) -> Value:
    """Drop the given size-1 dims (non-negative)."""
    return reshape(x, [s for i, s in enumerate(x.shape) if i not in dims])


def transpose(x: Value, permutation: Sequence[int]) -> Value:
    permutation = list(permutation)
    if permutation == list(range(x.ndim)):
        return x
    shape = [x.shape[i] for i in permutation]
    return current().emit(
        "stablehlo.transpose", [x], [(shape, x.dtype)], f"permutation = {_ints(permutation)}"
    )[0]


def slice(  # noqa: A001
    x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    """Static slice over every dim."""
    strides = [1] * x.ndim if strides is None else list(strides)
    shape = [max(0, -(-(h - s) // t)) for s, h, t in zip(starts, limits, strides, strict=True)]
    if tuple(shape) == x.shape and all(t == 1 for t in strides):
        return x
    return current().emit(
        "stablehlo.slice",
        [x],
        [(shape, x.dtype)],
        f"start_indices = {_ints(starts)}, limit_indices = {_ints(limits)}, "
        f"strides = {_ints(strides)}",
    )[0]


def slice_dim(x: Value, dim: int, start: int, limit: int, stride: int = 1) -> Value:
    """Static slice of one dim."""
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[dim], limits[dim], strides[dim] = start, limit, stride
    return slice(x, starts, limits, strides)


def dynamic_slice(x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
    """Slice at run-time ``starts`` (0-d integers of one dtype); out of range starts are clamped."""
    return current().emit(
        "stablehlo.dynamic_slice",
        [x, *starts],
        [(sizes, x.dtype)],
        f"slice_sizes = {_ints(sizes)}",
    )[0]


def dynamic_update_slice(x: Value, update: Value, starts: Sequence[Value]) -> Value:
    return current().emit(
        "stablehlo.dynamic_update_slice", [x, update, *starts], [(x.shape, x.dtype)]
    )[0]


def pad(
    x: Value,
    value: Value,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> Value:
    """Pad with 0-d ``value``; negative amounts crop; ``interior`` puts gaps between elements."""
    interior = [0] * x.ndim if interior is None else list(interior)
    shape = [
        s + a + b + max(0, s - 1) * g
        for s, a, b, g in zip(x.shape, low, high, interior, strict=True)
    ]
    if not any((*low, *high, *interior)):
        return x
    return current().emit(
        "stablehlo.pad",
        [x, value],
        [(shape, x.dtype)],
        f"edge_padding_low = {_ints(low)}, edge_padding_high = {_ints(high)}, "
        f"interior_padding = {_ints(interior)}",
    )[0]


def concatenate(values: Sequence[Value], dim: int) -> Value:
    if len(values) == 1:
        return values[0]
    shape = list(values[0].shape)
    shape[dim] = sum(v.shape[dim] for v in values)
    return current().emit(
        "stablehlo.concatenate",
        list(values),
        [(shape, values[0].dtype)],
        f"dimension = {dim} : i64",
    )[0]


def reverse(x: Value, dims: Sequence[int]) -> Value:
    return current().emit(
        "stablehlo.reverse", [x], [(x.shape, x.dtype)], f"dimensions = {_ints(dims)}"
    )[0]


# ---- gather and scatter --------------------------------------------------------------------


def gather(
    x: Value,
    indices: Value,
    *,
    offset_dims: Sequence[int],
    collapsed: Sequence[int],
    index_map: Sequence[int],
    index_vector_dim: int,
    slice_sizes: Sequence[int],
    shape: Sequence[int],
    sorted: bool = False,  # noqa: A002
    batching: Sequence[int] = (),
    index_batching: Sequence[int] = (),
) -> Value:
    """`stablehlo.gather`, spelled out; ``shape`` is the result shape. Starts are clamped by XLA."""
    if 0 in (x.numel, math.prod(shape)):
        return constant(0, x.dtype, shape)  # XLA refuses slices of empty dims
    numbers = (
        f"#stablehlo.gather<offset_dims = {list(offset_dims)}, "
        f"collapsed_slice_dims = {list(collapsed)}, "
        f"operand_batching_dims = {list(batching)}, "
        f"start_indices_batching_dims = {list(index_batching)}, "
        f"start_index_map = {list(index_map)}, index_vector_dim = {index_vector_dim}>"
    )
    return current().emit(
        "stablehlo.gather",
        [x, indices],
        [(shape, x.dtype)],
        f"dimension_numbers = {numbers}, slice_sizes = {_ints(slice_sizes)}, "
        f"indices_are_sorted = {str(sorted).lower()}",
    )[0]


def take(x: Value, index: Value, dim: int) -> Value:
    """``x.index_select(dim, index)`` for an ``index`` of any rank: dim is replaced by its dims."""
    sizes = list(x.shape)
    sizes[dim] = 1
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    k = index.ndim
    offset = [*range(dim), *range(dim + k, dim + k + x.ndim - dim - 1)]
    return gather(
        x,
        index,
        offset_dims=offset,
        collapsed=[dim],
        index_map=[dim],
        index_vector_dim=k,
        slice_sizes=sizes,
        shape=shape,
    )


def scatter(
    x: Value,
    indices: Value,
    updates: Value,
    combine: Callable[[Value, Value], Value] | str,
    *,
    window_dims: Sequence[int],
    inserted: Sequence[int],
    index_map: Sequence[int],
    index_vector_dim: int,
    sorted: bool = False,  # noqa: A002
    unique: bool = False,
    batching: Sequence[int] = (),
    index_batching: Sequence[int] = (),
) -> Value:
    """`stablehlo.scatter` on one operand; updates whose index is out of range are dropped.

    ``combine`` is "set" or a binary word ("add", "multiply", "maximum", "minimum"), or a function
    of (old, new) 0-d values.
    """
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {list(window_dims)}, "
        f"inserted_window_dims = {list(inserted)}, input_batching_dims = {list(batching)}, "
        f"scatter_indices_batching_dims = {list(index_batching)}, "
        f"scatter_dims_to_operand_dims = {list(index_map)}, index_vector_dim = {index_vector_dim}>"
    )
    element = ((), x.dtype)
    return current().emit(
        "stablehlo.scatter",
        [x, indices, updates],
        [(x.shape, x.dtype)],
        f"scatter_dimension_numbers = {numbers}, indices_are_sorted = {str(sorted).lower()}, "
        f"unique_indices = {str(unique).lower()}",
        regions=[_combiner(combine)],
        region_arguments=[[element, element]],
    )[0]


def _combiner(combine):
    if callable(combine):
        return combine
    if combine == "set":
        return lambda old, new: new
    return lambda old, new: binary(boolean_word(combine, old.dtype), old, new)


def boolean_word(word: str, dtype: torch.dtype) -> str:
    """The logical word that ``add``/``multiply``/``maximum``/``minimum`` mean for bool."""
    if dtype is not torch.bool:
        return word
    return {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(word, word)


from .products import convolution, dot_general, float32_precision, precision  # noqa: E402
from .windows import (  # noqa: E402
    argsort,
    associative_scan,
    call_custom,
    cholesky,
    conditional,
    cumulative,
    fft,
    reduce,
    reduce_many,
    reduce_window,
    rng_bits,
    rng_split,
    select_and_scatter,
    sort,
    triangular_solve,
    while_loop,
)

__all__ = [name for name in dir() if not name.startswith("_")]
_ = (element_type, tensor_type)
