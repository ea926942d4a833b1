"""Strides of results, and results without elements, where PyTorch's meta kernels are wrong.

Rows compare values, dtypes and shapes; these calls also have the strides that CPU PyTorch gives.
"""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from ops.row import t

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
IMAGES, VOLUMES = t(2, 4, 4, 6), t(2, 4, 4, 6, 2)


def _unpooled(x: torch.Tensor) -> torch.Tensor:
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(values, indices, 2)


def _weight(x: torch.Tensor, *shape: int, last: bool = False) -> torch.Tensor:
    weight = t(*shape, seed=2)
    return (weight.to(memory_format=LAST) if last else weight).to(x.device)


ON_IMAGES = {
    "max_unpool2d": _unpooled,
    "conv2d": lambda x: F.conv2d(x, _weight(x, 6, 4, 3, 3)),
    "depthwise": lambda x: F.conv2d(x, _weight(x, 4, 1, 3, 3), groups=4),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, _weight(x, 4, 6, 3, 3)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "reflect": lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, -1, 1), mode="replicate"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "logsigmoid": F.logsigmoid,
}
ON_VOLUMES = {
    "conv3d": lambda x: F.conv3d(x, _weight(x, 6, 4, 3, 3, 2)),
    "one conv3d": lambda x: F.conv3d(x[:1], _weight(x, 6, 4, 3, 3, 2)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "reflect": lambda x: F.pad(x, (1, 1, 0, 1, 1, 0), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 0, 1, 1, 0), mode="replicate"),
}
CALLS = {
    **{name: (call, IMAGES) for name, call in ON_IMAGES.items()},
    **{f"{n}, last": (c, IMAGES.to(memory_format=LAST)) for n, c in ON_IMAGES.items()},
    **{f"{n}, volumes": (c, VOLUMES.to(memory_format=LAST_3D)) for n, c in ON_VOLUMES.items()},
    "weight last": (lambda x: F.conv2d(x, _weight(x, 6, 4, 3, 3, last=True)), IMAGES),
    "permuted": (lambda x: F.batch_norm(x, None, None, training=True), t(3, 4, 5).mT),
    **{
        f"{mode} of none, {shape}": (lambda x, m=mode: F.interpolate(x, 5, mode=m), t(*shape))
        for mode in ("nearest", "nearest-exact")
        for shape in ((0, 3, 4), (0, 3, 4, 2), (0, 1, 2, 3, 4))
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_layout_is_that_of_the_cpu(name):
    call, x = CALLS[name]
    given = torch.empty_strided(x.shape, x.stride()).to("tpu").copy_(x)
    got, want = call(given), call(x)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)
    assert got.stride() == want.stride()


# ---- elementwise operators of operands laid out differently --------------------------------

LAYOUTS = {
    "plain": lambda x: x,
    "permuted": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "rotated": lambda x: x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "expanded": lambda x: x[:1].expand(2, 3, 4),
    "permuted and expanded": lambda x: x.mT.contiguous().mT[:1].expand(2, 3, 4),
    "with gaps": lambda x: torch.cat([x, x], -1)[..., ::2],
    "number": lambda x: x.flatten()[0],
    "row": lambda x: x[0, 0],
}
DTYPES = {
    "mixed": (torch.float32, torch.float64),
    "bool": (torch.bool, torch.float64),
    "integers": (torch.int64, torch.int64),
}
BINARY = {
    **{
        name: getattr(torch, name)
        for name in "add rsub atan2 xlogy copysign logaddexp logical_and eq floor_divide".split()
    },
    "div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "heaviside": torch.heaviside,
    "complex": torch.complex,
    "threshold_backward": lambda a, b: torch.ops.aten.threshold_backward(a, b, 0.5),
    "leaky_relu_backward": lambda a, b: torch.ops.aten.leaky_relu_backward(a, b, 0.5, False),
    "elu_backward": lambda a, b: torch.ops.aten.elu_backward(a, 1, 1, 1, False, b),
    "mish_backward": torch.ops.aten.mish_backward,
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy(a, b, b, reduction="none"),
    "with_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction="none"),
    "mse_loss_backward": lambda a, b: torch.ops.aten.mse_loss_backward(a, b, b, 0),
    "huber_loss_backward": lambda a, b: torch.ops.aten.huber_loss_backward(a, b, b, 0, 1.0),
}
UNARY = {
    "neg": torch.neg,
    "angle": torch.angle,
    "2 ** x": lambda x: torch.pow(2, x),
    "bool of a power": lambda x: (x > 0) ** True,
    "prelu": lambda x: F.prelu(x, x.flatten()[:1]),
    "addcmul": lambda x: torch.addcmul(x[0], x, x.flatten()[0]),
}
RANDOM = {
    "normal around": lambda x: torch.normal(x, 1.0),
    "normal": lambda x: torch.normal(0.0, x),
    "normal of both": lambda x: torch.normal(x, x),
    "poisson": torch.poisson,
    "binomial": lambda x: torch.binomial(x, x),
    "gamma": torch._standard_gamma,
    "bernoulli": torch.bernoulli,
    "rrelu": lambda x: F.rrelu(x, training=True),
}


def _strides(result: torch.Tensor) -> tuple:
    """Shape and the strides that decide where elements are."""
    pairs = zip(result.stride(), result.shape, strict=True)
    return result.shape, [stride for stride, size in pairs if size > 1]


def _same_strides(call, *operands) -> None:
    """``call`` on (dtype, layout) operands is laid out as on the CPU."""
    base = torch.linspace(0.1, 1.0, 24).reshape(2, 3, 4)
    cpu, tpu = (
        [LAYOUTS[layout]((base > 0).to(dtype).to(device)) for dtype, layout in operands]
        for device in ("cpu", "tpu")
    )
    assert _strides(call(*tpu)) == _strides(call(*cpu))


def _is_loss(name: str) -> bool:
    return "loss" in name or "entropy" in name or "logits" in name


PAIRS = [
    ("permuted", "number"),
    ("number", "permuted"),
    ("rotated", "permuted"),
    ("expanded", "permuted"),
    ("permuted and expanded", "plain"),
    ("row", "permuted"),
]
PROMOTING = ("add", "xlogy", "copysign", "logical_and", "div")


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [*((name, "alike") for name in BINARY), *itertools.product(PROMOTING, DTYPES)],
)
def test_two_operands_laid_out_differently(name, dtypes):
    # Losses whose input is no tensor of the result's shape are laid out by chance.
    pairs = [p for p in PAIRS if "number" not in p and "row" not in p or not _is_loss(name)]
    dtypes = DTYPES.get(dtypes, (torch.float32, torch.float32))
    for layouts in pairs:
        _same_strides(BINARY[name], *zip(dtypes, layouts, strict=True))


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    dtype = torch.complex64 if name == "angle" else torch.float32
    for layout in ("permuted", "rotated", "expanded", "with gaps"):
        _same_strides(UNARY[name], (dtype, layout))


@pytest.mark.parametrize("layout", ["permuted", "expanded", "with gaps"])
@pytest.mark.parametrize("name", RANDOM)
def test_random_results(name, layout):
    _same_strides(RANDOM[name], (torch.float32, layout))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.roll(1, 1),
        lambda x: x.roll((1, 2), (0, -1)),
        lambda x: x.roll(3),
        lambda x: torch.isin(x, x[0]),
        lambda x: torch.isin(x, 0.5),
    ],
)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (3, 1, 0, 2), (1, 0, 3, 2)])
def test_results_of_rolled_and_found_elements(call, order):
    x = torch.randn(2, 3, 4, 5).permute(order)
    expected, result = call(x), call(x.to("tpu"))
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), expected)


def test_products_of_eight_bit_floats_saturate():
    x = torch.tensor([288.0, 448.0, -448.0, 0.5]).to(torch.float8_e4m3fn)
    assert (x.to("tpu") * x.to("tpu")).float().tolist() == (x * x).float().tolist()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_cross_products_are_contiguous(order):
    x = torch.randn(5, 5, 5)[:3].permute(order)
    y = torch.randn(x.shape)
    dim = order.index(0)
    expected, result = x.cross(y, dim=dim), x.to("tpu").cross(y.to("tpu"), dim=dim)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)
