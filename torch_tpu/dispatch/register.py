"""Hands the table of rules to the core, which registers a kernel for every overload they serve.

Runs once, inside `import torch`, so it must stay quick: about 10 us an overload.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil

import torch

from ..lowering.registry import FAMILIES, RULES, Rule

# Rule files whose programs depend on torch.get_float32_matmul_precision().
_PRECISION_FILES = frozenset(
    "attention conv distance linalg lu matmul matrix_exp qr resample rnn transformer".split()
)

SERVED: dict[str, str] = {}
"""Overload → functional overload whose rule serves it."""


def load_rules() -> dict[str, Rule]:
    """Import every file of `torch_tpu.ops` and return the table."""
    from .. import ops

    for info in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{info.name}")
    return RULES


@functools.cache
def _schema(name: str):
    base, _, overload = name.partition(".")
    return torch._C._get_schema(base, overload)


def _named(name: str, arguments: list, body) -> dict:
    """Arguments of a call by name; out= ones only if ``body`` takes (and so writes) them, else the
    core does."""
    pairs = zip(_schema(name).arguments, arguments, strict=True)
    taken = inspect.signature(body).parameters
    return {a.name: value for a, value in pairs if not a.is_out or a.name in taken}


def _procedure(rule: Rule, name: str, functional: str, arguments: list):
    """Run a procedure rule on the real arguments of a call."""
    if rule.check is not None:
        every = zip(_schema(name).arguments, arguments, strict=True)
        rule.check(**{argument.name: value for argument, value in every})
    return rule.body(**_named(name, arguments, rule.body))


def _masked(rule: Rule, name: str, functional: str, arguments: list):
    """Run the mask form of an indexing rule, which writes in place if it writes."""
    named = _named(name, arguments, rule.masks)
    if "values" in named and _schema(name).arguments[0].alias_info is None:
        named["self"] = named["self"].clone()
    return rule.masks(**named)


def options_of(rule: Rule) -> dict:
    """What the core needs to know of a rule (csrc/dispatch/register.h, RuleOptions)."""
    return {
        "name": rule.name,
        "runtime": list(rule.runtime),
        "static": list(rule.static),
        "specialize": {k: [float(v) for v in vs] for k, vs in rule.specialize.items()},
        "writes": list(rule.writes),
        "host": list(rule.host),
        "bounds": dict(rule.bounds),
        "overlap": rule.refused_overlap,
        "inplace": rule.inplace or "",
        "overwrites": rule.overwrites,
        "random": rule.random,
        "range": rule.range,
        "matmul": FAMILIES.get(rule.name) in _PRECISION_FILES or rule.graph,
        "procedure": functools.partial(_procedure, rule) if rule.procedure else None,
        "masked": functools.partial(_masked, rule) if rule.masks else None,
    }


def register_all() -> None:
    from torch_tpu import _core

    for rule in load_rules().values():
        if rule.graph_only:
            continue
        for name in _core.register_operator(options_of(rule)):
            SERVED[name] = rule.name
