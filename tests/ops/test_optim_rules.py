"""Fused optimizer steps and the gradient scaler against PyTorch's CPU kernels.

These operators only mutate, so they do not fit a `Row`. A case takes ``call(name, *args,
**kwargs)``; for an operator that mutates, its results are the new values of the arguments that the
rule `writes`, in that order (unchanged ones may be None).
"""

from __future__ import annotations

import itertools

import pytest
import torch

from ops import on_device
from ops.row import t

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
SHAPES = ((2, 3), (5,), ())
COVERS = tuple(
    f"aten::_fused_{name}_{overload}"
    for name in ("adam", "adamw", "sgd", "adagrad")
    for overload in ("", ".tensor_lr")
) + ("aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_")


def tensors(dtype, seed, low=-2.0):
    return [t(*shape, dtype=dtype, seed=seed + i, low=low) for i, shape in enumerate(SHAPES)]


def copies(value):
    return [x.clone() for x in value] if isinstance(value, list) else value


def compare(call, name, writes, arguments, **kwargs):
    """``arguments`` by name; every written one must equal what the CPU kernel leaves there."""
    ours = {k: copies(v) for k, v in arguments.items()}
    got = call(f"aten::{name}", *ours.values(), **kwargs)
    base, _, overload = name.partition(".")
    theirs = {k: copies(v) for k, v in arguments.items()}
    getattr(getattr(torch.ops.aten, base), overload or "default")(*theirs.values(), **kwargs)
    assert len(got) == len(writes)
    for key, new in zip(writes, got, strict=True):
        assert len(new) == len(theirs[key])
        for mine, before, wanted in zip(new, arguments[key], theirs[key], strict=True):
            close(before if mine is None else mine, wanted)


def close(mine, wanted):
    half = mine.dtype.itemsize == 2
    rtol, atol = (1.6e-2, 1e-3) if half else (1e-5, 1e-6)
    torch.testing.assert_close(mine, wanted, rtol=rtol, atol=atol)


def scaling(scaled, found):
    if not scaled:
        return {}
    return {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(float(found))}


ADAM_WRITES = ("self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs")


def adam_arguments(dtype, amsgrad, step=3.0):
    return {
        "self": tensors(dtype, 0),
        "grads": tensors(dtype, 10),
        "exp_avgs": tensors(dtype, 20),
        "exp_avg_sqs": tensors(dtype, 30, low=0.1),
        "max_exp_avg_sqs": tensors(dtype, 40, low=0.1) if amsgrad else [],
        "state_steps": [torch.tensor(step + i) for i in range(len(SHAPES))],
    }


def adam_options(**changes):
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.05, "eps": 1e-8}
    return {**options, "amsgrad": False, "maximize": False, **changes}


def adam(call, dtype):
    for name in ("_fused_adam_", "_fused_adamw_"):
        for amsgrad, maximize in itertools.product((False, True), repeat=2):
            options = adam_options(amsgrad=amsgrad, maximize=maximize)
            compare(call, name, ADAM_WRITES, adam_arguments(dtype, amsgrad), **options)


def adam_options_matter(call):
    for name in ("_fused_adam_", "_fused_adamw_"):
        for changes in (
            {"weight_decay": 0.0},
            {"beta1": 0.0},
            {"beta2": 0.0},
            {"eps": 0.1},
            {"lr": 1e-4},
        ):
            arguments = adam_arguments(F32, False)
            compare(call, name, ADAM_WRITES, arguments, **adam_options(**changes))
        for step in (1.0, 2.0, 1000.0, 100000.0):
            compare(call, name, ADAM_WRITES, adam_arguments(F32, False, step), **adam_options())


def adam_first_steps(call):
    """Early steps with beta2 near 1, from zero and from other state.

    From zero an error of ``1 - beta2`` cancels between the average and its bias correction; with
    other state it does not, and float32 has ``1 - 0.99999`` wrong by 0.1%.
    """
    for step, zero in itertools.product((1.0, 2.0, 5.0), (True, False)):
        arguments = adam_arguments(F32, False, step)
        if zero:
            for key in ("exp_avgs", "exp_avg_sqs"):
                arguments[key] = [torch.zeros_like(x) for x in arguments[key]]
        options = adam_options(weight_decay=0.0, beta2=0.99999, lr=10.0)
        compare(call, "_fused_adam_", ADAM_WRITES, arguments, **options)


def adam_scaled(call):
    for name in ("_fused_adam_", "_fused_adamw_"):
        for found, amsgrad in itertools.product((False, True), repeat=2):
            options = adam_options(amsgrad=amsgrad, **scaling(True, found))
            compare(call, name, ADAM_WRITES, adam_arguments(F32, amsgrad), **options)


def adam_tensor_lr(call):
    for name in ("_fused_adam_.tensor_lr", "_fused_adamw_.tensor_lr"):
        for lr in (torch.tensor(0.1), torch.tensor(0.1, dtype=F64)):
            options = adam_options(lr=lr)
            compare(call, name, ADAM_WRITES, adam_arguments(F32, False), **options)


SGD_WRITES = ("self", "grads", "momentum_buffer_list")


def sgd_arguments(dtype, momentum):
    return {
        "self": tensors(dtype, 0),
        "grads": tensors(dtype, 10),
        "momentum_buffer_list": tensors(dtype, 20) if momentum else [],
    }


def sgd_options(**changes):
    options = {"weight_decay": 0.05, "momentum": 0.9, "lr": 0.1, "dampening": 0.2}
    flags = {"nesterov": False, "maximize": False, "is_first_step": False}
    return {**options, **flags, **changes}


def sgd(call, dtype):
    for nesterov, first in itertools.product((False, True), repeat=2):
        options = sgd_options(nesterov=nesterov, is_first_step=first)
        compare(call, "_fused_sgd_", SGD_WRITES, sgd_arguments(dtype, True), **options)
    plain = sgd_options(momentum=0.0, weight_decay=0.0, dampening=0.0, maximize=True)
    compare(call, "_fused_sgd_", SGD_WRITES, sgd_arguments(dtype, False), **plain)


def sgd_scaled(call):
    for found, momentum in itertools.product((False, True), (0.0, 0.9)):
        options = sgd_options(momentum=momentum, **scaling(True, found))
        compare(call, "_fused_sgd_", SGD_WRITES, sgd_arguments(F32, momentum), **options)
    options = sgd_options(lr=torch.tensor(0.1))
    compare(call, "_fused_sgd_.tensor_lr", SGD_WRITES, sgd_arguments(F32, True), **options)


ADAGRAD_WRITES = ("self", "grads", "state_sums", "state_steps")


def adagrad(call, dtype):
    scales = ((False, False), (True, False), (True, True))
    for maximize, (scaled, found) in itertools.product((False, True), scales):
        arguments = {
            "self": tensors(dtype, 0),
            "grads": tensors(dtype, 10),
            "state_sums": tensors(dtype, 20, low=0.1),
            "state_steps": [torch.tensor(3.0 + i) for i in range(len(SHAPES))],
        }
        options = {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.05, "eps": 1e-10}
        options |= {"maximize": maximize, **scaling(scaled, found)}
        compare(call, "_fused_adagrad_", ADAGRAD_WRITES, arguments, **options)
        options["lr"] = torch.tensor(0.1)
        compare(call, "_fused_adagrad_.tensor_lr", ADAGRAD_WRITES, arguments, **options)


def unscale(call):
    name = "aten::_amp_foreach_non_finite_check_and_unscale_"
    bad = [torch.tensor([1.0, float("inf")]), torch.tensor([float("nan")])]
    for grads in (tensors(F32, 0), [t(3, dtype=BF16), t(3, dtype=F64)], bad[:1], bad[1:], bad):
        for found, scale in itertools.product((0.0, 1.0), (0.5, 1.0, float("inf"))):
            for shape in ((), (1,)):
                flag, inverse = torch.full(shape, found), torch.full(shape, scale)
                got, got_flag = call(name, copies(grads), flag.clone(), inverse)
                want, want_flag = copies(grads), flag.clone()
                torch._amp_foreach_non_finite_check_and_unscale_(want, want_flag, inverse)
                for mine, theirs in zip(got, want, strict=True):
                    torch.testing.assert_close(mine, theirs, equal_nan=True)
                torch.testing.assert_close(got_flag, want_flag, rtol=0, atol=0)


def update_scale(call):
    starts = itertools.product((1024.0, 3e38), (0, 1, 5), (0.0, 1.0, 2.0), ((), (1,)))
    for scale, tracker, found, shape in starts:
        scale, found = torch.full(shape, scale), torch.full(shape, found)
        tracker = torch.full(shape, tracker, dtype=torch.int32)
        got = call("aten::_amp_update_scale_", scale.clone(), tracker.clone(), found, 2.0, 0.5, 2)
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
        for mine, theirs in zip(got, (scale, tracker), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


CASES = [
    adam_options_matter, adam_first_steps, adam_scaled, adam_tensor_lr, sgd_scaled, unscale,
    update_scale,
]  # fmt: skip
DTYPES = [F32, BF16, *(pytest.param(d, marks=pytest.mark.sweep) for d in (F64, F16))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [adam, sgd, adagrad], ids=lambda c: c.__name__)
def test_case_of_dtype(case, dtype):
    case(on_device.call, dtype)


@pytest.mark.parametrize("case", CASES, ids=[c.__name__ for c in CASES])
def test_case(case):
    case(on_device.call)
