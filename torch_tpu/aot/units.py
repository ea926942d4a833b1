"""Numbers as people read them."""

from __future__ import annotations


def scaled(number: float, unit: str = "") -> str:
    """``1.23 TFLOP``, in steps of a thousand."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 999.5 or prefix == "P":
            break
        number /= 1000
    return f"{number:.3g} {prefix}{unit}".rstrip()


def of_bytes(number: float) -> str:
    return scaled(number, "B")


def seconds(number: float) -> str:
    if number == 0:
        return "0"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if number * factor >= 0.9995:
            return f"{number * factor:.3g} {unit}"
    return f"{number * 1e9:.3g} ns"


def percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def line(path_and_line: str, width: int) -> str:
    """``file:line``, shortened from the left to its last parts."""
    if len(path_and_line) <= width:
        return path_and_line
    return "…" + path_and_line[-(width - 1) :]


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
