"""From a PyTorch program to the text of one StableHLO module, with nothing allocated.

The program runs once on fake tensors that say they are on the device: parameters, buffers and the
state of optimizers become parameters of the module, what it changes becomes results that take over
their memory. Any Python that runs on fake tensors can be captured: forward passes, ``backward()``
and optimizers alike. Not here: what is noted of each operator (`tracing.py`), changes to the graph
(`rewrite.py`), where tensors lie (`sharding.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ..export import signature
from ..export.signature import GENERATOR, Leaf
from ..lowering import registry
from ..lowering.builder import Builder, building
from ..lowering.target import lowering_for
from ..program import decompose, graph, module
from . import (
    operators as _operators,  # noqa: F401 - defines torch_tpu::shard
    rewrite,
    sharding,
)
from .sharding import Mesh, Spec
from .state import Optimizer, found, replaced, swapped
from .tracing import Notes

DEVICE = torch.device("tpu", 0)
_tracing = threading.RLock()


@dataclasses.dataclass(frozen=True)
class Parameter(signature.Parameter):
    """A parameter of the module.

    ``kind`` may also be "optimizer", for its state. ``sharding`` is XLA's, None on one device.
    """

    sharding: str | None = None


@dataclasses.dataclass(frozen=True)
class Result(signature.Result):
    """A result of the module.

    ``kind`` may also be "gradient": what is left in ``.grad`` of a parameter. A "mutation" takes
    over the memory of parameter number ``mutates``.
    """

    sharding: str | None = None


@dataclasses.dataclass(frozen=True)
class Captured:
    """A program and what is known about it.

    Attributes:
      module: the StableHLO module, in parts.
      parameters, results: of the module, in order.
      arguments, outputs: leaves of the arguments and of what the program returns, in order; in_spec
        and out_spec put them together.
      flops: of the program, multiply-adds counted as two, recomputations not counted.
      mesh: the devices it is for, None for one.
    """

    module: module.Module
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    arguments: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    flops: int
    mesh: Mesh | None = None

    @functools.cached_property
    def text(self) -> str:
        """The module as the compiler gets it, with the place of every operation."""
        return self.module.located()

    @property
    def partitions(self) -> int:
        """The number of devices."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def parameter_count(self) -> int:
        """The number of weights."""
        sizes = (torch.Size(p.shape).numel() for p in self.parameters if p.kind == "parameter")
        return sum(sizes)


def capture(
    target: Callable | nn.Module | torch.export.ExportedProgram,
    example_args: Sequence = (),
    example_kwargs: Mapping | None = None,
    in_shardings: Mapping[str, Spec] | Sequence | None = None,
    mesh: Mesh | None = None,
) -> Captured:
    """Trace ``target`` on arguments like the examples and lower it to one StableHLO module.

    Examples give shapes and dtypes: tensors on "meta" or any device, of which nothing is read.
    Weights are found in the module, or in the modules and optimizers that a function refers to by
    its closure, its globals or its attributes. ``in_shardings`` is a table from names of parameters
    and inputs (or patterns of them) to specs over ``mesh``; optimizer state lies like its
    parameter. A sequence is that of the positional arguments.

    Raises NotImplementedError for an operator without a lowering, or for a Python number that
    depends on data, naming the line; ValueError for a sharding that does not fit.
    """
    if isinstance(target, torch.export.ExportedProgram):
        target = _interpreted(target)
    if not callable(target):
        raise TypeError(f"a function, nn.Module or ExportedProgram is captured, not {target!r}")
    if isinstance(example_args, torch.Tensor):
        raise TypeError("example_args is a sequence of arguments: write (x,) for one tensor")
    # Tracing changes modules and settings of the process until it is done: one thread at a time.
    with _tracing:
        program = _Program(target, tuple(example_args), dict(example_kwargs or {}))
        table = _table(in_shardings, program)
        if table and mesh is None:
            raise ValueError("in_shardings= without mesh=: over which devices?")
        return program.captured(table, mesh)


def _interpreted(exported: torch.export.ExportedProgram) -> nn.Module:
    return exported.module(check_guards=False)


def _table(in_shardings, program: _Program) -> dict[str, Spec]:
    """The table by names that shardings of positional arguments stand for."""
    if in_shardings is None or isinstance(in_shardings, Mapping):
        return dict(in_shardings or {})
    if len(in_shardings) != len(program.args):
        raise ValueError(f"{len(in_shardings)} in_shardings for {len(program.args)} arguments")
    names = iter(slot.name for slot in program.slots if slot.kind == "input")
    table = {}
    for argument, spec in zip(program.args, in_shardings, strict=True):
        for leaf in pytree.tree_leaves(argument):
            name = next(names) if isinstance(leaf, torch.Tensor) else None
            if name is not None and spec is not None:
                table[name] = spec
    return table


_TENSOR = object()  # in place of a result that is one


@dataclasses.dataclass
class _Slot:
    """A tensor that becomes a parameter: its name and kind, the tensor, and what owns it."""

    name: str
    kind: str
    tensor: torch.Tensor
    fake: torch.Tensor | None = None
    like: str = ""  # the parameter that optimizer state belongs to


class _Program:
    """A target with everything it refers to, in the order of the module's parameters."""

    def __init__(self, target: Callable, args: tuple, kwargs: dict):
        self.target, self.args, self.kwargs = target, args, kwargs
        self.modules, self.optimizers = found((target, args, kwargs))
        self.mode = FakeTensorMode(allow_non_fake_inputs=False)
        self.slots: list[_Slot] = []
        self._of: dict[int, _Slot] = {}  # id of a tensor → its slot
        self._owners: list[tuple[nn.Module, str, _Slot]] = []
        self._add_weights()
        self._states = [self._add_state(i) for i in range(len(self.optimizers))]
        self.leaves, self.in_spec = pytree.tree_flatten((args, kwargs))
        self._inputs = [self._add_input(*item) for item in enumerate(self._named_leaves())]
        for slot in self.slots:
            if slot.fake is None:
                slot.fake = self._fake(slot.tensor)

    # ---- slots -----------------------------------------------------------------------------

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            raise NotImplementedError(f"a program cannot be captured with a {tensor.layout} tensor")
        with self.mode:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE
            )

    def _slot(self, name: str, kind: str, tensor: torch.Tensor, like: str = "") -> _Slot:
        slot = self._of.get(id(tensor))
        if slot is None:
            slot = self._of[id(tensor)] = _Slot(name, kind, tensor, like=like)
            self.slots.append(slot)
        return slot

    def _add_weights(self) -> None:
        for kind, named in (("parameter", "named_parameters"), ("buffer", "named_buffers")):
            for prefix, root in self._prefixed():
                for name, tensor in getattr(root, named)(prefix, remove_duplicate=False):
                    slot = self._slot(name, kind, tensor)
                    path, _, attribute = name[len(prefix) :].lstrip(".").rpartition(".")
                    self._owners.append((root.get_submodule(path), attribute, slot))

    def _prefixed(self) -> list[tuple[str, nn.Module]]:
        """Roots with the prefix of their names: none if there is one."""
        inner = {id(m) for root in self.modules.values() for m in list(root.modules())[1:]}
        roots = [(name, m) for name, m in self.modules.items() if id(m) not in inner]
        return [("", roots[0][1])] if len(roots) == 1 else roots

    def _add_state(self, index: int) -> dict[int, dict[str, Any]]:
        """Slots of an optimizer's state, by id of the parameter; made by a first step if needed."""
        optimizer, states = self.optimizers[index], {}
        prefix = f"optimizer{index or ''}"
        state = optimizer.state or self._first_state(optimizer)
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        for parameter in owned:
            owner = self._of.get(id(parameter))
            if owner is None:
                raise ValueError("an optimizer has a parameter that no captured module has")
            states[id(parameter)] = {
                key: self._slot(f"{prefix}.{owner.name}.{key}", "optimizer", value, owner.name)
                if isinstance(value, torch.Tensor)
                else value
                for key, value in state.get(parameter, {}).items()
            }
        for number, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    self._slot(f"{prefix}.groups.{number}.{key}", "optimizer", value)
        return states

    def _first_state(self, optimizer: Optimizer) -> dict:
        """What a step on fake parameters leaves in the optimizer; it has none itself."""
        fakes = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                fake = fakes[parameter] = self._fake(parameter).requires_grad_()
                with self.mode:
                    fake.grad = torch.zeros_like(fake)
        of_group = {id(x): self._fake(x) for x in _in_groups(optimizer)}
        with self.mode, torch.no_grad(), swapped(optimizer, fakes, {}, of_group):
            optimizer.step()
            return {p: dict(optimizer.state.get(fake, {})) for p, fake in fakes.items()}

    def _named_leaves(self) -> list[str]:
        function = self.target.forward if isinstance(self.target, nn.Module) else self.target
        named: list[str] = []
        with contextlib.suppress(TypeError, ValueError):  # the call itself will say what is wrong
            for parameter in inspect.signature(function).parameters.values():
                if parameter.kind is parameter.VAR_POSITIONAL:
                    rest = range(len(self.args) - len(named))
                    named += [f"{parameter.name}.{i}" for i in rest]
                named.append(parameter.name)
        names = []
        for i, argument in enumerate(self.args):
            name = named[i] if i < len(named) else f"args.{i}"
            names += _leaf_names(name, argument)
        return names + [n for k, value in self.kwargs.items() for n in _leaf_names(k, value)]

    def _add_input(self, index: int, name: str) -> _Slot | None:
        leaf = self.leaves[index]
        if not isinstance(leaf, torch.Tensor):
            return None
        taken = {slot.name for slot in self.slots}
        return self._slot(name if name not in taken else f"args.{name}", "input", leaf)

    # ---- tracing ---------------------------------------------------------------------------

    def captured(self, table: Mapping[str, Spec], mesh: Mesh | None) -> Captured:
        shardings = self._shardings(table, mesh)
        notes = Notes(self._module_names())
        traced, out_spec, kinds = self._traced(notes, shardings, mesh)
        count = sum(1 for _, _, value in kinds if value is _TENSOR)
        mutated = rewrite.clean(traced, count)
        shardings, mutated = self._drop_unread(traced.graph, shardings, mutated)
        return _lowered(self, traced, mutated, kinds, out_spec, shardings, notes.flops, mesh)

    def _drop_unread(self, fx: torch.fx.Graph, shardings: Sequence, mutated: Sequence[int]):
        """Leaves out weights that the program refers to and does not use; returns shardings and
        mutations of the others."""
        inputs = [node for node in fx.nodes if node.op == "placeholder"]
        kept = [
            i
            for i, (node, slot) in enumerate(zip(inputs, self.slots, strict=True))
            if slot.kind == "input" or node.users or i in mutated
        ]
        for i in set(range(len(inputs))) - set(kept):
            fx.erase_node(inputs[i])
        self.slots = [self.slots[i] for i in kept]
        return [shardings[i] for i in kept], [kept.index(i) for i in mutated]

    def _module_names(self) -> dict[nn.Module, str]:
        return {
            m: name
            for prefix, root in self._prefixed()
            for name, m in root.named_modules(None, prefix)
        }

    def _shardings(self, table: Mapping[str, Spec], mesh: Mesh | None) -> list[str | None]:
        if mesh is None:
            return [None] * len(self.slots)
        specs = {slot.name: sharding.lookup(table, slot.name) for slot in self.slots}
        shapes = {slot.name: slot.tensor.shape for slot in self.slots}
        result = []
        for slot in self.slots:
            spec = specs[slot.name]
            if spec is None and slot.like and shapes[slot.like] == slot.tensor.shape:
                spec = specs[slot.like]
            result.append(sharding.checked(mesh, spec or (), slot.name, slot.tensor.shape))
        return result

    def _traced(self, notes: Notes, shardings: Sequence[str | None], mesh: Mesh | None):
        """(graph whose outputs are results and then the last value of each slot, spec and kinds of
        the results: a leaf is ("output" or "gradient", name, value if it is no tensor))."""
        returned = {}

        def flat(*fakes):
            with FunctionalTensorMode(), notes:
                values = [FunctionalTensor.to_functional(x) for x in fakes]
                with torch.enable_grad():
                    outputs, last = self._called(values, shardings)
                leaves, returned["spec"] = pytree.tree_flatten(outputs)
                _check_outputs(leaves)
                gradients = self._gradients(values)
                named = [("output", f"output.{i}", x) for i, x in enumerate(leaves)] + gradients
                tensors = [x for _, _, x in named if isinstance(x, torch.Tensor)]
                returned["kinds"] = [
                    (kind, name, _TENSOR if isinstance(x, torch.Tensor) else x)
                    for kind, name, x in named
                ]
                return [_unwrapped(x) for x in [*tensors, *last]]

        if torch.tpu.is_available():
            torch.tpu.init()  # checkpointing minds if that happens in between
        make = make_fx(flat, decomposition_table=decompose.table())
        try:
            with self.mode, notes.following(), sharding.capturing(mesh):
                traced = make(*(slot.fake for slot in self.slots))
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise NotImplementedError(
                f"{error.func} in {notes.last.module or 'the program'} ({notes.last.line}) gives "
                "Python something that depends on data, and a program compiled ahead of time has "
                "none; use tensor operators such as torch.where there"
            ) from error
        except AssertionError as error:
            if "convert all Tensors to FakeTensors" not in str(error):
                raise
            raise ValueError(
                f"a tensor used by {notes.last.operator} ({notes.last.line}) or by what follows is "
                "no argument of the program, and no parameter or buffer of a module that it refers "
                "to: pass it, or register it as a buffer"
            ) from error
        return traced, returned["spec"], returned["kinds"]

    def _called(self, values: Sequence, shardings: Sequence[str | None]):
        """(what the target returns, the last value of each slot)."""
        by_id = {id(slot.tensor): x for slot, x in zip(self.slots, values, strict=True)}
        for slot, value, layout in zip(self.slots, values, shardings, strict=True):
            if slot.tensor.requires_grad:
                value.requires_grad_()
                if layout is not None and slot.kind == "parameter":
                    value.register_hook(functools.partial(_laid_out, layout=layout))
        args, kwargs = pytree.tree_unflatten(
            [
                by_id.get(id(leaf), leaf) if slot else leaf
                for leaf, slot in zip(self.leaves, self._inputs, strict=True)
            ],
            self.in_spec,
        )
        last = list(values)
        with contextlib.ExitStack() as stack:
            owners = [(owner, attribute) for owner, attribute, _ in self._owners]
            weights = [by_id[id(slot.tensor)] for _, _, slot in self._owners]
            places = stack.enter_context(replaced(owners, weights))
            states = [
                stack.enter_context(swapped(o, *self._optimizer_values(o, i, by_id)))
                for i, o in enumerate(self.optimizers)
            ]
            outputs = self.target(*args, **kwargs)
            self._last_values(last, places(), states, by_id)
        return outputs, last

    def _optimizer_values(self, optimizer: Optimizer, index: int, by_id: Mapping):
        parameters = {p: by_id[id(p)] for group in optimizer.param_groups for p in group["params"]}
        state = {
            parameters[p]: {
                key: by_id[id(slot.tensor)] if isinstance(slot, _Slot) else slot
                for key, slot in self._states[index][id(p)].items()
            }
            for p in parameters
            if self._states[index][id(p)]
        }
        return parameters, state, by_id

    def _last_values(self, last: list, places: Sequence, states: Sequence, by_id: Mapping) -> None:
        """Put what was assigned, instead of changed in place, into ``last``."""
        index = {id(slot): i for i, slot in enumerate(self.slots)}
        for (_, _, slot), value in zip(self._owners, places, strict=True):
            if isinstance(value, torch.Tensor):
                last[index[id(slot)]] = value
        for i in range(len(self.optimizers)):
            for parameter, slots in self._states[i].items():
                current = states[i].get(by_id[parameter], {})
                for key, slot in slots.items():
                    if isinstance(slot, _Slot) and isinstance(current.get(key), torch.Tensor):
                        last[index[id(slot)]] = current[key]

    def _gradients(self, values: Sequence) -> list[tuple]:
        return [
            ("gradient", f"{slot.name}.grad", x.grad)
            for slot, x in zip(self.slots, values, strict=True)
            if x.requires_grad and x.is_leaf and x.grad is not None
        ]


def _in_groups(optimizer: Optimizer) -> list[torch.Tensor]:
    """Tensors in an optimizer's options, such as a learning rate."""
    values = (value for group in optimizer.param_groups for value in group.values())
    return [value for value in values if isinstance(value, torch.Tensor)]


def _leaf_names(name: str, argument) -> list[str]:
    paths = (pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(argument))
    return [
        name + path.replace("['", ".").replace("']", "").replace("[", ".").replace("]", "")
        for path in paths
    ]


def _check_outputs(leaves: Sequence) -> None:
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, bool, int, float, complex, str, type(None))):
            raise TypeError(
                f"the program returns a {type(leaf).__qualname__}, in which tensors would not be "
                "found: return tensors in tuples, lists and dicts, or make the class known to "
                "torch.utils._pytree.register_pytree_node"
            )


def _laid_out(gradient: torch.Tensor, layout: str) -> torch.Tensor:
    """A gradient lies like its parameter: so it is scattered as it is summed."""
    return torch.ops.torch_tpu.shard(gradient, layout)


def _unwrapped(x: torch.Tensor) -> torch.Tensor:
    """The traced tensor behind a functional one."""
    if not isinstance(x, FunctionalTensor):
        return x
    torch._sync(x)
    return torch._from_functional_tensor(x.elem)


# ---- the module ----------------------------------------------------------------------------------


def _lowered(
    program: _Program,
    traced: torch.fx.GraphModule,
    mutated: Sequence[int],
    kinds: Sequence[tuple],
    out_spec: pytree.TreeSpec,
    shardings: Sequence[str | None],
    flops: int,
    mesh: Mesh | None,
) -> Captured:
    parameters = [
        Parameter(slot.name, slot.kind, tuple(slot.tensor.shape), slot.tensor.dtype, layout)
        for slot, layout in zip(program.slots, shardings, strict=True)
    ]
    if graph.is_random(traced):
        replicated = None if mesh is None else "{replicated}"
        parameters.append(Parameter(GENERATOR, GENERATOR, (2,), torch.uint64, replicated))
    builder = Builder()
    with lowering_for("tpu"), building(builder):
        inputs = [builder.parameter(p.shape, p.dtype) for p in parameters]
        state = inputs.pop() if len(inputs) > len(program.slots) else None
        values = graph.Lowering(registry.meta_of, state).outputs(traced.graph, inputs)
    results, outputs = _results(traced, mutated, kinds, parameters)
    donate = {r.mutates: i for i, r in enumerate(results) if r.mutates is not None}
    name = getattr(program.target, "__name__", type(program.target).__name__)
    finished = dataclasses.replace(
        module.finish(builder, list(values), donate, name, keep_unread=True),
        parameter_shardings=tuple(p.sharding for p in parameters),
        result_shardings=tuple(r.sharding for r in results),
    )
    described = map(tuple, (parameters, results, _arguments(program), outputs))
    return Captured(finished, *described, program.in_spec, out_spec, flops, mesh)


def _results(traced, mutated: Sequence[int], kinds: Sequence[tuple], parameters):
    """Results of the module, and the leaves of what the program returns."""
    nodes = traced.graph.output_node().args[0]
    metas = [registry.meta_of(node.meta["val"]) for node in nodes]
    results, outputs = [], []
    for kind, name, value in kinds:
        leaf = Leaf(name, value=None if value is _TENSOR else value)
        if value is _TENSOR:
            meta, leaf = metas[len(results)], Leaf(name, position=len(results))
            results.append(Result(name, kind, meta.shape, meta.dtype, meta.strides))
        if kind == "output":
            outputs.append(leaf)
    for index in mutated:
        meta, parameter = metas[len(results)], parameters[index]
        described = (parameter.name, "mutation", meta.shape, meta.dtype, meta.strides)
        results.append(Result(*described, index, parameter.sharding))
    return results, outputs


def _arguments(program: _Program) -> list[Leaf]:
    index = {id(slot): i for i, slot in enumerate(program.slots)}
    return [
        Leaf(slot.name, position=index[id(slot)]) if slot else Leaf(f"args.{i}", value=leaf)
        for i, (leaf, slot) in enumerate(zip(program.leaves, program._inputs, strict=True))
    ]
