"""Runs one operator on the device for the case files (`test_*_rules.py`).

Cases are for operators that a `Row` cannot hold: those without a CPU kernel to compare with, and
those that only mutate.
"""

from __future__ import annotations

import torch

from torch_tpu.lowering.registry import RULES

DEVICE = "tpu"


def move(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return [move(v, device) for v in value]
    return value


def call(name: str, *args, **kwargs) -> list:
    """Results on the CPU; of an operator that mutates, the arguments its rule writes, in order."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    args, kwargs = move(args, DEVICE), {k: move(v, DEVICE) for k, v in kwargs.items()}
    results = op(*args, **kwargs)
    if RULES[name].writes:
        names = [a.name for a in op._schema.arguments]
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        results = [named[w] for w in RULES[name].writes]
    elif not isinstance(results, (list, tuple)):
        results = [results]
    return move(results, "cpu")
