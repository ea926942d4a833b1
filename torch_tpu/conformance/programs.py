"""The programs that the lowerings make: collected from calls of OpInfo samples, as for a TPU.

A worker whose process lowers everything for a TPU (`lowering.target`) runs the samples of a unit on
XLA's CPU plugin and keeps the StableHLO of every program that is compiled to run alone, with the
ATen overload that needed it. Results are not compared. What is compiled for which TPU, and what
becomes of it, is in `target.py`.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core
from ..aot.topology import Topology
from ..errors import CompilationError
from ..program import cache, lowered
from ..program.compile import compile_options
from . import inputs
from .calls import Call, attempt
from .opinfo import chosen_samples
from .record import Record
from .units import Unit, databases

_MOST = 6  # programs of one overload that a unit contributes


class Programs(TorchDispatchMode):
    """While active, every program that is lowered is kept under the overload it is lowered for."""

    def __init__(self):
        super().__init__()
        self.operators: set[str] = set()
        self.labels: set[str] = set()
        self.found: dict[str, dict[str, tuple[str, dict]]] = {}
        self._current = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        self.operators.add(name)
        if len(self.found.get(name, ())) < _MOST:
            # A key that is known is not lowered again.
            _core.clear_caches()
        outer, self._current = self._current, name
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._current = outer

    def __enter__(self):
        lowered.listeners.append(self._listen)
        return super().__enter__()

    def __exit__(self, *failure):
        lowered.listeners.remove(self._listen)
        return super().__exit__(*failure)

    def _listen(self, program: lowered.Lowered) -> None:
        if not self._current:
            return
        text, options = program.module.text, dict(program.options or {})
        key = cache.content_key(text, compile_options(options))
        self.labels.add(program.label)
        # PyTorch calls some overloads below the dispatch mode: these are the label only.
        for name in {self._current, program.label}:
            self.found.setdefault(name, {}).setdefault(key, (text, options))

    def chosen(self) -> dict[str, list]:
        """Of each overload at most `_MOST` programs, the shortest and the longest among them."""
        return {name: shortest(found.values(), _MOST) for name, found in self.found.items()}


def shortest(programs: Iterable, count: int) -> list:
    """``count`` programs from the shortest to the longest."""
    return inputs.spread(sorted(programs, key=lambda p: (len(p[0]), p[0])), count)


def collect(unit: Unit, samples: int) -> dict:
    """The record of a unit: its programs by overload, the overloads it met, those that had a
    lowering (``lowered``), and fallbacks."""
    record, mode = Record(str(unit)), Programs()
    info, dtype = databases()[unit.kind][unit.name], getattr(torch, unit.dtype)
    with record.measured(), record.guarded():
        for sample in chosen_samples(info, dtype, samples):
            for call in _calls(info, sample):
                # What a call raises is the other run's business; here it has no program.
                attempt(lambda call=call: _run(call, mode))
    record.operators = sorted(mode.operators)
    return {**record.fields(), "programs": mode.chosen(), "lowered": sorted(mode.labels)}


def _calls(info, sample) -> Iterable[Call]:
    """The sample as it is, in place, and into ``out=``."""
    given = (sample.input, sample.args, sample.kwargs)
    yield Call(info.op, given)
    plain = inputs.transform(given, torch.Tensor.detach)
    if info.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
        yield Call(info.inplace_variant, plain)
    if info.supports_out:
        wanted, failure = attempt(lambda: Call(info.op, plain).run("cpu")[0])
        if failure is None and any(True for _ in inputs.tensors(wanted)):
            out = inputs.transform(wanted, torch.empty_like)
            yield Call(info.op, plain, tuple(out) if isinstance(out, (list, tuple)) else out)


def _run(call: Call, mode: Programs) -> None:
    """Forward, and backward where there is one."""
    result, _ = call.run(inputs.DEVICE, mode=mode)
    outputs = [r for r in inputs.tensors(result) if r.requires_grad and r.grad_fn is not None]
    if outputs:
        with mode:
            torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])


def compiled(name: str, topology: Topology, text: str, options: dict, limit: float) -> dict:
    """The record of one program compiled for a topology; ``reason`` is empty if that went well."""
    start, reason = time.perf_counter(), ""
    try:
        topology.compile(text, compile_options(options), limit)
    except CompilationError as error:
        reason = str(error)
    except TimeoutError:
        reason = f"the compiler was not done after {limit:.0f} s"
    return {"unit": name, "reason": reason, "seconds": round(time.perf_counter() - start, 3)}


def answer(job: dict) -> dict:
    """What a worker does with a job that `target.py` gave it."""
    if "collect" in job:
        return collect(Unit.parse(job["collect"]), job["samples"])
    topology = _topology(job["topology"])
    options = json.loads(job["options"])
    return compiled(job["compile"], topology, job["text"], options, job["limit"])


_topology = functools.cache(Topology)
