"""Time, collectives and memory that are read off an optimised program."""

from __future__ import annotations

import dataclasses

import pytest
import recorded
import torch

from torch_tpu.aot import chips, collectives, estimate, hlo, timeline, torus, wire
from torch_tpu.aot.topology import Device, Topology
from torch_tpu.api import plugin
from torch_tpu.program.compile import _field, compile_options

HAS_LIBTPU = plugin.library_of("libtpu", "libtpu.so") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="needs libtpu: pip install libtpu")
CHIP, DEVICES = recorded.CHIP, recorded.DEVICES


def estimated(name: str, chip=CHIP, **more) -> estimate.Estimate:
    module = recorded.module(name)
    found = collectives.of(module, chip, DEVICES)
    return estimate.estimate(module, chip, collectives=found, **more)


def op(found: estimate.Estimate, opcode: str) -> estimate.Op:
    (one,) = [one for one in found.ops if one.opcode == opcode]
    return one


def test_cycles_become_seconds():
    found = estimated("named", model_flops=2 * 256 * 512 * 1024)
    fusion = op(found, "fusion")
    assert fusion.seconds == pytest.approx(fusion.cycles / CHIP.clock)
    assert fusion.kind == "convolution fusion"
    assert fusion.place == ("aten::mm", "layers/0/fc", "model.py:12")
    copy = op(found, "copy-start")  # there is nothing to hide it behind
    assert copy.seconds == pytest.approx(512 * 1024 * 2 / CHIP.hbm_bandwidth)
    assert found.seconds == pytest.approx(fusion.seconds + copy.seconds)
    assert found.flops == {"bf16": 2 * 256 * 512 * 1024}
    assert found.mfu == found.hfu
    assert found.mfu == pytest.approx(2 * 256 * 512 * 1024 / found.seconds / 197e12)
    # Two operands and the result; the weight was counted where it is prefetched.
    assert fusion.bytes == (256 * 512 + 2 * 256 * 1024) * 2
    assert found.bound_seconds <= found.seconds


def test_loop_bodies_count_as_often_as_they_run():
    found = estimated("loop")
    product = 2 * 128 * 512 * 512
    assert found.total_flops == (5 + 1) * product  # one more in the longer branch
    inside = [one for one in found.ops if one.executions == 5 and one.total_flops]
    assert sum(one.total_flops for one in inside) == 5 * product
    compiler = recorded.facts("loop")["flops"]
    assert compiler == pytest.approx(2 * product, rel=0.01)  # which counts the body once
    counted = dataclasses.make_dataclass("Cost", ["flops"])(compiler)
    notes = estimated("loop", cost=counted).uncertain
    assert any("loop bodies once" in note for note in notes)


def test_of_a_conditional_the_longest_branch_counts():
    names = {one.computation for one in estimated("loop").ops}
    module = recorded.module("loop")
    (conditional,) = [i for i in module.entry.instructions if i.opcode == "conditional"]
    taken = [c.name for c in module.called(conditional) if c.name in names]
    assert len(taken) == 1


def test_a_loop_of_unknown_length_is_named():
    found = estimated("unknown")
    assert any("How often these loops run is unknown" in note for note in found.uncertain)
    assert any("float32 products" in note for note in found.uncertain)


def test_a_guessed_clock_is_said():
    v6e = chips.of_kind("TPU v6 lite")
    assert any("1.75 GHz, is a guess" in note for note in estimated("named", v6e).uncertain)
    assert not any("is a guess" in note for note in estimated("named").uncertain)


def test_collectives_are_listed():
    found = collectives.of(recorded.module("loop"), CHIP, DEVICES)
    inside = [one for one in found if one.executions == 5]
    assert [(one.kind, one.bytes, one.group_size) for one in inside] == [
        ("all-gather", 512 * 512 * 2, 4)
    ]
    assert [one.in_branch for one in found].count(True) == 1
    assert all(one.groups == [(0, 1, 2, 3)] and one.over == "x2·y2" for one in found)


def test_a_chain_of_fusions_is_one_collective():
    found = collectives.of(recorded.module("step"), CHIP, DEVICES)
    chains = [one for one in found if len(one.parts) > 1]
    assert chains
    assert all(one.asynchronous and one.kind == "all-gather" for one in chains)
    made = estimated("step")
    hidden = [one for one in made.ops if one.kind == "collective" and one.hidden]
    assert len(hidden) == len(chains)
    # What a transfer takes is either waited for or hidden.
    for one, chain in zip(hidden, chains, strict=True):
        assert one.seconds + one.hidden == pytest.approx(chain.seconds)
    assert made.seconds == pytest.approx(sum(one.seconds for one in made.ops))


def seconds(kind, size, group, devices=DEVICES, chip=CHIP):
    return torus.Coordinates(devices, chip).seconds(kind, size, [group], len(group))


def test_the_link_model():
    link, size = CHIP.ici_bandwidth, 10**6
    assert seconds("all-gather", size, (0, 1)) == (size / 2 / link, "x2")
    assert seconds("all-reduce", size, (0, 2)) == (size / link, "y2")
    assert seconds("reduce-scatter", size, (0, 1, 2, 3)) == (size * 3 / 4 / (2 * link), "x2·y2")
    assert seconds("all-to-all", size, (0, 1))[0] == size * 2 / 4 / link
    assert seconds("collective-permute", size, (0, 3)) == (size * 2 / link, "up to 2 hops")
    assert seconds("all-gather", size, (0,)) == (0.0, "one device")
    assert seconds("all-gather", size, (0, 3))[1].endswith("(irregular: one link)")
    assert seconds("all-gather", size, (8, 9))[1].startswith("unknown")


def test_long_axes_are_rings_and_cores_share_links():
    chip = chips.of_kind("TPU7x")
    cube = [
        Device(0, "TPU7x", (x, y, z), core)
        for x in range(4)
        for y in range(4)
        for z in range(4)
        for core in range(2)
    ]
    everything = seconds("all-gather", 10**9, tuple(range(128)), cube, chip)
    assert everything == (10**9 * 63 / 64 / (6 * chip.ici_bandwidth), "x4·y4·z4 +cores")
    one_core = seconds("all-gather", 10**9, tuple(range(0, 128, 2)), cube, chip)
    assert one_core[0] == pytest.approx(2 * everything[0])
    assert seconds("all-reduce", 10**9, (0, 1), cube, chip)[1] == "chip"


def test_memory_along_the_schedule():
    module, facts = recorded.module("named"), recorded.facts("named")["memory"]
    found = timeline.of(module, ["a", "b", "c"], facts["peak_memory_in_bytes"])
    assert found.argument_bytes == facts["argument_size_in_bytes"]
    assert found.peak == found.argument_bytes  # the result takes the place of c
    assert found.difference_with_vector == 0  # the compiler counts the prefetched weight
    assert [(b.name, b.kind) for b in found.largest] == [
        ("b", "argument"),
        ("c", "argument"),
        ("a", "argument"),
    ]
    assert len(found.live) == len(module.entry.instructions)


@pytest.mark.parametrize("name", ["loop", "unknown", "step"])
def test_memory_is_near_the_compilers(name):
    peak = recorded.facts(name)["memory"]["peak_memory_in_bytes"]
    found = timeline.of(recorded.module(name), (), peak)
    # These programs are a few MB, of which the compiler sets some aside for itself.
    assert -0.3 < found.difference_with_vector < 0.1
    assert found.peak >= found.argument_bytes


def test_a_kernel_takes_what_its_author_wrote():
    config = b'{"custom_call_config": {"cost_estimate": {"flops": 4e9, "bytes_accessed": 8000}}}'
    fields = _field(1, b"kernel") + _field(2, b"custom-call") + _field(43, config)
    kernel = hlo.Instruction(wire.Message(fields + _field(28, b"tpu_custom_call")), [])
    simulation = estimate.Simulation(recorded.module("named"), CHIP, ())
    assert simulation._seconds(kernel, {}, 100) == (4e9 / CHIP.peak, estimate.AUTHOR)
    assert simulation._kind(kernel, {}) == "kernel"
    assert kernel.estimated_cycles is None


def test_what_has_no_cycles_takes_the_roofline():
    simulation = estimate.Simulation(recorded.module("named"), CHIP, ())
    plain = hlo.Instruction(wire.Message(_field(1, b"x") + _field(2, b"sort")), [])
    assert simulation._seconds(plain, {}, 819) == (819 / CHIP.hbm_bandwidth, estimate.ROOFLINE)
    by_flop = simulation._seconds(plain, {"bf16": 10**9}, 819)
    assert by_flop == (10**9 / CHIP.peak, estimate.ROOFLINE)


def program(arguments: str, operation: str, result: str) -> str:
    return (
        f"module @m {{ func.func public @main({arguments}) -> {result} {{\n"
        f"%0 = {operation}\n return %0 : {result} }} }}"
    )


PRODUCTS = {
    "batched": program(
        "%a: tensor<16x256x64xbf16>, %b: tensor<16x64x256xbf16>",
        "stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
        "(tensor<16x256x64xbf16>, tensor<16x64x256xbf16>) -> tensor<16x256x256xbf16>",
        "tensor<16x256x256xbf16>",
    ),
    "grouped": program(
        "%a: tensor<8x64x28x28xbf16>, %b: tensor<32x16x3x3xbf16>",
        "stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], "
        "window = {stride = [2, 2], pad = [[1, 1], [1, 1]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 4 : i64} : "
        "(tensor<8x64x28x28xbf16>, tensor<32x16x3x3xbf16>) -> tensor<8x32x14x14xbf16>",
        "tensor<8x32x14x14xbf16>",
    ),
}


@needs_libtpu
@pytest.mark.parametrize("name", PRODUCTS)
def test_flop_agree_with_the_compilers(name):
    topology = Topology("v5e:2x2")
    facts, optimized, _ = topology.compile(PRODUCTS[name], compile_options())
    found = estimate.estimate(hlo.parse(optimized), topology.chip)
    # The compiler writes both as convolutions full of zeros, and counts none of them.
    assert found.total_flops == facts["cost"]["flops"]


def test_rates_by_dtype():
    assert estimate.peak(CHIP, "s8") == CHIP.flops[torch.int8]
    assert estimate.peak(CHIP, "f32") == CHIP.peak
