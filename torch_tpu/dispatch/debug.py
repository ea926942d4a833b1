"""What Debug checks around a call: indices before it, NaN and infinity after it.

XLA clamps an index that is out of range when it reads and drops the write; the other modes do the
same. Here such an index raises IndexError. The core calls `before` and `after` for every call of an
operator (csrc/dispatch/debug.cc). Looking at values waits for the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import torch

from .. import _core
from ..lowering.registry import overload

detect_nonfinite = False

_state = threading.local()

# What an index must be: (argument, index tensor, lowest, highest, an exception or None).
Check = tuple[str, torch.Tensor, int, int, "int | None"]


# ---- which indices an operator takes -------------------------------------------------------


def _along(named: dict, wraps: bool = False) -> Iterator[Check]:
    """``index`` of positions along ``dim`` of ``self``."""
    source = named["self"]
    size = source.shape[named["dim"]] if source.dim() else 1
    yield "index", named["index"], -size if wraps else 0, size - 1, None


def _wrapping_along(named: dict) -> Iterator[Check]:
    yield from _along(named, wraps=True)


def _per_dim(named: dict) -> Iterator[Check]:
    """``indices``, one tensor or None per leading dim of ``self``; masks have no positions."""
    dim = 0
    for position, index in enumerate(named["indices"]):
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            dim += index.dim()
            continue
        if index is not None:
            size = named["self"].shape[dim]
            yield f"indices[{position}]", index, -size, size - 1, None
        dim += 1


def _flat(named: dict) -> Iterator[Check]:
    size = named["self"].numel()
    yield "index", named["index"], -size, size - 1, None


def _rows(named: dict) -> Iterator[Check]:
    yield "indices", named["indices"], 0, named["weight"].shape[0] - 1, None


def _row_gradients(named: dict) -> Iterator[Check]:
    padding = named["padding_idx"]
    yield "indices", named["indices"], 0, named["num_weights"] - 1, padding


def _classes(named: dict) -> Iterator[Check]:
    source = named["self"]
    classes = source.shape[1 if source.dim() > 1 else 0] if source.dim() else 1
    yield "target", named["target"], 0, classes - 1, named["ignore_index"]


CHECKS: dict[str, Callable[[dict], Iterator[Check]]] = {
    **dict.fromkeys(
        (
            "aten::gather aten::index_select aten::index_add aten::index_copy aten::index_reduce "
            "aten::scatter.src aten::scatter.value aten::scatter.reduce aten::scatter.value_reduce "
            "aten::scatter_add aten::scatter_reduce.two"
        ).split(),
        _along,
    ),
    **dict.fromkeys(
        "aten::index_fill.int_Scalar aten::index_fill.int_Tensor".split(), _wrapping_along
    ),
    **dict.fromkeys("aten::index.Tensor aten::index_put aten::_index_put_impl".split(), _per_dim),
    **dict.fromkeys("aten::take aten::put".split(), _flat),
    **dict.fromkeys(
        "aten::embedding aten::_embedding_bag aten::_embedding_bag_forward_only".split(), _rows
    ),
    "aten::embedding_dense_backward": _row_gradients,
    **dict.fromkeys("aten::nll_loss_forward aten::nll_loss2d_forward".split(), _classes),
}
"""Functional overload → the checks of a call, by the names of its arguments."""


# ---- the checks ----------------------------------------------------------------------------


def before(name: str, functional: str, arguments: list):
    """Check the indices of a call. Returns what `after` wants, None if it need not be called."""
    if getattr(_state, "busy", False):
        return None
    _state.busy = True
    try:
        find = CHECKS.get(functional)
        if find is not None:
            schema = overload(name)._schema.arguments
            for check in find({a.name: v for a, v in zip(schema, arguments, strict=True)}):
                _check_index(name, *check)
        return all(_finite(a) for a in _leaves(arguments)) if detect_nonfinite else None
    finally:
        _state.busy = False


def after(name: str, finite_before: bool, results: list) -> None:
    """Raise FloatingPointError if the call made the first number that is not finite."""
    if getattr(_state, "busy", False) or not finite_before:
        return
    _state.busy = True
    try:
        for position, result in enumerate(_leaves(results)):
            if not _finite(result):
                raise FloatingPointError(
                    f"{name} made {_example(result)} out of finite arguments: tensor {position}, "
                    f"{result.dtype} of shape {tuple(result.shape)}{_where()}"
                )
    finally:
        _state.busy = False


def _check_index(name, argument, index, lowest, highest, exception) -> None:
    if index.numel() == 0:
        return
    host = index.detach().to("cpu", torch.int64)
    wrong = (host < lowest) | (host > highest)
    if exception is not None:
        wrong &= host != exception
    if not wrong.any():
        return
    place = tuple(wrong.nonzero()[0].tolist())
    text = f" at position {place}" if place else ""
    raise IndexError(
        f"{name}: index {host[place].item()}{text} of {argument} (shape {tuple(index.shape)}) is "
        f"out of bounds: valid are {lowest} to {highest}{_where()}"
    )


def _where() -> str:
    line = _core.source_line()
    return f" (called at {line})" if line else ""


def _leaves(values) -> Iterator:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        elif isinstance(value, (torch.Tensor, float, complex)):
            yield value


def _finite(value) -> bool:
    if not isinstance(value, torch.Tensor):
        return abs(value) < float("inf")
    if not (value.is_floating_point() or value.is_complex()) or value.numel() == 0:
        return True
    return bool(torch.isfinite(value.detach()).all())


def _example(tensor: torch.Tensor) -> str:
    host = tensor.detach().cpu().flatten()
    return str(host[~torch.isfinite(host)][0].item())
