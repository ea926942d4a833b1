"""Why a program had to be built: what is new in a call compared with earlier calls.

Only for people who read the log; nothing depends on it, and without the log topic nobody calls it
and it remembers nothing. Calls arrive described as they do in miss.py.
"""

from __future__ import annotations

import threading
from collections import deque

import torch

from .. import _core

_PRECISIONS = ("highest", "high", "medium")
# Earlier calls of one operator that a new one is compared with, and differences that are told.
_REMEMBERED = 64
_TOLD = 3

_lock = threading.Lock()
_seen: dict[str, deque[dict[str, object]]] = {}


def of_call(call) -> str:
    """Why the program of an operator call (`miss.Call`) is new."""
    facts: dict[str, object] = {
        "default dtype": torch.get_default_dtype(),
        "float32 matmul precision": _PRECISIONS[_core.float32_matmul_precision()],
    }
    for schema_argument, argument in zip(call.schema.arguments, call.arguments, strict=True):
        _describe(facts, schema_argument.name, argument)
    return compare(call.label, facts)


def of_internal(name: str, words) -> str:
    """Why an internal program, known by the words of its key, is new."""
    return compare(name, {"shape, dtype or view": tuple(words)})


def compare(name: str, facts: dict[str, object]) -> str:
    """What sets ``facts`` apart from the most similar ones seen under ``name``; remembers them."""
    with _lock:
        seen = _seen.setdefault(name, deque(maxlen=_REMEMBERED))
        differences = [_differences(earlier, facts) for earlier in reversed(seen)]
        seen.append(facts)
    if not differences:
        return "new operator"
    fewest = min(differences, key=len)
    if not fewest:
        return "another device, or a size that follows from numbers"
    more = [f"{len(fewest) - _TOLD} more"] if len(fewest) > _TOLD else []
    return "new " + ", ".join(fewest[:_TOLD] + more)


def _differences(earlier: dict[str, object], facts: dict[str, object]) -> list[str]:
    names = [*facts, *(name for name in earlier if name not in facts)]
    return [
        f"{name}: {_text(earlier.get(name))} -> {_text(facts.get(name))}"
        for name in names
        if earlier.get(name) != facts.get(name)
    ]


def _text(value: object) -> str:
    return str(value).removeprefix("torch.")


def _layout(sizes, strides, dims=None, plan=None, conj=False, neg=False) -> str:
    """How a tensor lies in its storage's array, in words; `miss._tensor` says what these are."""
    dense = torch.empty_strided(sizes, strides, device="meta").is_contiguous()
    words = ["contiguous" if dense else f"strides {strides}"]
    if dims not in (None, sizes):
        words.append(f"of an array {dims}")
    if plan is not None:
        words.append(f"view {plan}")
    return " ".join(words + ["conj"] * conj + ["neg"] * neg)


def _describe(facts: dict[str, object], name: str, argument) -> None:
    if isinstance(argument, list):
        facts[f"length of {name}"] = len(argument)
        for i, element in enumerate(argument):
            _describe(facts, f"{name}[{i}]", element)
        return
    kind = argument[0] if isinstance(argument, tuple) and argument else None
    if kind == "number":
        facts[f"dtype of {name}"] = type(argument[1]).__name__
    elif kind == "scalar":
        facts[f"dtype of {name}"] = argument[1]
        facts[f"shape of {name}"] = "a number of the host"
    elif kind in ("tensor", "empty", "target"):
        facts[f"dtype of {name}"] = argument[1]
        facts[f"shape of {name}"] = argument[2]
        facts[f"layout of {name}"] = _layout(*argument[2:])
    else:
        facts[f"option {name}"] = argument
