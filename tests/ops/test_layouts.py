"""Strides of results, and results without elements, where PyTorch's meta kernels are wrong.

Rows compare values, dtypes and shapes; these calls also have the strides that CPU PyTorch gives.
"""

from __future__ import annotations

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
