"""Operators without a rule: PyTorch's decomposition if it has one, else the CPU, visibly.

A CPU fallback is counted per operator (`stats`, shown as ``torch.tpu.fallback_stats()``), warned
about once per operator with its reason, and is an error under ``TORCH_TPU_FALLBACK=error``.
Decompositions are traced and lowered like any rule, so they are not fallbacks.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import Counter

import torch

from .. import config, errors
from ..lowering.registry import overload, split_arguments
from ..program import decompose

_lock = threading.Lock()
_counts: Counter[str] = Counter()
_warned: set[str] = set()


def stats() -> dict[str, int]:
    """Number of calls that ran on the CPU, by operator, since the start or `reset`."""
    with _lock:
        return dict(_counts)


def reset() -> None:
    """Forget the counts and the warnings given."""
    with _lock:
        _counts.clear()
        _warned.clear()


def without_rule(call):
    """The entry of a call whose operator has no rule of its own."""
    from . import miss

    name = call.functional or call.name
    if not decompose.available(name):
        return to_cpu(call, "it has no lowering and PyTorch has no decomposition of it")
    try:
        expected = miss.functional_results(call, name)
        return miss.lower(
            call, expected, lambda values, rng: decompose.lower(name, values, expected)
        )
    except NotImplementedError as error:
        return to_cpu(call, str(error))


def to_cpu(call, reason: str):
    """An entry that runs the call on the CPU."""
    return functools.partial(run, reason)


def _count(name: str, reason: str) -> None:
    if config.fallback() == "error":
        raise errors.FallbackError(
            f"{name} would run on the CPU because {reason}; TORCH_TPU_FALLBACK=error forbids it"
        )
    with _lock:
        _counts[name] += 1
        first = name not in _warned
        _warned.add(name)
    if first:
        warnings.warn(
            f"{name} runs on the CPU because {reason}. torch.tpu.fallback_stats() counts such "
            "calls; TORCH_TPU_FALLBACK=error makes them an error.",
            errors.FallbackWarning,
            stacklevel=2,
        )


class _HostCopies:
    """CPU copies of the tensors of one call; a tensor given twice is copied once."""

    def __init__(self, name: str):
        self._name = name
        self._copies: dict[int, torch.Tensor] = {}

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            if value.device.type == "cpu":
                return value
            return self._copies.setdefault(id(value), value.cpu())
        if isinstance(value, (list, tuple)):
            return type(value)(self(v) for v in value)
        if isinstance(value, torch.Generator):
            raise NotImplementedError(
                f"{self._name} cannot run on the CPU with a tpu generator: its stream would differ"
            )
        return torch.device("cpu") if isinstance(value, torch.device) else value


def _to_device(value, device: torch.device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return [_to_device(v, device) for v in value]
    return value


def run(reason: str, name: str, functional: str, arguments: list):
    """Run one call on the CPU; returns its results on the device of the arguments.

    With a functional overload the core copies the results into in-place and out= arguments;
    without one they are copied here.
    """
    _count(functional or name, reason)
    schema = overload(name)._schema
    on_cpu = _HostCopies(name)
    device = next(_devices(arguments), torch.device("tpu"))
    op = overload(functional or name)
    pairs = zip(schema.arguments, arguments, strict=True)
    taken = {a.name for a in op._schema.arguments}
    named = {a.name: on_cpu(value) for a, value in pairs if a.name in taken}
    positional, keyword = split_arguments(op, named)
    result = op(*positional, **keyword)
    if not functional:
        _write_back(schema, arguments, on_cpu)
        if all(r.alias_info is not None and r.alias_info.is_write for r in schema.returns):
            return None
    return _to_device(result, device)


def _devices(arguments):
    for value in arguments:
        if isinstance(value, (list, tuple)):
            yield from _devices(value)
        elif isinstance(value, torch.Tensor) and value.device.type == "tpu":
            yield value.device
        elif isinstance(value, torch.device) and value.type == "tpu":
            yield value


def _write_back(schema, arguments, on_cpu) -> None:
    for argument, value in zip(schema.arguments, arguments, strict=True):
        if argument.alias_info is None or not argument.alias_info.is_write or value is None:
            continue
        targets = value if isinstance(value, (list, tuple)) else [value]
        for target in targets:
            result = on_cpu(target)
            if target.shape != result.shape:
                target.resize_(result.shape)
            target.copy_(result)
