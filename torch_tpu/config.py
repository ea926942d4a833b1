"""Every environment variable that torch_tpu reads, in one table, with typed access.

A variable is declared once in `OPTIONS` (name, default, parser, meaning) and read with `get(name)`.
Nothing else in the package looks at `os.environ` for a `TORCH_TPU_` name, so the table is complete
and `docs/options.md` can be generated from it. Values are read when asked for, not at import: a
test or a launcher may set them late. A value that cannot be understood raises `errors.ConfigError`
naming it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import errors

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_text(text: str) -> str:
    return text


def parse_count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("expected a whole number of at least 1")
    return int(text)


def parse_bytes(text: str) -> int:
    """A number of bytes with an optional binary suffix: 1048576, 512M, 1.5G, 2GiB."""
    upper = text.upper().removesuffix("B").removesuffix("I")
    number, unit = (upper[:-1], upper[-1]) if upper[-1:].isalpha() else (upper, "")
    if unit not in UNITS:
        raise ValueError("expected bytes with an optional suffix K, M, G or T")
    size = int(float(number) * UNITS[unit])
    if size <= 0:
        raise ValueError("expected more than 0 bytes")
    return size


def parse_directory(text: str) -> Path:
    """A directory, made absolute; ``~`` is the home directory."""
    return Path(os.path.abspath(os.path.expanduser(text)))


def parse_switch(text: str) -> bool:
    """1 or 0."""
    if text not in ("0", "1"):
        raise ValueError("expected 0 or 1")
    return text == "1"


def choice(*allowed: str) -> Callable[[str], str]:
    """A parser that accepts exactly these words."""

    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text.lower()

    return parse


@dataclass(frozen=True)
class Option:
    """One environment variable.

    Attributes:
      name: the variable, with its `TORCH_TPU_` prefix.
      default: the value when it is unset or empty.
      parse: text → value; raises ValueError with what was expected.
      meaning: one sentence for the generated documentation.
    """

    name: str
    default: Any
    parse: Callable[[str], Any]
    meaning: str

    def read(self, environ: Mapping[str, str] = os.environ) -> Any:
        text = environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise errors.ConfigError(f"{self.name}={text!r}: {error}") from error


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "TORCH_TPU_PJRT_PLUGIN",
            "",
            parse_text,
            "PJRT plugin to run on: a path, or the word cpu or tpu. Unset: libtpu when TPU chips "
            "are present, else XLA's CPU plugin.",
        ),
        Option(
            "TORCH_TPU_CPU_DEVICES",
            1,
            parse_count,
            "How many devices XLA's CPU plugin offers (tpu:0, tpu:1, ...).",
        ),
        Option(
            "TORCH_TPU_FALLBACK",
            "warn",
            choice("warn", "error"),
            "When an operator has no lowering: run it on the CPU and warn once, or raise.",
        ),
        Option(
            "TORCH_TPU_MEMORY_LIMIT",
            None,
            parse_bytes,
            "Bytes each device may hold (suffixes K, M, G, T). Unset: what the plugin reports, or "
            "the machine's memory on the CPU plugin.",
        ),
        Option(
            "TORCH_TPU_CACHE",
            "on",
            choice("on", "off"),
            "Whether compiled programs are kept for other processes, on the disk and at the URL.",
        ),
        Option(
            "TORCH_TPU_CACHE_DIR",
            None,
            parse_directory,
            "Directory of compiled programs. Unset: torch_tpu in $XDG_CACHE_HOME or ~/.cache.",
        ),
        Option(
            "TORCH_TPU_CACHE_SIZE",
            4 << 30,
            parse_bytes,
            "Bytes the directory may hold (suffixes K, M, G, T); the least recently used go first.",
        ),
        Option(
            "TORCH_TPU_CACHE_URL",
            "",
            parse_text,
            "A directory or bucket that machines share compiled programs through: any URL that "
            "fsspec understands.",
        ),
        Option(
            "TORCH_TPU_LAUNCH_BLOCKING",
            False,
            parse_switch,
            "1 starts in the eager mode Debug: every operator completes before the next.",
        ),
        Option(
            "TORCH_TPU_DEFER_AND_FUSE",
            False,
            parse_switch,
            "1 starts in the eager mode DeferAndFuse: runs of operators become one program.",
        ),
        Option(
            "TORCH_TPU_DEFER_OPERATORS",
            512,
            parse_count,
            "How many operators DeferAndFuse records at most before it hands them over.",
        ),
        Option(
            "TORCH_TPU_DEFER_BYTES",
            1 << 30,
            parse_bytes,
            "How much memory recorded operators may keep alive that nobody else refers to.",
        ),
        Option(
            "TORCH_TPU_LOG",
            "",
            parse_text,
            "Log topics printed to stderr, separated by commas: compile (every program built, from "
            "where, and why).",
        ),
    )
}


def get(name: str) -> Any:
    """The current value of a declared option."""
    return OPTIONS[name].read()


def pjrt_plugin() -> str:
    return get("TORCH_TPU_PJRT_PLUGIN")


def cpu_devices() -> int:
    return get("TORCH_TPU_CPU_DEVICES")


def fallback() -> str:
    """`warn` or `error`."""
    return get("TORCH_TPU_FALLBACK")


def memory_limit() -> int | None:
    return get("TORCH_TPU_MEMORY_LIMIT")


def launch_blocking() -> bool:
    return get("TORCH_TPU_LAUNCH_BLOCKING")


def defer_and_fuse() -> bool:
    return get("TORCH_TPU_DEFER_AND_FUSE")


def defer_operators() -> int:
    return get("TORCH_TPU_DEFER_OPERATORS")


def defer_bytes() -> int:
    return get("TORCH_TPU_DEFER_BYTES")


def log_topics() -> frozenset[str]:
    return frozenset(topic.strip() for topic in get("TORCH_TPU_LOG").split(",") if topic.strip())


def cache_enabled() -> bool:
    return get("TORCH_TPU_CACHE") == "on"


def cache_directory() -> Path | None:
    """Where compiled programs are kept; None when this user has no home directory."""
    chosen = get("TORCH_TPU_CACHE_DIR")
    if chosen is not None:
        return chosen
    parent = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of that variable says to ignore relative paths.
    parent = parent if os.path.isabs(parent) else os.path.expanduser("~/.cache")
    return Path(parent, "torch_tpu") if os.path.isabs(parent) else None


def cache_size() -> int:
    return get("TORCH_TPU_CACHE_SIZE")


def cache_url() -> str:
    return get("TORCH_TPU_CACHE_URL")


def compiler_flags() -> dict[str, str]:
    """The environment variables by which XLA and libtpu take options, as far as they are set."""
    # NPROC: how many threads XLA's CPU plugin splits its loops for.
    names = "XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC"
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process: this one's, with ``settings``."""
    return {**os.environ, **settings}
