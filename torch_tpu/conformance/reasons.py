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
BUG = "bug"

# Unit pattern -> (reason, one line). Only what was looked into; patterns are shell patterns.
KNOWN: dict[str, tuple[str, str]] = {}

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
