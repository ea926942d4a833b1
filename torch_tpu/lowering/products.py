"""The words for products: `dot_general`, `convolution`, and with how many bits they are made.

Part of `hlo.py` (rules import everything from there); kept apart for size. XLA computes 64-bit
integers on TPUs as pairs of 32-bit ones, but not their `dot` and `convolution`: lowered for a TPU,
both are multiplications and sums, exact modulo 2 ** 64 as everywhere, on the vector units instead
of the matrix units.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from . import hlo, target, windows
from .builder import Value, current


def dot_general(
    a: Value,
    b: Value,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    dtype: torch.dtype | None = None,
) -> Value:
    """Batched contraction; the result is (batch dims, free dims of a, free dims of b).

    ``dtype`` is the accumulation and result dtype (default: that of the operands). Precision
    follows `torch.get_float32_matmul_precision()`.
    """
    contract_a, contract_b = map(list, contract)
    batch_a, batch_b = map(list, batch)
    if _written_out(dtype or a.dtype):
        pairs = (contract_a, contract_b), (batch_a, batch_b)
        return _sum_of_products(a, b, *pairs, dtype or a.dtype)
    free_a = [a.shape[i] for i in _free(a, contract_a, batch_a)]
    free_b = [b.shape[i] for i in _free(b, contract_b, batch_b)]
    shape = [a.shape[i] for i in batch_a] + free_a + free_b
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {batch_a}, "
        f"rhs_batching_dimensions = {batch_b}, lhs_contracting_dimensions = {contract_a}, "
        f"rhs_contracting_dimensions = {contract_b}>"
    )
    return current().emit(
        "stablehlo.dot_general",
        [a, b],
        [(shape, dtype or a.dtype)],
        f"dot_dimension_numbers = {numbers}, precision_config = {precision(a.dtype)}",
    )[0]


def precision(dtype: torch.dtype) -> str:
    """The precision attribute of products of ``dtype``.

    How float32 is multiplied can be chosen. Wider numbers are multiplied as they are, and so are
    those that the matrix units take as they are: asked for more there, libtpu refuses some.
    """
    word = "DEFAULT"
    if dtype in (torch.float64, torch.complex128):
        word = "HIGHEST"
    elif dtype in (torch.float32, torch.complex64):
        word = ("HIGHEST", "HIGH", "DEFAULT")[float32_precision()]
    return f"[#stablehlo<precision {word}>, #stablehlo<precision {word}>]"


def float32_precision() -> int:
    """0, 1 or 2: highest, high or medium, as `torch.get_float32_matmul_precision()` names them."""
    from torch_tpu import _core

    return _core.float32_matmul_precision()


def convolution(
    x: Value,
    kernel: Value,
    *,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    input_dilation: Sequence[int],
    kernel_dilation: Sequence[int],
    x_dims: tuple[int, int, Sequence[int]],
    kernel_dims: tuple[int, int, Sequence[int]],
    out_dims: tuple[int, int, Sequence[int]],
    shape: Sequence[int],
    groups: int = 1,
    batch_groups: int = 1,
    dtype: torch.dtype | None = None,
) -> Value:
    """General convolution. ``x_dims``/``out_dims`` are (batch, feature, spatial dims),
    ``kernel_dims`` is (input feature, output feature, spatial dims); ``shape`` is the result's."""

    if _written_out(dtype or x.dtype):
        return _wide_convolution(
            *(hlo.convert(v, dtype or x.dtype) for v in (x, kernel)),
            *(strides, padding, input_dilation, kernel_dilation),
            *(x_dims, kernel_dims, out_dims, shape, groups, batch_groups),
        )

    def names(first: str, a: int, second: str, b: int, spatial: Sequence[int]) -> str:
        labels = {a: first, b: second, **{d: str(i) for i, d in enumerate(spatial)}}
        return "[" + ", ".join(labels[i] for i in range(len(labels))) + "]"

    numbers = (
        f"#stablehlo.conv<{names('b', x_dims[0], 'f', x_dims[1], x_dims[2])}x"
        f"{names('i', kernel_dims[0], 'o', kernel_dims[1], kernel_dims[2])}->"
        f"{names('b', out_dims[0], 'f', out_dims[1], out_dims[2])}>"
    )
    return current().emit(
        "stablehlo.convolution",
        [x, kernel],
        [(shape, dtype or x.dtype)],
        f"window_strides = {hlo._ints(strides)}, padding = {windows._pairs(padding)}, "
        f"lhs_dilation = {hlo._ints(input_dilation)}, rhs_dilation = {hlo._ints(kernel_dilation)}, "
        f"dimension_numbers = {numbers}, feature_group_count = {groups} : i64, "
        f"batch_group_count = {batch_groups} : i64, precision_config = {precision(x.dtype)}",
    )[0]


# ---- 64-bit integers on TPUs -----------------------------------------------------------------


def _written_out(dtype: torch.dtype) -> bool:
    """Whether products of ``dtype`` must be written out on the platform that is lowered for."""
    return dtype in (torch.int64, torch.uint64) and target.is_tpu()


def _sum_of_products(a: Value, b: Value, contract, batch, dtype: torch.dtype) -> Value:
    """`dot_general` of integers as multiplications in ``dtype`` and a sum."""
    a, b = hlo.convert(a, dtype), hlo.convert(b, dtype)
    free_a, free_b = _free(a, contract[0], batch[0]), _free(b, contract[1], batch[1])
    lead, summed = len(batch[0]), len(contract[0])
    a = hlo.transpose(a, [*batch[0], *free_a, *contract[0]])
    b = hlo.transpose(b, [*batch[1], *free_b, *contract[1]])
    first, second = lead + len(free_a), lead + len(free_a) + len(free_b)
    shape = (*a.shape[:first], *b.shape[lead:])
    last = range(second, second + summed)
    left = hlo.broadcast_in_dim(a, shape, [*range(first), *last])
    right = hlo.broadcast_in_dim(b, shape, [*range(lead), *range(first, second), *last])
    product = hlo.binary("multiply", left, right)
    return hlo.reduce(product, "add", list(last)) if summed else product


def _free(x: Value, contract: Sequence[int], batch: Sequence[int]) -> list[int]:
    return [i for i in range(x.ndim) if i not in (*contract, *batch)]


def _wide_convolution(x, kernel, strides, padding, input_dilation, kernel_dilation, *more) -> Value:
    """`convolution` of 64-bit integers for a TPU, brought into the one order of dimensions."""
    x_dims, kernel_dims, out_dims, shape, groups, batch_groups = more
    if batch_groups != 1:
        raise NotImplementedError("int64 convolutions grouped by batch are not lowered for TPUs")
    x = hlo.transpose(x, [*x_dims[:2], *x_dims[2]])
    kernel = hlo.transpose(kernel, [kernel_dims[1], kernel_dims[0], *kernel_dims[2]])
    order = [*out_dims[:2], *out_dims[2]]
    plain = [shape[d] for d in order]
    result = _sum_over_kernel(
        x, kernel, strides, padding, input_dilation, kernel_dilation, plain, groups
    )
    return hlo.transpose(result, [order.index(d) for d in range(len(order))])


def _sum_over_kernel(
    x: Value, kernel: Value, strides, padding, input_dilation, kernel_dilation, shape, groups: int
) -> Value:
    """Of ``x`` (batch, features, spatial dims) by ``kernel`` (features out, features of a group,
    spatial dims) to ``shape``: one product for each kernel position."""
    low, high = ([0, 0, *side] for side in zip(*padding, strict=True))
    gaps = [0, 0, *(n - 1 for n in input_dilation)]
    x = hlo.pad(x, hlo.constant(0, x.dtype), low, high, gaps)
    out = shape[2:]
    outputs, inputs = kernel.shape[0] // groups, kernel.shape[1]
    total = hlo.constant(0, x.dtype, (groups, outputs, shape[0], *out))
    for position in itertools.product(*map(range, kernel.shape[2:])):
        starts = [0, 0, *(d * i for d, i in zip(kernel_dilation, position, strict=True))]
        ends = zip(starts[2:], strides, out, strict=True)
        limits = [*x.shape[:2], *(start + s * (n - 1) + 1 for start, s, n in ends)]
        met = hlo.slice(x, starts, limits, [1, 1, *strides])
        met = hlo.reshape(met, (shape[0], groups, inputs, *out))
        at = [*kernel.shape[:2], *(i + 1 for i in position)]
        weight = hlo.slice(kernel, [0, 0, *position], at)
        weight = hlo.reshape(weight, (groups, outputs, inputs))
        term = _sum_of_products(weight, met, ([2], [2]), ([0], [1]), x.dtype)
        total = hlo.binary("add", total, term)
    total = hlo.transpose(total, [2, 0, 1, *range(3, total.ndim)])
    return hlo.reshape(total, shape)
