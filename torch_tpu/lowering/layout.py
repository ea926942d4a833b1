"""In which order an elementwise operator lays out its results in memory.

CPU PyTorch's kernels take the strides of a result from all operands together (TensorIterator).
Many of PyTorch's meta kernels are decompositions, whose last step may see other operands, or
Python's approximation of the rule. Here the rule itself is asked: any operator with a structured
kernel and as many operands gives, on meta tensors, the strides that all of them have.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

# Operands of another dtype than the common one are copied first, and copies have other strides:
# the common dtype must be that of the operator, which for "float" is never an integer.
_TWO = {"arith": torch.add, "float": torch.atan2, "compare": torch.eq}


def elementwise(kind: str, operands: Sequence) -> torch.Tensor | None:
    """A meta tensor with the shape and strides of the result of at most three operands, meta
    tensors or numbers that promote as ``kind`` says (`Rule.promote`); None for more."""
    given = [x if isinstance(x, torch.Tensor) else _of_number(x) for x in operands]
    if len(given) == 1:
        return torch.empty_like(given[0])
    if len(given) == 2:
        return _TWO[kind](*given)
    return torch.addcmul(*given) if len(given) == 3 else None


def _of_number(number) -> torch.Tensor:
    return torch.empty((), dtype=torch.tensor(number).dtype, device="meta")
