"""Looking values up in sorted arrays: searchsorted, bucketize and isin.

The binary search is one loop whose every turn halves all the intervals at once; comparisons with
NaN come out as in ATen's loops (a NaN is past everything).
"""

from __future__ import annotations

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.promote import as_value, result_dtype
from ..lowering.registry import expected, op
from .common import common_dtype, refuse
from .reduce import index_dtype

_UNORDERED = {"complex": NotImplementedError, "bool": NotImplementedError}

# Up to this many test elements, comparing with each beats sorting and searching.
_FEW = 16


def search(edges: Value, x: Value, right: bool, sorter: Value | None = None) -> Value:
    """Per element of ``x`` the first position whose edge is not less (``right``: is greater).

    ``edges`` is [..., n], sorted (by way of ``sorter`` if given), with ``x`` [..., m], or 1-d with
    an ``x`` of any shape. Positions come in a narrow integer dtype.
    """
    size = edges.shape[-1]
    dtype = index_dtype(edges.numel + 1)
    start, stop = hlo.constant(0, dtype, x.shape), hlo.constant(size, dtype, x.shape)
    if not size or not x.numel:
        return start
    base = start
    if edges.ndim > 1:
        rows = hlo.iota((edges.numel // size,), 0, dtype) * size
        base = hlo.expand(hlo.reshape(rows, (*edges.shape[:-1], 1)), x.shape)
    flat = hlo.flatten(edges)
    order = None if sorter is None else hlo.convert(hlo.flatten(sorter), dtype)

    def halve(turn, start, stop):
        middle = hlo.binary("shift_right_logical", start + stop, hlo.full_like(start, 1))
        at = base + hlo.minimum(middle, hlo.full_like(middle, size - 1))
        if order is not None:
            at = base + hlo.take(order, at, 0)
        edge = hlo.take(flat, at, 0)
        further = hlo.not_(edge > x if right else edge >= x) & (start < stop)
        return [
            turn + 1,
            hlo.select(further, middle + 1, start),
            hlo.select(further, stop, middle),
        ]

    turn = hlo.constant(0, torch.int32)
    turns = size.bit_length()
    return hlo.while_loop(lambda turn, *_: turn < turns, halve, [turn, start, stop])[1]


def _positions(edges: Value, x: Value, right: bool, sorter: Value | None = None) -> Value:
    dtype = result_dtype((edges, x))
    result = search(as_value(edges, dtype), as_value(x, dtype), right, sorter)
    return hlo.convert(result, expected()[0].dtype)


def _check_ordered(name: str, edges, x) -> None:
    """What edges and values promote to must have an order in PyTorch: bool alone has none."""
    if edges.numel():
        refuse(name, torch.empty((), dtype=common_dtype(edges, x), device="meta"), **_UNORDERED)


def _check_positions(out_int32: bool, out) -> None:
    dtype = torch.int32 if out_int32 else torch.int64
    if out is not None and out.dtype is not dtype:
        raise RuntimeError(
            f"searchsorted: output tensor's dtype is wrong: with out_int32={out_int32} it is "
            f"{dtype}, but got {out.dtype}"
        )


def _check_search(
    sorted_sequence, self, out_int32=False, right=False, side=None, sorter=None, out=None
) -> None:
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted: side can only be 'left' or 'right' but got {side}")
    if sorter is not None and sorter.dtype is not torch.int64:
        raise RuntimeError(
            f"searchsorted: sorter must be a tensor of long dtype but got dtype {sorter.dtype}"
        )
    _check_ordered("searchsorted", sorted_sequence, self)
    _check_positions(out_int32, out)


@op("aten::searchsorted.Tensor", "aten::searchsorted.Scalar", check=_check_search)
def searchsorted_Tensor(
    sorted_sequence, self, out_int32=False, right=False, side=None, sorter=None
):
    return _positions(sorted_sequence, self, right or side == "right", sorter)


def _check_boundaries(self, boundaries, out_int32=False, out=None) -> None:
    if boundaries.ndim != 1:
        raise RuntimeError(
            f"bucketize: boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    _check_ordered("bucketize", boundaries, self)
    _check_positions(out_int32, out)


@op("aten::bucketize.Tensor", "aten::bucketize.Scalar", check=_check_boundaries)
def bucketize_Tensor(self, boundaries, out_int32=False, right=False):
    return _positions(boundaries, self, right)


def _member(x: Value, tests: Value) -> Value:
    tests = hlo.flatten(tests)
    if tests.numel <= _FEW:
        shape = (*x.shape, tests.numel)
        pairs = hlo.broadcast_in_dim(x, shape, range(x.ndim)) == hlo.expand(tests, shape)
        return hlo.reduce(pairs, "or", [x.ndim])
    tests = hlo.argsort(tests, 0, False, torch.int32)[0]
    at = search(tests, x, right=False)
    at = hlo.minimum(at, hlo.full_like(at, tests.numel - 1))
    return hlo.take(tests, at, 0) == x


def _isin(x, tests, invert: bool) -> Value:
    dtype = result_dtype((x, tests))
    found = _member(as_value(x, dtype), as_value(tests, dtype))
    return hlo.not_(found) if invert else found


def _check_isin(out=None) -> None:
    if out is not None and out.dtype is not torch.bool:
        raise RuntimeError(f"isin: Expected out tensor to have dtype bool, but got {out.dtype}")


@op("aten::isin.Tensor_Tensor", check=_check_isin, layout="contiguous")
def isin_Tensor_Tensor(elements, test_elements, assume_unique=False, invert=False):
    return _isin(elements, test_elements, invert)


@op("aten::isin.Tensor_Scalar", check=_check_isin, layout="contiguous")
def isin_Tensor_Scalar(elements, test_element, assume_unique=False, invert=False):
    return _isin(elements, test_element, invert)


@op("aten::isin.Scalar_Tensor", check=_check_isin, layout="contiguous")
def isin_Scalar_Tensor(element, test_elements, assume_unique=False, invert=False):
    return _isin(element, test_elements, invert)
