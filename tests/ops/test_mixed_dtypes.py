"""Calls whose tensors have several dtypes, where PyTorch's meta kernels and its CPU kernels differ.

Either both devices refuse the call, or the result has the CPU's dtype and values. What rules refuse
for other reasons than mixed dtypes is in `test_refusals.py`.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from ops.both_devices import refused_alike

A = torch.ops.aten
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
I32, I64, U8, BOOL, C64 = torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64


def _maker(device: str):
    """Makes the tensors of a call on one device; the same numbers for the same shape."""

    def make(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(len(shape))
        values = torch.rand(shape, generator=generator) * 0.8 + 0.1
        values = values if dtype.is_floating_point or dtype.is_complex else values.round()
        return values.to(dtype).to(device)

    return make


REFUSED = {
    "mse_loss_backward into integers": lambda t: A.mse_loss_backward(
        t(2, 3), t(2, 3, dtype=I64), t(2, 3), 0
    ),
    "smooth_l1_loss_backward into bool": lambda t: A.smooth_l1_loss_backward(
        t(2, 3), t(2, 3, dtype=BOOL), t(2, 3), 0, 1.0
    ),
    "huber_loss of integers and floats": lambda t: A.huber_loss(t(3, dtype=I64), t(3)),
    "huber_loss_backward of two dtypes": lambda t: A.huber_loss_backward(
        t(3), t(3, dtype=F64), t(3), 0, 1.0
    ),
    "binary_cross_entropy of integers": lambda t: functional.binary_cross_entropy(
        t(3, dtype=I64), t(3)
    ),
    "binary_cross_entropy, complex weight": lambda t: A.binary_cross_entropy(
        t(3), t(3), t(3, dtype=C64)
    ),
    "binary_cross_entropy_backward of two dtypes": lambda t: A.binary_cross_entropy_backward(
        t(3, dtype=F64), t(3), t(3), None, 0
    ),
    "cross entropy with logits, bool pos_weight": lambda t: A.binary_cross_entropy_with_logits(
        t(3), t(3), None, t(3, dtype=BOOL)
    ),
    "cross entropy with logits, complex weight": lambda t: A.binary_cross_entropy_with_logits(
        t(3), t(3), t(3, dtype=C64)
    ),
    "soft_margin_loss of bool": lambda t: A.soft_margin_loss(t(3, dtype=BOOL), t(3)),
    "soft_margin_loss_backward, bool target": lambda t: A.soft_margin_loss_backward(
        t(3), t(3), t(3, dtype=BOOL), 0
    ),
    "nll_loss, int32 target": lambda t: functional.nll_loss(t(2, 3), t(2, dtype=I32)),
    "nll_loss2d, bool target": lambda t: functional.nll_loss(t(2, 3, 1, 1), t(2, 1, 1, dtype=BOOL)),
    "nll_loss_backward, other total weight": lambda t: A.nll_loss_backward(
        t(), t(2, 3), t(2, dtype=I64), None, 1, -100, t(dtype=F64)
    ),
    "multi_margin_loss, other weight": lambda t: A.multi_margin_loss(
        t(2, 3), t(2, dtype=I64), 1, 1, t(3, dtype=F64)
    ),
    "multilabel_margin_loss, int32 target": lambda t: functional.multilabel_margin_loss(
        t(2, 3), t(2, 3, dtype=I32)
    ),
    "multilabel_margin_loss_backward, other flags": lambda t: A.multilabel_margin_loss_backward(
        t(), t(2, 3), t(2, 3, dtype=I64), 1, t(2, 3, dtype=F64)
    ),
    "softmax backward of two dtypes": lambda t: A._softmax_backward_data(
        t(2, 3), t(2, 3, dtype=F64), -1, F32
    ),
    "log_softmax backward of two dtypes": lambda t: A._log_softmax_backward_data(
        t(2, 3, dtype=F64), t(2, 3), -1, F64
    ),
    "masked softmax, float mask": lambda t: A._masked_softmax(t(2, 3), t(2, 3), 1),
    "masked softmax backward of two dtypes": lambda t: A._masked_softmax_backward(
        t(2, 3, dtype=F64), t(2, 3), t(2, 3, dtype=BOOL), 1
    ),
    "mish_backward into bool": lambda t: A.mish_backward(t(3), t(3, dtype=BOOL)),
    "prelu of two dtypes": lambda t: functional.prelu(t(3), t(1, dtype=F64)),
    "prelu backward of two dtypes": lambda t: A._prelu_kernel_backward(
        t(3), t(3, dtype=F64), t(3, dtype=F64)
    ),
    "log_sigmoid_backward of two dtypes": lambda t: A.log_sigmoid_backward(
        t(3), t(3, dtype=F64), t(3, dtype=F64)
    ),
    "log_sigmoid of integers": lambda t: functional.logsigmoid(t(3, dtype=I64)),
    "glu of integers": lambda t: functional.glu(t(4, dtype=I64)),
    "glu_backward of two dtypes": lambda t: A.glu_backward(t(2), t(4, dtype=F64), 0),
    "layer norm backward of two dtypes": lambda t: A.native_layer_norm_backward(
        t(2, 3, dtype=F64), t(2, 3), [3], t(2, 1), t(2, 1), t(3), t(3), [True] * 3
    ),
    "layer norm backward, other statistics": lambda t: A.native_layer_norm_backward(
        t(2, 3), t(2, 3), [3], t(2, 1, dtype=F64), t(2, 1), t(3), t(3), [True] * 3
    ),
    "group norm backward of two dtypes": lambda t: A.native_group_norm_backward(
        t(2, 4, 1, dtype=BF16), t(2, 4, 1), t(2, 2), t(2, 2), t(4), 2, 4, 1, 2, [True] * 3
    ),
    "batch norm backward, other weight": lambda t: A.native_batch_norm_backward(
        t(2, 3), t(2, 3), t(3, dtype=F64), None, None, t(3), t(3), True, 1e-5, [True] * 3
    ),
    "convolution backward of two dtypes": lambda t: A.convolution_backward(
        t(1, 1, 2),
        t(1, 1, 3, dtype=F64),
        t(1, 1, 2, dtype=F64),
        [1],
        [1],
        [0],
        [1],
        False,
        [0],
        1,
        [True] * 3,
    ),
    "avg_pool2d_backward of two dtypes": lambda t: A.avg_pool2d_backward(
        t(1, 1, 2, 2), t(1, 1, 4, 4, dtype=F64), [2, 2], [2, 2], [0, 0], False, True, None
    ),
    "grid_sample backward of two dtypes": lambda t: A.grid_sampler_2d_backward(
        t(1, 1, 2, 2, dtype=F64), t(1, 1, 4, 4), t(1, 2, 2, 2), 0, 0, False, [True, True]
    ),
    "cdist of two dtypes": lambda t: A._cdist_forward(t(2, 3), t(2, 3, dtype=F64), 2.0, 0),
    "cdist backward of two dtypes": lambda t: A._cdist_backward(
        t(2, 2, dtype=F64), t(2, 3), t(2, 3), 2.0, t(2, 2)
    ),
    "pdist backward of two dtypes": lambda t: A._pdist_backward(
        t(1, dtype=F64), t(2, 3), 2.0, t(1)
    ),
    "index_fill, complex value": lambda t: A.index_fill.int_Tensor(
        t(3), 0, t(1, dtype=I64), t(dtype=C64)
    ),
    "put, other source": lambda t: t(3).put(t(1, dtype=I64), t(1, dtype=F64)),
    "index_put under a mask, other values": lambda t: t(2).index_put(
        (torch.ones_like(t(2, dtype=BOOL)),), t(2, dtype=F64)
    ),
    "masked_scatter_backward, float mask": lambda t: A.masked_scatter_backward(t(3), t(3), [3]),
    "embedding backward, uint8 indices": lambda t: A.embedding_dense_backward(
        t(2, 3), t(2, dtype=U8), 2, -1, False
    ),
    "embedding_bag, other per-sample weights": lambda t: A._embedding_bag(
        t(2, 3), t(2, dtype=I64), 0 * t(1, dtype=I64), False, 0, False, t(2, dtype=F64)
    ),
    "segment_reduce, another axis of offsets": lambda t: torch.segment_reduce(
        t(2, 3), "sum", offsets=t(1, 2, dtype=I64), axis=0
    ),
    "addcdiv of bools": lambda t: torch.addcdiv(t(3), t(3, dtype=BOOL), t(3, dtype=BOOL)),
    "_foreach_addcdiv of bools": lambda t: torch._foreach_addcdiv(
        [t(3)], [t(3, dtype=BOOL)], [t(3, dtype=BOOL)]
    ),
    "segment_reduce, float64 lengths": lambda t: torch.segment_reduce(
        t(2, 3), "sum", lengths=t(1, dtype=F64)
    ),
    "soft_margin_loss, target of more dims": lambda t: A.soft_margin_loss(t(3), t(2, 3)),
    "native_batch_norm, statistics of two dims": lambda t: torch.native_batch_norm(
        t(2, 1), t(1), t(1), t(1, 1), t(1), True, 0.5, 1e-5
    ),
    "native_group_norm, bias of two dims": lambda t: torch.native_group_norm(
        t(1, 3), t(3), t(1, 3), 1, 3, 1, 1, 1e-5
    ),
    "upsample_linear1d without channels": lambda t: A.upsample_linear1d(t(4, 0, 2), [3], False),
    "upsample_bicubic2d without rows": lambda t: A.upsample_bicubic2d(t(1, 1, 0, 2), [3, 3], False),
    "segment_reduce backward of two dtypes": lambda t: A._segment_reduce_backward(
        t(1, 3, dtype=F64), t(1, 3), t(2, 3), "sum", lengths=2 * torch.ones_like(t(1, dtype=I64))
    ),
    "searchsorted, sorter of another dtype": lambda t: torch.searchsorted(
        t(3), t(2), sorter=t(3, dtype=F16)
    ),
    "searchsorted in bool": lambda t: torch.searchsorted(t(3, dtype=BOOL), t(2, dtype=BOOL)),
    "linspace of complex numbers, real dtype": lambda t: torch.linspace(
        t(dtype=C64), t(), 3, dtype=F32, device=t().device
    ),
    "logspace of complex numbers, real dtype": lambda t: torch.logspace(
        1j, 2, 3, dtype=F32, device=t().device
    ),
}

TAKEN = {
    "mse_loss_backward": lambda t: A.mse_loss_backward(t(2, 3), t(2, 3, dtype=BF16), t(2, 3), 0),
    "smooth_l1_loss_backward": lambda t: A.smooth_l1_loss_backward(
        t(2, 3, dtype=F64), t(2, 3), t(2, 3), 0, 1.0
    ),
    "huber_loss": lambda t: A.huber_loss(t(2, 3, dtype=F16), t(2, 3)),
    "huber_loss of a number": lambda t: A.huber_loss(
        t(2, 3, dtype=F16), torch.full_like(t(), 0.5), 0
    ),
    "binary_cross_entropy, wide weight": lambda t: A.binary_cross_entropy(
        t(3), t(3), t(3, dtype=F64)
    ),
    "binary_cross_entropy_backward, wide weight": lambda t: A.binary_cross_entropy_backward(
        t(3), t(3), t(3), t(3, dtype=F64), 0
    ),
    "soft_margin_loss": lambda t: A.soft_margin_loss(t(3, dtype=F16), t(3, dtype=F64), 0),
    "soft_margin_loss_backward": lambda t: A.soft_margin_loss_backward(
        t(3, dtype=F64), t(3), t(3), 0
    ),
    "nll_loss, uint8 target": lambda t: functional.nll_loss(t(2, 3), t(2, dtype=U8)),
    "softmax backward, another input dtype": lambda t: A._softmax_backward_data(
        t(2, 3, dtype=F16), t(2, 3, dtype=F16), -1, F32
    ),
    "log_softmax backward, another input dtype": lambda t: A._log_softmax_backward_data(
        t(2, 3), t(2, 3), -1, F64
    ),
    "threshold_backward": lambda t: A.threshold_backward(t(3, dtype=BF16), t(3), 0.3),
    "mish_backward": lambda t: A.mish_backward(t(3), t(3, dtype=BF16)),
    "rrelu backward": lambda t: A.rrelu_with_noise_backward(
        t(3, dtype=F16), t(3), t(3), 0.1, 0.3, True, False
    ),
    "dropout backward, a number for 16-bit floats": lambda t: A.native_dropout_backward(
        t(), t(5, dtype=BF16), 2.0
    ),
    "dropout backward, complex mask": lambda t: A.native_dropout_backward(
        t(3), t(3, dtype=C64), 2.0
    ),
    "embedding backward of integers": lambda t: A.embedding_dense_backward(
        5 * t(3, 2, dtype=I64), 0 * t(3, dtype=I64), 2, -1, True
    ),
    "block_diag of a number": lambda t: torch.block_diag(t(2, 3), t(dtype=F64)),
    "searchsorted of floats in bool": lambda t: torch.searchsorted(
        torch.sort(t(3, dtype=BOOL)).values, t(2)
    ),
    "linspace of complex numbers": lambda t: torch.linspace(
        t(dtype=C64), t(), 3, dtype=C64, device=t().device
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_refused_as_on_the_cpu(call):
    refused_alike(call, _maker)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("call", TAKEN.values(), ids=TAKEN)
def test_result_has_the_dtype_of_the_cpu(call):
    wanted = call(_maker("cpu"))
    result = call(_maker("tpu")).cpu()
    rtol = {F16: 1e-3, BF16: 8e-3}.get(wanted.dtype, 1e-5)
    torch.testing.assert_close(result, wanted, rtol=rtol, atol=1e-6)
