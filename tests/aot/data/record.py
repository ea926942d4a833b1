"""Makes the optimised programs beside this file: `python tests/aot/data/record.py` (needs libtpu).

loop       a while loop of five products with an all-reduce inside, and a conditional; 4 devices
step       a training step of a small network, its weights sharded over 4 devices: gathers that
           run beside products, a reduce-scatter, prefetches, donated arguments
named      a product, tanh and addition with PyTorch's names and lines, one donated argument
unknown    a loop whose number of trips depends on its data
"""

from __future__ import annotations

import gzip
import json
import pathlib

import torch

from torch_tpu.aot import sharding, training
from torch_tpu.aot.compile import compile as compile_for
from torch_tpu.aot.job import Job
from torch_tpu.aot.topology import Topology
from torch_tpu.program.compile import compile_options

HERE = pathlib.Path(__file__).parent
TOPOLOGY = "v5e:2x2"

NAMED = """module @named {
  func.func public @main(%a: tensor<256x512xbf16>, %b: tensor<512x1024xbf16>,
      %c: tensor<256x1024xbf16> {tf.aliasing_output = 0 : i32}) -> tensor<256x1024xbf16> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<256x512xbf16>, tensor<512x1024xbf16>) -> tensor<256x1024xbf16>
      loc("layers/0/fc/aten::mm"("model.py":12:0))
    %1 = stablehlo.tanh %0 : tensor<256x1024xbf16> loc("layers/0/act/aten::tanh"("model.py":13:0))
    %2 = stablehlo.add %1, %c : tensor<256x1024xbf16>
      loc("layers/0/aten::add.Tensor"("model.py":14:0))
    return %2 : tensor<256x1024xbf16>
  }
}"""

LOOP = """module @loop {
  func.func public @main(%x: tensor<512x512xbf16> {mhlo.sharding = "{devices=[4,1]<=[4]}"},
      %w: tensor<5x512x512xbf16> {mhlo.sharding = "{devices=[1,4,1]<=[4]}"},
      %k: tensor<i32>) -> tensor<512x512xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<512x512xbf16>
     cond {
      %p = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
     } do {
      %s = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 512, 512]
        : (tensor<5x512x512xbf16>, tensor<i32>, tensor<i32>, tensor<i32>)
        -> tensor<1x512x512xbf16>
      %m = stablehlo.reshape %s : (tensor<1x512x512xbf16>) -> tensor<512x512xbf16>
      %n = stablehlo.dot_general %h, %m, contracting_dims = [1] x [0]
        : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>
        loc("layer/aten::mm"("loop.py":7:0))
      %t = stablehlo.tanh %n : tensor<512x512xbf16>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %t : tensor<i32>, tensor<512x512xbf16>
     }
    %q = stablehlo.compare GT, %k, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %o = "stablehlo.if"(%q) ({
      %y = stablehlo.dot_general %r#1, %r#1, contracting_dims = [1] x [0]
        : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>
      stablehlo.return %y : tensor<512x512xbf16>
    }, {
      %y = stablehlo.negate %r#1 : tensor<512x512xbf16>
      stablehlo.return %y : tensor<512x512xbf16>
    }) : (tensor<i1>) -> tensor<512x512xbf16>
    return %o : tensor<512x512xbf16>
  }
}"""

UNKNOWN = """module @unknown {
  func.func public @main(%x: tensor<256x256xf32>, %n: tensor<i32>) -> tensor<256x256xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<256x256xf32>
     cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
     } do {
      %t = stablehlo.dot_general %h, %h, contracting_dims = [1] x [0]
        : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %t : tensor<i32>, tensor<256x256xf32>
     }
    return %r#1 : tensor<256x256xf32>
  }
}"""


class Net(torch.nn.Module):
    def __init__(self, width: int, layers: int):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def loss(model, x, y):
    return ((model(x).float() - y) ** 2).mean()


def build(topology, batch=256, width=1024, layers=2, dtype=torch.bfloat16) -> Job:
    """A training step, also for tests of the command line."""
    mesh = sharding.Mesh((topology.size,), ("data",))
    with torch.device("meta"):
        model, x = Net(width, layers).to(dtype), torch.empty(batch, width, dtype=dtype)
    step = training.training_step(model, torch.optim.SGD, loss, {"lr": 1e-2})
    specs = dict(zip(("x", "y"), sharding.data([x, x], "data"), strict=True))
    spread = {**sharding.fully_sharded(model, mesh, "data"), "batch.*": ("data",), **specs}
    return Job(fn=step, args=(x, x.clone()), name="small network", mesh=mesh, in_shardings=spread)


def keep(name: str, facts: dict, optimized: bytes) -> None:
    path = HERE / f"{name}.hlo.gz"
    path.write_bytes(gzip.compress(optimized, 9, mtime=0))
    known = {"memory": facts["memory"], "flops": facts["cost"].get("flops", 0.0)}
    (HERE / f"{name}.json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    print(path.name, path.stat().st_size, "bytes")


def main() -> None:
    topology = Topology(TOPOLOGY)
    for name, text, partitions in (
        ("named", NAMED, 1),
        ("loop", LOOP, 4),
        ("unknown", UNKNOWN, 1),
    ):
        if partitions > 1:
            text = text.replace(
                f"@{name} {{", f"@{name} attributes {{mhlo.num_partitions = 4 : i32}} {{"
            )
        facts, optimized, _ = topology.compile(text, compile_options(partitions=partitions))
        keep(name, facts, optimized)
    step = compile_for(build(topology), topology=topology)
    memory = {"peak_memory_in_bytes": step.memory.peak}
    keep("step", {"memory": memory, "cost": {"flops": step.cost.flops}}, step._optimized)


if __name__ == "__main__":
    main()
