"""Rows of `torch_tpu/ops/histogram.py`."""

import math

import torch

from ops.row import Row, t

nan = math.nan
F64, BF = torch.float64, torch.bfloat16

DATA = torch.tensor([1.0, 2.0, 3.0, 5.0, 2.0, 4.9])
HOLES = torch.tensor([1.0, nan, 2.0, 4.0, -7.0])
EDGES = torch.tensor([-1.0, 0.0, 0.75, 1.0])
WEIGHT = t(6, low=0, seed=7)
POINTS = t(3, 4, 2)

ROWS = [
    Row("aten::histc", (t(4, 30), 7)),
    Row("aten::histc", (t(30), 4, -1, 1)),
    Row("aten::histc", (HOLES, 4, 1, 4)),
    Row("aten::histc", (torch.ones(3), 4)),
    Row("aten::histc", (t(30, dtype=F64), 10, -1.5, 0.5)),
    Row("aten::histc", (t(30, dtype=BF), 4, -2, 2)),
    Row("aten::histc", (torch.arange(0.0, 1.05, 0.05), 10, 0, 1)),
    Row("aten::histc", (t(0), 4)),
    Row("aten::histogram.bin_ct", (DATA, 4)),
    Row("aten::histogram.bin_ct", (t(50), 10), {"range": [-1.0, 1.5]}),
    Row("aten::histogram.bin_ct", (HOLES, 3), {"range": [0.0, 3.0]}),
    Row("aten::histogram.bin_ct", (DATA, 4), {"weight": WEIGHT, "density": True}),
    Row("aten::histogram.bin_ct", (torch.ones(3, dtype=F64), 2)),
    Row("aten::histogram.bins_tensor", (t(6), EDGES)),
    Row("aten::histogram.bins_tensor", (t(6), EDGES), {"weight": WEIGHT, "density": True}),
    Row("aten::histogram.bins_tensor", (t(2, 3, dtype=F64), EDGES.to(F64))),
    Row("aten::_histogramdd_bin_edges", (POINTS, [2, 3])),
    Row("aten::_histogramdd_bin_edges", (POINTS, [2, 5]), {"range": [-1.0, 1.0, 0.0, 2.0]}),
    Row("aten::_histogramdd_from_bin_cts", (POINTS, [2, 3])),
    Row(
        "aten::_histogramdd_from_bin_cts",
        (POINTS, [2, 3]),
        {"range": [-1.0, 1.0, 0.0, 2.0], "density": True, "weight": t(3, 4, low=0)},
    ),
    Row("aten::_histogramdd_from_bin_tensors", (POINTS, [EDGES, EDGES])),
    Row("aten::_histogramdd_from_bin_tensors", (POINTS, [EDGES, EDGES]), {"density": True}),
]
