"""Concrete sizes of a graph that was captured with symbolic ones.

Fake tensors in ``node.meta["val"]`` carry sympy expressions; a call binds their symbols through its
inputs. Nothing is traced again for a new size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sympy
import torch

from ..lowering.builder import Value
from ..lowering.registry import Meta


def expression(value):
    """The sympy expression of a SymInt, SymFloat or SymBool; other values as they are."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.expr
    return value


class Bindings:
    """What the symbols of a graph stand for in one call."""

    def __init__(self, values: Sequence, arguments: Sequence):
        """``values`` are the example values of the inputs, ``arguments`` those of the call."""
        self._numbers: dict = {}
        for value, argument in zip(values, arguments, strict=True):
            if isinstance(value, torch.Tensor):
                for size, actual in zip(value.shape, argument, strict=True):
                    self._bind(size, actual)
            else:
                self._bind(value, argument)

    def _bind(self, symbolic, actual) -> None:
        symbol = expression(symbolic)
        # A run-time value stays one: no size depends on it.
        if getattr(symbol, "is_Symbol", False) and not isinstance(actual, Value):
            self._numbers[symbol] = sympy.sympify(actual)

    def bound(self, symbol: sympy.Symbol) -> int | None:
        """What ``symbol`` stands for; None if no input says."""
        number = self._numbers.get(symbol)
        return None if number is None else int(number)

    def number(self, value):
        """``value`` as a Python number."""
        found = expression(value)
        if found is value:
            return value
        result = found.xreplace(self._numbers)
        if result.free_symbols:
            raise NotImplementedError(f"the size {value} depends on data")
        if isinstance(value, torch.SymBool):
            return bool(result)
        return float(result) if isinstance(value, torch.SymFloat) else int(result)

    def meta(self, value):
        """`Meta` of a fake tensor, of each in a list; numbers as numbers, None as None."""
        if isinstance(value, torch.Tensor):
            shape, strides = (tuple(map(self.number, s)) for s in (value.shape, value.stride()))
            return Meta(shape, value.dtype, strides)
        if isinstance(value, (list, tuple)):
            return [self.meta(v) for v in value]
        return self.number(value)


def _in_numbers(numbers: Iterable) -> set:
    return set().union(*(getattr(expression(n), "free_symbols", ()) for n in numbers))


def symbols_of(value) -> set:
    """The symbols in a number, or in the sizes of a fake tensor."""
    return _in_numbers(value.shape if isinstance(value, torch.Tensor) else (value,))


def layout_symbols(tensor: torch.Tensor) -> set:
    """The symbols in sizes, strides and offset of a fake tensor."""
    return _in_numbers((*tensor.shape, *tensor.stride(), tensor.storage_offset()))


def is_symbolic(value) -> bool:
    """Whether a fake tensor or number has a size that calls decide."""
    if isinstance(value, torch.Tensor):
        numbers: Sequence = (*value.shape, *value.stride())
    elif isinstance(value, (list, tuple)):
        return any(is_symbolic(v) for v in value)
    else:
        numbers = (value,)
    return any(isinstance(n, (torch.SymInt, torch.SymFloat)) for n in numbers)


def dtype_of(number) -> torch.dtype:
    """The dtype of a symbolic number that a program computes."""
    if isinstance(number, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(number, (int, torch.SymInt)) else torch.float64
