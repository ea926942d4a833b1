"""How each ATen overload that reaches a backend is served.

`overloads.txt` lists the 428 overloads that PyTorch 2.13 sends to a PrivateUse1 backend while its
OpInfo samples run, as recorded by a backend that has every kernel.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib

import torch

from ..lowering.registry import RULES, overload

NATIVE, HOST, DECOMPOSITION, FALLBACK, REFUSED = (
    "native",
    "host kernel",
    "decomposition",
    "CPU fallback",
    "refused",
)


def listed() -> list[str]:
    """The recorded overloads, sorted."""
    return (pathlib.Path(__file__).parent / "overloads.txt").read_text().split()


@dataclasses.dataclass(frozen=True)
class Served:
    """``path`` is one of the words above; ``by`` the rule or decomposed overload."""

    path: str
    by: str = ""
    core: bool = False
    decomposable: bool = False


def functional(name: str) -> str:
    """The functional overload that an in-place or ``out=`` one belongs to (or ``name``)."""
    from ..dispatch.register import SERVED

    if name in SERVED:
        return SERVED[name]
    if name in RULES:
        return name
    base, _, variant = name.partition(".")
    for candidate in _packet(base.rstrip("_")):
        if _same_inputs(candidate, name):
            return candidate
    return f"{base}.{variant}" if variant else base


@functools.cache
def _packet(base: str) -> tuple[str, ...]:
    packet = getattr(torch.ops.aten, base.removeprefix("aten::"), None)
    if packet is None:
        return ()
    names = (base if o == "default" else f"{base}.{o}" for o in packet.overloads())
    return tuple(n for n in names if not overload(n)._schema.is_mutable)


def _same_inputs(candidate: str, name: str) -> bool:
    def inputs(n):
        arguments = overload(n)._schema.arguments
        return [(a.name, str(a.type)) for a in arguments if not a.is_out]

    return inputs(candidate) == inputs(name)


@functools.cache
def _core_decompositions() -> frozenset:
    return frozenset(torch._decomp.core_aten_decompositions())


@functools.cache
def served(name: str) -> Served:
    """How the dispatcher and the table of rules serve ``name``, without running it."""
    from ..dispatch.register import SERVED
    from ..program import decompose

    by = functional(name)
    tags = overload(by).tags
    decomposable = overload(by) in _core_decompositions()
    facts = {"by": by, "core": torch.Tag.core in tags, "decomposable": decomposable}
    if name in SERVED or name in RULES:
        rule = RULES[by]
        return Served(HOST if getattr(rule, "host_kernel", False) else NATIVE, **facts)
    composite = torch._C._dispatch_has_kernel_for_dispatch_key
    if any(composite(name, f"CompositeExplicitAutograd{kind}") for kind in ("", "NonFunctional")):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"):
            return Served(DECOMPOSITION, **facts)
    if decompose.available(by):
        return Served(DECOMPOSITION, **facts)
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"):
        return Served(NATIVE, **facts)  # a kernel of the core, such as those of sparse tensors
    return Served(FALLBACK, **facts)
