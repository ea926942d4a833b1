"""The Dynamo backends: `tpu`, and `default` for torch.compile calls that name none.

`tpu` runs AOTAutograd and makes every graph a `GraphOperator`. A graph that cannot be one program
runs operator by operator, with a warning; TORCH_TPU_FALLBACK=error makes that an error.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence

import torch

from .. import config, errors
from ..program import decompose
from . import options as xla_options
from .inspect import example, tensors_of

# Modes of torch.compile. They tune Inductor; here there is one way to compile, the best one known.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def tpu(
    module: torch.fx.GraphModule,
    inputs: Sequence,
    *,
    mode: str | None = None,
    options: Mapping | None = None,
) -> Callable:
    """Compile a graph that Dynamo captured; the entry point ``tpu`` of ``torch_dynamo_backends``.

    ``mode`` is one of those of `torch.compile` and changes nothing. ``options`` are XLA options by
    name; an unknown one raises ValueError. A graph without a tensor on the device is Inductor's.
    """
    _check_mode(mode)
    if not _on_device(module, inputs):
        return _inductor(module, inputs)
    return _compiled(module, inputs, options)


def default(
    module: torch.fx.GraphModule,
    inputs: Sequence,
    *,
    mode: str | None = None,
    options: Mapping | None = None,
) -> Callable:
    """What torch.compile without ``backend=`` uses: `tpu` on the device, else Inductor."""
    if not _on_device(module, inputs):
        return _inductor(module, inputs, mode, options)
    _check_mode(mode)
    return _compiled(module, inputs, options)


def _check_mode(mode: str | None) -> None:
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode={mode!r} is none of {', '.join(MODES)}")


def _compiled(module, inputs, options: Mapping | None) -> Callable:
    from . import saved

    chosen = xla_options.checked(options or {})
    saved.mark(module, chosen)
    with saved.kept():
        return _aot_autograd(chosen)(module, inputs)


def _inductor(module, inputs, mode: str | None = None, options: Mapping | None = None):
    chosen = torch._TorchCompileInductorWrapper(
        mode or ("default" if options is None else None), options, None
    )
    return chosen(module, inputs)


def _tensors(module: torch.fx.GraphModule, inputs: Sequence):
    yield from tensors_of(inputs)
    yield from module.parameters()
    yield from module.buffers()
    for node in module.graph.nodes:
        yield from tensors_of(node.meta.get("example_value", example(node)))


def _on_device(module: torch.fx.GraphModule, inputs: Sequence) -> bool:
    return any(t.device.type == "tpu" for t in _tensors(module, inputs))


# ---- AOTAutograd ------------------------------------------------------------------------------


def _aot_autograd(options: Mapping):
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

    from .saved import SavedGraph

    def compiler(label: str):
        make = functools.partial(_runner, label=label, options=options)
        return SerializableAOTDispatchCompiler(
            SavedGraph, lambda module, inputs: SavedGraph(module, make)
        )

    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompose.table,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )


def _runner(module: torch.fx.GraphModule, *, label: str, options: Mapping) -> Callable:
    """What runs a graph: takes the list of its inputs, which it may empty."""
    from .buckets import operator_of
    from .host import HostPart

    try:
        host = HostPart(module)
        operator = operator_of(host.module, label, options)
    except NotImplementedError as error:
        return _by_operator(module, str(error))

    # AOTAutograd wraps what it gets as a function, and looks for the mark on the wrapper.
    def call(inputs: list):
        return operator(inputs)

    run = host.wrap(call)
    run._boxed_call = True
    return run


def _by_operator(module: torch.fx.GraphModule, reason: str) -> Callable:
    """Runs the graph as eager calls, for graphs that cannot be one program."""
    text = f"a compiled graph runs operator by operator: {reason}"
    if config.fallback() == "error":
        raise RuntimeError(text)
    warnings.warn(text, errors.FallbackWarning, stacklevel=2)

    def run(inputs: list):
        held = list(inputs)
        inputs.clear()
        return list(module(*held))

    run._boxed_call = True
    return run
