"""Rows of `torch_tpu/ops/conv.py`.

These operators have no CPU kernel: the runner compares them with `aten::convolution` and
`aten::convolution_backward` (``bias_sizes`` inserted).
"""

import torch

from ops.row import Row, t

F, L, H, B, D = torch.float32, torch.int64, torch.float16, torch.bfloat16, torch.float64


# input, weight, stride, padding, dilation, transposed, output_padding, groups
CASES = [
    ((2, 3, 9), (4, 3, 3), [2], [1], [1], False, [0], 1),
    ((2, 3, 9), (3, 4, 3), [2], [1], [1], True, [1], 1),
    ((2, 3, 7, 8), (4, 3, 3, 2), [1, 1], [1, 0], [1, 1], False, [0, 0], 1),
    ((2, 3, 9, 8), (5, 3, 3, 3), [2, 3], [1, 2], [1, 2], False, [0, 0], 1),
    ((2, 3, 5, 4), (4, 3, 1, 1), [2, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ((2, 2, 4, 4), (3, 2, 2, 2), [1, 1], [3, 4], [1, 1], False, [0, 0], 1),
    ((2, 4, 6, 5), (6, 2, 3, 3), [1, 2], [1, 1], [1, 1], False, [0, 0], 2),
    ((2, 4, 6, 5), (4, 1, 3, 3), [2, 1], [1, 1], [1, 2], False, [0, 0], 4),
    ((2, 3, 6, 5), (6, 1, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 3),
    ((1, 20, 4, 4), (10, 2, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 10),
    ((1, 20, 4, 4), (20, 2, 9, 9), [1, 1], [4, 4], [1, 1], False, [0, 0], 10),
    ((1, 2, 20, 3), (2, 2, 18, 2), [1, 1], [1, 0], [1, 1], False, [0, 0], 1),
    ((1, 2, 3, 40), (2, 1, 2, 18), [1, 2], [1, 0], [1, 1], False, [0, 0], 2),
    ((2, 4, 5, 4), (4, 3, 3, 3), [2, 2], [1, 0], [1, 1], True, [1, 1], 1),
    ((2, 4, 5, 4), (4, 3, 3, 3), [2, 1], [1, 0], [2, 1], True, [1, 0], 2),
    ((2, 4, 4, 4), (4, 1, 2, 2), [2, 2], [0, 0], [1, 1], True, [0, 0], 4),
    ((2, 4, 4, 4), (4, 2, 3, 3), [2, 2], [3, 3], [3, 3], True, [2, 0], 4),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), [1, 2, 1], [1, 1, 0], [1, 1, 2], False, [0, 0, 0], 1),
    ((1, 2, 3, 3, 2), (2, 3, 2, 2, 2), [2, 1, 2], [0, 1, 0], [1, 1, 1], True, [1, 0, 0], 1),
    ((1, 4, 4, 4, 4), (4, 1, 2, 2, 2), [1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 4),
]


def _data(*shape, dtype, low=-2.0, seed=0):
    # 16-bit: whole numbers, whose sums are exact; PyTorch's CPU kernels round partial sums.
    if dtype in (H, B):
        return t(*shape, dtype=torch.int32, low=low, high=3, seed=seed).to(dtype)
    return t(*shape, dtype=dtype, low=low, seed=seed)


def _forward(case, dtype=F, bias=True, low=-2.0):
    x, w, stride, padding, dilation, transposed, extra, groups = case
    outputs = w[1] * groups if transposed else w[0]
    tensors = (
        _data(*x, dtype=dtype, low=low),
        _data(*w, dtype=dtype, low=low, seed=1),
        _data(outputs, dtype=dtype, low=low, seed=2) if bias else None,
    )
    return Row(
        "aten::convolution_overrideable",
        (*tensors, stride, padding, dilation, transposed, extra, groups),
    )


def _backward(case, dtype=F, mask=(True, True, True)):
    x, w, stride, padding, dilation, transposed, extra, groups = case
    data, weight = _data(*x, dtype=dtype), _data(*w, dtype=dtype, seed=1)
    meta = torch.ops.aten.convolution(data.to("meta"), weight.to("meta"), None, *case[2:])
    grad = _data(*meta.shape, dtype=dtype, seed=3)
    return Row(
        "aten::convolution_backward_overrideable",
        (grad, data, weight, stride, padding, dilation, transposed, extra, groups, list(mask)),
        atol=1e-5,
        reason="sums of products that cancel: PyTorch's own order of summation differs as much",
    )


EMPTY = ((0, 3, 5, 5), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
ROWS = [
    *(_forward(case) for case in CASES),
    *(_backward(case) for case in CASES),
    *(_forward(CASES[i], dtype, False) for i in (2, 7, 13) for dtype in (D, B, H)),
    *(_backward(CASES[i], dtype) for i in (2, 7, 13) for dtype in (D, B)),
    _forward(CASES[2], L),
    _forward(CASES[2], torch.int8, low=-1),
    _forward(CASES[13], L),
    _forward(EMPTY),
    _backward(EMPTY),
    _backward(CASES[3], mask=(True, False, False)),
    _backward(CASES[6], mask=(False, True, False)),
    _backward(CASES[13], mask=(False, False, True)),
]
