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

# Where CPU PyTorch, not the device, is off. (Unit pattern, checks, reason, one line); only what was
# looked into. Such a difference is listed with its reason and is no silent mismatch.
EXPLAINED: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    (
        "op/matrix_exp/*float16",
        (),
        CPU_BUG,
        "the CPU's 16-bit results are NaN or off by their size; the device's are rounded once",
    ),
    (
        "op/narrow_copy/*",
        ("out",),
        CPU_BUG,
        "the CPU writes a strided out= as if it were contiguous",
    ),
    (
        "op/fft.ihfft[2n]/*",
        ("out",),
        CPU_BUG,
        "for one dim PyTorch conjugates `out` into its temporary and returns that, on every device",
    ),
    (
        "op/float_power/complex64",
        (),
        CPU_BUG,
        "0 ** 0 is NaN in the CPU's vectorised complex power, 1 in Python, NumPy and on the device",
    ),
    ("op/renorm/complex64", ("backward",), CPU_BUG, "the CPU's gradient at the largest is NaN"),
    (
        "op/special.bessel_*/float64",
        (),
        CPU_BUG,
        "by mpmath with 40 digits the CPU's float64 kernels are up to 8e-7 off (at 5.04), the "
        "device's 5e-15",
    ),
    (
        "op/special.airy_ai/float64",
        (),
        CPU_BUG,
        "by mpmath with 40 digits the CPU's float64 kernel is 3e-6 off at -2.1, the device's 6e-16",
    ),
    (
        "op/special.i0e/bfloat16",
        ("backward",),
        ROUNDING,
        "i1e(x) + i0e(x); the CPU's i0e(-8.5) is an ulp too high",
    ),
)


def explained(unit: str, failure: dict) -> tuple[str, str] | None:
    """(reason, line) of a difference that is the CPU's, or None."""
    for pattern, checks, reason_, line in EXPLAINED:
        known = fnmatch.fnmatchcase(unit, pattern) and (not checks or failure["check"] in checks)
        if known and failure["kind"] == "value":
            return reason_, line
    return None


_SIGNS = (
    (SPARSE, ("sparse", "Sparse")),
    (QUANTISED, ("quantized", "quint", "qint")),
    (NO_TYPE, ("complex32", "ComplexHalf", "has no XLA type")),
)


def reason(record: dict) -> tuple[str, str]:
    """(reason, line) of a unit that does not pass."""
    known = [explained(record["unit"], failure) for failure in record["failures"]]
    if known and all(known):
        return known[0]
    first = record["failures"][known.index(None)]
    line = f"{first['check']}: {first['message']}"
    for name, signs in _SIGNS:
        if all(any(s in f["message"] + f["sample"] for s in signs) for f in record["failures"]):
            return name, line
    return BUG, line
