"""Rows of `torch_tpu/ops/pathwise.py`: slopes of samples, against PyTorch's approximations.

Exact ones are in `tests/ops/test_pathwise_rules.py`.
"""

import torch

from ops.row import Row

WHY = "PyTorch's kernel approximates, with an error of up to 1e-3"
SHAPES = torch.tensor([[0.05, 0.5, 1.0], [3.0, 20.0, 400.0]])
SAMPLES = torch.tensor([[0.01, 0.3, 2.0], [2.5, 22.0, 380.0]])
PARTS = torch.tensor([[0.02, 0.3, 0.5], [0.7, 0.4, 0.9]])
LEFT = torch.tensor([[0.5, 1.0, 3.0], [2.0, 30.0, 3.0]])
NONE = torch.zeros(2, 0)


def wide(*tensors):
    return tuple(t.double() for t in tensors)


ROWS = [
    Row("aten::_standard_gamma_grad", (SHAPES, SAMPLES), rtol=1e-3, reason=WHY),
    Row("aten::_standard_gamma_grad", wide(SHAPES, SAMPLES), rtol=1e-3, reason=WHY),
    Row("aten::_standard_gamma_grad", (SHAPES, torch.zeros(2, 3))),
    Row("aten::_standard_gamma_grad", (torch.tensor(float("nan")), torch.tensor(1.0))),
    Row("aten::_standard_gamma_grad", (NONE, NONE)),
    Row("aten::_dirichlet_grad", (PARTS, SHAPES, SHAPES + LEFT), rtol=2e-3, reason=WHY),
    Row("aten::_dirichlet_grad", wide(PARTS, SHAPES, SHAPES + LEFT), rtol=2e-3, reason=WHY),
    Row("aten::_dirichlet_grad", (torch.tensor([0.0, 1.0]), torch.ones(2), torch.ones(2) * 2)),
    Row("aten::_dirichlet_grad", (NONE, NONE, NONE)),
]
