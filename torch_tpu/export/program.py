"""Runs an exported StableHLO module on tpu tensors.

The module becomes an operator of the core like a captured graph (`compile/operator.py`). The body
of its rule calls the module's function: what runs is the text that was exported or loaded.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence

import torch
from torch.utils import _pytree as pytree

from .. import _core
from ..compile.operator import register
from ..lowering.builder import Value, current
from ..lowering.registry import Meta
from .signature import GENERATOR, WEIGHTS, Parameter, Signature

_names = itertools.count()
_FUNCTION = "exported"
_HOST_KERNEL = "torch_tpu.aten"


class Program:
    """A StableHLO module with its signature and its weights.

    Called with the arguments of the exported module, as tensors on the device, it returns what that
    returns: new tensors that carry no gradient. Mutated buffers of the program, and mutated
    arguments, are updated in place.

    Attributes:
      text: the module as MLIR text. Its parameters are those of the signature, in order.
      signature: names, shapes and dtypes of parameters and results.
      weights: parameters, buffers and constants on the device, by name.
      device: that of the weights, the current one when the program was made.
    """

    def __init__(
        self,
        text: str,
        signature: Signature,
        weights: Mapping[str, torch.Tensor],
        in_spec: pytree.TreeSpec,
        out_spec: pytree.TreeSpec,
    ):
        self.text = text
        self.signature = signature
        self.in_spec, self.out_spec = in_spec, out_spec
        self.device = torch.device("tpu", torch.tpu.current_device())
        mutated = {signature.parameters[i].name for i in signature.mutated}
        # A buffer that calls update is the program's own, also if the original is on the device.
        self.weights = {
            n: t.detach().to(self.device, copy=n in mutated) for n, t in weights.items()
        }
        self._module = _Module(text, signature)
        kinds = ["written" if written else "tensor" for written in self._module.written]
        outputs = list(range(len(self._module.outputs)))
        self._handle = register(self._module, kinds, outputs, signature.random)

    def __repr__(self) -> str:
        inputs = ", ".join(_described(p) for p in self.signature.parameters if p.kind == "input")
        results = ", ".join(_described(r) for r in self.signature.results if r.kind == "output")
        return f"Program(({inputs}) -> ({results}))"

    @torch.no_grad()
    def __call__(self, *args, **kwargs):
        given = self._arguments(args, kwargs)
        operands = [
            self.weights[p.name] if p.kind in WEIGHTS else given[i]
            for i, p in enumerate(self.signature.parameters)
            if p.kind != GENERATOR
        ]
        results = self._handle(operands, [])
        places = self._module.places
        leaves = [
            leaf.value if leaf.position is None else results[places[leaf.position]]
            for leaf in self.signature.outputs
        ]
        return pytree.tree_unflatten(leaves, self.out_spec)

    def save(self, path: str | os.PathLike) -> None:
        """Write the module, its signature and the present weights to one file (`load` reads it)."""
        from .artifact import save

        save(self, path)

    # ---- arguments -------------------------------------------------------------------------

    def _arguments(self, args: tuple, kwargs: dict) -> dict[int, torch.Tensor]:
        """Tensors by the position of their parameter; raises for what the module cannot take."""
        order = self.in_spec.child(1).context or []
        if set(order) == set(kwargs):
            kwargs = {name: kwargs[name] for name in order}
        leaves, given = pytree.tree_flatten((args, kwargs))
        if given != self.in_spec:
            names = ", ".join(leaf.name for leaf in self.signature.arguments)
            raise TypeError(
                f"the exported program takes ({names}) as {self.in_spec}, "
                f"but was called with {given}"
            )
        tensors = {}
        for leaf, value in zip(self.signature.arguments, leaves, strict=True):
            if leaf.position is not None:
                parameter = self.signature.parameters[leaf.position]
                tensors[leaf.position] = _checked(parameter, value, self.device)
            elif type(leaf.value) is not type(value) or leaf.value != value:
                raise ValueError(
                    f"input {leaf.name!r} was {leaf.value!r} when the program was exported and "
                    f"cannot be {value!r}; export it again for another value"
                )
        return tensors


def _described(item) -> str:
    return f"{item.name}: {item.dtype}{list(item.shape)}"


def _checked(parameter: Parameter, value, device: torch.device) -> torch.Tensor:
    """``value`` if the module can take it as ``parameter``."""
    name = f"input {parameter.name!r}"
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")
    if value.dtype is not parameter.dtype:
        raise TypeError(f"{name} has dtype {value.dtype}, the program takes {parameter.dtype}")
    if tuple(value.shape) != parameter.shape:
        raise ValueError(
            f"{name} has shape {list(value.shape)}, the program takes {list(parameter.shape)}"
        )
    if value.device != device:
        raise ValueError(f"{name} is on {value.device}; move it with .to('{device}')")
    return value


# ---- the rule ----------------------------------------------------------------------------------


class _Module:
    """The part of a program that its rule needs: no weights, so that the table holds none."""

    def __init__(self, text: str, signature: Signature):
        self.name = f"torch_tpu::exported_{next(_names)}"
        self.signature = signature
        self.functions = functions(text)
        operands = [p for p in signature.parameters if p.kind != GENERATOR]
        self.written = [i in signature.mutated for i in range(len(operands))]
        self.outputs = [i for i, r in enumerate(signature.results) if r.mutates is None]
        self.places = {result: i for i, result in enumerate(self.outputs)}
        self._host_kernels = f'"{_HOST_KERNEL}"' in text

    def meta(self, **arguments) -> list:
        results = [self.signature.results[i] for i in self.outputs]
        return [[Meta(r.shape, r.dtype, r.strides) for r in results]]

    def body(self, reads, writes, sizes, values, numbers, rng):
        if self._host_kernels and not _core.has_host_kernels():
            raise RuntimeError(
                "this program has operators that run as host kernels of XLA's CPU plugin; "
                "it cannot run on another one"
            )
        read, written = iter(reads), iter(writes)
        operands = [next(written if mine else read) for mine in self.written]
        produced = self._call(operands if rng is None else [*operands, rng])
        mutated = sorted(self.signature.mutated.items())
        return [produced[i] for i in self.outputs], [produced[result] for _, result in mutated]

    def _call(self, operands: Sequence[Value]) -> list[Value]:
        builder = current()
        if self.functions not in builder.functions:
            builder.functions.append(self.functions)
        kinds = [(r.shape, r.dtype) for r in self.signature.results]
        return builder.emit("func.call", operands, kinds, f"callee = @{_FUNCTION}")


_MODULE = re.compile(r"\A\s*module\b[^\n]*\{\n(.*)\n\}\s*\Z", re.DOTALL)


def functions(text: str) -> str:
    """The functions of a module whose ``main`` is to be called; ValueError if it is no module."""
    found = _MODULE.match(text)
    if found is None or "func.func public @main(" not in found[1]:
        raise ValueError("not a StableHLO module with a public function main")
    return found[1].replace("func.func public @main(", f"func.func private @{_FUNCTION}(", 1)
