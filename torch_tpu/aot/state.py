"""Modules and optimizers that a program refers to, and putting other tensors in their place.

While a program is traced its modules hold stand-ins for their weights, and its optimizers work on
them. Everything is put back afterwards. Which tensors, is decided in `capture.py`.
"""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

Optimizer = torch.optim.Optimizer


def _referred(value: object) -> Iterator[tuple[str, object]]:
    """Objects that a callable, a container or a user's object refers to, by name."""
    if isinstance(value, functools.partial):
        yield "", value.func
        yield from ((f"args.{i}", item) for i, item in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a name that is not bound yet
                yield name, cell.cell_contents
        known = value.__globals__
        yield from ((name, known[name]) for name in _globals(value.__code__) if name in known)
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), item) for i, item in enumerate(value))
    elif isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif not _is_library(value):
        yield from getattr(value, "__dict__", {}).items()


def _globals(code: types.CodeType) -> Iterator[str]:
    """Names of globals that code reads, also within functions that it makes."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals(constant)


def found(target: object) -> tuple[dict[str, nn.Module], list[Optimizer]]:
    """Modules by name and optimizers that an object refers to, however indirectly."""
    modules: dict[str, nn.Module] = {}
    optimizers: list[Optimizer] = []
    kept, seen = [], set()  # kept alive, so that no id comes twice
    queue = collections.deque([("", target)])
    while queue:
        name, value = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)
        if isinstance(value, nn.Module):
            modules[_free(name, modules)] = value
        elif isinstance(value, Optimizer):
            optimizers.append(value)
        elif not isinstance(value, (type, types.ModuleType, torch.Tensor, str, bytes)):
            inner = _referred(value)
            queue.extend((f"{name}.{part}".strip("."), item) for part, item in inner)
    return modules, optimizers


def _free(name: str, taken: Mapping) -> str:
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2)))
    return next(candidate for candidate in names if candidate not in taken)


def _is_library(value: object) -> bool:
    """Whether an object is of a library's class: such do not lead to the user's modules."""
    package = type(value).__module__.partition(".")[0]
    return package in ("torch", "numpy") or package in sys.stdlib_module_names - {"__main__"}


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
