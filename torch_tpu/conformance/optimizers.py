"""One OptimizerInfo: trajectories of five steps, for each implementation and configuration.

Each of PyTorch's own configurations of the optimiser runs as plain loops, ``foreach``, ``fused``
where the CPU has it, ``differentiable``, ``capturable`` (against the CPU's plain loop, which must
do the same), with complex parameters and with sparse gradients, where the optimiser says that it
can. Parameters and state after five steps equal the CPU's.
"""

from __future__ import annotations

import copy
import dataclasses

import torch

from . import compare, inputs
from .calls import attempt
from .inputs import Copies
from .record import Operators, Record, described

_STEPS = 5
_SHAPES = ((4, 3), (3,), (), (2, 3, 2))
_MATRICES = ((4, 3), (5, 2))  # for sparse gradients, and for optimisers that take nothing else
_MATRICES_ONLY = ("Muon",)
# The default of up to 20 iterations a step walks into rounding noise around the minimum.
_ARGUMENTS = {"LBFGS": {"max_iter": 2}}
# Quotients of small differences of gradients; what they do shows in the parameters.
_DERIVED = ("al", "ro", "H_diag")
_IMPLEMENTATIONS = ("plain", "foreach", "fused", "differentiable", "capturable", "sparse")


def run(info, dtype: torch.dtype, record: Record) -> None:
    """All checks of one OptimizerInfo; findings go into ``record``."""
    for given in info.optim_inputs_func("cpu", dtype):
        for implementation in _IMPLEMENTATIONS:
            chosen = _chosen(info, implementation)
            if chosen is not None:
                _Trajectory(info, dtype, given, implementation, chosen, record).check()


def _chosen(info, implementation: str) -> tuple[dict, dict] | None:
    """Arguments that select the implementation on the CPU and on the device, if there is one."""
    plain = {"foreach": False} if "foreach" in info.supported_impls else {}
    if implementation == "plain":
        return None if info.only_supports_sparse_grads else (plain, plain)
    if implementation == "sparse":
        sparse = info.supports_sparse or info.only_supports_sparse_grads
        return (plain, plain) if sparse else None
    if implementation == "capturable":
        return (plain, {**plain, "capturable": True}) if info.has_capturable_arg else None
    if implementation not in info.supported_impls:
        return None
    if implementation == "fused" and "cpu" not in info.supports_fused_on:
        return None
    return {implementation: True}, {implementation: True}


@dataclasses.dataclass
class _Trajectory:
    """One optimiser in one configuration and implementation."""

    info: object
    dtype: torch.dtype
    given: object
    implementation: str
    chosen: tuple[dict, dict]  # arguments on the CPU and on the device
    record: Record

    def check(self) -> None:
        """Walk on both sides and compare."""
        self._start()
        here, there = Operators(), Operators()
        want, failure = attempt(lambda: self._walk("cpu", watch=here))
        record = self.record
        if failure is not None:
            record.note = record.note or f"the CPU refuses: {described(failure)}"
            return
        record.random |= here.random
        text = f"{self.given.desc} {self.given.kwargs} {self.chosen[1]}"
        attempt(lambda: self._walk(inputs.DEVICE, watch=there))  # failures are found again below
        record.operators = sorted(set(record.operators) | there.names)
        with record.check(self.implementation, text):
            got = self._walk(inputs.DEVICE)
            compare.metadata(got, want, "(parameters, state)", strides=False)
            wide = {self.dtype: torch.complex128 if self.dtype.is_complex else torch.float64}
            values = compare.Values(None, lambda: attempt(lambda: self._walk("cpu", wide))[0])
            values(got, want, "(parameters, state)")

    def _start(self) -> None:
        matrices = self.implementation == "sparse" or self.info.optim_cls.__name__ in _MATRICES_ONLY
        shapes = _MATRICES if matrices else _SHAPES
        generator = torch.Generator().manual_seed(0)

        def draw():
            return [torch.randn(s, generator=generator, dtype=self.dtype) for s in shapes]

        self.start = draw()
        self.steps = [draw() for _ in range(_STEPS)]

    def _walk(self, device: str, dtypes=None, watch=None):
        """(parameters, state) after the steps."""
        copies = Copies(device, dtypes)
        parameters = [p.requires_grad_() for p in copies(self.start)]
        if self.implementation == "differentiable":
            parameters = [p.clone() for p in parameters]  # a leaf cannot change under autograd
        name = self.info.optim_cls.__name__
        options = self.given.kwargs | self.chosen[device != "cpu"] | _ARGUMENTS.get(name, {})
        optimizer = self.info.optim_cls(parameters, **copies(copy.deepcopy(options)))
        with watch if watch is not None else torch.enable_grad():
            for step in self.steps:
                # What evaluates its closure estimates curvature, so the loss must stay the same.
                step = self.steps[0] if self.info.step_requires_closure else step
                self._step(optimizer, parameters, copies(step))
        state = [self._state(optimizer.state[p]) for p in parameters]
        return [p.detach() for p in parameters], state

    def _step(self, optimizer, parameters: list, targets: list) -> None:
        """One step towards ``targets``: each parameter's loss is sqrt(1 + |distance|^2)."""

        def closure():
            total = 0.0
            for p, target in zip(parameters, targets, strict=True):
                distance = p.detach() - target
                loss = (1 + (distance * distance.conj()).real).sqrt()
                total = total + loss.sum()
                gradient = distance / loss
                p.grad = gradient.to_sparse() if self.implementation == "sparse" else gradient
            return total

        if self.info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()

    def _state(self, state: dict) -> dict:
        """What the optimiser remembers; numbers become tensors, to be compared as their dtype."""
        state = {k: v for k, v in sorted(state.items()) if k not in _DERIVED}
        kept = {k: v for k, v in state.items() if isinstance(v, (torch.Tensor, list))}
        numbers = {k: v for k, v in state.items() if isinstance(v, (int, float))}
        return kept | {k: torch.tensor(v, dtype=self.dtype) for k, v in numbers.items()}
