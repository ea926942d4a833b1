"""``options=`` of torch.compile: XLA options by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping

_PROBE = """
module @probe {
  func.func public @main() -> tensor<i1> {
    %0 = stablehlo.constant dense<true> : tensor<i1>
    return %0 : tensor<i1>
  }
}
"""


def checked(options: Mapping) -> dict:
    """``options`` if the plugin knows them all; raises ValueError or TypeError naming one else."""
    for name, value in options.items():
        if not isinstance(value, (bool, int, float, str)):
            raise TypeError(f"options: {name!r} must be a bool, number or string, not {value!r}")
        complaint = _complaint(name, value)
        if complaint:
            raise ValueError(f"options: XLA does not take {name}={value!r}: {complaint}")
    return dict(options)


@functools.cache
def _complaint(name: str, value) -> str:
    """What the plugin says to a program compiled with the option; "" if it takes it."""
    from .. import _core
    from ..program.compile import compile_options

    try:
        _core.compile(_PROBE, compile_options({name: value}))
    except RuntimeError as error:
        return str(error)
    return ""
