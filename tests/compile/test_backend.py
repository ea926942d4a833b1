"""torch.compile on the device: which backend serves a call, modes, options, sizes, errors."""

import re

import pytest
import torch
import torch.nn.functional as F
from compile.both import compare, on, rand, same

from torch_tpu.compile import backend as backends

X, Y = rand(4, 5), rand(4, 5, seed=1)


def f(x, y):
    return torch.sin(x) * y + (x @ y.t()).tanh().mean()


@pytest.fixture
def inductor(monkeypatch):
    """What Inductor was asked to compile, without the C++ compiler that it needs: its options."""
    from torch._inductor import compile_fx

    asked = []

    def record(module, inputs, config_patches=None, **_):
        asked.append(config_patches)
        return module.forward

    monkeypatch.setattr(compile_fx, "compile_fx", record)
    return asked


# ---- which backend ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["tpu", None])
def test_device_tensors_are_compiled_here(backend, inductor, compiles):
    options = {} if backend is None else {"backend": backend}
    compiled = torch.compile(f, fullgraph=True, **options)
    size = 7 if backend is None else 6  # so that neither finds the other's program
    x, y = rand(size, 5), rand(size, 5, seed=1)
    inputs = on("tpu", x, y)
    compiles.reset()
    same(compiled(*inputs), f(x, y))
    assert compiles() == 1 and inductor == []
    compiled(*inputs)
    assert compiles() == 1


@pytest.mark.parametrize("backend", ["tpu", None])
def test_cpu_tensors_are_inductors(backend, inductor, compiles):
    options = {} if backend is None else {"backend": backend}
    same(torch.compile(f, **options)(X, Y), f(X, Y))
    assert len(inductor) == 1 and compiles() == 0


def test_inductor_gets_mode_and_options(inductor):
    torch.compile(f, mode="max-autotune")(X, Y)
    torch._dynamo.reset()
    torch.compile(f, options={"max_autotune": True, "epilogue_fusion": False})(X, Y)
    by_mode, by_options = inductor
    assert by_mode["max_autotune"] is True
    assert by_options["max_autotune"] is True and by_options["epilogue_fusion"] is False


def test_the_other_backends_run_on_the_device():
    for name in ("eager", "aot_eager"):
        compare(f, (X, Y), backend=name, calls=1)


def test_a_factory_alone_decides():
    compare(lambda n: torch.arange(3, device="cpu") + n, lambda device: (2,), backend="aot_eager")
    made = torch.compile(lambda n: torch.arange(3, device="tpu") + n)(2)
    assert made.device.type == "tpu" and made.tolist() == [2, 3, 4]


# ---- modes and options --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", backends.MODES)
def test_every_mode(mode):
    same(torch.compile(f, mode=mode)(*on("tpu", X, Y)), f(X, Y))
    torch._dynamo.reset()
    same(torch.compile(f, mode=mode, backend="tpu")(*on("tpu", X, Y)), f(X, Y))


def test_unknown_mode():
    with pytest.raises(Exception, match="fastest"):
        torch.compile(f, backend="tpu", mode="fastest")(*on("tpu", X, Y))


@pytest.mark.parametrize(
    "options",
    [
        {"xla_cpu_enable_fast_math": True},
        {"xla_cpu_enable_fast_math": False, "xla_backend_optimization_level": 1},
    ],
)
def test_xla_options(options, compiles):
    inputs = on("tpu", X, Y)
    compiles.reset()
    same(torch.compile(f, backend="tpu", options=options)(*inputs), f(X, Y))
    assert compiles() >= 1


def test_options_are_not_shared():
    """Two functions of one graph with different options are two programs."""
    inputs = on("tpu", X, Y)
    torch.compile(f, backend="tpu", options={"xla_backend_optimization_level": 2})(*inputs)
    torch._dynamo.reset()
    before = torch.tpu.compile_count()
    torch.compile(f, backend="tpu", options={"xla_backend_optimization_level": 3})(*inputs)
    assert torch.tpu.compile_count() > before


@pytest.mark.parametrize("options", [{"xla_no_such_option": 1}, {"max_autotune": True}])
def test_unknown_option(options):
    with pytest.raises(Exception, match=next(iter(options))):
        torch.compile(f, backend="tpu", options=options)(*on("tpu", X, Y))


def test_option_of_a_wrong_type():
    with pytest.raises(Exception, match="xla_cpu_enable_fast_math.*must be a bool"):
        torch.compile(f, backend="tpu", options={"xla_cpu_enable_fast_math": [1]})(*on("tpu", X, Y))


# ---- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_dynamic(dynamic):
    compiled = torch.compile(f, backend="tpu", dynamic=dynamic, fullgraph=True)
    for rows in (3, 5, 2, 5):
        x, y = rand(rows, 4, seed=rows), rand(rows, 4)
        same(compiled(*on("tpu", x, y)), f(x, y))


def test_dynamic_captures_once():
    counts = torch._dynamo.utils.counters
    compiled = torch.compile(f, backend="tpu", dynamic=True, fullgraph=True)
    before = counts["stats"]["unique_graphs"]
    for rows in (3, 5, 2):
        compiled(*on("tpu", rand(rows, 4), rand(rows, 4)))
    assert counts["stats"]["unique_graphs"] == before + 1


def test_mark_dynamic():
    counts = torch._dynamo.utils.counters
    compiled = torch.compile(lambda x: (x.sin().sum(0), x.shape[0] * 2), backend="tpu")
    before = counts["stats"]["unique_graphs"]
    for rows in (3, 6, 4):
        x = rand(rows, 4)
        (moved,) = on("tpu", x)
        torch._dynamo.mark_dynamic(moved, 0)
        total, number = compiled(moved)
        same(total, x.sin().sum(0))
        assert number == rows * 2
    assert counts["stats"]["unique_graphs"] == before + 1


def test_dynamic_training():
    layer = torch.nn.Linear(4, 3)
    moved = torch.nn.Linear(4, 3).to("tpu")
    moved.load_state_dict(layer.state_dict())
    compiled = torch.compile(moved, backend="tpu", dynamic=True)
    for rows in (3, 5, 2):
        x = rand(rows, 4, seed=rows)
        layer(x).relu().sum().backward()
        compiled(x.to("tpu")).relu().sum().backward()
        same(moved.weight.grad, layer.weight.grad)


def test_shapes_as_values():
    def g(x):
        n = x.shape[0]
        return x.reshape(-1) * n, torch.zeros(n, n + 1, device=x.device), x.new_ones(2 * n)

    compiled = torch.compile(g, backend="tpu", dynamic=True)
    for rows in (3, 5):
        x = rand(rows, 2)
        same(compiled(x.to("tpu")), g(x))


# ---- grad modes, autocast -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_grad_modes(mode):
    x = X.clone().requires_grad_()
    compiled = torch.compile(f, backend="tpu")
    (moved,) = on("tpu", x)
    with mode():
        result = compiled(moved, Y.to("tpu"))
        same(result, f(x, Y))
    assert result.is_inference() == (mode is torch.inference_mode)
    compare(f, (x, Y))


def test_no_grad_inside():
    def g(x):
        with torch.no_grad():
            y = x * 2
        return y * x

    compare(g, (X.clone().requires_grad_(),), fullgraph=True)


def _half(device, inside: bool):
    def g(x, w):
        if inside:
            with torch.autocast(device, torch.bfloat16):
                return F.linear(x, w), (x + 1).softmax(-1)
        return F.linear(x, w), (x + 1).softmax(-1)

    return g


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside):
    inputs = on("tpu", X.clone().requires_grad_(), Y.clone().requires_grad_())
    eager = on("tpu", *inputs)
    g = _half("tpu", inside)
    with torch.autocast("tpu", torch.bfloat16, enabled=not inside):
        actual, expected = torch.compile(g, backend="tpu")(*inputs), g(*eager)
    assert actual[0].dtype is torch.bfloat16 and actual[1].dtype is torch.float32
    # One program may keep float32 between operators where eager rounds to bfloat16.
    same(actual, expected, rtol=2**-7, atol=1e-5)
    for results in (actual, expected):
        torch.autograd.backward(results, [torch.ones_like(r) for r in results])
    same([i.grad for i in inputs], [e.grad for e in eager], rtol=2**-6, atol=2**-6)


# ---- graph breaks, host values ------------------------------------------------------------------


def test_graph_breaks(capsys):
    def g(x):
        y = x.sin()
        print("between")
        return y + x.sum().item()

    compare(g, (X,))
    assert capsys.readouterr().out.count("between") == 4


def test_branch_on_data():
    def g(x):
        return x * 2 if x.sum() > 0 else x - 1

    compare(g, (X.abs(),))
    compare(g, (-X.abs(),))


def test_item_without_break():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compare(lambda x: x * x.sum().item(), (X,), fullgraph=True)


def test_cpu_values_inside():
    def g(x):
        table = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
        scale = torch.tensor(2.5)
        index = torch.arange(4).to(x.device)
        return (x * table.to(x.device))[index] * scale

    compare(g, (X,))


def test_device_constants_inside():
    def g(x):
        steps = torch.arange(5, device=x.device)
        return x + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], device=x.device) * steps

    compare(g, (X,), fullgraph=True)


def test_cpu_inputs_beside_device_ones():
    def g(x, scale, table):
        return x * scale + table.to(x.device), table * 2

    def make(device):
        return X.clone().to(device), torch.tensor(3.0), torch.arange(5.0)

    compare(g, make)
    result = torch.compile(g)(*make("tpu"))
    same(result, g(*make("cpu")))
    assert [r.device.type for r in result] == ["tpu", "cpu"]


def test_cpu_inputs_of_every_kind():
    """Read by the device, returned, mutated by either side, with views returned."""

    def g(x, table, weights, counter):
        counter += 1
        weights.copy_(x[0] * 2)
        y = x + table.to(x.device) / counter
        return y, table, table[1:], weights, counter * 2, x.cpu().sum()

    def make(device):
        return X.clone().to(device), torch.arange(5.0), torch.ones(5), torch.tensor(1.0)

    compare(g, make, calls=2)
    inputs = make("tpu")
    result = torch.compile(g, backend="tpu")(*inputs)
    assert [r.device.type for r in result] == ["tpu"] + ["cpu"] * 5
    assert result[1] is inputs[1] and result[2].data_ptr() == inputs[1].data_ptr() + 4


def test_linear_algebra():
    square = X[:, :4] @ X[:, :4].t() + 3 * torch.eye(4)

    def g(x):
        return torch.linalg.inv(x), torch.linalg.cholesky(x), torch.linalg.solve(x, x[:, 0])

    compare(g, (square.requires_grad_(),))


def test_numbers_that_depend_on_data_are_results():
    def g(x):
        total = x.sum().item()
        return x + 1, total, total * 2 + 1, x.max().item() > 3

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compare(g, (torch.arange(6),), fullgraph=True)
        compare(lambda x: (x.sum().item(), x.mean().item() * 2), (X,), fullgraph=True)


def test_cpu_scalar_changes():
    compiled = torch.compile(lambda x, s: x * s, backend="tpu")
    for value in (2.0, 3.0):
        same(compiled(X.to("tpu"), torch.tensor(value)), X * value)


def test_python_numbers_change(compiles):
    compiled = torch.compile(lambda x, a, n: x * a + n, backend="tpu")
    x = X.to("tpu")
    for a, n in ((0.5, 2), (0.75, 3), (0.1, 4)):
        same(compiled(x, a, n), X * a + n)
    compiles.reset()
    for i in range(4):
        same(compiled(x, 1.5 + i, 7), X * (1.5 + i) + 7)
    assert compiles() <= 1


def test_results_on_the_cpu():
    compare(lambda x: (x * 2).cpu() + 1, (X,))
    assert torch.compile(lambda x: x.cpu(), backend="tpu")(X.to("tpu")).device.type == "cpu"


# ---- kinds of tensors ---------------------------------------------------------------------------


KINDS = {
    "0-dim": lambda d: (torch.tensor(1.5).to(d), torch.tensor(0.5).to(d)),
    "empty": lambda d: (torch.ones(0, 3).to(d), torch.ones(0, 3).to(d)),
    "strided": lambda d: (X.to(d)[::2, 1:].t(), Y.to(d)[1::2, 1:].t()),
    "expanded": lambda d: (X.to(d)[:1].expand(4, 5), Y.to(d)),
    "channels": lambda d: (
        rand(2, 3, 4, 4).to(d).to(memory_format=torch.channels_last),
        rand(2, 3, 4, 4, seed=1).to(d),
    ),
    "int64": lambda d: (torch.arange(6).to(d) - 2**40, torch.arange(6).to(d) + 3),
    "uint8": lambda d: (torch.arange(6, dtype=torch.uint8).to(d),) * 2,
    "bool": lambda d: (X.to(d) > 0, Y.to(d) > 0),
    "complex": lambda d: (
        rand(3, 2, dtype=torch.complex64).to(d),
        rand(3, 2, dtype=torch.complex64, seed=1).to(d),
    ),
    "conjugate": lambda d: (
        rand(3, 2, dtype=torch.complex64).to(d).conj(),
        rand(3, 2, dtype=torch.complex64, seed=1).to(d),
    ),
    "float64": lambda d: (rand(3, dtype=torch.float64).to(d),) * 2,
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_tensors(kind):
    def g(x, y):
        return x * y, x ^ y if x.dtype is torch.bool else x + y, x.mT if x.ndim == 2 else x

    compare(g, KINDS[kind], fullgraph=True)


def test_strides_of_results():
    def g(x):
        return x.t() + 1, x.permute(1, 0).clone(), x.reshape(5, 4) * 2

    expected, actual = g(X), torch.compile(g, backend="tpu")(X.to("tpu"))
    assert [a.stride() for a in actual] == [e.stride() for e in expected]


# ---- errors -------------------------------------------------------------------------------------


def test_shape_error_says_what_pytorch_says():
    def message(function, backend, device) -> str:
        with pytest.raises(RuntimeError) as caught:
            torch.compile(function, backend=backend)(*on(device, X, rand(3, 7)))
        return re.search(r"got RuntimeError\((.*)\)", str(caught.value)).group(1)

    for function in (torch.add, torch.matmul, lambda x, y: torch.cat([x, y])):
        expected = message(function, "aot_eager", "cpu")
        torch._dynamo.reset()
        assert message(function, "tpu", "tpu") == expected


def test_an_error_leaves_nothing_behind():
    compiled = torch.compile(lambda x, y: x + y, backend="tpu")
    with pytest.raises(RuntimeError):
        compiled(*on("tpu", X, rand(3, 7)))
    same(compiled(*on("tpu", X, Y)), X + Y)


def test_linear_algebra_error():
    def g(x):
        return torch.linalg.inv(x)

    with pytest.raises(RuntimeError, match="singular"):
        torch.compile(g, backend="tpu")(torch.zeros(3, 3, device="tpu")).cpu()
