"""Splits off what a captured graph computes on the CPU from CPU inputs.

The step counts of an optimiser live on the CPU, and so does what is computed from them; there it
stays, as in eager mode. Such nodes become a function of their own that runs first; the device's
graph gets their results as inputs. Everything else is the device's: constants made on the CPU
become constants of the program, CPU inputs that it reads are copied there first, and a result that
must be on the CPU is copied back in the end. Checks of linear algebra, which raise, run last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module

from .inspect import example, tensors_of
from .vectorize import vectorize

aten = torch.ops.aten
_higher_order = torch.ops.higher_order


def _on_host(node: torch.fx.Node) -> bool:
    tensors = tensors_of(example(node))
    return bool(tensors) and all(t.device.type == "cpu" for t in tensors)


def _is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _host_nodes(graph: torch.fx.Graph) -> dict[torch.fx.Node, None]:
    """Calls that read CPU inputs, or draw from the CPU's generator, and nothing of the device."""
    found: dict[torch.fx.Node, None] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not _on_host(node):
            continue
        sources = [n for n in node.all_input_nodes if tensors_of(example(n))]
        movable = all(
            n in found or (_on_host(n) and n.op in ("placeholder", "get_attr")) for n in sources
        )
        given = any(n in found or n.op == "placeholder" for n in sources)
        if movable and (given or _is_random(node)):
            found[node] = None
    return found


def _keep_states_on_device(graph: torch.fx.Graph) -> None:
    """Generator states that forward saves for backward: PyTorch takes them for those of the CPU."""
    for node in graph.nodes:
        picked = node.target is operator.getitem and node.args[1] == 0
        if picked and node.args[0].target is _higher_order.run_and_save_rng_state:
            node.meta["val"] = torch.empty(2, dtype=torch.uint64, device="tpu")
        if node.target is _higher_order.run_with_rng_state:
            node.args[0].meta["val"] = torch.empty(2, dtype=torch.uint64, device="tpu")


def _checks(graph: torch.fx.Graph) -> tuple[list[torch.fx.Node], dict]:
    """Checks of linear algebra, and node → input for the tokens that put effects in order."""
    found, tokens = [], {}
    for node in graph.nodes:
        if node.target is _higher_order.with_effects:
            if node.args[1] is not aten._linalg_check_errors.default:
                raise NotImplementedError(f"{node.args[1]} has no lowering inside a graph")
            found.append(node)
        elif node.target is operator.getitem and node.args[0] in found:
            token = node.args[0].args[0]
            tokens[node] = tokens.get(token, token)
    return found, tokens


class HostPart:
    """A graph in two parts.

    Attributes:
      module: the graph of the device. Its inputs are those of the whole, then what `before` gives.
      before: function of the inputs of the whole, or None if there is nothing to do on the CPU.
    """

    def __init__(self, module: torch.fx.GraphModule):
        _keep_states_on_device(module.graph)
        self._whole = module
        self._checks, self._tokens = _checks(module.graph)
        self._nodes = _host_nodes(module.graph)
        self._inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        outputs = module.graph.output_node().args[0]
        self._outputs = [self._tokens.get(n, n) for n in outputs]
        self._returned = {
            i: self._inputs.index(n)
            for i, n in enumerate(self._outputs)
            if isinstance(n, torch.fx.Node) and n.op == "placeholder" and _on_host(n)
        }
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
        self._sent = self._read_on_device()

    @property
    def plain(self) -> bool:
        """Whether the device's graph is all there is."""
        steps = (self._nodes, self._moved, self._written, self._returned, self._sent, self._checks)
        return not any(steps)

    def _read_on_device(self) -> list[tuple[int, torch.device]]:
        """CPU inputs of the device's graph that must be copied there; single numbers need not."""
        nodes = self.module.graph.nodes
        devices = [
            t.device for n in nodes for t in tensors_of(example(n)) if t.device.type == "tpu"
        ]
        inputs = [n for n in nodes if n.op == "placeholder"]
        return [
            (i, devices[0])
            for i, n in enumerate(inputs)
            if devices and n.users and _on_host(n) and example(n).ndim
        ]

    def _consumed(self) -> list[torch.fx.Node]:
        """Host nodes that a node of the device reads."""
        nodes = self._nodes
        output = self._whole.graph.output_node()
        return [n for n in nodes if any(u not in nodes and u is not output for u in n.users)]

    def _device_graph(self) -> tuple[torch.fx.GraphModule, list[int]]:
        """The rest as a graph, which gives new values of CPU inputs last, and whose they are."""
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node | None] = {}
        for node in self._inputs:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        for node in self._passed:
            copy = graph.placeholder(f"host_{node.name}")
            copy.meta["val"] = example(node)
            copies[node] = copy
        written: dict[int, torch.fx.Node] = {}
        for node in self._whole.graph.nodes:
            if node.op in ("placeholder", "output") or node in self._nodes:
                continue
            if node in self._checks or node in self._tokens:
                continue
            if node.target is aten.copy_.default and _on_host(node.args[0]):
                written[self._inputs.index(node.args[0])] = copies[node.args[1]]
                copies[node] = copies[node.args[1]]
                continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
        outputs = [
            None
            if n in self._nodes or i in self._returned
            else torch.fx.node.map_arg(n, copies.__getitem__)
            for i, n in enumerate(self._outputs)
        ]
        checked = [copies[node.args[2]] for node in self._checks]
        graph.output([*outputs, *written.values(), *checked])
        with _use_lazy_graph_module(True):  # it is lowered, its code is not run
            return _make_graph_module(self._whole, graph), list(written)

    def _host_function(self) -> Callable:
        """From all inputs to what the device reads and what is returned, with CPU writes done."""
        graph = torch.fx.Graph()
        copies = {n: graph.node_copy(n) for n in self._inputs}
        writes: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self._whole.graph.nodes:
            if node in self._nodes and node.target is aten.copy_.default:
                writes[copies[node.args[0]]] = copies[node] = copies[node.args[1]]
            elif node.op == "get_attr" or node in self._nodes or _is_size(node):
                copies[node] = graph.node_copy(node, copies.__getitem__)
        if writes:  # all at once: an optimiser has one for each parameter
            graph.call_function(torch._foreach_copy_, (list(writes), list(writes.values())))
        finished = [copies[self._outputs[i]] for i in self._finished]
        graph.output(([copies[n] for n in self._passed], finished))
        if not finished:
            vectorize(graph)
        graph.eliminate_dead_code(
            lambda n: n.target is torch._foreach_copy_ or n.op != "call_function"
        )
        return torch.fx.GraphModule(self._whole, graph).forward

    def wrap(self, run: Callable[[list], list]) -> Callable[[list], list]:
        """``run`` of the device's graph as a function of the inputs of the whole."""
        if self.plain:
            return run

        def whole(inputs: list) -> list:
            kept = [inputs[i] for i in self._written]
            returned = [inputs[i] for i in self._returned.values()]
            finished: list = []
            if self.before is not None:
                passed, finished = self.before(*inputs)
                inputs.extend(passed)
            for i, device in self._sent:
                inputs[i] = inputs[i].to(device)
            results = self._settle(run(inputs), kept)
            for i, value in zip(self._returned, returned, strict=True):
                results[i] = value
            for i, value in zip(self._finished, finished, strict=True):
                results[i] = value
            return results

        return whole

    def _settle(self, results: list, written: list[torch.Tensor]) -> list:
        """Outputs where they belong; what follows them is written to CPU inputs, or checked."""
        count = len(self._outputs)
        for target, value in zip(written, results[count:], strict=False):
            target.copy_(value)
        infos = results[count + len(written) :]
        for node, info in zip(self._checks, infos, strict=True):
            aten._linalg_check_errors(info, *node.args[3:], **node.kwargs)
        for i in self._moved:
            results[i] = results[i].cpu()
        return results[:count]


def _is_size(node: torch.fx.Node) -> bool:
    """Arithmetic on sizes, which both parts need."""
    if node.op != "call_function" or node.target is aten._local_scalar_dense.default:
        return False
    is_number = isinstance(example(node), (int, float, torch.SymInt, torch.SymFloat))
    return is_number and not any(tensors_of(example(n)) for n in node.all_input_nodes)
