"""Reading an optimised program: shapes, schedule, places, groups, trip counts, text."""

from __future__ import annotations

import pytest
import recorded

from torch_tpu.aot import groups, hlo, hlo_text, loops, source, wire, work
from torch_tpu.program.compile import _field


def only(module: hlo.HloModule, opcode: str) -> hlo.Instruction:
    found = [
        one for c in module.computations.values() for one in c.instructions if one.opcode == opcode
    ]
    assert len(found) == 1
    return found[0]


def test_a_module_is_read():
    module = recorded.module("named")
    assert (module.name, module.partitions, module.replicas) == ("named", 1, 1)
    assert module.is_scheduled
    assert module.aliases == {(): (2, ())}
    assert [one.opcode for one in module.entry.instructions][-1] == "fusion"
    assert recorded.module("loop").partitions == 4


def test_shapes_have_layout_and_memory_space():
    entry = recorded.module("named").entry
    parameter = entry.parameters[1].shape
    assert (parameter.dtype, parameter.dims, parameter.space) == ("bf16", (512, 1024), hlo.HBM)
    assert parameter.minor_to_major == (1, 0)
    assert parameter.tiles == ((8, 128), (2, 1))
    assert parameter.bytes == 512 * 1024 * 2
    prefetched = next(one for one in entry.instructions if one.opcode == "copy-done").shape
    assert prefetched.space == hlo.VECTOR
    assert prefetched.hbm_bytes == 0


@pytest.mark.parametrize(
    "shape, size",
    [
        (hlo.Shape("f32", (5, 130), (), (1, 0), ((8, 128),), 0, 32), 8 * 256 * 4),
        (hlo.Shape("bf16", (5,), (), (0,), ((256,), (128,), (2, 1)), 0, 16), 256 * 2),
        (hlo.Shape("f32", (), (), (), ((128,),), 0, 32), 4),
        (hlo.Shape("s4", (3,), (), (0,), (), 0, 4), 2),
        (hlo.Shape("token"), 0),
    ],
)
def test_padding_counts(shape, size):
    assert shape.bytes == size
    assert hlo.Shape("tuple", elements=(shape, shape)).bytes == 2 * size


def test_cycles_and_places():
    module = recorded.module("named")
    fusion = module.entry.root
    assert fusion.estimated_cycles > 1000
    main = work.Work(module).main(fusion)
    assert source.of(main) == ("aten::mm", "layers/0/fc", "model.py:12")
    names = {one.op_name for c in module.computations.values() for one in c.instructions}
    assert {"layers/0/act/aten::tanh", "layers/0/aten::add.Tensor"} <= names


def test_flop_are_those_of_the_shapes():
    module = recorded.module("named")
    counted = work.Work(module).flops(module.entry, module.entry.root)
    assert counted == {"bf16": 2 * 256 * 512 * 1024}


def test_in_place_results_are_known():
    module = recorded.module("named")
    donated = module.entry.root.aliases[()]
    assert module.entry.operand(module.entry.root, donated).parameter_number == 2


def brute_force(kernel, stride, low, spread, between, size, results):
    found = 0
    for k in range(kernel):
        for result in range(results):
            at = result * stride + k * spread - low
            found += 0 <= at <= (size - 1) * between and at % between == 0
    return found


def test_positions_of_a_window():
    for kernel in (1, 3, 4):
        for stride in (1, 2, 3):
            for low in (-2, 0, 1, 5):
                for spread, between in ((1, 1), (2, 1), (1, 2), (3, 4), (2, 6)):
                    for size, results in ((1, 4), (5, 3), (6, 9)):
                        call = (kernel, stride, low, spread, between, size, results)
                        assert work._positions(*call) == brute_force(*call), call


def test_trip_counts():
    module = recorded.module("loop")
    loop = only(module, "while")
    assert loops.Loop(module, module.entry, loop).trips == 5
    found = loops.Executions(module)
    body = loops.Loop(module, module.entry, loop).body
    condition = loops.Loop(module, module.entry, loop).condition
    assert (found.counts[body.id], found.counts[condition.id]) == (5, 6)
    assert found.guessed == []
    assert found.in_branch
    unknown = recorded.module("unknown")
    assert loops.Executions(unknown).guessed == [only(unknown, "while").name]


@pytest.mark.parametrize(
    "start, step, bound, direction, trips",
    [
        (0, 1, 5, "LT", 5),
        (0, 2, 5, "LT", 3),
        (0, 2, 6, "LE", 4),
        (1, 2, 6, "LE", 3),
        (5, -1, 0, "GT", 5),
        (5, -2, 1, "GE", 3),
        (0, 3, 9, "NE", 3),
        (0, 2, 9, "NE", None),
        (7, 1, 5, "LT", 0),
        (0, -1, 5, "LT", None),
        (9, 1, 5, "GT", None),
    ],
)
def test_counting_loops(start, step, bound, direction, trips):
    assert loops._count(start, step, bound, loops._PASSES[direction]) == trips


def iota(count, size, dims=(), order=()):
    packed = lambda numbers: bytes(numbers)  # noqa: E731  (all below 128)
    data = _field(1, count) + _field(2, size)
    if dims:
        data += _field(3, packed(dims)) + _field(4, packed(order))
    return data


def mesh(dims, axes):
    axis = lambda n: _field(1, _field(1, b"a") + _field(2, n))  # noqa: E731
    return _field(1, b"".join(map(axis, dims))) + b"".join(_field(2, a) for a in axes)


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", []),
        (_field(49, _field(1, bytes([0, 1]))) + _field(49, _field(1, bytes([2, 3]))), "01 23"),
        (_field(87, _field(1, _field(1, bytes([0, 2])))), "02"),
        (_field(92, iota(2, 2)), "01 23"),
        (_field(92, iota(2, 2, (2, 2), (1, 0))), "02 13"),
        (_field(87, _field(2, iota(1, 4))), "0123"),
        (_field(93, mesh((2, 2), [b""])), "02 13"),
        (_field(93, mesh((2, 2), [_field(1, 1)])), "01 23"),
        (_field(93, mesh((2, 2), [b"", _field(1, 1)])), "0123"),
        (_field(93, mesh((4,), [_field(2, _field(1, 1) + _field(2, 2))])), "02 13"),
    ],
)
def test_groups_in_every_form(data, expected):
    listed = [tuple(map(int, group)) for group in expected.split()] if expected else []
    assert groups.replica_groups(wire.Message(data)) == listed


def test_text_has_everything_once():
    module = recorded.module("loop")
    text = hlo_text.text(module)
    assert text.startswith("HloModule loop, is_scheduled=true, num_partitions=4")
    for computation in module.computations.values():
        assert f"%{computation.name} (" in text
        for one in computation.instructions:
            assert f"%{one.name} = {hlo_text.shape_text(one.shape)} {one.opcode}(" in text
    assert text.count("ENTRY ") == 1
    assert "replica_groups={{0,1,2,3}}" in text
    assert "condition=%" in text
    named = hlo_text.text(recorded.module("named"))
    assert "bf16[512,1024]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start)" in named
    assert 'op_name="layers/0/fc/aten::mm" source_file="model.py" source_line=12' in named
    assert "input_output_alias={ {}: (2, {}) }" in named


def test_without_configuration_it_is_the_same():
    inner = bytes(wire.Message(recorded.raw("named")).data(1))
    assert hlo_text.text(hlo.parse(inner)) == hlo_text.text(recorded.module("named"))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"\x0a\x05ab", b"HloModule x\n"])
def test_what_is_no_program_is_refused(data):
    with pytest.raises(ValueError, match="not a"):
        hlo.parse(data)


def test_every_cut_is_refused_or_read():
    data = recorded.raw("named")
    for end in range(0, len(data), 997):
        try:
            hlo.parse(data[:end])
        except ValueError:
            continue
