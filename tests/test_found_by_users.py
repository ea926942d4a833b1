"""Faults that a user met once. Each test names the rule behind the fault, not only the case."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn


def test_a_false_bool_times_nan_is_nan():
    mask = torch.tensor([False, True])
    for factor in (torch.nan, torch.inf, -torch.inf, -1.0):
        wanted = mask * factor
        assert torch.equal(
            (mask.to("tpu") * factor).cpu().view(torch.int32), wanted.view(torch.int32)
        )
    x = torch.full((2,), torch.nan)
    torch.testing.assert_close((x.to("tpu") * mask.to("tpu")).cpu(), x * mask, equal_nan=True)


def test_index_fill_counts_negative_indices_from_the_end():
    x = torch.zeros(5, device="tpu").index_fill(0, torch.tensor([-1, 1], device="tpu"), 9)
    assert x.tolist() == [0, 9, 0, 0, 9]


@pytest.mark.parametrize(
    ("extreme", "error"),
    [
        (lambda: torch.empty(0, device="tpu").max(), RuntimeError),
        (lambda: torch.empty(0, 3, device="tpu").min(0), IndexError),
    ],
)
def test_an_extreme_of_nothing_is_refused(extreme, error):
    with pytest.raises(error, match="max|min"):
        extreme()


def test_a_mask_takes_a_zero_dim_cpu_value():
    x = torch.ones(3, device="tpu")
    x[x > 0] = torch.tensor(3.0)
    assert x.tolist() == [3, 3, 3]


def test_an_empty_batch_has_a_loss():
    x = torch.empty(0, 3, device="tpu")
    target = torch.empty(0, dtype=torch.int64, device="tpu")
    assert torch.isnan(nn.functional.cross_entropy(x, target)).item()


def test_more_draws_than_categories_are_refused_by_name():
    with pytest.raises(RuntimeError, match="multinomial.*5 of 3"):
        torch.multinomial(torch.ones(3, device="tpu"), 5)


def test_indices_after_the_last_bag_belong_to_no_bag():
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4, 6])
    bags = nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True)
    # The reference gets no such indices: with them, the CPU's gradient reads past its bags.
    wanted = bags(indices[:6], offsets)
    wanted.square().sum().backward()
    gradient = bags.weight.grad.clone()
    bags.zero_grad()
    bags.to("tpu")
    result = bags(indices.to("tpu"), offsets.to("tpu"))
    result.square().sum().backward()
    torch.testing.assert_close(result.cpu(), wanted)
    torch.testing.assert_close(bags.weight.grad.cpu(), gradient)


def test_encoder_in_eval_mode_takes_a_padding_mask():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        wanted = encoder(x, src_key_padding_mask=padding)
        encoder.to("tpu")
        result = encoder(x.to("tpu"), src_key_padding_mask=padding.to("tpu")).cpu()
    torch.testing.assert_close(result[~padding], wanted[~padding], rtol=1e-4, atol=1e-5)


def test_an_in_place_result_counts_its_memory_once():
    body = (
        "import torch\n"
        "x = torch.ones(150 * 2**20, device='tpu')\n"  # 600 MB of a limit of 1 GB
        "x.add_(1)\n"
        "assert x[0].item() == 2 and torch.tpu.max_memory_allocated() < 700e6\n"
        "try:\n    x + 1\n"
        "except torch.OutOfMemoryError as error:\n    assert 'aten::add' in str(error)\n"
        "else:\n    raise SystemExit('no error')\n"
    )
    environment = {**os.environ, "TORCH_TPU_MEMORY_LIMIT": "1G"}
    subprocess.run([sys.executable, "-c", body], check=True, env=environment)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_reading_a_parents_tensor_in_a_forked_child_raises():
    body = (
        "import os, signal, torch\n"
        "x = torch.ones(4, device='tpu') + 1; torch.tpu.synchronize()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(20)\n"
        "    try:\n        x.cpu()\n"
        "    except RuntimeError as error:\n        os._exit(0 if 'fork' in str(error) else 2)\n"
        "    os._exit(3)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", body]).returncode == 0


def test_bounds_of_random_draws_are_checked_on_every_call():
    x = torch.zeros(4, device="tpu")
    for _ in range(2):
        x.random_(2, 5)
        with pytest.raises(RuntimeError, match="less than"):
            x.random_(5, 2)
        x.uniform_(1, 2)
        with pytest.raises(RuntimeError, match="range"):
            x.uniform_(2, 1)
    with pytest.raises(RuntimeError, match="less than"):
        torch.randint(5, 5, (2,), device="tpu")


@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish", "relu6", "softplus"])
@pytest.mark.filterwarnings("ignore::torch_tpu.errors.FallbackWarning")
def test_an_order_of_complex_numbers_is_refused(name, monkeypatch):
    # XLA's constant folding ended the process here.
    monkeypatch.setenv("TORCH_TPU_FALLBACK", "warn")
    with pytest.raises(NotImplementedError):
        getattr(torch.nn.functional, name)(torch.ones(2, dtype=torch.complex64, device="tpu"))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_overflows_as_on_the_cpu(dtype):
    x = torch.tensor([1e6, 500.0, -float("inf"), float("nan"), 1.0])
    assert str(x.to("tpu").to(dtype).float().tolist()) == str(x.to(dtype).float().tolist())


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64])
def test_negative_floats_wrap_to_unsigned_integers(dtype):
    x = torch.tensor([-1.5, 3e9, 2.5])
    assert x.to("tpu").to(dtype).tolist() == x.to(dtype).tolist()


def test_cat_into_what_it_reads_is_refused():
    x = torch.ones(4, device="tpu")
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([x[:2], x[2:]], out=x)


def test_a_second_length_of_an_encoder_compiles():
    torch._dynamo.reset()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to("tpu")
    compiled = torch.compile(layer)
    for length in (5, 6, 7):
        x = torch.randn(2, length, 8, device="tpu")
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


def test_roundings_between_operators_can_be_kept():
    x = torch.randn(16, 16, device="tpu")

    def product(x):
        return (x.bfloat16() @ x.bfloat16()).float()

    kept = torch.compile(product, options={"xla_allow_excess_precision": False})
    assert torch.equal(kept(x), product(x))


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_sees_a_weight_that_was_updated_in_place(turned):
    # XLA:CPU kept the packed weight of the first product, for sizes from about 768 x 1024.
    weight = torch.randn(1024, 768).to("tpu")
    x = torch.randn(128, 768 if turned else 1024).to("tpu")

    def product():
        return x @ (weight.t() if turned else weight)

    compiled = torch.compile(lambda x, w: x @ (w.t() if turned else w))
    product(), compiled(x, weight)
    for _ in range(2):
        weight.add_(1.0)
        expected = x.cpu().double() @ (weight.t() if turned else weight).cpu().double()
        for result in (product(), compiled(x, weight)):
            error = (result.cpu().double() - expected).norm() / expected.norm()
            assert error < 1e-6
