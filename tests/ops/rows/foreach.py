"""Rows of `torch_tpu/ops/foreach.py`."""

import torch

from ops.row import Row, t

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I32, I64, C64, BOOL = torch.int32, torch.int64, torch.complex64, torch.bool
A, INF, NAN = "aten::_foreach_", float("inf"), float("nan")


def mixed(*dtypes, seed=0, low=-2.0, high=2.0):
    """A list with a tensor of each dtype, of different shapes (the last 0-d)."""
    shapes = [(2, 3), (4,), (0, 2), (1, 2), ()]
    return [
        t(*shapes[i % 5], dtype=d, seed=seed + i, low=low, high=high) for i, d in enumerate(dtypes)
    ]


FLOATS = (F32, F32, F32, BF16, F64)
INTS = (I32, I64, I64, torch.int8, torch.uint8)

# Domains where the function is finite; the rest are taken over (-2, 2).
LIMITED = {
    **dict.fromkeys("acos asin".split(), (-0.9, 0.9)),
    **dict.fromkeys("lgamma log log10 log2 rsqrt sqrt".split(), (0.1, 3.0)),
    "log1p": (-0.5, 3.0),
}
UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 "
    "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()


def unary_rows():
    for name in UNARY:
        low, high = LIMITED.get(name, (-2.0, 2.0))
        yield Row(A + name, (mixed(*FLOATS, low=low, high=high),))
    for name in "ceil floor neg round sign trunc".split():
        yield Row(A + name, (mixed(I32, I64, torch.int8),))
    for name in "exp sqrt reciprocal sigmoid".split():
        yield Row(A + name, ([t(3, dtype=I64, low=1, high=5)],))
    yield Row(A + "abs", (mixed(C64, I64, F16),))
    yield Row(A + "neg", (mixed(C64, F16),))


def binary_rows():
    for name in "add sub mul div maximum minimum clamp_min clamp_max".split():
        left, right = mixed(*FLOATS), mixed(*FLOATS, seed=9)
        yield Row(f"{A}{name}.List", (left, right))
        yield Row(f"{A}{name}.Scalar", (left, 1.5))
        yield Row(f"{A}{name}.ScalarList", (left, [0.5, -1, 2.5, 3, 1.25]))
        yield Row(f"{A}{name}.Scalar", (mixed(I32, F16, I64), 2))
        yield Row(f"{A}{name}.Scalar", (mixed(I32, F32), 0.5))
        yield Row(f"{A}{name}.ScalarList", (mixed(I32, I64, F32), [2, 0.5, 1]))
        if name != "div":
            yield Row(f"{A}{name}.List", (mixed(*INTS), mixed(*INTS, seed=9)))
            yield Row(f"{A}{name}.List", (mixed(I32, F32, BF16), mixed(F32, F64, BF16, seed=9)))
    for name in "add sub".split():
        yield Row(f"{A}{name}.List", (mixed(*FLOATS), mixed(*FLOATS, seed=9)), {"alpha": 0.25})
        yield Row(f"{A}{name}.List", (mixed(*INTS), mixed(*INTS, seed=9)), {"alpha": 3})
    for name in "add mul div".split():
        for other in (torch.tensor(2.5), torch.tensor(2, dtype=I64), torch.tensor(2.5, dtype=F64)):
            yield Row(f"{A}{name}.Tensor", (mixed(*FLOATS), other))
    yield Row(A + "add.Tensor", (mixed(*FLOATS), torch.tensor(2.5)), {"alpha": 3})
    yield Row(A + "mul.List", (mixed(C64, F32), mixed(F32, C64, seed=9)))
    yield Row(A + "add.List", ([t(2, 3), t(1, 4)], [t(3, seed=1), t(5, 1, seed=2)]))
    yield Row(A + "add.Scalar", ([t(3, dtype=BOOL), t(2, dtype=BOOL)], 1))
    yield Row(A + "maximum.Scalar", ([torch.tensor([1.0, NAN, INF])], 2.0))
    yield Row(A + "clamp_max.Scalar", ([torch.tensor([1.0, NAN, INF])], 2.0))


def power_rows():
    positive = mixed(*FLOATS, low=0.1)
    yield Row(A + "pow.List", (positive, mixed(*FLOATS, seed=9)))
    for exponent in (2, 3, 0.5, -1, -0.5, 1.7, 0):
        yield Row(A + "pow.Scalar", (positive, exponent))
    yield Row(A + "pow.Scalar", (mixed(I32, I64), 2))
    yield Row(A + "pow.Scalar", (mixed(*FLOATS), 3))
    yield Row(A + "pow.ScalarList", (positive, [2, 0.5, 1, -1.0, 1.3]))
    yield Row(A + "pow.ScalarAndTensor", (2, mixed(F32, F64, BF16)))
    yield Row(A + "pow.ScalarAndTensor", (1.5, mixed(F32, F64)))


def ternary_rows():
    nonzero = mixed(*FLOATS, seed=9, low=0.5)
    for name in ("addcmul", "addcdiv"):
        lists = (mixed(*FLOATS), mixed(*FLOATS, seed=5), nonzero)
        yield Row(f"{A}{name}.Scalar", lists)
        yield Row(f"{A}{name}.Scalar", (*lists, -0.3))
        yield Row(f"{A}{name}.ScalarList", (*lists, [1.0, 2, 0.5, -1.0, 3.0]))
        yield Row(f"{A}{name}.Tensor", (*lists, t(5, seed=3)))
        yield Row(f"{A}{name}.Tensor", (*lists, t(5, seed=3, dtype=F64)))
    ints = [[t(3, dtype=I64, seed=i)] for i in range(3)]
    yield Row(A + "addcmul.Scalar", (*ints, -1.5))
    ends = (mixed(*FLOATS), mixed(*FLOATS, seed=5))
    yield Row(A + "lerp.List", (*ends, mixed(*FLOATS, seed=9)))
    yield Row(A + "lerp.Scalar", (*ends, 0.25))
    yield Row(A + "lerp.Scalar", (*ends, 0.75))
    yield Row(A + "lerp.ScalarList", (*ends, [0.1, 0.9, 0.5, 1.0, 0.0]))


def reduction_rows():
    tensors = mixed(*FLOATS)
    for order in (2, 1, 0, 3.0, 0.5):
        yield Row(A + "norm.Scalar", (tensors, order))
    yield Row(A + "norm.Scalar", ([t(2, 3), t(4, dtype=BF16)], INF))
    yield Row(A + "norm.Scalar", ([t(2, 3, dtype=C64), t()],))
    yield Row(A + "norm.Scalar", ([t(300, dtype=BF16)], 2, F32))
    yield Row(A + "norm.Scalar", ([t(2), torch.tensor([NAN, 1.0])], 2))
    for order in (2, 3, 1, 0, -1.0):
        yield Row(A + "powsum.Scalar", ([t(2, 3), t(3, dtype=F64), t()], order))
    yield Row(A + "powsum.Scalar", ([t(30, dtype=BF16)], 2, F32))
    yield Row(A + "powsum.Scalar", ([t(3), t(0)], INF))
    yield Row(A + "max", ([t(2, 3), t(4, dtype=I64), torch.tensor([NAN, 1.0]), t()],))


ROWS = [
    *unary_rows(),
    *binary_rows(),
    *power_rows(),
    *ternary_rows(),
    *reduction_rows(),
    Row(A + "clone", (mixed(*FLOATS),)),
    Row(A + "copy", (mixed(*FLOATS), mixed(I32, F64, F32, F32, BF16, seed=9))),
    Row(A + "copy", ([t(2, 3), t(2, 3, dtype=I64)], [t(3), t(1)])),
    Row(A + "zero", (mixed(F32, I64, BF16, BOOL, C64),)),
]
