"""Arguments of calls: trees of tensors, their copies on a device, and variations of samples.

A copy keeps what PyTorch can see of a tensor's memory: sizes, strides, offset, which tensors share
a storage, conjugate and negative bits, and whether it is a leaf that requires a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

DEVICE = "tpu"


def leaves(tree: Any) -> Iterator[Any]:
    """Everything in a tree of lists, tuples and dicts, in order."""
    if isinstance(tree, (list, tuple)):
        for element in tree:
            yield from leaves(element)
    elif isinstance(tree, dict):
        for element in tree.values():
            yield from leaves(element)
    else:
        yield tree


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a tree, in order."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor))


def transform(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The tree with every tensor replaced by ``change(tensor)``."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(transform(element, change) for element in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(transform(element, change) for element in tree)
    if isinstance(tree, dict):
        return {key: transform(element, change) for key, element in tree.items()}
    return tree


def spread(every: list, count: int) -> list:
    """``count`` elements of a list, evenly spaced from its first to its last."""
    if len(every) <= count:
        return every
    return [every[i * (len(every) - 1) // max(count - 1, 1)] for i in range(count)]


class Copies:
    """Copies tensors to ``device``; tensors over one storage are copied to one storage.

    ``dtypes`` maps dtypes to those of the copies (for references in double precision).
    """

    def __init__(self, device: str, dtypes: dict[torch.dtype, torch.dtype] | None = None):
        self._device = device
        self._dtypes = dtypes or {}
        self._storages: dict[tuple, torch.Tensor] = {}
        self._made: dict[int, torch.Tensor] = {}

    def __call__(self, tree: Any) -> Any:
        if isinstance(tree, torch.device):
            return torch.device(self._device)
        return transform(tree, self._one)

    def _one(self, x: torch.Tensor) -> torch.Tensor:
        if id(x) not in self._made:
            copy = self._copy(x) if x.layout is torch.strided else x.detach().to(self._device)
            if x.requires_grad:
                copy.requires_grad_()
            self._made[id(x)] = copy
        return self._made[id(x)]

    @torch.no_grad()
    def _copy(self, x: torch.Tensor) -> torch.Tensor:
        plain = x.detach()
        conj, neg = plain.is_conj(), plain.is_neg()
        if conj or neg:
            plain = torch._conj(plain) if conj else plain
            plain = torch._neg_view(plain) if neg else plain
        dtype = self._dtypes.get(x.dtype, x.dtype)
        whole = plain.untyped_storage().nbytes() // x.dtype.itemsize
        key = (x.untyped_storage()._cdata, x.dtype)
        if key not in self._storages:
            # The storage in the shape of its first tensor if that is all of it.
            all_of_it = x.numel() == whole and x.is_contiguous()
            base = plain if all_of_it else torch.as_strided(plain, (whole,), (1,), 0)
            self._storages[key] = base.to(self._device, dtype=dtype, copy=True)
        base = self._storages[key]
        if base.shape == x.shape and x.is_contiguous() and base.numel() == x.numel() == whole:
            copy = base.view_as(base)
        else:
            copy = torch.as_strided(base, x.shape, x.stride(), plain.storage_offset())
        copy = torch._conj(copy) if conj else copy
        return torch._neg_view(copy) if neg else copy


# ---- variations of a sample: (input, args, kwargs) -> the same kind of triple ----------------


def noncontiguous(x: torch.Tensor) -> torch.Tensor:
    """The same values in a tensor that is not contiguous (where the shape allows one)."""
    return torch.testing._internal.common_utils.noncontiguous_like(x)


def permuted(x: torch.Tensor) -> torch.Tensor:
    """The same values with the second dimension last in memory (channels last), without gaps."""
    if x.layout is not torch.strided or x.ndim < 2:
        return x
    return x.detach().movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_(x.requires_grad)


def expanded(x: torch.Tensor) -> torch.Tensor:
    """The first slice of ``x``, repeated with stride 0 to the shape of ``x``."""
    if x.ndim == 0 or x.numel() == 0:
        return x
    return x.detach()[:1].expand(x.shape).requires_grad_(x.requires_grad)


def emptied(x: torch.Tensor) -> torch.Tensor:
    """``x`` with no elements along its first dimension."""
    return x.detach()[:0].requires_grad_(x.requires_grad) if x.ndim else x


def zero_dim(x: torch.Tensor) -> torch.Tensor:
    """The first element of ``x`` as a 0-dim tensor."""
    if x.numel() == 0 or x.ndim == 0:
        return x
    return x.detach().reshape(-1)[0].clone().requires_grad_(x.requires_grad)
