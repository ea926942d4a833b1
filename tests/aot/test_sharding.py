"""How tensors lie over a mesh: XLA's words, the tables, and where they end up in a program."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Partial, Replicate, Shard

from torch_tpu.aot.capture import capture
from torch_tpu.aot.job import Job
from torch_tpu.aot.sharding import Mesh, constrain, data, fully_sharded, lookup, tensor_parallel
from torch_tpu.aot.training import training_step
from torch_tpu.program.compile import compile_options

MESH = Mesh((4, 2), ("data", "model"))


@pytest.mark.parametrize(
    ("spec", "rank", "text"),
    [
        ((), 2, "{replicated}"),
        ((None, None), 2, "{replicated}"),
        (("data",), 2, "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"),
        ((None, "model"), 2, "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
        (("data", "model"), 2, "{devices=[4,2]<=[8]}"),
        (("model", "data"), 2, "{devices=[2,4]<=[4,2]T(1,0)}"),
        ((("data", "model"),), 1, "{devices=[8]<=[8]}"),
        ((("model", "data"), None), 2, "{devices=[8,1]<=[4,2]T(1,0)}"),
        ([Shard(1), Replicate()], 2, "{devices=[1,4,2]<=[8] last_tile_dim_replicate}"),
        ([Shard(0), Shard(-1)], 3, "{devices=[4,1,2]<=[8]}"),
        ([Shard(0), Shard(0)], 1, "{devices=[8]<=[8]}"),
        ([Replicate(), Replicate()], 1, "{replicated}"),
    ],
)
def test_words(spec, rank, text):
    assert MESH.sharding(spec, rank) == text


def owners(text: str, shape) -> dict[int, tuple]:
    """Device → its tile, by the definition of the notation."""
    dims, source, order = re.match(
        r"\{devices=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text
    ).groups()
    dims, source = ([int(n) for n in s.split(",")] for s in (dims, source))
    devices = torch.arange(torch.Size(source).numel()).view(source)
    if order:
        devices = devices.permute([int(n) for n in order.split(",")])
    tiles = devices.reshape(dims)
    return {
        int(tiles[i]): tuple(i)[: len(shape)]
        for i in torch.cartesian_prod(*map(torch.arange, dims)).reshape(-1, len(dims)).split(1)
        for i in [tuple(i[0].tolist())]
    }


@pytest.mark.parametrize("spec", [("b", "c"), (("c", "a"), None), (None, "b"), ("c", ("a", "b"))])
def test_the_words_put_each_tile_where_the_spec_says(spec):
    mesh = Mesh((2, 3, 4), ("a", "b", "c"))
    got = owners(mesh.sharding(spec, 2), (0, 0))
    for device in range(mesh.size):
        place = dict(zip("abc", (device // 12, device // 4 % 3, device % 4), strict=True))
        expected = []
        for names in mesh.spec(spec, 2):
            tile = 0
            for name in names:
                tile = tile * mesh.length(name) + place[name]
            expected.append(tile)
        assert got[device] == tuple(expected)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (("x",), "'x' is no axis of the mesh, which has data, model"),
        (("data", "data"), "twice"),
        ((None, None, None), "3 dimensions of a 2-d tensor"),
        ([Shard(0)], "1 placements for a mesh with 2 axes"),
        ([Shard(2), Replicate()], "2-d"),
        ([Partial(), Replicate()], "no placement of a whole tensor"),
    ],
)
def test_wrong_specs(spec, message):
    with pytest.raises(ValueError, match=message):
        MESH.sharding(spec, 2)


def test_wrong_meshes():
    for shape, names in (((2, 2), ("a",)), ((2, 2), ("a", "a")), ((0,), ("a",))):
        with pytest.raises(ValueError, match="mesh"):
            Mesh(shape, names)


class Net(nn.Module):
    """Two products with an activation that is split over the mesh between them."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 256), nn.Linear(256, 4)

    def forward(self, x):
        return self.down(constrain(self.up(x).relu(), ("data", "model")))


def test_tables():
    model = Net()
    assert fully_sharded(model, MESH, ("data", "model")) == {
        "up.weight": (("data", "model"), None),
        "up.bias": (None,),
        "down.weight": (None, ("data", "model")),
        "down.bias": (None,),
    }
    plan = tensor_parallel(model, {"up.*": ("model",), "down.weight": (None, "model")})
    assert plan == {"up.weight": ("model",), "up.bias": ("model",), "down.weight": (None, "model")}
    with pytest.raises(ValueError, match="no parameter is called like 'left"):
        tensor_parallel(model, {"left.*": ("model",)})
    batch = data({"x": torch.ones(2, 3), "n": 3}, "data")
    assert batch == {"x": ("data",), "n": None}
    assert lookup({"a.*": ("data",)}, "a.b") == ("data",) and lookup({}, "a") is None


def test_constrain_is_nothing_elsewhere():
    x = torch.ones(2, 2)
    assert constrain(x, ("data",)) is x


def test_the_operator_runs_eagerly_and_differentiates():
    for device in ("cpu", "tpu"):
        x = torch.randn(2, 2, device=device, requires_grad=True)
        torch.ops.torch_tpu.shard(x, "{replicated}").square().sum().backward()
        torch.testing.assert_close(x.grad, 2 * x.detach())
        (y,) = torch.ops.torch_tpu.barrier([x.detach()])
        assert torch.equal(y, x.detach())


def sharded_step() -> tuple:
    model = Net()
    step = training_step(
        model, torch.optim.AdamW, lambda model, x, y: (model(x) - y).square().mean()
    )
    table = {**fully_sharded(model, MESH, "model"), "batch.*": ("data",)}
    return capture(step, (torch.ones(4, 8), torch.ones(4, 4)), in_shardings=table, mesh=MESH)


def test_a_sharded_training_step():
    captured = sharded_step()
    assert captured.partitions == 8
    by_name = {p.name: p.sharding for p in captured.parameters}
    rows = "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"
    assert by_name["up.weight"] == by_name["optimizer.up.weight.exp_avg"] == rows
    assert by_name["optimizer.up.weight.step"] == by_name["up.bias"] == "{replicated}"
    assert by_name["batch.0"] == "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"
    assert all(r.sharding == captured.parameters[r.mutates].sharding for r in captured.results[1:])
    text = captured.text
    head = text[: text.index("\n", text.index("@main"))]
    assert head.count("mhlo.sharding") == len(captured.parameters) + len(captured.results) - 1
    constraints = re.findall(r'custom_call.*"Sharding", mhlo.sharding = "(.*?)"', text)
    # The activation and its gradient, and the gradients of four parameters.
    assert constraints.count("{devices=[4,2]<=[8]}") == 2
    assert constraints.count(rows) == 1 and len(constraints) == 6


def test_shardings_by_position():
    captured = capture(
        lambda x, n, y: x + y * n,
        (torch.ones(4), 2, torch.ones(4)),
        in_shardings=(("data",), None, ("model",)),
        mesh=MESH,
    )
    assert [p.sharding[:12] for p in captured.parameters] == ["{devices=[4,", "{devices=[2,"]


def test_what_does_not_fit_is_refused():
    x = torch.ones(3, 2)
    with pytest.raises(ValueError, match="sharding of x: dimension 0 of .3, 2. does not divide"):
        capture(lambda x: x, (x,), in_shardings={"x": ("data",)}, mesh=MESH)
    with pytest.raises(ValueError, match="without mesh="):
        capture(lambda x: x, (x,), in_shardings={"x": ("data",)})
    with pytest.raises(ValueError, match="2 in_shardings for 1 arguments"):
        capture(lambda x: x, (x,), in_shardings=(None, None), mesh=MESH)


def test_a_job_says_its_own_flops():
    job = Job(lambda x: x @ x, (torch.ones(2, 2),), name="square")
    assert job.captured().flops == 16
    job.flops = 5
    assert job.captured().flops == 5


def test_options_for_several_devices():
    one, two = compile_options(), compile_options(partitions=2)
    assert one == b"\x1a\x04\x20\x01\x28\x01\x20\x01"
    # 4: replicas, 5: partitions, 6: SPMD, 9: (1, 2, [0], [1]), 12: [true]
    devices = b"\x08\x01\x10\x02" + b"\x1a\x02\x08\x00" + b"\x1a\x02\x08\x01"
    assert two == b"\x1a\x17\x20\x01\x28\x02\x30\x01\x4a\x0c" + devices + b"\x62\x01\x01"
    swapped = compile_options(partitions=2, devices=[1, 0])
    assert swapped != two and swapped == compile_options(None, 2, [1, 0, 2, 3])
