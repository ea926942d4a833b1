"""ATen's CPU kernels inside programs: every kind of argument, errors, threads, other processes.

`host_kernel` gives an operator a rule that calls its own CPU kernel; what comes out is what CPU
PyTorch gives.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_tpu import _core, errors
from torch_tpu.lowering import host, registry
from torch_tpu.lowering.registry import RULES, expected

LinAlgError = torch.linalg.LinAlgError


@pytest.fixture
def rule(monkeypatch):
    """``rule(name, body)``: give an operator another rule for the length of the test."""

    def replace(name, body):
        changed = dataclasses.replace(RULES[name], body=body, promote=None)
        monkeypatch.setitem(RULES, name, changed)
        _core.clear_caches()

    yield replace
    _core.clear_caches()


@pytest.fixture
def host_kernel(rule):
    def replace(name):
        rule(name, lambda **arguments: host.aten_call(name, (), arguments, expected()))

    return replace


def tree(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [tree(v, change) for v in value]
    return value


# ---- arguments -----------------------------------------------------------------------------

X, Y = torch.randn(3, 4), torch.randn(3, 4)
CALLS = {
    "tensor list": ("aten::cat", [[X, Y], 1], {}),
    "optional tensors in a list": ("aten::index.Tensor", [X, [None, torch.tensor([2, 0])]], {}),
    "dims and dtype": ("aten::sum.dim_IntList", [X, [0], True], {"dtype": torch.float64}),
    "no dims": ("aten::sum.dim_IntList", [X, None], {}),
    "number at run time": ("aten::add.Tensor", [X, Y], {"alpha": 0.5}),
    "integer at run time": ("aten::add.Tensor", [X.long(), Y.long()], {"alpha": 3}),
    "absent numbers": ("aten::clamp", [X, None, 0.25], {}),
    "text": ("aten::_linalg_eigh", [X @ X.mT, "U"], {}),
    "list of results": ("aten::_foreach_add.Scalar", [[X, Y.double()], 2.5], {}),
    "ints and floats": ("aten::upsample_bilinear2d", [X[None, None], [6, 6], False, 2.0, 1.5], {}),
    "bool": ("aten::any.dim", [X > 1, 1, True], {}),
    "16 bits": ("aten::cat", [[X.bfloat16(), Y.bfloat16()]], {}),
    "complex": ("aten::cat", [[torch.complex(X, Y)] * 2], {}),
    "no elements": ("aten::cat", [[X[:, :0], Y]], {"dim": 1}),
}


@pytest.mark.parametrize("case", CALLS)
def test_arguments(case, host_kernel):
    name, args, kwargs = CALLS[case]
    host_kernel(name)
    call = registry.overload(name)
    got = call(*tree(args, lambda x: x.to("tpu")), **kwargs)
    torch.testing.assert_close(
        tree(got, torch.Tensor.cpu), tree(call(*args, **kwargs), lambda x: x)
    )


def test_plain_numbers_of_every_kind(rule):
    number = 1.5 - 0.1j
    result = registry.Meta((3, 4), torch.complex64, (4, 1))
    rule(
        "aten::neg",
        lambda self: host.aten_call("aten::add.Scalar", (self, number), {"alpha": 1}, [result]),
    )
    x = torch.complex(X, Y)
    torch.testing.assert_close((-x.to("tpu")).cpu(), x + number)


def test_list_of_floats(rule):
    def call(x):
        return (x, None, False, [2.0, 1.5])

    name, result = "aten::upsample_bilinear2d.vec", registry.Meta((1, 1, 6, 6), torch.float32, ())
    rule("aten::sum", lambda self, dtype=None: _sum(host.aten_call(name, call(self), {}, [result])))
    image = X[None, None]
    want = torch.ops.aten.upsample_bilinear2d.vec(*call(image)).sum()
    torch.testing.assert_close(image.to("tpu").sum().cpu(), want)


def _sum(values):
    return registry.hlo.reduce(values[0], "add", list(range(values[0].ndim)))


def test_unwanted_results_are_left_out(rule):
    def body(self):
        wanted = [None, registry.Meta((3,), torch.int64, (1,))]
        return host.aten_call("aten::max.dim", (self, 1), {}, wanted)[1].to(self.dtype)

    rule("aten::neg", lambda self: body(self))
    square = torch.eye(3)
    with pytest.raises(TypeError, match="PyTorch says"):
        _ = -square.to("tpu")
    rule("aten::neg", body)
    vector = torch.randn(3, 3)
    rule("aten::sum", lambda self, dtype=None: registry.hlo.reduce(body(self), "add", [0]))
    assert vector.to("tpu").sum().item() == vector.argmax(1).sum().item()


def test_the_text_says_everything_and_nothing_of_the_process():
    operands = []
    words = [host._word(v, operands) for v in (None, True, -2, 0.5, 1 + 2j, "ab", [1, [2.0]])]
    assert words == [
        "n",
        "b1",
        "i-2",
        "f0x1.0000000000000p-1",
        "c0x1.0000000000000p+0,0x1.0000000000000p+1",
        "s6162",
        "[ i1 [ f0x1.0000000000000p+1 ] ]",
    ]
    assert host._word(torch.float16, operands) == "yfloat16" and not operands
    with pytest.raises(NotImplementedError, match="cannot take"):
        host._word(object(), operands)


# ---- errors --------------------------------------------------------------------------------


def test_an_error_of_the_kernel_has_its_class_and_names_the_operator():
    a = torch.full((3, 3), torch.nan, device="tpu")
    with pytest.raises(LinAlgError, match=r"^aten::_linalg_eigh: linalg.eigh: .*converge.*\)\.$"):
        torch.linalg.eigh(a)[0].cpu()
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.linalg.eigvals(a).cpu()
    torch.testing.assert_close(
        torch.linalg.eigvalsh(torch.eye(3, device="tpu")).cpu(), torch.ones(3)
    )


def test_an_index_error_stays_one(host_kernel):
    host_kernel("aten::index_select")
    with pytest.raises(IndexError, match="aten::index_select: index out of range"):
        X.to("tpu").index_select(0, torch.tensor([7], device="tpu")).cpu()


def test_an_error_reaches_those_that_wait():
    """The operand is not ready when the call is made: the error comes with the result."""
    slow = torch.randn(700, 700, device="tpu")
    for _ in range(4):
        slow = (slow @ slow).tanh()
    with pytest.raises(LinAlgError, match="aten::_linalg_eigh"):
        values = torch.linalg.eigvalsh(slow[:3, :3] + torch.nan)
        (values + 1).sum().item()


@pytest.mark.parametrize(
    ("name", "arguments", "shape", "message"),
    [
        ("aten::exp", 1, (4, 3), r"aten::exp: result 0 is \[3, 4\] float, .* expects \[4, 3\]"),
        ("aten::add.Tensor", 1, (3, 4), "argument 'other' is missing"),
        ("aten::frexp.Tensor", 1, (3, 4), "aten::frexp.Tensor: gives more results"),
        ("aten::neg_", 1, (3, 4), "writes its arguments"),
    ],
)
def test_calls_that_do_not_fit(rule, name, arguments, shape, message):
    result = registry.Meta(shape, torch.float32, ())

    def body(self):
        (value,) = host.aten_call(name, (self,) * arguments, {}, [result])
        return registry.hlo.reshape(value, self.shape)

    rule("aten::neg", body)
    with pytest.raises((RuntimeError, TypeError), match=message):
        (-X.to("tpu")).cpu()


@pytest.mark.parametrize(
    "call",
    [
        lambda a: torch.linalg.inv_ex(a, check_errors=True),
        lambda a: torch.linalg.solve_ex(a, a, check_errors=True),
        lambda a: torch.linalg.cholesky_ex(-a, check_errors=True),
        lambda a: torch.linalg.lu_factor_ex(a, check_errors=True),
    ],
)
def test_checked_calls_raise_what_the_cpu_raises(call):
    a = torch.tensor([[1.0, 0], [0, 0]])
    with pytest.raises(RuntimeError) as want:
        call(a)
    with pytest.raises(want.type) as got:
        [r.cpu() for r in call(a.to("tpu"))]
    assert str(got.value).endswith(str(want.value))
    good = [r.cpu() for r in torch.linalg.inv_ex(torch.eye(2, device="tpu") * 2, check_errors=True)]
    torch.testing.assert_close(good[0], torch.eye(2) / 2)


def test_without_host_kernels_the_call_falls_back(monkeypatch):
    _core.clear_caches()
    monkeypatch.setattr(_core, "has_host_kernels", lambda: False)
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "warn")
    torch.tpu.reset_fallback_stats()
    a = X @ X.mT
    with pytest.warns(errors.FallbackWarning, match="only XLA's CPU plugin can call"):
        values = torch.linalg.eigvalsh(a.to("tpu"))
    torch.testing.assert_close(values.cpu(), torch.linalg.eigvalsh(a))
    assert torch.tpu.fallback_stats() == {"aten::_linalg_eigh": 1}
    torch.tpu.reset_fallback_stats()
    _core.clear_caches()


# ---- threads and modes ---------------------------------------------------------------------


class Refusing(TorchDispatchMode):
    """Lets calls on the device through; a call on the CPU would come from the kernel."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        devices = {a.device.type for a in args if isinstance(a, torch.Tensor)}
        assert "cpu" not in devices, func
        return func(*args, **(kwargs or {}))


def test_the_callers_modes_do_not_reach_the_kernel():
    a = (X @ X.mT).to("tpu")
    want = torch.linalg.eigvalsh(X @ X.mT)
    with Refusing():
        first = torch.linalg.eigvalsh(a)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        second = torch.linalg.eigvalsh(a)
    torch.testing.assert_close(first.cpu(), want)
    torch.testing.assert_close(second.cpu(), want)


def _one_thread(seed: int):
    generator = torch.Generator().manual_seed(seed)
    for size in (3, 40, 90):
        x = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
        want = torch.linalg.svdvals(x)
        a = x.to("tpu").requires_grad_()
        values = torch.linalg.svdvals(a)
        values.sum().backward()
        torch.testing.assert_close(values.detach().cpu(), want)
        u, _, vh = torch.linalg.svd(x, full_matrices=False)
        torch.testing.assert_close(a.grad.cpu(), u @ vh)


def test_many_threads():
    """Kernels that use several threads themselves run at once with their like on the CPU."""
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(_one_thread, range(24), timeout=300))


# ---- other processes -----------------------------------------------------------------------

SCRIPT = textwrap.dedent("""
    import json, torch
    a = torch.arange(9.0).reshape(3, 3).to("tpu")
    values, vectors = torch.linalg.eigh(a + a.mT)
    solution = torch.linalg.lstsq(a, a[:, :1]).solution
    print(json.dumps([values.tolist(), vectors.tolist(), solution.tolist(),
                      torch.tpu.compile_count()]))
""")


def test_programs_run_in_another_process(tmp_path):
    environment = {
        **os.environ,
        "TORCH_TPU_CACHE": "on",
        "TORCH_TPU_CACHE_DIR": str(tmp_path),
        "TORCH_TPU_FALLBACK": "error",
    }

    def run():
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    *first, compiled = run()
    *second, compiled_again = run()
    assert first == second
    assert compiled > 0 and compiled_again == 0
