"""What the parts of a captured graph are: kinds of inputs, mutations, outputs that are views."""

from __future__ import annotations

import dataclasses
import operator

import torch

from ..lowering.registry import RULES
from ..program.graph import held
from .symbols import Bindings, expression, is_symbolic, layout_symbols

aten = torch.ops.aten

# Operators whose result lies in the memory of their first argument.
_VIEWS = frozenset(
    {
        aten.alias.default,
        aten.as_strided.default,
        aten.detach.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    }
)

# What run-time numbers may go through on their way to an operator.
_ARITHMETIC = frozenset({operator.add, operator.sub, operator.mul, operator.neg})

_LISTS_OF_VIEWS = frozenset({aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int})


def example(node: torch.fx.Node):
    """The fake value a node was captured with."""
    return node.meta.get("val")


def tensors_of(value) -> list[torch.Tensor]:
    """The tensors in a value and in its lists."""
    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(example(node), torch.Tensor)


@dataclasses.dataclass(frozen=True)
class Number:
    """An output that is no tensor: a number, a symbolic size or None."""

    value: object


@dataclasses.dataclass(frozen=True)
class Item:
    """An output that is a number and depends on data: result ``result`` of the program, read."""

    result: int


@dataclasses.dataclass(frozen=True)
class View:
    """An output in the memory of an input that the graph does not write to, or of a result.

    ``source`` is a result >= 0 of the program, or input -1 - source.
    """

    source: int
    fake: torch.Tensor
    base: torch.Tensor
    whole: bool  # it is the input itself

    def of(self, tensor: torch.Tensor, bindings: Bindings | None) -> torch.Tensor:
        number = bindings.number if bindings is not None else int
        sizes, strides = ([number(n) for n in s] for s in (self.fake.shape, self.fake.stride()))
        offset = number(self.fake.storage_offset() - self.base.storage_offset())
        return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset)


class Parts:
    """The parts of a functional graph whose only mutations are ``copy_`` to its inputs.

    Attributes:
      inputs: placeholders, in order. kinds: what each is, "tensor", "written", "size", "value" (an
        integer that no size depends on), "number" (a float) or "nothing" (not needed).
      constants: ``get_attr`` node → tensor.
      written: placeholder → the node whose value it has in the end.
      outputs: nodes, numbers or None, in order. views: those that need no program.
      results: nodes that the program gives: outputs, and what views of one memory lie in.
      symbolic: whether calls decide sizes.
    """

    def __init__(self, module: torch.fx.GraphModule):
        self.module = module
        nodes = module.graph.nodes
        self.inputs = [n for n in nodes if n.op == "placeholder"]
        self.constants = _constants(module)
        self.written = _written(nodes)
        every = (t for n in nodes for t in tensors_of(example(n)))
        self._sizes = set().union(*map(layout_symbols, every))
        self.kinds = [self._kind(node) for node in self.inputs]
        self.outputs = list(module.graph.output_node().args[0])
        self.symbolic = any(is_symbolic(example(n)) for n in self.inputs)
        self.views = self._views_of_inputs()
        bases = self._shared_bases()
        rest = [n for n in self.outputs if isinstance(n, torch.fx.Node) and is_tensor(n)]
        rest = [bases.get(n, n) for n in rest if n not in self.views]
        self.results = list(dict.fromkeys(rest))
        for node, base in bases.items():
            self.views[node] = View(
                self.results.index(base), example(node), example(base), whole=node is base
            )

    def _kind(self, node: torch.fx.Node) -> str:
        value = example(node)
        if isinstance(value, torch.Tensor):
            read = "tensor" if node.users else "nothing"
            return "written" if node in self.written else read
        if value is None:
            return "nothing"
        if isinstance(value, (torch.SymInt, int)):
            return "value" if self._is_value(node) else "size"
        if isinstance(value, (torch.SymFloat, float)):
            return "number"
        raise NotImplementedError(f"an input of type {type(value).__name__}")

    def _is_value(self, node: torch.fx.Node) -> bool:
        """Whether no size depends on an integer input, and every use takes a run-time number."""
        symbol = expression(example(node))
        if symbol in self._sizes:
            return False
        return all(_takes_value(user, node) for user in node.users)

    def _views_of_inputs(self) -> dict[torch.fx.Node, View]:
        found = {}
        for node in self.outputs:
            if not isinstance(node, torch.fx.Node):
                continue
            base = _base(node)
            if base.op != "placeholder" or not is_tensor(base) or base in self.written:
                continue
            fake, of = example(node), example(base)
            position = self.inputs.index(base)
            found[node] = View(-1 - position, fake, of, whole=base is node)
        return found

    def _shared_bases(self) -> dict[torch.fx.Node, torch.fx.Node]:
        """Outputs that share the memory of something computed: the node they lie in."""
        bases: dict[torch.fx.Node, list] = {}
        for node in dict.fromkeys(n for n in self.outputs if isinstance(n, torch.fx.Node)):
            if is_tensor(node) and node not in self.views:
                bases.setdefault(_base(node), []).append(node)
        return {
            node: base
            for base, nodes in bases.items()
            if len(nodes) > 1 and base.op == "call_function" and _is_dense(example(base))
            for node in nodes
        }


def _takes_value(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether every argument of ``user`` that is ``node`` may be a run-time number."""
    if user.op == "output":
        return True
    if user.target in _ARITHMETIC:
        return all(_takes_value(further, user) for further in user.users)
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    rule = RULES.get(user.target.name())
    if rule is None or rule.range:
        return False
    arguments = user.target._schema.arguments
    named = dict(zip((a.name for a in arguments), user.args, strict=False)) | user.kwargs
    types = {a.name: str(a.real_type) for a in arguments}
    return all(_is_runtime(rule, name, types[name]) for name, a in named.items() if a is node) and (
        any(a is node for a in named.values())
    )


def _is_runtime(rule, name: str, kind: str) -> bool:
    if name in rule.runtime or kind == "Tensor" and rule.promote is not None:
        return True
    return kind == "number" and name not in rule.static


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """What a view is a view of; the node itself if it is none."""
    while node.op == "call_function":
        if node.target in _VIEWS:
            node = node.args[0]
        elif node.target is operator.getitem and node.args[0].target in _LISTS_OF_VIEWS:
            node = node.args[0].args[0]
        else:
            break
    return node


def _is_dense(fake) -> bool:
    """Whether the program gives a result exactly the strides of ``fake``."""
    if not isinstance(fake, torch.Tensor):
        return False
    return torch._prims_common.is_non_overlapping_and_dense_or_false(fake)


def _constants(module: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    found = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = held(node)
            if isinstance(value, torch.Tensor):
                found[node] = value
    return found


def _written(nodes) -> dict[torch.fx.Node, torch.fx.Node]:
    found = {}
    for node in nodes:
        if node.op == "call_function" and node.target is aten.copy_.default:
            target, source = node.args[:2]
            if target.op != "placeholder":
                raise NotImplementedError(f"{node} writes to {target}, which is no input")
            found[target] = source
    return found
