"""Graphs that AOTAutograd's own cache keeps, so that a further process need not derive them.

Programs are cached by `program/store.py`; what comes before them in a compilation (tracing the
joint graph, decompositions, the partition into forward and backward) is cached by PyTorch, in the
directory of Inductor, for compilers that return an `OutputCode`. What is written is the graph: its
operator is made anew, because programs have their own cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode

from .. import config
from .record import Record, graph_of, record

# A rule of this package decides what a graph may hold: a graph is for one state of its sources.
_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def _sources() -> str:
    state = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        state.update(path.read_bytes())
    return state.hexdigest()


def mark(module: torch.fx.GraphModule, options: Mapping) -> None:
    """Make this package and the XLA options part of the key of a captured graph."""
    module.torch_tpu_key = (_sources(), tuple(sorted(options.items())))


@contextlib.contextmanager
def kept():
    """AOTAutograd compiles backward with forward, and keeps both if the cache is on."""
    on = config.cache_enabled()
    with torch._functorch.config.patch(
        bundled_autograd_cache=on, enable_autograd_cache=on, force_non_lazy_backward_lowering=on
    ):
        yield


class SavedGraph(OutputCode):
    """Runs a graph by what ``make`` makes of it; pickled, it is the graph.

    ``make`` is a function of a module by name, so that it can be pickled: graph → callable.
    """

    def __init__(self, module: torch.fx.GraphModule, make: Callable):
        super().__init__()
        self._make = make
        self._module: torch.fx.GraphModule | None = module
        self._kept: Record | None = None
        self._run = make(module)
        self._boxed_call = True

    def __call__(self, inputs: list) -> list:
        return self._run(inputs)

    def prepare_for_serialization(self) -> None:
        """Of a copy of this, which PyTorch then pickles. A graph that cannot be is not kept."""
        try:
            self._kept = record(self._module)
        except TypeError as error:
            raise BypassAOTAutogradCache(str(error)) from None
        self._module = self._run = None

    def post_compile(self, example_inputs, constants, graph_kwargs) -> None:
        """After loading: the graph and its operator again."""
        if self._run is None:
            self._module = graph_of(self._kept)
            self._run = self._make(self._module)

    def set_triton_bundle(self, triton_bundle) -> None:
        """Of Inductor's kernels: there are none."""
