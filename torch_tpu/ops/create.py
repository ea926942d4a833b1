"""Operators that make a tensor from numbers: ranges, spacings, the identity, triangle indices.

Sizes come from `registry.expected()`. Bounds and steps are run-time values; of those of ``arange``
only the length they make is part of the key. Constant fills (``full``, ``zeros``) are not here:
PyTorch makes them of ``empty`` and ``fill_``. Random tensors are in `random.py`.
"""

from __future__ import annotations

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


@op("aten::arange.start_step", range=True)
def arange_start_step(start, end, step=1):
    result = expected()[0]
    # ATen steps in int64 or double; 16-bit floats step in float32.
    if _is_integer(result.dtype):
        dtype = torch.int64
    else:
        dtype = torch.float32 if result.dtype.itemsize == 2 else torch.float64
    start, step = (promote.as_value(v, dtype) for v in (start, step))
    return (hlo.iota(result.shape, 0, dtype) * step + start).to(result.dtype)


@op("aten::_efficientzerotensor")
def _efficientzerotensor(size):
    # CPU and cuda have a tensor of zeros without memory; here it is an ordinary one.
    result = expected()[0]
    return hlo.constant(0, result.dtype, result.shape)


# ---- spacings ---------------------------------------------------------------------------------


def _spaced(start, end, steps: int, dtype: torch.dtype) -> Value:
    """``steps`` even points, exact at both ends: the second half counts back from ``end``."""
    work = torch.float64 if _is_integer(dtype) else promote.compute_dtype(dtype)
    if not dtype.is_complex and any(isinstance(v, Value) and v.is_complex for v in (start, end)):
        raise NotImplementedError(
            f"PyTorch's meta kernel says that the points from {start.dtype} to {end.dtype} are "
            f"{dtype}; name a complex dtype"
        )
    # Bounds are first cast to the result's dtype, as ATen does.
    start, end = (promote.as_value(v, dtype).to(work) for v in (start, end))
    if steps == 1:
        return hlo.reshape(start, (1,))
    # XLA divides by a constant as it multiplies by the inverse, which integers would show.
    step = (end - start) / hlo.unary("optimization_barrier", hlo.constant(steps - 1, work))
    index = hlo.iota((steps,), 0, torch.int64)
    count = index.to(work)
    back = hlo.constant(steps - 1, work) - count
    return hlo.select(index < steps // 2, start + step * count, end - step * back)


_FORMS = ("", ".Tensor_Tensor", ".Tensor_Scalar", ".Scalar_Tensor")


def _check_complex(start, end, dtype=None) -> None:
    """Complex ends need a complex ``dtype`` where one is named."""
    ends = any(
        x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex)
        for x in (start, end)
    )
    if ends and dtype is not None and not dtype.is_complex:
        raise RuntimeError(f"the complex numbers between {start} and {end} cannot be {dtype}")


@op(*("aten::linspace" + form for form in _FORMS), check=_check_complex)
def linspace(start, end, steps):
    dtype = expected()[0].dtype
    return _spaced(start, end, steps, dtype).to(dtype)


@op(*("aten::logspace" + form for form in _FORMS), runtime=("base",), check=_check_complex)
def logspace(start, end, steps, base=10.0):
    dtype = expected()[0].dtype
    exponent = _spaced(start, end, steps, dtype)
    base = hlo.expand(promote.as_value(base, exponent.dtype), exponent.shape)
    power = hlo.binary("power", base, exponent)
    if _is_integer(dtype):
        # A power that misses an integer by rounding must not be truncated to the one below.
        near = hlo.unary("round_nearest_even", power)
        close = hlo.abs(power - near) <= hlo.abs(near) * 1e-13
        power = hlo.select(close, near, power)
    return power.to(dtype)


# ---- matrices ---------------------------------------------------------------------------------


@op("aten::eye", "aten::eye.m")
def eye(n, m=None):
    result = expected()[0]
    return (hlo.iota(result.shape, 0) == hlo.iota(result.shape, 1)).to(result.dtype)


def _triangle_indices(row: int, first, column) -> Value:
    """(row, column) of the n-th element: a binary search over ``first(r)``, where row r begins."""
    result = expected()[0]
    position = hlo.iota((result.shape[1],), 0, torch.int64)
    low = hlo.zeros_like(position)
    step = 1 << max(row - 1, 0).bit_length()
    while step:
        trial = low + step
        inside = (trial < row) & (first(trial) <= position)
        low = hlo.select(inside, trial, low)
        step //= 2
    pair = [hlo.unsqueeze(v, 0) for v in (low, column(low, position - first(low)))]
    return hlo.concatenate(pair, 0).to(result.dtype)


def _clip(x: Value, low: int, high: int) -> Value:
    low, high = (hlo.constant(v, x.dtype) for v in (low, high))
    return hlo.clamp(low, x, high)


def _triangular(n: Value) -> Value:
    """0 + 1 + ... + (n - 1)."""
    return hlo.binary("shift_right_arithmetic", n * (n - 1), hlo.full_like(n, 1))


@op("aten::tril_indices")
def tril_indices(row, col, offset=0):
    # Rows grow by one element from the first that has any until they are full.
    begin = min(max(0, -offset), row)
    full = min(max(begin, col - offset), row)

    def first(r):
        growing = _clip(r - begin, 0, full - begin)
        partial = growing * (begin + offset + 1) + _triangular(growing)
        return partial + _clip(r - full, 0, row) * col

    return _triangle_indices(row, first, lambda r, n: n)


@op("aten::triu_indices")
def triu_indices(row, col, offset=0):
    # Rows are full, then shrink by one element until nothing is left.
    full = min(max(0, -offset), row)
    empty = min(max(full, col - offset), row)

    def first(r):
        shrinking = _clip(r - full, 0, empty - full)
        whole = _clip(r, 0, full) * col
        return whole + shrinking * (col - max(0, full + offset)) - _triangular(shrinking)

    def column(r, n):
        return n + _clip(r + offset, 0, max(col, 0))

    return _triangle_indices(row, first, column)
