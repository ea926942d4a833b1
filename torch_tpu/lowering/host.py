"""The word `aten_call`: ATen's CPU kernel as one operation of a program; CPU plugin only.

Some kernels (eigenvalues, singular values) have no counterpart in StableHLO. Where the plugin
compiles for the host, a program can call the kernel that CPU PyTorch uses, on the program's own
buffers. The call names the overload and its arguments as text (`_word`), which
csrc/device/host_kernels.cc reads. Nothing in the text depends on the process, so such programs can
be kept on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from . import target
from .builder import Value, current
from .registry import overload


def aten_call(
    name: str, args: Sequence, kwargs: Mapping, results: Sequence, finite: bool = False
) -> list:
    """Results of the CPU kernel of ``name`` on values; ``results`` are the `Meta`s to expect.

    One result for each tensor the kernel returns, nested in lists as it returns them; None leaves
    one out. ``finite`` refuses infs and NaNs before the kernel sees them. Raises
    NotImplementedError on plugins that cannot call into the host.
    """
    if not target.has_host_kernels():
        raise NotImplementedError(
            "its lowering is ATen's CPU kernel, which only XLA's CPU plugin can call"
        )
    operands: list[Value] = []
    words = [_word(v, operands) for v in _bound(name, args, kwargs)]
    returned = [m for r in results for m in (r if isinstance(r, list) else [r])]
    text = {
        "operator": name,
        "arguments": " ".join(words),
        "results": "".join(str(int(m is not None)) for m in returned),
        "finite": str(int(finite)),
    }
    produced = iter(_emit(text, operands, [m for m in returned if m is not None]))

    def like(result):
        if isinstance(result, list):
            return [like(r) for r in result]
        return None if result is None else next(produced)

    return [like(result) for result in results]


def _bound(name: str, args: Sequence, kwargs: Mapping) -> list:
    """One argument for each of the schema's, defaults filled in."""
    values = []
    for i, argument in enumerate(overload(name)._schema.arguments):
        if i < len(args):
            values.append(args[i])
        elif argument.name in kwargs:
            values.append(kwargs[argument.name])
        elif argument.has_default_value():
            values.append(argument.default_value)
        else:
            raise TypeError(f"{name}: argument {argument.name!r} is missing")
    return values


def _word(value, operands: list[Value]) -> str:
    """``value`` as csrc/device/host_kernels.cc reads it; values join ``operands``."""
    if isinstance(value, Value):
        operands.append(value)
        return "t"
    if value is None:
        return "n"
    if isinstance(value, (list, tuple)):
        return " ".join(["[", *(_word(v, operands) for v in value), "]"])
    if isinstance(value, bool):
        return f"b{int(value)}"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return f"f{value.hex()}"
    if isinstance(value, complex):
        return f"c{value.real.hex()},{value.imag.hex()}"
    if isinstance(value, str):
        return f"s{value.encode().hex()}"
    if isinstance(value, torch.dtype):
        return f"y{str(value).removeprefix('torch.')}"
    if isinstance(value, torch.device):
        return "d"
    raise NotImplementedError(f"a host kernel cannot take {value!r}")


def _row_major(rank: int) -> str:
    order = ", ".join(str(d) for d in reversed(range(rank)))
    return f"dense<{f'[{order}]' if rank else ''}> : tensor<{rank}xindex>"


def _emit(text: Mapping[str, str], operands: list[Value], wanted: Sequence) -> list[Value]:
    def layouts(shapes) -> str:
        return "[" + ", ".join(_row_major(len(s)) for s in shapes) + "]"

    config = ", ".join(f'{key} = "{value}"' for key, value in text.items())
    attributes = ", ".join(
        [
            'call_target_name = "torch_tpu.aten"',
            "api_version = 4 : i32",
            f"backend_config = {{{config}}}",
            f"operand_layouts = {layouts(v.shape for v in operands)}",
            f"result_layouts = {layouts(m.shape for m in wanted)}",
        ]
    )
    kinds = [(m.shape, m.dtype) for m in wanted]
    return current().emit("stablehlo.custom_call", operands, kinds, attributes)
