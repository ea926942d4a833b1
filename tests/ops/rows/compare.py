"""Rows of `torch_tpu/ops/compare.py`."""

import math

import torch

from ops.row import Row, t

BF16, C64 = torch.bfloat16, torch.complex64
I32, I64, U8, I8, BOOL = torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])
PAIRS = (SPECIAL[:, None].contiguous(), SPECIAL[None, :].contiguous())


def ints(*shape, dtype=I64, seed=0, low=-9, high=9):
    return t(*shape, dtype=dtype, low=low, high=high, seed=seed)


AMOUNTS = torch.tensor([-1, 0, 1, 5, 7, 8, 31, 63, 64, 90])

ROWS = [
    *[
        Row(f"aten::{name}.Tensor", pair)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for pair in [
            PAIRS,
            (ints(3, 4), ints(4, seed=1)),
            (t(5, dtype=BOOL), t(5, dtype=BOOL, seed=1)),
            (ints(5, dtype=U8, low=0, high=255), torch.tensor(200)),
            (ints(5), t(dtype=torch.float32)),
        ]
    ],
    *[
        Row(f"aten::{name}.Scalar", pair)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for pair in [
            (SPECIAL, 1),
            (ints(5), 0.5),
            (torch.tensor([0.1, 0.3], dtype=BF16), 0.1),
        ]
    ],
    *[
        Row(f"aten::{name}.Tensor", (t(4, dtype=C64), t(4, dtype=C64).roll(1)))
        for name in ("eq", "ne")
    ],
    *[
        Row(f"aten::logical_{name}", pair)
        for name in ("and", "or", "xor")
        for pair in [
            PAIRS,
            (ints(3, 1, low=0, high=2), t(4, seed=1)),
            (t(5, dtype=BOOL), torch.zeros(5, dtype=C64)),
        ]
    ],
    *[Row("aten::logical_not", (x,)) for x in (SPECIAL, ints(4, low=0, high=2), t(3, dtype=BOOL))],
    *[
        row
        for name in ("and", "or", "xor")
        for row in [
            Row(f"aten::bitwise_{name}.Tensor", (ints(3, 4), ints(4, seed=1, dtype=I32))),
            Row(f"aten::bitwise_{name}.Tensor", (t(5, dtype=BOOL), t(5, dtype=BOOL, seed=1))),
            Row(f"aten::bitwise_{name}.Scalar", (ints(4, dtype=U8, low=0), 5)),
            Row(f"aten::bitwise_{name}.Scalar_Tensor", (6, ints(4))),
        ]
    ],
    *[
        Row("aten::bitwise_not", (x,))
        for x in (ints(4), ints(4, dtype=U8, low=0), t(3, dtype=BOOL))
    ],
    *[
        row
        for name in ("left", "right")
        for row in [
            Row(f"aten::bitwise_{name}_shift.Tensor", (ints(3, 1), AMOUNTS)),
            Row(
                f"aten::bitwise_{name}_shift.Tensor", (ints(4, dtype=I8), ints(4, dtype=I8, low=0))
            ),
            Row(f"aten::bitwise_{name}_shift.Tensor_Scalar", (ints(4, dtype=U8, low=0), 3)),
            Row(f"aten::bitwise_{name}_shift.Tensor_Scalar", (ints(4, dtype=U8, low=0), 8)),
            Row(f"aten::bitwise_{name}_shift.Scalar_Tensor", (100, ints(4, low=0))),
        ]
    ],
    *[
        row
        for name in ("lshift", "rshift")
        for row in [
            Row(f"aten::__{name}__.Tensor", (ints(4), ints(4, low=0, seed=1))),
            Row(f"aten::__{name}__.Scalar", (ints(4, dtype=I32), 2)),
        ]
    ],
]
