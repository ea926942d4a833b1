"""How far results are from the exact ones: the measurements behind docs/numerics.md.

Every OpInfo sample runs on the device, on the CPU, and on the CPU in double precision on the same
inputs. The error of a result is the largest difference from the double result divided by the
largest element of that, so that one figure says something about sums and about products. Operators
are grouped by the file of rules that serves most of their ATen calls.
"""

from __future__ import annotations

import collections
import pathlib

import torch

from . import inputs, units
from .calls import WIDE, Call, attempt
from .compare import tolerance
from .inputs import tensors
from .opinfo import chosen_samples
from .record import Operators

DTYPES = ("float32", "bfloat16", "float16", "complex64")


def measure(unit: units.Unit, samples: int) -> dict:
    """``{unit, family, tpu, cpu}``: the largest errors over the samples; empty where none count."""
    info, dtype = units.databases()["op"][unit.name], getattr(torch, unit.dtype)
    worst = {"tpu": 0.0, "cpu": 0.0}
    operators = Operators()
    compared = 0
    for sample in chosen_samples(info, dtype, samples):
        call = Call(info.op, (sample.input, sample.args, sample.kwargs))
        with torch.no_grad():
            got, failed = attempt(lambda c=call: c.run(inputs.DEVICE, mode=operators)[0])
            want, _ = attempt(lambda c=call: c.run("cpu")[0])
            exact, refused = attempt(lambda c=call: c.run("cpu", WIDE)[0])
        if operators.random or failed is not None or refused is not None:
            continue
        for mine, theirs, true in zip(*map(list, map(tensors, (got, want, exact))), strict=False):
            if mine.dtype is dtype and true.dtype in (torch.float64, torch.complex128):
                worst["tpu"] = max(worst["tpu"], error(mine, true))
                worst["cpu"] = max(worst["cpu"], error(theirs, true))
                compared += 1
    if not compared:
        return {}
    return {"unit": str(unit), "family": family(operators.names), **worst}


def error(x: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest difference over the largest exact element; elements that are not finite are left out
    (their equality is checked by the conformance run)."""
    x = x.detach().cpu().resolve_conj().to(exact.dtype)
    if x.shape != exact.shape:
        return float("inf")
    finite = torch.isfinite(exact) & torch.isfinite(x)
    if not finite.any():
        return 0.0
    scale = exact[finite].abs().max().item()
    return (x - exact)[finite].abs().max().item() / scale if scale else 0.0


def family(names: set[str]) -> str:
    """The file of rules that serves most of the overloads."""
    from ..dispatch.register import SERVED
    from ..lowering.registry import FAMILIES

    # Convolutions reach a backend under another name than the one PyTorch's modes see.
    names = {_CONVOLUTIONS.get(name, name) for name in names}
    counts = collections.Counter(FAMILIES[SERVED[name]] for name in names if name in SERVED)
    return counts.most_common(1)[0][0] if counts else "views"


_CONVOLUTIONS = {"aten::convolution": "aten::convolution_overrideable"}


_HEAD = """# Numerics

Written by `python -m torch_tpu.conformance --numerics docs/numerics.md`; do not edit.

float32 means float32: no operator computes in less, and 16-bit floats are computed in float32 and
rounded once at the end wherever CPU PyTorch does so. Integers, booleans and indices are exact.

Errors are measured against CPU PyTorch in float64 (complex128) on the same inputs, the samples of
OpInfo: the largest difference of any element, divided by the largest element of the exact result.
`unit roundoff` is half the distance from 1 to the next number of the dtype. An error far above it
on both sides is the operator's conditioning, not the device's doing; an error of about 1 or 2 on
both is a result that is not unique (signs of eigenvectors) or leaves the range of the dtype (prod).

## Tolerances of the conformance run

A result may differ from the CPU's by `atol + rtol * |result|`, or be as near to the exact result as
twice the CPU's own error. Some OpInfos allow more; then that holds.

"""


def write(path: pathlib.Path, rows: list[dict]) -> None:
    """Write the page from the measurements of all units."""
    text = _HEAD + "| dtype | rtol | atol | unit roundoff |\n| --- | --- | --- | --- |\n"
    for name in DTYPES:
        dtype = getattr(torch, name)
        rtol, atol = tolerance(dtype, None)
        roundoff = torch.finfo(dtype).eps / 2
        text += f"| {name} | {rtol:g} | {atol:g} | {roundoff:.1e} |\n"
    for name in DTYPES:
        text += f"\n## {name}\n\n| family | operators | tpu | CPU | worst on tpu |\n"
        text += "| --- | --- | --- | --- | --- |\n"
        groups = collections.defaultdict(list)
        for row in rows:
            if row["unit"].endswith("/" + name):
                groups[row["family"]].append(row)
        for group, members in sorted(groups.items()):
            worst = max(members, key=lambda row: row["tpu"])
            cpu = max(row["cpu"] for row in members)
            operator = worst["unit"].split("/")[1]
            cells = f"{len(members)} | {worst['tpu']:.1e} | {cpu:.1e} | `{operator}`"
            text += f"| {group} | {cells} |\n"
    path.write_text(text)
