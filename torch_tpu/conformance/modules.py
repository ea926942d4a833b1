"""One ModuleInfo with one dtype: forward and backward in training and evaluation, and inference.

The module is built once on the CPU and copied with ``Module.to``, so both sides have the same
parameters; results, gradients of inputs and parameters, and the buffers afterwards are compared.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools

import torch

from . import compare, inputs
from .calls import attempt, cotangent, own_tolerance, seeded
from .inputs import Copies, tensors
from .record import Operators, Record, described

_MOST_SAMPLES = 200  # looked at per module and mode when choosing


def run(info, dtype: torch.dtype, samples: int, record: Record) -> None:
    """All checks of one ModuleInfo; findings go into ``record``."""
    for training in (True, False):
        seeded(info.name, str(dtype))
        every = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        every = list(itertools.islice(every, _MOST_SAMPLES))
        for given in inputs.spread(every, samples):
            _Sample(info, dtype, given, training, record).check()


@dataclasses.dataclass
class _Sample:
    """One module with one set of inputs."""

    info: object
    dtype: torch.dtype
    given: object
    training: bool
    record: Record

    def check(self) -> None:
        """With gradients; in evaluation without them too, which takes other paths."""
        module, failure = attempt(self._module)
        if failure is not None:
            self._refused(failure)
            return
        self._compare("training" if self.training else "evaluation", module, torch.enable_grad)
        if not self.training:
            self._compare("inference", module, torch.no_grad)

    def _module(self) -> torch.nn.Module:
        made, call = self.given.constructor_input, self.given.forward_input
        torch.manual_seed(0)
        module = self.info.module_cls(*made.args, **made.kwargs).to(self.dtype)
        module.train(self.training)
        if self.info.is_lazy:
            # It makes its parameters from the first input; both sides need the same ones.
            with torch.no_grad():
                module(*call.args, **call.kwargs)
        return module

    def _compare(self, check: str, module: torch.nn.Module, mode) -> None:
        def both(device: str, dtypes=None, watch=None):
            with mode(), watch or contextlib.nullcontext():
                return self._walk(module, device, dtypes)

        here, there = Operators(), Operators()
        want, failure = attempt(lambda: both("cpu", watch=here))
        if failure is not None:
            self._refused(failure)
            return
        record = self.record
        record.random |= here.random
        attempt(lambda: both(inputs.DEVICE, watch=there))  # what it raises, the check finds again
        record.operators = sorted(set(record.operators) | there.names)
        with record.check(check, self._text()):
            got = both(inputs.DEVICE)
            compare.metadata(got[0], want[0], "result")
            compare.metadata(got[1:], want[1:], "(gradients, buffers)", strides=False)
            if not here.random:
                wide = {self.dtype: torch.complex128 if self.dtype.is_complex else torch.float64}
                exact = compare.Values(
                    own_tolerance(self.info, self.dtype),
                    lambda: attempt(lambda: both("cpu", wide))[0],
                )
                exact(got, want, "(result, gradients, buffers)")

    def _walk(self, module: torch.nn.Module, device: str, dtypes):
        """(result, gradients, buffers) of a copy of the module on ``device``."""
        there = copy.deepcopy(module).to(device)
        if dtypes:
            there = there.to(dtypes[self.dtype])
        call = self.given.forward_input
        args, kwargs = Copies(device, dtypes)((call.args, call.kwargs))
        torch.manual_seed(0)
        result = there(*args, **kwargs)
        outputs = [r for r in tensors(result) if r.requires_grad]
        leaves = [x for x in tensors((args, kwargs)) if x.requires_grad]
        leaves += [p for p in there.parameters() if p.requires_grad]
        gradients = []
        if outputs and leaves:
            seeds = [cotangent(o, i) for i, o in enumerate(outputs)]
            gradients = list(torch.autograd.grad(outputs, leaves, seeds, allow_unused=True))
        return result, gradients, list(there.buffers())

    def _refused(self, failure: BaseException) -> None:
        self.record.note = self.record.note or f"the CPU refuses: {described(failure)}"

    def _text(self) -> str:
        def one(x):
            return f"Tensor{list(x.shape)}" if isinstance(x, torch.Tensor) else x

        call, made = self.given.forward_input, self.given.constructor_input
        shown = inputs.transform((made.args, made.kwargs, call.args, call.kwargs), one)
        return f"{'train' if self.training else 'eval'} {self.given.desc} {shown}"
