"""Graphs as data: what comes back computes what the graph did."""

import pickle

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_tpu.compile.record import graph_of, record
from torch_tpu.lowering import places


def again(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    return graph_of(pickle.loads(pickle.dumps(record(module))))


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def constants(x):
    left, right = (x + torch.tensor([1.0, 2.0])).split(1)
    return torch.stack([left, right], -1)[..., 1:].to(torch.float64), 3, None


FUNCTIONS = {"branches": branches, "constants": constants}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_comes_back(name):
    x = torch.tensor([0.5, -2.0])
    module = make_fx(FUNCTIONS[name], tracing_mode="fake")(x)
    copy = again(module)
    assert [(n.op, n.name, n.target) for n in module.graph.nodes if n.op != "get_attr"] == [
        (n.op, n.name, n.target) for n in copy.graph.nodes if n.op != "get_attr"
    ]
    torch.testing.assert_close(copy(x), module(x), rtol=0, atol=0)


def test_example_values_keep_their_layout():
    x = torch.ones(6, 4)
    module = make_fx(lambda x: x[2:].t()[1:], tracing_mode="fake")(x)
    for node, copy in zip(module.graph.nodes, again(module).graph.nodes, strict=True):
        if isinstance(node.meta.get("val"), torch.Tensor):
            value, same = node.meta["val"], copy.meta["val"]
            assert (value.shape, value.stride()) == (same.shape, same.stride())
            assert value.storage_offset() == same.storage_offset()
            assert (value.dtype, value.device) == (same.dtype, same.device)


def test_places_are_kept():
    module = make_fx(lambda x: x.sin(), tracing_mode="fake")(torch.ones(3))
    (node,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    node.meta["nn_module_stack"] = {"fc": ("L['self'].layers[0].fc", torch.nn.Linear)}
    node.meta["stack_trace"] = '  File "model.py", line 7, in forward\n    return x.sin()'
    (copy,) = again(module).graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    assert (
        places.of_node(copy) == places.of_node(node) == ("aten::sin", "layers/0/fc", "model.py:7")
    )


def test_symbolic_sizes_are_refused():
    module = make_fx(lambda x: x.view(-1) + 1, tracing_mode="symbolic")(torch.ones(3, 4))
    with pytest.raises(TypeError, match="symbolic"):
        record(module)
