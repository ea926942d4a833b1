"""Why something does not pass: a short fixed list, and the known cases.

`KNOWN` holds what was looked into by hand, by unit pattern; other failures are sorted by what the
device said, and what is left is a bug and says so.
"""

from __future__ import annotations

import fnmatch

NO_TYPE = "no XLA type"
DATA_SHAPE = "data-dependent shape"
LAPACK = "LAPACK"
SPARSE = "sparse"
QUANTISED = "quantised"
RANDOM = "random stream differs by design"
CPU_BUG = "CPU PyTorch differs from its own documentation"
TIES = "which of several equal elements is named is not specified"
ROUNDING = "the formula of the gradient cancels, so that the last bit of its parts decides"
BUG = "bug"

# Unit pattern -> (reason, one line). Only what was looked into; patterns are shell patterns.
KNOWN: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        [
            f"op/{name}/{dtype}"
            for name in ("argsort", "mode", "msort", "sort")
            for dtype in ("bfloat16", "float16", "bool", "int*", "uint8")
        ],
        (TIES, "the CPU's sort is not stable (thousands of elements, few values)"),
    ),
    **dict.fromkeys(
        [f"op/narrow_copy/{dtype}" for dtype in ("bool", "int*", "uint8", "float64", "complex128")],
        (CPU_BUG, "the CPU writes a strided out= as if it were contiguous"),
    ),
    "op/special.i0e/bfloat16": (
        ROUNDING,
        "i1e(x) + i0e(x); the CPU's i0e(-8.5) is an ulp too high",
    ),
    "op/special.bessel_*/float64": (CPU_BUG, "the CPU's float64 kernels are exact to 1e-7 only"),
    "op/renorm/complex64": (CPU_BUG, "the CPU's gradient of the largest absolute value is NaN"),
}

_SIGNS = (
    (SPARSE, ("sparse", "Sparse")),
    (QUANTISED, ("quantized", "quint", "qint")),
    (NO_TYPE, ("complex32", "ComplexHalf", "has no XLA type")),
)


def reason(record: dict) -> tuple[str, str]:
    """(reason, line) of a unit that does not pass."""
    for pattern, known in KNOWN.items():
        if fnmatch.fnmatchcase(record["unit"], pattern):
            return known
    first = record["failures"][0]
    line = f"{first['check']}: {first['message']}"
    for name, signs in _SIGNS:
        if all(any(s in f["message"] + f["sample"] for s in signs) for f in record["failures"]):
            return name, line
    return BUG, line
