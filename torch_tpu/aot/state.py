"""Modules and optimizers that a program refers to, and putting other tensors in their place.

While a program is traced its modules hold stand-ins for their weights, and its optimizers work on
them. Everything is put back afterwards. Which tensors, is decided in `capture.py`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

Optimizer = torch.optim.Optimizer


def _referred(target: Callable) -> Iterator[tuple[str, object]]:
    """Objects that a callable refers to, by name: of its closure, globals and attributes."""
    if isinstance(target, (nn.Module, Optimizer)):
        yield "", target
    elif isinstance(target, functools.partial):
        yield from _referred(target.func)
        yield from ((f"args.{i}", value) for i, value in enumerate(target.args))
        yield from target.keywords.items()
    elif isinstance(target, types.MethodType):
        yield from _referred(target.__self__)
        yield from _referred(target.__func__)
    elif isinstance(target, types.FunctionType):
        code = target.__code__
        for name, cell in zip(code.co_freevars, target.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a name that is not bound yet
                yield name, cell.cell_contents
        known = target.__globals__
        yield from ((name, known[name]) for name in code.co_names if name in known)
    elif not isinstance(target, type):
        yield from getattr(target, "__dict__", {}).items()


def found(target: Callable) -> tuple[dict[str, nn.Module], list[Optimizer]]:
    """Modules by name and optimizers, also those that functions it calls refer to."""
    modules, optimizers = {}, []
    seen, queue = set(), collections.deque([("", target)])
    while queue:
        name, value = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            modules[name] = value
        elif isinstance(value, Optimizer):
            optimizers.append(value)
        elif isinstance(value, (list, tuple)):
            queue.extend((f"{name}.{i}", item) for i, item in enumerate(value))
        elif callable(value) and not _is_library(value):
            queue.extend(_referred(value))
    return modules, optimizers


def _is_library(value) -> bool:
    package = (getattr(value, "__module__", None) or "").partition(".")[0]
    return package in ("torch", "builtins", "functools") or isinstance(value, type)


@contextlib.contextmanager
def replaced(
    owners: Sequence[tuple[nn.Module, str]], values: Sequence[torch.Tensor]
) -> Iterator[Callable[[], list]]:
    """Attributes of modules have these values in the scope; the function that is given reads them,
    for a program may assign others."""
    places = [
        owner._parameters if attribute in owner._parameters else owner._buffers
        for owner, attribute in owners
    ]
    before = [place[name] for place, (_, name) in zip(places, owners, strict=True)]

    def put(tensors: Sequence) -> None:
        for place, (_, name), tensor in zip(places, owners, tensors, strict=True):
            place[name] = tensor

    put(values)
    try:
        yield lambda: [place[name] for place, (_, name) in zip(places, owners, strict=True)]
    finally:
        put(before)


@contextlib.contextmanager
def swapped(
    optimizer: Optimizer, parameters: Mapping, state: Mapping, groups: Mapping[int, torch.Tensor]
) -> Iterator[Mapping]:
    """An optimizer works on other parameters with another state in the scope; gives that state.

    ``groups`` has stand-ins for tensors in the options, by id. The optimizer takes the form that
    keeps its counts on the device, one parameter at a time: the compiler fuses by itself.
    """
    before = optimizer.param_groups, optimizer.state
    forms = {"capturable": True, "foreach": False, "fused": False}
    optimizer.param_groups = [
        {
            **{key: groups.get(id(value), value) for key, value in group.items()},
            **{key: value for key, value in forms.items() if key in group},
            "params": [parameters[p] for p in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    optimizer.state = collections.defaultdict(dict, state)
    try:
        yield optimizer.state
    finally:
        optimizer.param_groups, optimizer.state = before
