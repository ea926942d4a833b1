"""Rows of `torch_tpu/ops/activation.py`."""

import math

import torch

from ops.row import Row, t

BF16, F64, C64, I32 = torch.bfloat16, torch.float64, torch.complex64, torch.int32
SPECIAL = torch.tensor([0.0, -0.0, 3.0, -3.0, 0.5, -0.5, 1.0, -1.0, 90.0, -90.0])
EXTREME = torch.tensor([math.inf, -math.inf, math.nan])
WIDE = t(4, 6, low=-5, high=5)
INPUTS = (WIDE, t(9, dtype=BF16, low=-5, high=5), t(5, dtype=F64, low=-5, high=5), SPECIAL)


def grad_for(x):
    return t(*x.shape, dtype=x.dtype, seed=7)


def rows(name, *arguments, extreme=True, inputs=INPUTS, **keywords):
    """One row per input: ``name(x, *arguments)``."""
    inputs = (*inputs, EXTREME) if extreme else inputs
    return [Row(f"aten::{name}", (x, *arguments), keywords) for x in inputs]


def backward(name, *arguments, inputs=INPUTS, **keywords):
    """One row per input: ``name(grad, x, *arguments)``."""
    return [Row(f"aten::{name}", (grad_for(x), x, *arguments), keywords) for x in inputs]


OUTPUTS = (t(4, 6, low=0, high=1), t(9, dtype=BF16, low=0, high=1))
GLU_GRAD = torch.ops.aten.glu_backward(t(4, 3, seed=2), WIDE, -1)
NOISE = t(4, 6, low=0.1, high=0.3)


def _is_rrelu(results):
    result, noise = results
    return bool(((noise == 1) == (WIDE > 0)).all() and torch.equal(result, WIDE * noise))


ROWS = [
    *rows("relu"),
    Row("aten::relu", (t(5, dtype=I32, low=-5, high=5),)),
    Row("aten::relu", (t(),)),
    *rows("sigmoid"),
    Row("aten::sigmoid", (t(5, dtype=I32, low=-5, high=5),)),
    Row("aten::sigmoid", (t(5, dtype=C64),)),
    *backward("sigmoid_backward", inputs=OUTPUTS),
    *backward("tanh_backward", inputs=OUTPUTS),
    *backward("tanh_backward", inputs=(t(4, dtype=C64),)),
    *backward("sigmoid_backward", inputs=(t(4, dtype=C64),)),
    *rows("silu", inputs=(*INPUTS, t(4, dtype=C64))),
    *backward("silu_backward"),
    *rows("mish", extreme=False),
    Row("aten::mish", (torch.tensor([math.inf, math.nan]),)),
    *backward("mish_backward"),
    *rows("hardsigmoid"),
    *backward("hardsigmoid_backward"),
    *rows("hardswish", extreme=False),
    *backward("hardswish_backward"),
    *rows("log_sigmoid_forward"),
    *[
        Row("aten::log_sigmoid_backward", (grad_for(x), x, torch.exp(-x.abs())))
        for x in (WIDE, WIDE.double())
    ],
    *rows("hardtanh"),
    *rows("hardtanh", -0.3, 2),
    Row("aten::hardtanh", (t(5, dtype=I32, low=-5, high=5), -2, 3)),
    *backward("hardtanh_backward", -1, 1),
    *backward("hardtanh_backward", -0.3, 0.7),
    *rows("threshold", 0.5, 20),
    Row("aten::threshold", (t(5, dtype=I32, low=-5, high=5), 1, 7)),
    *backward("threshold_backward", 0),
    *rows("leaky_relu", extreme=False),
    *rows("leaky_relu", 0.3),
    *backward("leaky_relu_backward", 0.2, False),
    Row("aten::_prelu_kernel", (WIDE, t(1, 6, seed=3))),
    Row("aten::_prelu_kernel", (WIDE.to(BF16), t(1, 6, dtype=BF16, seed=3))),
    Row("aten::_prelu_kernel_backward", (grad_for(WIDE), WIDE, t(1, 6, seed=3))),
    Row("aten::_prelu_kernel_backward", (grad_for(WIDE), WIDE, t(1, 1, seed=3))),
    *rows("hardshrink"),
    *rows("hardshrink", 0.3),
    *backward("hardshrink_backward", 0.5),
    *rows("softshrink"),
    *rows("softshrink", 0.3),
    *backward("softshrink_backward", 0.5),
    *rows("elu"),
    *rows("elu", 1.5, 2, 0.5),
    *backward("gelu_backward"),
    *[
        Row("aten::elu_backward", (grad_for(x), 1.5, 2, 0.5, is_result, x))
        for x in (WIDE, WIDE.to(BF16))
        for is_result in (False, True)
    ],
    *rows("celu"),
    *rows("celu", 0.7),
    *rows("softplus"),
    *rows("softplus", 2, 5),
    *backward("softplus_backward", 1, 20),
    *backward("softplus_backward", 2, 5),
    *rows("gelu", extreme=False),
    *rows("gelu", approximate="tanh", extreme=False),
    *backward("gelu_backward", approximate="tanh"),
    *[Row("aten::glu", (WIDE, dim)) for dim in (0, 1, -1)],
    Row("aten::glu", (WIDE.to(BF16),)),
    Row("aten::glu_backward", (t(4, 3, seed=7), WIDE, -1)),
    Row("aten::glu_backward", (t(2, 6, seed=7), WIDE, 0)),
    Row("aten::glu_backward", (t(4, 3, dtype=BF16, seed=7), t(4, 6, dtype=BF16), 1)),
    Row("aten::glu_jvp", (t(4, 3), WIDE, t(4, 6, seed=2), -1)),
    Row(
        "aten::glu_backward_jvp", (GLU_GRAD, t(4, 3, seed=2), WIDE, t(4, 3, seed=3), WIDE * 0.3, -1)
    ),
    Row("aten::rrelu_with_noise", (WIDE, NOISE.clone())),
    Row("aten::rrelu_with_noise", (WIDE.to(BF16), NOISE.to(BF16), 0.1, 0.2)),
    Row("aten::rrelu_with_noise", (WIDE, NOISE.clone(), 0.1, 0.3, True), random=True),
    Row("aten::rrelu_with_noise_", (WIDE.clone(), NOISE.clone())),
    Row("aten::rrelu_with_noise_", (WIDE.clone(), NOISE.clone(), 0.1, 0.3, True), random=True),
    Row(
        "aten::rrelu_with_noise_functional",
        (WIDE, NOISE.clone(), 0.1, 0.3, True),
        random=True,
        check=_is_rrelu,
    ),
    Row("aten::rrelu_with_noise_backward", (grad_for(WIDE), WIDE, NOISE, 0.1, 0.3, True, False)),
    Row("aten::rrelu_with_noise_backward", (grad_for(WIDE), WIDE, NOISE, 0.1, 0.3, False, False)),
]
