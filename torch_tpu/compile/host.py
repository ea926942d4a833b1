"""Splits off what a captured graph computes on the CPU from CPU inputs.

The step counts of an optimiser live on the CPU, and so does what is computed from them; there it
stays, as in eager mode. Such nodes become a function of their own that runs first; the device's
graph gets their results as inputs. Everything else is the device's: constants made on the CPU
become constants of the program, and a result that must be on the CPU is copied there in the end.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

aten = torch.ops.aten


def _example(node: torch.fx.Node):
    return node.meta.get("val")


def _tensors(value) -> list[torch.Tensor]:
    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def _on_host(node: torch.fx.Node) -> bool:
    tensors = _tensors(_example(node))
    return bool(tensors) and all(t.device.type == "cpu" for t in tensors)


def _is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _host_nodes(graph: torch.fx.Graph) -> dict[torch.fx.Node, None]:
    """Calls that read CPU inputs, or draw from the CPU's generator, and nothing of the device."""
    found: dict[torch.fx.Node, None] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not _on_host(node):
            continue
        sources = [n for n in node.all_input_nodes if _tensors(_example(n))]
        movable = all(
            n in found or (_on_host(n) and n.op in ("placeholder", "get_attr")) for n in sources
        )
        given = any(n in found or n.op == "placeholder" for n in sources)
        if movable and (given or _is_random(node)):
            found[node] = None
    return found


class HostPart:
    """A graph in two parts.

    Attributes:
      module: the graph of the device. Its inputs are those of the whole, then what `before` gives.
      before: function of the inputs of the whole, or None if there is nothing to do on the CPU.
    """

    def __init__(self, module: torch.fx.GraphModule):
        self._whole = module
        self._nodes = _host_nodes(module.graph)
        self._inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._outputs = list(module.graph.output_node().args[0])
        self._finished = [i for i, n in enumerate(self._outputs) if n in self._nodes]
        self._passed = self._consumed()
        self.module, self._written = self._device_graph()
        self._moved = [
            i
            for i, n in enumerate(self._outputs)
            if isinstance(n, torch.fx.Node) and n.op == "call_function" and _on_host(n)
            if n not in self._nodes
        ]
        self.before = self._host_function() if self._nodes else None

    @property
    def plain(self) -> bool:
        """Whether the device's graph is all there is."""
        return not (self._nodes or self._moved or self._written)

    def _consumed(self) -> list[torch.fx.Node]:
        """Host nodes that a node of the device reads."""
        nodes = self._nodes
        output = self._whole.graph.output_node()
        return [n for n in nodes if any(u not in nodes and u is not output for u in n.users)]

    def _device_graph(self):
        """The rest as a graph, and the CPU inputs that it writes: position → output that holds it."""
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node | None] = {}
        for node in self._inputs:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        for node in self._passed:
            copy = graph.placeholder(f"host_{node.name}")
            copy.meta["val"] = _example(node)
            copies[node] = copy
        written: dict[int, torch.fx.Node] = {}
        for node in self._whole.graph.nodes:
            if node.op in ("placeholder", "output") or node in self._nodes:
                continue
            if node.target is aten.copy_.default and _on_host(node.args[0]):
                written[self._inputs.index(node.args[0])] = copies[node.args[1]]
                copies[node] = copies[node.args[1]]
                continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
        outputs = [
            None if n in self._nodes else torch.fx.node.map_arg(n, copies.__getitem__)
            for n in self._outputs
        ]
        graph.output([*outputs, *written.values()])
        return torch.fx.GraphModule(self._whole, graph), list(written)

    def _host_function(self) -> Callable:
        """From all inputs to what the device reads and what is returned, with CPU writes done."""
        graph = torch.fx.Graph()
        copies = {n: graph.node_copy(n) for n in self._inputs}
        for node in self._whole.graph.nodes:
            if node.op == "get_attr" or node in self._nodes or _is_size(node):
                copies[node] = graph.node_copy(node, copies.__getitem__)
        finished = [copies[self._outputs[i]] for i in self._finished]
        graph.output(([copies[n] for n in self._passed], finished))
        graph.eliminate_dead_code(lambda n: n.target is aten.copy_.default or n.op != "call_function")
        return torch.fx.GraphModule(self._whole, graph).forward

    def wrap(self, run: Callable[[list], list]) -> Callable[[list], list]:
        """``run`` of the device's graph as a function of the inputs of the whole."""
        if self.plain:
            return run
        count = len(self._outputs)

        def whole(inputs: list) -> list:
            kept = [inputs[i] for i in self._written]
            finished: list = []
            if self.before is not None:
                passed, finished = self.before(*inputs)
                inputs.extend(passed)
            results = run(inputs)
            for target, value in zip(kept, results[count:], strict=True):
                target.copy_(value)
            results = results[:count]
            for i, value in zip(self._finished, finished, strict=True):
                results[i] = value
            for i in self._moved:
                results[i] = results[i].cpu()
            return results

        return whole


def _is_size(node: torch.fx.Node) -> bool:
    """Arithmetic on sizes, which both parts need."""
    if node.op != "call_function" or node.target is aten._local_scalar_dense.default:
        return False
    is_number = isinstance(_example(node), (int, float, torch.SymInt, torch.SymFloat))
    return is_number and not any(_tensors(_example(n)) for n in node.all_input_nodes)


