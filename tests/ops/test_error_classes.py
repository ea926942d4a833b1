"""Wrong dtypes, shapes and counts: refused with the class of exception that CPU PyTorch has.

Calls that the CPU takes must come out equal. Tables by kind; what only meta kernels refuse is not
repeated here, and `test_refusals.py` has the calls of a single rule each.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from ops.both_devices import Maker

F32, F64, I8, I16, I32, I64 = (
    getattr(torch, name) for name in "float32 float64 int8 int16 int32 int64".split()
)
C64, BOOL, U8, U16, F16 = torch.complex64, torch.bool, torch.uint8, torch.uint16, torch.float16


def _on_host(result):
    if isinstance(result, torch.Tensor):
        return result.cpu()
    return [_on_host(r) for r in result] if isinstance(result, (list, tuple)) else result


def _same(call) -> None:
    """``call`` gives what it gives on the CPU, or raises the same class of exception, readably."""
    try:
        wanted = call(Maker("cpu"))
    except Exception as error:  # noqa: BLE001 (its class is what is compared)
        with pytest.raises(type(error)) as raised:
            call(Maker("tpu"))
        text = str(raised.value)
        assert "compilation failed" not in text and "cannot take these arguments" not in text
        return
    torch.testing.assert_close(_on_host(call(Maker("tpu"))), _on_host(wanted), equal_nan=True)


# ---- writing under a mask ------------------------------------------------------------------

TRUE, SOME, NONE = (True, True, True), (True, False, True), (False, False, False)


def _put(x, indices, values, accumulate=False):
    return x.index_put_(indices, values, accumulate)


@pytest.mark.parametrize("mask", [TRUE, SOME, NONE], ids=("all", "some", "none"))
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (3,), (1, 1)], ids=str)
def test_count_of_values_under_a_mask(mask, accumulate, shape):
    _same(lambda t: _put(t(3), (t.at(*mask),), t(*shape), accumulate))


@pytest.mark.parametrize("mask", [TRUE, SOME, NONE], ids=("all", "some", "none"))
@pytest.mark.parametrize(
    "shape", [(2, 4), (3, 4), (1, 4), (4,), (3,), (1, 3), (1, 3, 4), (3, 1), ()], ids=str
)
def test_rows_under_a_mask(mask, shape):
    _same(lambda t: _put(t(3, 4), (t.at(*mask),), t(*shape)))
    _same(lambda t: torch.index_put(t(3, 4), (t.at(*mask),), t(*shape)))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,)], ids=str)
def test_values_of_another_dtype_under_a_mask(shape, accumulate):
    def rows(t):
        return _put(t(3, 2), (t.at(*TRUE),), t(*shape, dtype=I64), accumulate)

    _same(lambda t: _put(t(3), (t.at(*TRUE),), t(*shape, dtype=I64), accumulate))
    _same(rows)


def test_one_value_or_row_under_a_mask_needs_no_count(compiles):
    x, row = torch.zeros(8, 2, device="tpu"), torch.ones(2, device="tpu")
    number = torch.arange(8, device="tpu")
    for limit in range(2):
        x[number < limit] = 3.0
        x[number < limit] = row
    compiles.reset()
    for limit in range(2, 9):
        x[number < limit] = 3.0
        x[number < limit] = row
    assert compiles() == 0


MASKS = {
    "a mask beside numbers": lambda t: t(3, 4)[t.at(*SOME), t.at(0, 1, 2)],
    "a false mask beside numbers": lambda t: t(3, 4)[t.at(*NONE), t.at(0, 1, 2)],
    "written": lambda t: _put(t(3, 4), (t.at(*SOME), t.at(0, 1, 2)), t(1)),
    "too short": lambda t: t(3)[t.at(True, True)],
    "too short, written": lambda t: _put(t(3), (t.at(True, True),), t(1)),
    "two dims too many": lambda t: t(3)[t(3, 1) > 0],
    "bytes, too short": lambda t: t(3)[t(2, dtype=U8)],
    "two for one dim": lambda t: torch.ops.aten.index(t(3), [t(3) > 0, t(3) > 0]),
    "a list": lambda t: t(3)[[True, False]],
    "values for no rows": lambda t: _put(t(0), (t(0) > 0,), t(2)),
    "values for empty rows": lambda t: _put(t(3, 0), (t(3) > 0,), t(2, 0)),
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("call", MASKS.values(), ids=MASKS)
def test_masks_that_do_not_fit(call):
    _same(call)


# ---- indices -------------------------------------------------------------------------------

DTYPES = (F16, F32, F64, C64, I8, I16, U16, I32, I64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_of_indices(dtype):
    x = torch.arange(3.0)

    def data(t):
        return x.to(t(1).device, copy=True)

    _same(lambda t: data(t)[t(2, dtype=dtype)])
    _same(lambda t: data(t)[torch.ones(2, dtype=dtype)])
    _same(lambda t: _put(data(t), (t(2, dtype=dtype),), t(1)))
    _same(lambda t: t(3, 3)[t(2, dtype=dtype), t(2, dtype=I64)])
    _same(lambda t: data(t).index_select(0, t(2, dtype=dtype)))
    _same(lambda t: data(t).put_(t(1, dtype=dtype), t(1)))
    _same(lambda t: data(t).index_add_(0, t(2, dtype=dtype), t(2)))
    _same(lambda t: data(t).index_copy_(0, t(1, dtype=dtype), t(1)))
    _same(lambda t: data(t).index_fill_(0, t(2, dtype=dtype), 1.0))
    _same(lambda t: data(t).index_reduce_(0, t(2, dtype=dtype), t(2), "prod"))


INDICES = {
    "too many": lambda t: torch.ops.aten.index(t(3), [t(2, dtype=I64), t(2, dtype=I64)]),
    "too many, written": lambda t: _put(t(3), (t(2, dtype=I64), t(2, dtype=I64)), t(1)),
    "of a number": lambda t: torch.ops.aten.index(t(), [t(2, dtype=I64)]),
    "none": lambda t: torch.ops.aten.index(t(3), []),
    "of two shapes": lambda t: t(3, 3)[t(2, dtype=I64), t(3, dtype=I64)],
    "of two shapes, written": lambda t: _put(t(3, 3), (t.at(0, 0), t.at(0, 0, 0)), t(1)),
    "five values for two": lambda t: _put(t(3, 3), (t.at(0, 1),), t(5)),
    "rows for nothing": lambda t: _put(t(3, 3), (t(0, dtype=I64),), t(2, 3)),
    "a square one": lambda t: t(3).index_select(0, t(2, 2, dtype=I64)),
    "two of a number": lambda t: t().index_select(0, t.at(0, 0)),
    "a wrong dim": lambda t: t(3).index_select(-2, t.at(0, 1)),
    "index_select into another dtype": lambda t: torch.index_select(
        t(3), 0, t.at(0, 1), out=t(0, dtype=F64)
    ),
    "take into another dtype": lambda t: torch.take(t(3), t.at(0, 1), out=t(2, dtype=F64)),
    "put, three for two": lambda t: t(3).put_(t.at(0, 1), t(3)),
    "put of another dtype": lambda t: t(3).put_(t.at(0, 1), t(2, dtype=F64)),
    "index_add of another dtype": lambda t: t(3).index_add_(0, t.at(0, 1), t(2, dtype=F64)),
    "index_add, a square index": lambda t: t(3).index_add_(0, t(2, 1, dtype=I64), t(2)),
    "index_copy, three for two": lambda t: t(3).index_copy_(0, t.at(0, 1), t(3)),
    "index_copy of another dtype": lambda t: t(3).index_copy_(0, t.at(0, 1), t(2, dtype=F64)),
    "index_copy, a square index": lambda t: t(3).index_copy_(0, t(2, 1, dtype=I64), t(2)),
    "index_reduce of another dtype": lambda t: t(3).index_reduce_(
        0, t.at(0, 1), t(2, dtype=F64), "prod"
    ),
    "nonzero into floats": lambda t: torch.nonzero(t(3), out=t(0)),
    "nonzero of nothing into floats": lambda t: torch.nonzero(t(0), out=t(0)),
    "nonzero_static into floats": lambda t: torch.nonzero_static(t(3), size=2, out=t(0)),
    "searchsorted into floats": lambda t: torch.searchsorted(t(3), t(3), out=t(0)),
    "searchsorted, int32 into int64": lambda t: torch.searchsorted(
        t(3), t(3), out_int32=True, out=t(0, dtype=I64)
    ),
    "searchsorted, no side": lambda t: torch.searchsorted(t(3), t(3), side="middle"),
    "searchsorted by floats": lambda t: torch.searchsorted(t(3), t(3), sorter=t(3)),
    "bucketize into floats": lambda t: torch.bucketize(t(3), t(3), out=t(0)),
    "isin into floats": lambda t: torch.isin(t(3), t(3), out=t(0)),
    "unique_consecutive, wrong dim": lambda t: torch.unique_consecutive(t(3), dim=1),
}


@pytest.mark.parametrize("call", INDICES.values(), ids=INDICES)
def test_indices_that_do_not_fit(call):
    _same(call)


# ---- dtypes without an order or without bits -----------------------------------------------

ONE = {
    name: getattr(torch, name)
    for name in (
        "sort argsort msort unique unique_consecutive median nanmedian mode max min argmax argmin "
        "amax amin aminmax relu isposinf isneginf signbit logit"
    ).split()
} | {
    "median along 0": lambda x: x.median(0),
    "max along 0": lambda x: x.max(0),
    "amax along 0": lambda x: x.amax(0),
    "mode along 0": lambda x: x.mode(0),
    "topk": lambda x: x.topk(1),
    "kthvalue": lambda x: x.kthvalue(1),
    "cummax": lambda x: x.cummax(0),
    "cummin": lambda x: x.cummin(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "unique rows": lambda x: torch.unique(x, dim=0),
    "consecutive rows": lambda x: torch.unique_consecutive(x, dim=0),
    "searchsorted": lambda x: torch.searchsorted(x, x),
    "bucketize": lambda x: torch.bucketize(x, x),
    "gelu": torch.nn.functional.gelu,
    "clamp": lambda x: x.clamp(x, x),
    "clamp_min": lambda x: x.clamp_min(0),
    "clamp_max by truth": lambda x: x.clamp_max(True),
    "from 1": lambda x: 1 - x,
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("shape", [(3,), (1,), (), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [C64, BOOL], ids=str)
def test_one_operand_without_an_order(name, shape, dtype):
    _same(lambda t: ONE[name](t(*shape, dtype=dtype)))


TWO = (
    "lt le gt ge maximum minimum fmax fmin fmod remainder floor_divide atan2 heaviside hypot "
    "copysign nextafter xlogy"
).split()


@pytest.mark.parametrize("name", TWO)
def test_two_complex_operands(name):
    call = getattr(torch, name)
    for shape in ((3,), (1,), (), (0,)):
        _same(lambda t, s=shape: call(t(*s, dtype=C64), t(*s, dtype=C64)))
    _same(lambda t: call(t(3), t(3, dtype=C64)))
    if hasattr(torch.Tensor, f"{name}_"):
        _same(lambda t: getattr(t(3, dtype=C64), f"{name}_")(t(3, dtype=C64)))


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "fmod", "remainder", "copysign"])
def test_complex_numbers(name):
    call = getattr(torch, name)
    _same(lambda t: call(t(3, dtype=C64), 1.0))
    _same(lambda t: call(t(3), 1j))


@pytest.mark.parametrize("side", ["and", "or", "xor", "left_shift", "right_shift"])
def test_bits_of_floats(side):
    call = getattr(torch, f"bitwise_{side}")
    for a, b in itertools.product((F32, I64, BOOL), (F32, C64)):
        _same(lambda t, a=a, b=b: call(t(3, dtype=a), t(3, dtype=b)))
    _same(lambda t: call(t(3), 1))


def test_shifts_of_floats():
    _same(lambda t: t(3) << 1)
    _same(lambda t: t(3) >> t(3))


KNOWN_KINDS = (
    "abs ceil floor frac round trunc sign neg bitwise_not signbit isposinf nan_to_num_ ceil_ frac_"
).split()


@pytest.mark.parametrize("dtype", [I64, U8, BOOL, F32, C64], ids=str)
@pytest.mark.parametrize("name", KNOWN_KINDS)
def test_kinds_of_one_operand(name, dtype):
    call = getattr(torch, name, None) or getattr(torch.Tensor, name)
    _same(lambda t: call(t(3, dtype=dtype)))
    plain = f"_foreach_{name}"
    if hasattr(torch, plain):
        _same(lambda t: getattr(torch, plain)([t(3, dtype=dtype), t(2, dtype=dtype)]))


PAIRED = (
    "hypot nextafter fmod remainder floor_divide bitwise_left_shift bitwise_right_shift gcd "
    "logaddexp logaddexp2 ldexp pow __lshift__ __rshift__"
).split()


@pytest.mark.parametrize("other", [BOOL, I64, F32, True, 2], ids=str)
@pytest.mark.parametrize("dtype", [I64, U8, BOOL, F32], ids=str)
@pytest.mark.parametrize("name", PAIRED)
def test_kinds_of_two_operands(name, dtype, other):
    call = getattr(torch, name, None) or getattr(torch.Tensor, name)
    right = isinstance(other, torch.dtype)
    _same(lambda t: call(t(3, dtype=dtype), t(3, dtype=other) if right else other))


LISTS = {
    "sub": True,
    "maximum": 1j,
    "minimum": 1j,
    "clamp_min": 1j,
    "clamp_max": 2,
    "pow": -1,
    "mul": True,
}


@pytest.mark.parametrize("dtype", [I64, BOOL, C64], ids=str)
@pytest.mark.parametrize("name", LISTS)
def test_kinds_in_lists(name, dtype):
    call, number = getattr(torch, f"_foreach_{name}"), LISTS[name]
    _same(lambda t: call([t(3, dtype=dtype), t(2, dtype=dtype)], number))
    _same(lambda t: call([t(3, dtype=dtype)], [number]))
    _same(lambda t: call([t(3, dtype=dtype)], [t(3, dtype=dtype)]))


@pytest.mark.parametrize("dtype", [I64, F32], ids=str)
def test_interpolation_in_lists(dtype):
    _same(lambda t: torch._foreach_lerp(*[[t(3, dtype=dtype)]] * 3))
    _same(lambda t: torch._foreach_lerp([t(3, dtype=dtype)], [t(3, dtype=dtype)], 0.5))
    _same(lambda t: torch.lerp(t(3, dtype=dtype), t(3, dtype=dtype), t(3, dtype=dtype)))


@pytest.mark.parametrize("alpha", [True, 1, 1.5, 1j], ids=str)
@pytest.mark.parametrize("dtype", [I64, BOOL, F32, C64], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_kinds_of_alpha(name, dtype, alpha):
    call = getattr(torch, name)
    _same(lambda t: call(t(3, dtype=dtype), t(3, dtype=dtype), alpha=alpha))
    _same(lambda t: call(t(3, dtype=dtype), 2, alpha=alpha))


def test_absolute_values_in_place_in_lists():
    _same(lambda t: torch._foreach_abs_([t(3, dtype=C64)]))


@pytest.mark.parametrize("out", [F16, F32, F64, C64, torch.complex128, I64], ids=str)
@pytest.mark.parametrize("dtype", [F32, C64], ids=str)
def test_absolute_values_into_another_dtype(dtype, out):
    _same(lambda t: torch.abs(t(3, dtype=dtype), out=t(3, dtype=out)))


@pytest.mark.parametrize("k", [-1, 0, 1, 2])
def test_counts_of_a_number(k):
    _same(lambda t: t().topk(k))
    _same(lambda t: t().kthvalue(k))
    _same(lambda t: t(1).topk(k))
    _same(lambda t: t(1).kthvalue(k))


# ---- matrices ------------------------------------------------------------------------------

NAN = math.nan
MATRICES = {
    "NaN first": [[NAN, 1.0], [1.0, 2.0]],
    "NaN last": [[1.0, 1.0], [1.0, NAN]],
    "NaN in the middle": [[0.0, 1.0, 2.0], [3.0, NAN, 5.0], [6.0, 7.0, 8.0]],
    "singular": [[1.0, 2.0], [2.0, 4.0]],
    "zero": [[0.0, 0.0], [0.0, 0.0]],
    "one of three": [[[NAN, 1.0], [1.0, 2.0]], [[2.0, 1.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]]],
}
FACTORS = {
    "lu_factor": torch.linalg.lu_factor,
    "lu_factor_ex": torch.linalg.lu_factor_ex,
    "lu": torch.linalg.lu,
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": torch.linalg.slogdet,
    "logdet": torch.logdet,
    "solve": lambda x: torch.linalg.solve(x, torch.ones_like(x)),
    "cholesky": torch.linalg.cholesky,
    "info of inv_ex": lambda x: torch.linalg.inv_ex(x).info,
    "info of cholesky_ex": lambda x: torch.linalg.cholesky_ex(x).info,
}


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", FACTORS)
def test_matrices_without_an_inverse_or_with_nan(name, matrix):
    _same(lambda t: FACTORS[name](t.at(*MATRICES[matrix])))


def test_a_nan_never_moves_a_finished_row():
    """The search for a pivot stays below the rows that are done."""
    matrix = torch.eye(4)
    matrix[2:, 2:] = NAN
    factors, pivots = torch.linalg.lu_factor(matrix.to("tpu"))
    assert pivots.tolist() == [1, 2, 3, 4]
    assert torch.equal(factors.cpu().isnan(), matrix.isnan())


def test_cholesky_of_infinite_diagonal():
    """An infinite pivot is positive; what it divides is 0, as in LAPACK's unblocked loop."""
    matrix = torch.tensor([[math.inf, 1.0], [1.0, 2.0]], device="tpu")
    factor, info = torch.linalg.cholesky_ex(matrix)
    torch.testing.assert_close(factor.cpu(), torch.tensor([[math.inf, 0.0], [0.0, math.sqrt(2)]]))
    assert info.item() == 0


LOW = {
    **FACTORS,
    "qr": torch.linalg.qr,
    "geqrf": torch.geqrf,
    "householder_product": lambda x: torch.linalg.householder_product(x, x[0]),
    "cholesky_inverse": torch.cholesky_inverse,
    "cholesky_solve": lambda x: torch.cholesky_solve(x, x),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x, x, upper=True),
}


@pytest.mark.parametrize("dtype", [I64, F16], ids=str)
@pytest.mark.parametrize("name", LOW)
def test_matrices_that_lapack_does_not_take(name, dtype):
    _same(lambda t: LOW[name](torch.eye(2, device=t(1).device).to(dtype)))


@pytest.mark.parametrize("name", ("maximum", "minimum", "clamp_min", "clamp_max", "pow"))
def test_numbers_of_lists_have_to_fit(name):
    call = getattr(torch, f"_foreach_{name}")
    for number in (300, [3, 300]):
        _same(lambda t, n=number: call([t(3, dtype=torch.uint8), t(2, dtype=torch.uint8)], n))


def test_lists_of_integers_have_no_negative_powers():
    _same(lambda t: torch._foreach_pow([t(3, dtype=torch.int64)], 2))
    _same(lambda t: torch._foreach_pow([t(3, dtype=torch.int64)], -1))
    _same(lambda t: torch._foreach_pow([t(3, dtype=torch.int64)] * 2, [2, -1]))
