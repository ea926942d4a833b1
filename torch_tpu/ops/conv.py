"""Convolution and its backward: 1-, 2- and 3-d, transposed, dilated, grouped.

PyTorch sends every convolution of a PrivateUse1 device to `convolution_overrideable` and
`convolution_backward_overrideable`; both are built from three sums over kernel positions, written
for one spatial rank at a time: `_correlate` (forward), `_spread` (its transpose: transposed
convolution, input gradient) and `_weight_gradient`. Pooling is in `pool.py`.

The forms were chosen by time on XLA:CPU (2 cores; 32x64x28x28, 64 3x3 kernels; ms): NCHW dimension
numbers 29, transposed to NHWC inside the program 29 (XLA does that itself), PyTorch's CPU 56;
input gradient 32 against 52; weight gradient as a convolution over the batch 359, as one dot per
kernel row 63 (with stride 2 and 128 kernels: 36 against 17; PyTorch 40). Depthwise: convolution 43,
sum of shifted products 1.2.
"""

from __future__ import annotations

import itertools
import math

import torch

from ..lowering import hlo, promote
from ..lowering.registry import expected, op
from .common import laid_out_as, same_dtype

# Sums of more kernel positions than this stay one convolution: programs must not grow without end.
_MAX_TERMS = 64
_MAX_ROWS = 16
# Up to this many groups run as separate convolutions, which XLA:CPU does 5 times as fast.
_MAX_SPLIT = 8


def _by_group(body, x, y, x_dim, y_dim, groups):
    """Concatenate ``body(part of x, part of y)`` of all groups along the dim of its features."""

    def part(v, dim, i):
        step = v.shape[dim] // groups
        return hlo.slice_dim(v, dim, i * step, (i + 1) * step)

    return [body(part(x, x_dim, i), part(y, y_dim, i)) for i in range(groups)]


def _positions(x, kernel, out, stride, dilation):
    """For every kernel position, in order: (position, elements of padded ``x`` that it meets)."""
    for k in itertools.product(*map(range, kernel)):
        starts = [0, 0, *(d * i for d, i in zip(dilation, k, strict=True))]
        limits = [*x.shape[:2]]
        limits += [b + s * (n - 1) + 1 for b, s, n in zip(starts[2:], stride, out, strict=True)]
        yield k, hlo.slice(x, starts, limits, [1, 1, *stride])


def _pad(x, padding, base):
    low, high = ([0, 0, *side] for side in zip(*padding, strict=True))
    gaps = [0, 0, *(b - 1 for b in base)]
    return hlo.pad(x, hlo.constant(0, x.dtype), low, high, gaps)


def _shifted_products(x, w, stride, padding, base, dilation, groups, out):
    """Grouped convolution as a sum of shifted products; XLA fuses it to one loop."""
    n, outputs, inputs = x.shape[0], w.shape[0] // groups, w.shape[1]
    x = _pad(x, padding, base)
    terms = []
    for k, met in _positions(x, w.shape[2:], out, stride, dilation):
        met = hlo.reshape(met, (n, groups, inputs, *out))
        at = [0, 0, *k]
        weight = hlo.slice(w, at, [*w.shape[:2], *(i + 1 for i in k)])
        weight = hlo.reshape(weight, (groups, outputs, inputs))
        shape = (n, groups, outputs, *out)
        dims = [0, 1, *range(3, 3 + len(out))]
        for j in range(inputs):
            a = hlo.broadcast_in_dim(hlo.squeeze(hlo.slice_dim(met, 2, j, j + 1), 2), shape, dims)
            b = hlo.squeeze(hlo.slice_dim(weight, 2, j, j + 1), 2)
            terms.append(hlo.binary("multiply", a, hlo.broadcast_in_dim(b, shape, [1, 2])))
    total = terms[0]
    for term in terms[1:]:
        total = hlo.binary("add", total, term)
    return hlo.reshape(total, (n, w.shape[0], *out))


def _correlate(x, w, stride, padding, base, dilation, groups=1):
    """``x`` (N, C, *) with ``base`` - 1 gaps between elements and ``padding`` pairs, slid over by
    ``w`` (O, C / groups, *)."""
    sizes = [
        b * (s - 1) + 1 + low + high
        for s, b, (low, high) in zip(x.shape[2:], base, padding, strict=True)
    ]
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    out = [(n - s) // t + 1 for n, s, t in zip(sizes, spans, stride, strict=True)]
    terms = w.shape[1] * math.prod(w.shape[2:])
    if groups > 1 and terms <= _MAX_TERMS and (w.shape[1] == 1 or groups > _MAX_SPLIT):
        return _shifted_products(x, w, stride, padding, base, dilation, groups, out)
    if 1 < groups <= _MAX_SPLIT:
        parts = _by_group(
            lambda a, b: _correlate(a, b, stride, padding, base, dilation), x, w, 1, 0, groups
        )
        return hlo.concatenate(parts, 1)
    if any(low < 0 or high < 0 for low, high in padding):
        # Cropping is not in every backend's convolution.
        x, padding, base = _pad(x, padding, base), [(0, 0)] * len(out), [1] * len(out)
    spatial = range(2, x.ndim)
    return hlo.convolution(
        x,
        w,
        strides=stride,
        padding=padding,
        input_dilation=base,
        kernel_dilation=dilation,
        x_dims=(0, 1, spatial),
        kernel_dims=(1, 0, spatial),
        out_dims=(0, 1, spatial),
        shape=(x.shape[0], w.shape[0], *out),
        groups=groups,
    )


def _spread(y, w, size, stride, padding, dilation, groups):
    """Transpose of the convolution (to ``y`` from spatial ``size``) whose kernel is ``w``."""
    o, c, kernel = w.shape[0] // groups, w.shape[1], w.shape[2:]
    w = hlo.reshape(hlo.reverse(w, range(2, w.ndim)), (groups, o, c, *kernel))
    w = hlo.transpose(w, [0, 2, 1, *range(3, w.ndim)])
    w = hlo.reshape(w, (groups * c, o, *kernel))
    pairs = [
        (d * (k - 1) - p, n - 1 + p - s * (m - 1))
        for n, m, k, s, p, d in zip(
            size, y.shape[2:], kernel, stride, padding, dilation, strict=True
        )
    ]
    ones = [1] * len(size)
    return _correlate(y, w, ones, pairs, stride, dilation, groups)


def _exact(size, out, kernel, stride, padding, dilation):
    """Padding with which a convolution of ``size`` gives ``out`` and leaves no element unused."""
    return [
        (p, d * (k - 1) + s * (m - 1) + 1 - n - p)
        for n, m, k, s, p, d in zip(size, out, kernel, stride, padding, dilation, strict=True)
    ]


def _weight_gradient(x, y, kernel, stride, padding, dilation, groups):
    """Gradient (O, C / groups, *kernel) of the kernel that convolves ``x`` to ``y``'s shape."""
    out = y.shape[2:]
    pairs = _exact(x.shape[2:], out, kernel, stride, padding, dilation)
    ones = [1] * len(out)
    x = _pad(x, pairs, ones)
    if x.shape[1] == groups > 1 and math.prod(kernel) <= _MAX_TERMS:
        return _depthwise_gradient(x, y, kernel, stride, dilation)
    if 1 < groups <= _MAX_SPLIT:
        parts = _by_group(
            lambda a, b: _gradient_rows(a, b, kernel, stride, dilation, 1), x, y, 1, 1, groups
        )
        return hlo.concatenate(parts, 0)
    return _gradient_rows(x, y, kernel, stride, dilation, groups)


def _depthwise_gradient(x, y, kernel, stride, dilation):
    n, groups = x.shape[:2]
    shape = (n, groups, y.shape[1] // groups, *y.shape[2:])
    dims = [0, 1, *range(3, len(shape))]
    y = hlo.reshape(y, shape)
    sums = []
    for _, met in _positions(x, kernel, shape[3:], stride, dilation):
        product = hlo.binary("multiply", hlo.broadcast_in_dim(met, shape, dims), y)
        total = hlo.reduce(product, "add", [0, *range(3, len(shape))])
        sums.append(hlo.reshape(total, (shape[1] * shape[2], 1, 1)))
    return hlo.reshape(hlo.concatenate(sums, 2), (shape[1] * shape[2], 1, *kernel))


def _gradient_rows(x, y, kernel, stride, dilation, groups):
    """One dot over batch and space for each kernel row: its columns lie side by side in ``x``."""
    out, spatial, n = y.shape[2:], len(kernel), x.shape[0]
    c, o = x.shape[1] // groups, y.shape[1] // groups
    if max(kernel[-1], math.prod(kernel[:-1])) > _MAX_ROWS:
        return _gradient_convolution(x, y, kernel, stride, dilation, groups)
    x = hlo.transpose(x, [0, *range(2, x.ndim), 1])
    last = spatial  # position of the last spatial dim in (N, *, C)
    span = stride[-1] * (out[-1] - 1) + 1
    columns = [
        hlo.slice_dim(x, last, dilation[-1] * j, dilation[-1] * j + span, stride[-1])
        for j in range(kernel[-1])
    ]
    points = n * math.prod(out)
    y = hlo.reshape(y, (n, groups, o, *out))
    y = hlo.transpose(y, [1, 2, 0, *range(3, y.ndim)])
    y = hlo.reshape(y, (groups, o, points) if groups > 1 else (o, points))
    if groups > 1:
        columns = [hlo.reshape(v, (*v.shape[:-1], groups, 1, c)) for v in columns]
    x = hlo.concatenate(columns, spatial + 2 if groups > 1 else spatial + 1)
    rows = []
    for k in itertools.product(*map(range, kernel[:-1])):
        row = x
        for i, at in enumerate(k):
            start = dilation[i] * at
            row = hlo.slice_dim(row, 1 + i, start, start + stride[i] * (out[i] - 1) + 1, stride[i])
        if groups > 1:
            row = hlo.reshape(row, (points, groups, kernel[-1] * c))
            product = hlo.dot_general(y, row, ([2], [0]), ([0], [1]))
        else:
            product = hlo.dot_general(y, hlo.reshape(row, (points, kernel[-1] * c)), ([1], [0]))
        rows.append(hlo.reshape(product, (groups * o, 1, kernel[-1] * c)))
    total = hlo.reshape(hlo.concatenate(rows, 1), (groups * o, *kernel, c))
    return hlo.transpose(total, [0, spatial + 1, *range(1, spatial + 1)])


def _gradient_convolution(x, y, kernel, stride, dilation, groups):
    """The same for large kernels: a convolution that takes the batch for the features."""
    spatial, ones = range(2, x.ndim), [1] * len(kernel)
    return hlo.convolution(
        x,
        y,
        strides=dilation,
        padding=[(0, 0)] * len(kernel),
        input_dilation=ones,
        kernel_dilation=stride,
        x_dims=(1, 0, spatial),
        kernel_dims=(0, 1, spatial),
        out_dims=(1, 0, spatial),
        shape=(y.shape[1], x.shape[1] // groups, *kernel),
        batch_groups=groups,
    )


def _wide(*values):
    """Convolutions of 16-bit floats run in float32 and are rounded once, as on the CPU."""
    return [v if v is None else hlo.convert(v, promote.compute_dtype(v.dtype)) for v in values]


def _forward_meta(**arguments):
    result = torch.ops.aten.convolution(**arguments)
    x, weight, groups = (arguments[name] for name in ("input", "weight", "groups"))
    return [laid_out_as(result, *((x, weight) if _keeps_layout(x, weight, groups) else ()))]


def _keeps_layout(x, weight, groups: int) -> bool:
    """Whether the CPU kernel's result has channels last if an operand has."""
    if x.ndim < 5:
        return True
    # Of the kernels for volumes only oneDNN's does, which gets the larger ones.
    large = groups > 1 or x.shape[0] > 1 or x.shape[:4].numel() > 20480
    return x.dtype is torch.float32 and (large or min(weight.shape[-2:]) > 3)


def _backward_meta(grad_output, input, weight, output_mask, **_):
    bias = grad_output.new_empty((grad_output.shape[1],))
    results = (torch.empty_like(input), torch.empty_like(weight), bias)
    return [r if wanted else None for r, wanted in zip(results, output_mask, strict=True)]


@op(
    "aten::convolution_overrideable",
    meta=_forward_meta,
    check=same_dtype("input", "weight", "bias"),
)
def convolution_overrideable(
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
):
    dtype, spatial = input.dtype, input.ndim - 2
    stride, padding, dilation = (_spatial(v, spatial) for v in (stride, padding, dilation))
    input, weight, bias = _wide(input, weight, bias)
    shape = expected()[0].shape
    if not (input.numel and weight.numel):
        result = hlo.constant(0, input.dtype, shape)
    elif transposed:
        result = _spread(input, weight, shape[2:], stride, padding, dilation, groups)
    else:
        pairs = [(p, p) for p in padding]
        result = _correlate(input, weight, stride, pairs, [1] * spatial, dilation, groups)
    if bias is not None:
        result = hlo.binary("add", result, hlo.broadcast_in_dim(bias, result.shape, [1]))
    return hlo.convert(result, dtype)


def _spatial(values, count):
    """One number stands for all spatial dims."""
    values = list(values)
    return values * count if len(values) == 1 else values


@op(
    "aten::convolution_backward_overrideable",
    meta=_backward_meta,
    check=same_dtype("input", "weight", "grad_output"),
)
def convolution_backward_overrideable(
    grad_output,
    input,
    weight,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
):
    dtypes = (input.dtype, weight.dtype, grad_output.dtype)
    spatial = input.ndim - 2
    stride, padding, dilation = (_spatial(v, spatial) for v in (stride, padding, dilation))
    grad, input, weight = _wide(grad_output, input, weight)
    empty = not (grad.numel and input.numel and weight.numel)
    results = [None, None, None]
    if output_mask[0]:
        if empty:
            results[0] = hlo.zeros_like(input)
        elif transposed:
            sizes = (grad.shape[2:], input.shape[2:], weight.shape[2:])
            pairs, ones = _exact(*sizes, stride, padding, dilation), [1] * spatial
            results[0] = _correlate(grad, weight, stride, pairs, ones, dilation, groups)
        else:
            size = input.shape[2:]
            results[0] = _spread(grad, weight, size, stride, padding, dilation, groups)
    if output_mask[1]:
        big, small = (grad, input) if transposed else (input, grad)
        results[1] = (
            hlo.zeros_like(weight)
            if empty
            else _weight_gradient(big, small, weight.shape[2:], stride, padding, dilation, groups)
        )
    if output_mask[2]:
        results[2] = hlo.reduce(grad, "add", [0, *range(2, grad.ndim)])
    return [v if v is None else hlo.convert(v, d) for v, d in zip(results, dtypes, strict=True)]


# ---- as captured graphs have them: PyTorch names the backend's kernels only when it runs -------

op("aten::convolution", graph_only=True)(convolution_overrideable)


@op("aten::convolution_backward", graph_only=True)
def convolution_backward(grad_output, input, weight, bias_sizes, **arguments):
    return convolution_backward_overrideable(grad_output, input, weight, **arguments)
