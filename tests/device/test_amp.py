"""Automatic mixed precision: autocast's lists, the gradient scaler, the precision of products.

Not here: whole training runs (`test_training.py`, `test_training_script.py`).
"""

from __future__ import annotations

import copy
import functools
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.autocast_test_lists import AutocastTestLists

LOW = (torch.float16, torch.bfloat16)


# ---- autocast --------------------------------------------------------------------------------


@functools.cache
def cuda_lists() -> AutocastTestLists:
    """The calls that PyTorch tests cuda's autocast with, on tensors of ours."""
    return AutocastTestLists("tpu")


def cases(*names):
    """(list, number within it) of PyTorch's tables, told without a device.

    Left out: operators of cuDNN, and `einsum`, whose entry cannot be called (tested below).
    """
    lists = AutocastTestLists("cpu")
    return [
        pytest.param(name, i, id=f"{name}-{i}-{getattr(lists, name)[i][0]}")
        for name in names
        for i in range(len(getattr(lists, name)))
        if not getattr(lists, name)[i][0].startswith(("cudnn", "einsum"))
    ]


def call_of(name, i):
    operator, args, *rest = getattr(cuda_lists(), name)[i]
    kwargs = next((r for r in rest if isinstance(r, dict)), {})
    return operator, args, kwargs, rest


def functions(operator, name, args):
    """The forms in which PyTorch offers the operator."""
    module = {"nn": torch._C._nn, "linalg": torch._C._linalg}.get(name.split("_")[0], torch)
    found = []
    if hasattr(module, operator) and not name.startswith("methods"):
        found.append(getattr(module, operator))
    if hasattr(torch.Tensor, operator) and isinstance(args[0], torch.Tensor):
        found.append(getattr(torch.Tensor, operator))
    assert found, operator
    return found


def tensors(result):
    flat = result if isinstance(result, (tuple, list)) else [result]
    return [r for r in flat if isinstance(r, torch.Tensor)]


def check(name, i, dtype, want, cast=None):
    """The result has the dtype, and is what the operator gives for cast operands."""
    operator, args, kwargs, _ = call_of(name, i)
    for function in functions(operator, name, args):
        with torch.autocast("tpu", dtype=dtype):
            got = tensors(function(*args, **kwargs))
        assert {r.dtype for r in got} == ({want} if operator != "equal" else set())
        if cast is None:
            continue
        lowered = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda x: x.to(cast) if x.is_floating_point() else x, args
        )
        for a, b in zip(got, tensors(function(*lowered, **kwargs)), strict=True):
            assert torch.equal(a, b.to(a.dtype))


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    ("name", "i"), cases("torch_fp16", "nn_fp16", "linalg_fp16", "methods_fp16")
)
def test_low_precision_list(name, i, dtype):
    check(name, i, dtype, dtype, cast=dtype)


@pytest.mark.parametrize(("name", "i"), cases("torch_fp32", "nn_fp32", "methods_fp32"))
def test_float32_list(name, i):
    check(name, i, torch.float16, torch.float32, cast=torch.float32)


@pytest.mark.parametrize(("name", "i"), cases("torch_need_autocast_promote"))
def test_promote_list(name, i):
    check(name, i, torch.float16, torch.float32, cast=torch.float32)


@pytest.mark.parametrize(
    ("name", "i"), cases("torch_expect_builtin_promote", "methods_expect_builtin_promote")
)
def test_what_promotes_by_itself(name, i):
    (want,) = (r for r in call_of(name, i)[3] if isinstance(r, torch.dtype))
    check(name, i, torch.float16, want)


def test_binary_cross_entropy_is_banned():
    for i in range(len(cuda_lists().banned)):
        operator, args, _, (module,) = call_of("banned", i)
        with torch.autocast("tpu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
            getattr(module, operator)(*args)
        with torch.autocast("tpu", enabled=False):
            assert getattr(module, operator)(*args).isfinite().all()


def registered(key):
    """Operators with an autocast kernel of their own for a dispatch key."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return {n for n in names if n.startswith("aten::") and has(n, key)}


def test_the_lists_are_those_of_cuda():
    cuda, ours = registered("AutocastCUDA"), registered("AutocastPrivateUse1")
    assert {n for n in cuda if "cudnn" not in n and "miopen" not in n} == ours


def test_attention_and_einsum_are_in_low_precision():
    q = torch.randn(1, 2, 4, 8, device="tpu")
    with torch.autocast("tpu"):
        assert torch.einsum("bhqd,bhkd->bhqk", q, q).dtype is torch.bfloat16
        assert F.scaled_dot_product_attention(q, q, q).dtype is torch.bfloat16


def test_scopes():
    x = torch.ones(2, 2, device="tpu")
    assert not torch.is_autocast_enabled("tpu")
    with torch.autocast("tpu", dtype=torch.float16):
        assert torch.is_autocast_enabled("tpu")
        assert (x @ x).dtype is torch.float16
        assert (x.double() @ x.double()).dtype is torch.float64  # double stays
        with torch.autocast("tpu", enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast("cpu"):
            assert (x.cpu() @ x.cpu()).dtype is torch.bfloat16
            assert (x @ x).dtype is torch.float16
    assert (x @ x).dtype is torch.float32
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("tpu", torch.float64):
        assert (x @ x).dtype is torch.float32
    assert torch.tpu.get_amp_supported_dtype()[0] is torch.bfloat16
    assert torch.get_autocast_dtype("tpu") is torch.bfloat16


def test_decorators_and_custom_functions():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.float32)
        def forward(ctx, x):
            assert not torch.is_autocast_enabled("tpu")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, grad):
            return grad * 2

    @torch.autocast("tpu")
    def product(x):
        return Double.apply(x @ x)

    x = torch.ones(2, 2, device="tpu", requires_grad=True)
    y = product(x)
    assert y.dtype is torch.float32
    y.sum().backward()
    assert x.grad.tolist() == [[8, 8], [8, 8]]


def test_weights_are_cast_once_per_region(compiles):
    layer, x = nn.Linear(4, 4).to("tpu"), torch.ones(2, 4, device="tpu")
    with torch.autocast("tpu"):
        first = layer(x)
        with torch.no_grad():
            layer.weight.zero_()
        # the cast weight was kept, as on cuda
        assert torch.equal(layer(x), first)
    with torch.autocast("tpu", cache_enabled=False):
        assert not torch.equal(layer(x), first)


# ---- gradient scaler -------------------------------------------------------------------------

OPTIMISERS = {
    "sgd loop": functools.partial(torch.optim.SGD, lr=0.1, foreach=False),
    "sgd foreach": functools.partial(torch.optim.SGD, lr=0.1, foreach=True),
    "sgd fused": functools.partial(torch.optim.SGD, lr=0.1, fused=True),
    "adam foreach": functools.partial(torch.optim.Adam, lr=0.1, eps=1e-4, foreach=True),
    "adam fused": functools.partial(torch.optim.Adam, lr=0.1, eps=1e-4, fused=True),
    "adamw fused": functools.partial(torch.optim.AdamW, lr=0.1, eps=1e-4, fused=True),
    "adagrad fused": functools.partial(torch.optim.Adagrad, lr=0.1, foreach=True),
}


def scaled_steps(device, make, factors, **options):
    """A step for every factor on the loss; the scales after each and the weights at the end."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    model = model.to(device)
    optimiser = make(model.parameters())
    scaler = torch.amp.GradScaler(device, init_scale=16.0, growth_interval=2, **options)
    x, scales = torch.linspace(-1, 1, 6).view(2, 3).to(device), []
    for factor in factors:
        optimiser.zero_grad()
        scaler.scale(model(x).square().sum() * factor).backward()
        scaler.step(optimiser)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, [p.detach().cpu() for p in model.parameters()], scaler


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_growth_backoff_and_skipped_steps(optimiser):
    factors = (1.0, 1.0, INF, 1.0, NAN, 1.0, 1.0)
    make = OPTIMISERS[optimiser]
    scales, weights, _ = scaled_steps("tpu", make, factors)
    assert scales == [16, 32, 16, 16, 8, 8, 16]
    want_scales, want, _ = scaled_steps("cpu", make, factors)
    assert scales == want_scales
    torch.testing.assert_close(weights, want, rtol=1e-5, atol=1e-5)
    # what was skipped did nothing
    _, finite, _ = scaled_steps("tpu", make, (1.0,) * 5)
    torch.testing.assert_close(weights, finite, rtol=1e-5, atol=1e-6)


def test_factors_of_growth_and_backoff():
    options = {"growth_factor": 3.0, "backoff_factor": 0.25}
    scales, _, _ = scaled_steps("tpu", OPTIMISERS["sgd loop"], (1.0, 1.0, INF), **options)
    assert scales == [16, 48, 12]


def test_a_changing_scale_compiles_nothing(compiles):
    make = OPTIMISERS["adam foreach"]
    scaled_steps("tpu", make, (1.0, 1.0, INF, 1.0))
    compiles.reset()
    scaled_steps("tpu", make, (1.0, INF, INF, 2.0, 3.0, 1.0, NAN, 1.0))
    assert compiles() == 0


def test_unscale_before_clipping():
    model = nn.Linear(2, 1, bias=False).to("tpu")
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("tpu", init_scale=1024.0)
    scaler.scale(model(torch.tensor([[3.0, 4.0]], device="tpu")).sum()).backward()
    scaler.unscale_(optimiser)
    assert model.weight.grad.tolist() == [[3.0, 4.0]]
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0).item() == pytest.approx(5.0)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimiser)
    before = model.weight.detach().clone()
    scaler.step(optimiser)
    scaler.update()
    torch.testing.assert_close((before - model.weight).cpu(), torch.tensor([[0.6, 0.8]]))


def test_the_scaler_is_saved_and_loaded():
    _, _, scaler = scaled_steps("tpu", OPTIMISERS["sgd loop"], (1.0, INF, 1.0))
    fresh = torch.amp.GradScaler("tpu")
    fresh.load_state_dict(copy.deepcopy(scaler.state_dict()))
    assert fresh.get_scale() == scaler.get_scale() == 8.0
    assert fresh.state_dict() == scaler.state_dict()
    off = torch.amp.GradScaler("tpu", enabled=False)
    x = torch.ones(1, device="tpu")
    assert off.scale(x) is x
    assert off.get_scale() == 1.0


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32))
def test_infinities_are_found_in_every_dtype(dtype):
    grads = [torch.ones(3, dtype=dtype, device="tpu"), torch.ones(2, 2, device="tpu")]
    found, inverse = torch.zeros(1, device="tpu"), torch.full((1,), 0.5, device="tpu")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
    assert found.item() == 0
    assert [g.unique().tolist() for g in grads] == [[0.5], [0.5]]
    for bad in (INF, -INF, NAN):
        found.zero_()
        grads[0][1] = bad
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        assert found.item() == 1


# ---- the precision of float32 products -------------------------------------------------------


@pytest.fixture
def texts(monkeypatch):
    """The programs made since, as text."""
    from torch_tpu.program import module

    made, finish = [], module.finish

    def note(*args, **kwargs):
        finished = finish(*args, **kwargs)
        made.append(finished.text)
        return finished

    monkeypatch.setattr(module, "finish", note)
    return made


def set_backend(backend, kind, precision):
    """`torch.backends.<backend>.<kind>.fp32_precision = precision`, which PyTorch's own test
    utilities, imported above, lock."""
    torch._C._set_fp32_precision_setter(backend, kind, precision)


@pytest.fixture(autouse=True)
def _settings():
    yield
    set_backend("cuda", "matmul", "none")
    set_backend("generic", "all", "none")
    torch.set_float32_matmul_precision("highest")


def words_of(texts):
    """The precisions that the programs ask for."""
    import re

    found = {w for text in texts for w in re.findall(r"stablehlo<precision (\w+)>", text)}
    texts.clear()
    return found


ATTRIBUTES = {"highest": "HIGHEST", "high": "HIGH", "medium": "DEFAULT"}


def around(n, *extra):
    return torch.randn(*extra, n, n, device="tpu")


PRODUCTS = {
    "matmul": lambda n: around(n) @ around(n),
    "bmm": lambda n: torch.bmm(around(n, 2), around(n, 2)),
    "linear": lambda n: F.linear(around(n), around(n)),
    "conv2d": lambda n: F.conv2d(around(n, 1, 1), torch.ones(1, 1, 2, 2, device="tpu")),
    "attention": lambda n: F.scaled_dot_product_attention(*[around(n, 1, 2)] * 3),
    "einsum": lambda n: torch.einsum("ij,kj->ik", around(n), around(n)),
    "cdist": lambda n: torch.cdist(around(n + 30), around(n + 30)),
    # without a rule of its own: what PyTorch takes it apart into
    "bilinear": lambda n: F.bilinear(around(n), around(n), torch.ones(2, n, n, device="tpu")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_operator_honours_the_precision(name, texts):
    product = PRODUCTS[name]
    product(5)
    assert words_of(texts) == {"HIGHEST"}
    for precision in ("high", "medium"):
        with torch.tpu.precision(precision):
            assert torch.get_float32_matmul_precision() == precision
            product(5)
            assert words_of(texts) == {ATTRIBUTES[precision]}
            product(5)
            assert texts == []
    assert torch.get_float32_matmul_precision() == "highest"
    product(5)
    assert texts == []  # the first program is still there


def test_compiled_programs_honour_the_precision(texts):
    @torch.compile(backend="tpu")
    def f(x):
        return (x @ x).relu()

    x = around(6)
    for precision in ("highest", "medium", "high"):
        with torch.tpu.precision(precision):
            f(x)
            assert words_of(texts) == {ATTRIBUTES[precision]}
    f(x)
    assert texts == []


def test_backward_and_recorded_operators_honour_the_precision(texts):
    x = around(7).requires_grad_()
    y = (x @ x).sum()
    texts.clear()
    with torch.tpu.precision("high"):
        y.backward()  # on a thread of autograd's
    assert words_of(texts) == {"HIGH"}
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        with torch.tpu.precision("medium"):
            z = around(9) @ around(9)
        z.cpu()
        assert words_of(texts) == {"DEFAULT"}


def test_wider_numbers_are_not_narrowed(texts):
    x = around(4).double()
    with torch.tpu.precision("medium"):
        x @ x
        x.to(torch.complex128) @ x.to(torch.complex128)
    assert words_of(texts) == {"HIGHEST"}


def test_precision_as_a_decorator_and_its_errors():
    seen = []

    @torch.tpu.precision("medium")
    def f():
        seen.append(torch.get_float32_matmul_precision())
        raise KeyError

    with pytest.raises(KeyError):
        f()
    assert seen == ["medium"]
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(ValueError, match="highest, high, medium"), torch.tpu.precision("low"):
        pass


def test_settings_of_cuda_alone_change_and_break_nothing(texts):
    set_backend("cuda", "matmul", "tf32")
    with pytest.raises(RuntimeError):
        torch.get_float32_matmul_precision()
    around(11) @ around(11)
    assert words_of(texts) == {"HIGHEST"}
    set_backend("generic", "all", "tf32")
    around(11) @ around(11)
    assert words_of(texts) == {"HIGH"}


def test_other_threads_see_the_precision():
    seen = []
    with torch.tpu.precision("high"):
        thread = threading.Thread(target=lambda: seen.append(torch.get_float32_matmul_precision()))
        thread.start()
        thread.join()
    assert seen == ["high"]
