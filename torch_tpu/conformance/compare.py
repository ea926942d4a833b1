"""What counts as the same result: values, shapes, dtypes, strides and aliases.

A difference is a `Difference` with a kind of `SILENT`, or one of `LOUD` kinds where an exception
told the user. Tolerances are in `tolerance`; where a float result is outside, the exact result (in
double precision) decides: the device may be as far from it as the CPU is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from .inputs import leaves, tensors

SILENT = ("value", "shape", "dtype", "stride", "alias", "accepts", "abort", "hang")
LOUD = ("raises", "error class", "unchecked value")

# Relative and absolute tolerance per dtype; exact for every dtype that is not listed.
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1e-5, 1e-5),
    torch.complex64: (1e-5, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}
# How much farther than the CPU's from the exact result a result of the device may be: both round
# in another order, so that neither error bounds the other exactly.
_EXACT_FACTOR = 2.0


@dataclasses.dataclass
class Difference(Exception):
    """A result that is not CPU PyTorch's; ``kind`` is one of `SILENT` or `LOUD`."""

    kind: str
    message: str


def tolerance(dtype: torch.dtype, override: tuple[float, float] | None) -> tuple[float, float]:
    """(rtol, atol) for a dtype; ``override`` is what the operator's own OpInfo allows."""
    rtol, atol = _TOLERANCES.get(dtype, (0.0, 0.0))
    if override is None or dtype not in _TOLERANCES:
        return rtol, atol
    return max(rtol, override[0]), max(atol, override[1])


def significant_strides(x: torch.Tensor) -> tuple[int, ...]:
    """Strides that decide where elements are: those of dimensions with more than one element."""
    if x.numel() == 0:
        return ()
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)


def metadata(got: Any, want: Any, what: str, strides: bool = True) -> None:
    """Raise `Difference` unless both trees have the same structure and tensor metadata."""
    if isinstance(want, torch.Tensor):
        _tensor_metadata(got, want, what, strides)
    elif isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            raise Difference("shape", f"{what}: another number of results")
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            metadata(g, w, f"{what}[{i}]", strides)
    elif isinstance(want, dict):
        if not isinstance(got, dict) or list(got) != list(want):
            raise Difference("shape", f"{what}: other keys")
        for key in want:
            metadata(got[key], want[key], f"{what}[{key!r}]", strides)
    elif (got is None) != (want is None):
        raise Difference("value", f"{what}: {got!r}, CPU {want!r}")


def _tensor_metadata(got: Any, want: torch.Tensor, what: str, strides: bool) -> None:
    if not isinstance(got, torch.Tensor):
        raise Difference("value", f"{what}: {type(got).__name__} instead of a tensor")
    if got.dtype is not want.dtype:
        raise Difference("dtype", f"{what}: {got.dtype}, CPU {want.dtype}")
    if got.shape != want.shape:
        raise Difference("shape", f"{what}: {tuple(got.shape)}, CPU {tuple(want.shape)}")
    if got.layout is not want.layout:
        raise Difference("stride", f"{what}: {got.layout}, CPU {want.layout}")
    plain = want.layout is torch.strided
    if strides and plain and significant_strides(got) != significant_strides(want):
        message = f"{what}: strides {got.stride()}, CPU {want.stride()} of {tuple(want.shape)}"
        raise Difference("stride", message)


def aliases(result: Any, given: Any) -> list[tuple]:
    """For each result tensor: which given tensor it *is*, and which share its storage."""
    inputs = list(tensors(given))
    found = []
    for r in tensors(result):
        if r.layout is not torch.strided or r.numel() == 0:
            found.append(())
            continue
        same = next((i for i, x in enumerate(inputs) if x is r), None)
        storage = r.untyped_storage()._cdata
        shared = tuple(
            i
            for i, x in enumerate(inputs)
            if x.layout is torch.strided and x.untyped_storage()._cdata == storage
        )
        found.append((same, shared))
    return found


@dataclasses.dataclass
class Values:
    """Compares values.

    Attributes:
      override: (rtol, atol) that the operator's OpInfo allows.
      exact: gives the results in double precision, or None where there are none.
    """

    override: tuple[float, float] | None = None
    exact: Callable[[], Any] | None = None

    def __call__(self, got: Any, want: Any, what: str) -> None:
        failed = list(self._failed(got, want, what))
        if not failed:
            return
        exact = None if self.exact is None else self.exact()
        references = None if exact is None else list(tensors(exact))
        for position, message in failed:
            if references is None or position is None or position >= len(references):
                raise Difference("value", message)
            g, w = list(tensors(got))[position], list(tensors(want))[position]
            if not self._as_exact(g, w, references[position]):
                raise Difference("value", message)

    def _failed(self, got, want, what):
        pairs = zip(leaves(got), leaves(want), strict=True)
        position = 0
        for g, w in pairs:
            if not isinstance(w, torch.Tensor):
                if not _same_number(g, w):
                    yield None, f"{what}: {g!r}, CPU {w!r}"
                continue
            rtol, atol = tolerance(w.dtype, self.override)
            try:
                torch.testing.assert_close(
                    _host(g), _host(w), rtol=rtol, atol=atol, equal_nan=True, check_stride=False
                )
            except AssertionError as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                yield position, f"{what}: " + "; ".join(lines)[:400]
            position += 1

    def _as_exact(self, got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor) -> bool:
        """Whether ``got`` is as near to the exact result as the CPU's ``want`` is."""
        if not (want.is_floating_point() or want.is_complex()) or exact.shape != want.shape:
            return False
        wide = torch.complex128 if want.is_complex() else torch.float64
        if exact.dtype is not wide:
            return False
        rtol, atol = tolerance(want.dtype, self.override)
        got, want, exact = (_host(x).to(wide) for x in (got, want, exact))
        bound = atol + rtol * exact.abs()
        finite = torch.isfinite(exact) & torch.isfinite(want)
        same = (got == want) | (got.isnan() & want.isnan())
        # What overflows on the CPU on the way to a finite result need not do so here.
        same |= torch.isfinite(exact) & ((got - exact).abs() <= bound)
        if not (same | finite).all():
            return False
        if not finite.any():
            return True
        error = (got - exact)[finite].abs()
        allowed = _EXACT_FACTOR * (want - exact)[finite].abs().max()
        return bool((error <= torch.maximum(allowed, bound[finite])).all())


def _host(x: torch.Tensor) -> torch.Tensor:
    x = x.detach()
    x = x.to_dense() if x.layout is not torch.strided else x
    return x.cpu().resolve_conj().resolve_neg()


def _same_number(got, want) -> bool:
    if isinstance(want, complex) or isinstance(got, complex):
        return _same_number(complex(got).real, complex(want).real) and _same_number(
            complex(got).imag, complex(want).imag
        )
    if isinstance(want, float) and isinstance(got, float):
        both_nan = math.isnan(got) and math.isnan(want)
        return both_nan or math.isclose(got, want, rel_tol=1e-5, abs_tol=1e-5)
    if isinstance(want, torch.device):
        return isinstance(got, torch.device)
    return type(got) is type(want) and (got == want or not isinstance(want, (int, bool, str)))


def same_exception(got: BaseException, want: BaseException) -> bool:
    """Whether the device raised what the CPU raised, or a narrower class (never "not implemented"
    where the CPU has another complaint)."""
    if isinstance(got, NotImplementedError) and not isinstance(want, NotImplementedError):
        return False
    return isinstance(got, type(want))
