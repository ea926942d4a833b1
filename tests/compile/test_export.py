"""torch.export to StableHLO: the module's text and signature, its results, its file.

Every program is compared with the nn.Module on the CPU. Not here: lowering of single operators
(tests/ops/) and of control flow in general.
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from torch_tpu import export

ROOT = pathlib.Path(__file__).resolve().parents[2]


def to(tree, device):
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), tree)


def exported(module, *args, **kwargs):
    return export.to_stablehlo(torch.export.export(module, args, kwargs))


def assert_same(got, wanted):
    assert pytree.tree_structure(got) == pytree.tree_structure(wanted)
    for g, w in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
        if isinstance(w, torch.Tensor):
            assert g.device.type == "tpu"
            assert g.stride() == w.stride()
            torch.testing.assert_close(g.cpu(), w, rtol=1e-5, atol=1e-5)
        else:
            assert g == w and type(g) is type(w)


def check(module, *args, **kwargs):
    """Export, run and compare; returns the program."""
    program = exported(module, *args, **kwargs)
    with torch.no_grad():
        wanted = module(*args, **kwargs)
    assert_same(program(*to(args, "tpu"), **to(kwargs, "tpu")), wanted)
    return program


# ---- models ------------------------------------------------------------------------------------


class Perceptron(nn.Module):
    """Two layers, a persistent buffer, one that is not, and a tensor constant."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.register_buffer("scale", torch.rand(8))
        self.register_buffer("shift", torch.rand(3), persistent=False)
        self.factors = torch.arange(3.0)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)) * self.scale) * self.factors + self.shift


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 4, 2)

    def forward(self, x):
        x = torch.relu(self.norm(self.convolution(x)))
        return self.head(nn.functional.max_pool2d(x, 4).flatten(1))


class Structured(nn.Module):
    """Dict inputs, keyword arguments, nested outputs, integers, numbers and None."""

    def forward(self, batch, *, weight, power=2):
        total = batch["a"] + batch["b"][0] * weight
        return {
            "total": total.pow(power),
            "best": (total.argmax(-1), total.sort(-1).indices.to(torch.int32)),
            "rest": [3, None, batch["a"], total > 0],
        }


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


STRUCTURED = (
    ({"a": torch.randn(2, 5), "b": [torch.randn(5)]},),
    {"weight": torch.tensor(2.0), "power": 3},
)

# ---- results -----------------------------------------------------------------------------------


def test_perceptron():
    program = check(Perceptron(), torch.randn(2, 4))
    found = {p.name: (p.kind, p.shape, p.dtype) for p in program.signature.parameters}
    f32 = torch.float32
    assert found == {
        "first.weight": ("parameter", (8, 4), f32),
        "first.bias": ("parameter", (8,), f32),
        "second.weight": ("parameter", (3, 8), f32),
        "second.bias": ("parameter", (3,), f32),
        "scale": ("buffer", (8,), f32),
        "shift": ("buffer", (3,), f32),
        "factors": ("constant", (3,), f32),
        "x": ("input", (2, 4), f32),
    }
    assert [(r.kind, r.shape, r.dtype) for r in program.signature.results] == [
        ("output", (2, 3), f32)
    ]


def test_batch_norm_in_eval_mode_mutates_nothing():
    program = check(Convolutional().eval(), torch.randn(2, 3, 8, 8))
    assert program.signature.mutated == {}


def test_batch_norm_in_train_mode_updates_the_buffers_of_the_program():
    module = Convolutional().train()
    x = torch.randn(2, 3, 8, 8)
    program = exported(module, x)
    for _ in range(3):
        with torch.no_grad():
            wanted = module(x)
        assert_same(program(x.to("tpu")), wanted)
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(program.weights[name].cpu(), buffer, rtol=1e-5, atol=1e-6)
    names = {program.signature.parameters[i].name for i in program.signature.mutated}
    assert names == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def test_transformer_block():
    module = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    check(module, torch.randn(2, 5, 8), src_mask=mask)
    check(module.eval(), torch.randn(2, 5, 8))


def test_structures_integers_and_values():
    program = check(Structured(), *STRUCTURED[0], **STRUCTURED[1])
    dtypes = [r.dtype for r in program.signature.results]
    assert torch.int64 in dtypes and torch.int32 in dtypes and torch.bool in dtypes
    assert program.signature.arguments[-1].value == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_dtypes(dtype):
    class Square(nn.Module):
        def forward(self, x):
            return x * x + 1

    program = exported(Square(), torch.ones(2, 2, dtype=dtype))
    result = program(torch.full((2, 2), 2.0, dtype=dtype, device="tpu"))
    assert result.dtype is dtype and result.tolist() == [[5, 5], [5, 5]]


def test_host_kernels_are_called_where_there_are_any(monkeypatch):
    from torch_tpu import _core

    class Singular(nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    program = check(Singular(), torch.randn(3, 3))
    assert "torch_tpu.aten" in program.text
    monkeypatch.setattr(_core, "has_host_kernels", lambda: False)
    with pytest.raises(RuntimeError, match="cannot run on another one"):
        program(torch.randn(3, 3, device="tpu").t())


def test_recurrent_layers():
    check(nn.LSTM(4, 5, batch_first=True), torch.randn(2, 3, 4))


def test_operators_that_only_decompose():
    class Composite(nn.Module):
        def forward(self, x, y):
            both = torch.einsum("bi,bj->bij", x, y)
            return torch.tensordot(both, y, dims=([2], [1])), torch.cosine_similarity(x, y), x.mT

    check(Composite(), torch.randn(2, 3), torch.randn(2, 3))


def test_views_and_strides():
    class Flip(nn.Module):
        def forward(self, x):
            return x.t(), x.contiguous(memory_format=torch.contiguous_format)[1:]

    program = check(Flip(), torch.randn(3, 4))
    base = torch.randn(4, 6)
    got = program(base.to("tpu")[:, 1:4].t())  # a view of part of a storage
    torch.testing.assert_close(got[0].cpu(), base[:, 1:4])


def test_no_grad_regions_and_control_flow():
    class Branches(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = x * 2
            return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))

    program = check(Branches(), torch.ones(3))
    torch.testing.assert_close(
        program(-torch.ones(3, device="tpu")).cpu(), (torch.ones(3) * 2).cos()
    )


def test_an_argument_that_is_mutated_is_updated():
    class Accumulate(nn.Module):
        def forward(self, total, x):
            total.add_(x)
            return total * 2

    program = exported(Accumulate(), torch.zeros(3), torch.ones(3))
    total = torch.ones(3, device="tpu")
    assert program(total, torch.ones(3, device="tpu")).tolist() == [4, 4, 4]
    assert total.tolist() == [2, 2, 2]


def test_empty_tensors_and_no_results():
    class Empty(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, x]), y.sum(0), None

    check(Empty(), torch.zeros(0, 3), torch.ones(2, 2))

    class Nothing(nn.Module):
        def forward(self, x):
            return (None, 2)

    check(Nothing(), torch.ones(2))


def test_exported_on_the_device():
    module = Counter()
    x = torch.randn(3)
    program = exported(module.to("tpu"), x.to("tpu"))
    original = module.calls
    assert_same(program(x.to("tpu")), x)
    assert_same(program(x.to("tpu")), x * 2)
    assert original.item() == 0  # the program has its own
    assert program.weights["calls"].item() == 2


def test_a_second_call_compiles_nothing(compiles):
    program = exported(Perceptron(), torch.randn(2, 4))
    x = torch.randn(2, 4, device="tpu")
    program(x)
    compiles.reset()
    program(x)
    assert compiles() == 0


def test_random_numbers_come_from_the_default_generator():
    program = exported(nn.Dropout(0.5).train(), torch.ones(64))
    last = program.signature.parameters[-1]
    assert (last.kind, last.shape, last.dtype) == ("generator", (2,), torch.uint64)
    x = torch.ones(64, device="tpu")
    torch.manual_seed(3)
    first, second = program(x).tolist(), program(x).tolist()
    torch.manual_seed(3)
    assert program(x).tolist() == first != second
    assert set(first) == {0.0, 2.0}


# ---- dynamic sizes -----------------------------------------------------------------------------


def dynamic():
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=16)}}
    return torch.export.export(Perceptron(), (torch.randn(3, 4),), dynamic_shapes=sizes)


def test_dynamic_sizes_need_examples():
    with pytest.raises(ValueError, match=r"dynamic sizes \(x torch.float32\[s\d+, 4\]\).*example"):
        export.to_stablehlo(dynamic())


def test_examples_decide_dynamic_sizes():
    program = dynamic()
    for batch in (2, 5):
        x = torch.randn(batch, 4)
        made = export.to_stablehlo(program, (x,))
        assert f"tensor<{batch}x4xf32>" in made.text
        with torch.no_grad():
            assert_same(made(x.to("tpu")), program.module()(x))


def test_dynamic_numbers_and_outputs():
    class Repeat(nn.Module):
        def forward(self, x, times):
            return x.expand(times, -1) * times, x.shape[1] + times

    many = torch.export.Dim.DYNAMIC
    shapes = ({1: many}, many)
    program = torch.export.export(Repeat(), (torch.ones(1, 3), 5), dynamic_shapes=shapes)
    made = export.to_stablehlo(program, (torch.ones(1, 4), 7))
    x = torch.ones(1, 4)
    assert_same(made(x.to("tpu"), 7), program.module()(x, 7))
    with pytest.raises(ValueError, match="input 'times' was 7"):
        made(x.to("tpu"), 6)


def test_examples_that_do_not_fit():
    with pytest.raises(ValueError, match="is 17 in the example.*one of 2 to 16"):
        export.to_stablehlo(dynamic(), (torch.randn(17, 4),))
    with pytest.raises(ValueError, match=r"x: the program takes \[3, 4\] here, not \[3, 5\]"):
        export.to_stablehlo(dynamic(), (torch.randn(3, 5),))
    with pytest.raises(ValueError, match="x: the program takes .* not"):
        export.to_stablehlo(dynamic(), (torch.randn(4),))
    with pytest.raises(ValueError, match="example arguments come as"):
        export.to_stablehlo(dynamic(), (torch.randn(3, 4), 1))


# ---- errors ------------------------------------------------------------------------------------


def test_operators_without_a_lowering_are_named():
    class Nonzero(nn.Module):
        def forward(self, x):
            return x.nonzero()

    with pytest.raises(NotImplementedError, match="aten.nonzero.default"):
        exported(Nonzero(), torch.ones(3))


def test_sizes_and_numbers_that_depend_on_data_are_refused():
    class Item(nn.Module):
        def forward(self, x):
            return x.sum().item()

    with pytest.raises(NotImplementedError, match="depends on data"):
        exported(Item(), torch.ones(3))


def test_only_exported_programs():
    with pytest.raises(TypeError, match="takes what torch.export.export returns, not Linear"):
        export.to_stablehlo(nn.Linear(2, 2))


def test_wrong_arguments_name_the_input():
    program = exported(Structured(), *STRUCTURED[0], **STRUCTURED[1])
    a, b = torch.randn(2, 5, device="tpu"), torch.randn(5, device="tpu")
    weight = torch.tensor(2.0, device="tpu")

    def call(a=a, b=b, weight=weight, power=3):
        return program({"a": a, "b": [b]}, weight=weight, power=power)

    call()
    with pytest.raises(ValueError, match=r"input 'batch_a' has shape \[3, 5\].*takes \[2, 5\]"):
        call(a=torch.randn(3, 5, device="tpu"))
    with pytest.raises(TypeError, match="input 'batch_b_0' has dtype torch.int64"):
        call(b=torch.ones(5, dtype=torch.int64, device="tpu"))
    with pytest.raises(ValueError, match=r"input 'weight' is on cpu; move it with"):
        call(weight=torch.tensor(2.0))
    with pytest.raises(TypeError, match="input 'weight' must be a tensor, not float"):
        call(weight=2.0)
    with pytest.raises(ValueError, match="input 'power' was 3 when .* cannot be 4"):
        call(power=4)
    with pytest.raises(TypeError, match="batch_a, batch_b_0, weight, power"):
        program({"a": a}, weight=weight, power=3)
    with pytest.raises(TypeError, match="was called with"):
        program({"a": a, "b": [b]}, weight=weight)


# ---- files -------------------------------------------------------------------------------------

_RUN = """
import sys, torch
from torch_tpu import export
program = export.load(sys.argv[1])
arguments = torch.load(sys.argv[2], weights_only=True)
move = lambda t: torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.to(sys.argv[4]), t)
sys.argv[4] = "tpu"
result = program(*move(arguments[0]), **move(arguments[1]))
sys.argv[4] = "cpu"
torch.save((move(result), move(program.weights)), sys.argv[3])
"""


def in_a_new_process(tmp_path, program, args, kwargs):
    """Results and weights after a call of the saved program in a process of its own."""
    paths = [str(tmp_path / name) for name in ("program", "arguments", "results")]
    program.save(paths[0])
    torch.save((args, kwargs), paths[1])
    command = [sys.executable, "-c", _RUN, *paths, "cpu"]
    subprocess.run(command, check=True, cwd=ROOT, env=dict(os.environ))
    return torch.load(paths[2], weights_only=True)


@pytest.mark.parametrize(
    ("module", "args", "kwargs"),
    [
        (Perceptron(), (torch.randn(2, 4),), {}),
        (Convolutional().train(), (torch.randn(2, 3, 8, 8),), {}),
        (Structured(), *STRUCTURED),
    ],
    ids=["perceptron", "convolutional", "structured"],
)
def test_saved_and_loaded_in_a_new_process(tmp_path, module, args, kwargs):
    program = exported(module, *args, **kwargs)
    got, weights = in_a_new_process(tmp_path, program, args, kwargs)
    with torch.no_grad():
        assert_same(to(got, "tpu"), module(*args, **kwargs))
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(weights[name], buffer, rtol=1e-5, atol=1e-6)


def test_saving_keeps_updated_buffers_and_all_dtypes(tmp_path):
    module = Counter()
    module.register_buffer("empty", torch.zeros(0, 2))
    module.register_buffer("small", torch.tensor([1.5, -2], dtype=torch.bfloat16))
    module.register_buffer("complex", torch.tensor(1 + 2j).conj())
    program = exported(module, torch.ones(2))
    program(torch.ones(2, device="tpu"))
    program.save(tmp_path / "program")
    loaded = export.load(tmp_path / "program")
    assert loaded.signature == program.signature and loaded.text == program.text
    assert loaded.in_spec == program.in_spec and loaded.out_spec == program.out_spec
    for name, tensor in program.weights.items():
        assert torch.equal(loaded.weights[name].cpu(), tensor.cpu())
    assert loaded(torch.ones(2, device="tpu")).tolist() == [2, 2]


def test_the_file_is_text_json_and_bytes(tmp_path):
    program = exported(Perceptron(), torch.randn(2, 4))
    program.save(tmp_path / "program")
    with zipfile.ZipFile(tmp_path / "program") as file:
        assert file.read("module.mlir").decode() == program.text
        described = json.loads(file.read("signature.json"))
        assert described["signature"]["parameters"][0]["dtype"] == "float32"
        assert len(file.read("weights/0")) == 8 * 4 * 4
    assert "tensor<2x4xf32>" in program.text.splitlines()[1]


BROKEN = (
    ("weights/0", b"123"),
    ("weights/1", None),
    ("signature.json", b"{}"),
    ("signature.json", b"["),
    ("module.mlir", b"nothing"),
)


def test_broken_files_are_refused(tmp_path):
    path = tmp_path / "program"
    with pytest.raises(FileNotFoundError):
        export.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a readable exported program"):
        export.load(path)
    exported(Perceptron(), torch.randn(2, 4)).save(tmp_path / "good")
    for broken, content in BROKEN:
        with zipfile.ZipFile(tmp_path / "good") as good, zipfile.ZipFile(path, "w") as file:
            for name in good.namelist():
                data = content if name == broken else good.read(name)
                if data is not None:
                    file.writestr(name, data)
        with pytest.raises(ValueError, match="is not a readable exported program"):
            export.load(path)


def test_a_module_that_is_not_what_the_signature_says(tmp_path):
    program = exported(Perceptron(), torch.randn(2, 4))
    program.text = program.text.replace("tensor<2x4xf32>", "tensor<3x4xf32>")
    program.save(tmp_path / "program")
    loaded = export.load(tmp_path / "program")
    with pytest.raises(RuntimeError, match="compilation failed"):
        loaded(torch.randn(2, 4, device="tpu"))


def test_programs_leave_no_rule_behind():
    from torch_tpu.lowering.registry import RULES

    gc.collect()  # programs of other tests
    before = set(RULES)
    program = check(Counter(), torch.ones(2))
    assert len(set(RULES) - before) == 1
    del program
    gc.collect()
    assert set(RULES) == before
