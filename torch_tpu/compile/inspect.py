"""What the parts of a captured graph are: kinds of inputs, mutations, outputs that are views."""

from __future__ import annotations

import dataclasses

import torch

from .symbols import Bindings, is_symbolic

aten = torch.ops.aten

# Operators whose result lies in the memory of their first argument.
_VIEWS = frozenset(
    {
        aten.alias.default,
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


def example(node: torch.fx.Node):
    """The fake value a node was captured with."""
    return node.meta.get("val")


def is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(example(node), torch.Tensor)


@dataclasses.dataclass(frozen=True)
class Number:
    """An output that is no tensor: a number, a symbolic size or None."""

    value: object


@dataclasses.dataclass(frozen=True)
class View:
    """An output in the memory of input ``input``, which the graph does not write to."""

    input: int
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
      inputs: placeholders, in order. kinds: what each is, "tensor", "written", "size", "number" or
        "nothing" (None).
      constants: ``get_attr`` node → tensor.
      written: placeholder → the node whose value it has in the end.
      outputs: nodes, numbers or None, in order. views: those that need no program.
      symbolic: whether calls decide sizes.
    """

    def __init__(self, module: torch.fx.GraphModule):
        self.module = module
        nodes = module.graph.nodes
        self.inputs = [n for n in nodes if n.op == "placeholder"]
        self.constants = _constants(module)
        self.written = _written(nodes)
        self.kinds = [self._kind(node) for node in self.inputs]
        self.outputs = list(module.graph.output_node().args[0])
        self.symbolic = any(is_symbolic(example(n)) for n in self.inputs)
        self.views = self._views()

    def _kind(self, node: torch.fx.Node) -> str:
        value = example(node)
        if value is None or not node.users:
            return "nothing"
        if isinstance(value, torch.Tensor):
            return "written" if node in self.written else "tensor"
        if isinstance(value, (torch.SymInt, int)):
            return "size"
        if isinstance(value, (torch.SymFloat, float)):
            return "number"
        raise NotImplementedError(f"an input of type {type(value).__name__}")

    def _views(self) -> dict[torch.fx.Node, View]:
        found = {}
        for node in self.outputs:
            if not isinstance(node, torch.fx.Node):
                continue
            base = node
            while base.op == "call_function" and base.target in _VIEWS:
                base = base.args[0]
            if base.op != "placeholder" or not is_tensor(base) or base in self.written:
                continue
            fake, of = example(node), example(base)
            position = self.inputs.index(base)
            found[node] = View(position, fake, of, whole=base is node)
        return found


def _constants(module: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    found = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = _attribute(module, node.target)
            if isinstance(value, torch.Tensor):
                found[node] = value
    return found


def _attribute(module, path: str):
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _written(nodes) -> dict[torch.fx.Node, torch.fx.Node]:
    found = {}
    for node in nodes:
        if node.op == "call_function" and node.target is aten.copy_.default:
            target, source = node.args[:2]
            if target.op != "placeholder":
                raise NotImplementedError(f"{node} writes to {target}, which is no input")
            found[target] = source
    return found
