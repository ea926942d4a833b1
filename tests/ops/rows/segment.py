"""Rows of `torch_tpu/ops/segment.py`."""

import torch

from ops.row import Row, t

REDUCTIONS = ("sum", "mean", "max", "min", "prod")
LENGTHS = torch.tensor([2, 0, 3, 1])
BATCH = torch.stack([LENGTHS, LENGTHS.flip(0)])
OFFSETS = torch.tensor([0, 2, 2, 5, 6])
ODD = torch.tensor([0.0, 1, 2, 0, 0, 3, torch.nan, 2])  # zeros and NaN in the products
ODD_LENGTHS = torch.tensor([3, 2, 3])


def backward(reduce, data, **kwargs):
    output = torch.segment_reduce(data, reduce, **kwargs)
    axis = kwargs.get("axis", 0)
    row = (t(*output.shape, dtype=data.dtype, seed=5), output, data, reduce)
    return Row("aten::_segment_reduce_backward", row, {"axis": axis, **kwargs})


ROWS = [
    *(Row("aten::segment_reduce", (t(6, 2), r), {"lengths": LENGTHS}) for r in REDUCTIONS),
    *(
        Row(
            "aten::segment_reduce",
            (t(2, 6, 3, dtype=torch.float64), r),
            {"lengths": BATCH, "axis": 1, "initial": 2},
        )
        for r in REDUCTIONS
    ),
    *(Row("aten::segment_reduce", (ODD, r), {"lengths": ODD_LENGTHS}) for r in REDUCTIONS),
    Row("aten::segment_reduce", (t(6), "sum"), {"offsets": OFFSETS}),
    Row("aten::segment_reduce", (t(8), "max"), {"lengths": LENGTHS, "unsafe": True}),
    Row("aten::segment_reduce", (t(6).bfloat16(), "mean"), {"lengths": LENGTHS}),
    Row("aten::segment_reduce", (t(0, 2), "sum"), {"lengths": torch.tensor([0, 0])}),
    *(backward(r, t(6, 2), lengths=LENGTHS) for r in REDUCTIONS),
    *(backward(r, t(2, 6, 3).round(), lengths=BATCH, axis=1) for r in REDUCTIONS),
    *(backward(r, ODD, lengths=ODD_LENGTHS) for r in REDUCTIONS),
    backward("sum", t(6), offsets=OFFSETS),
    backward("prod", t(6), offsets=OFFSETS, initial=3.0),
]
