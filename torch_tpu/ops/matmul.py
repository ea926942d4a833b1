"""Matrix products: mm, bmm, mv, dot, the add* family, int8 and scaled fp8 products.

`matmul`, `linear`, `einsum` and `bilinear` are decomposed into these by PyTorch; attention is in
`attention.py`. `_grouped_mm` and `_foreach_mm` stay with PyTorch's composite kernels, which slice
by group and call `mm`: as one program they would multiply every row by every group's matrix.

Measured f32 on CPU (jaxlib 0.10.2 and torch each in a process of its own, 2 shared cores, one quiet
round, best of 15-60, ms; busy rounds were 2-3x slower throughout, so only the order is firm):
256x256 NN/NT/TN/TT 0.28/0.29/0.40/0.42 (torch 0.23-0.25), 1024x1024 14.6/12.5/15.3/20.4 (torch
15.6-16.5), 16x64x64 0.17/0.20/0.24/0.28 (torch 0.08-0.09: XLA's is mostly launch cost). Contracting
a transposed dim or transposing first made no difference beyond the noise, so the plain dimension
numbers are used; TT was slowest at 1024 in all four rounds (1.1-1.5x NN). 16-bit dots accumulate in
f32 and round once; bf16 1024x1024 takes 19 with a bf16 result, 22 with an f32 result.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op
from .common import NUMBERS_ONLY, gelu, refuse

# beta == 0 must not read self (it may hold NaN), nor alpha == 0 the factors, which BLAS leaves
# alone; beta == alpha == 1 is `linear`.
_SCALES = {"beta": (0, 1), "alpha": (0, 1)}


def _contract(a: Value, b: Value, dims_a, dims_b, batch=((), ()), dtype=None) -> Value:
    """`dot_general` over equal dtypes; an empty contraction is zero, an int8 one wraps."""
    if a.dtype is not b.dtype:
        # PyTorch's meta kernels leave this check to the device.
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}"
        )
    if not a.is_floating and not a.is_complex and a.dtype.itemsize < 4 and dtype is None:
        # Narrow integers multiply in int32, which matrix units take; the low bits are the same.
        wide = _contract(a.to(torch.int32), b.to(torch.int32), dims_a, dims_b, batch)
        return wide.to(a.dtype)
    return hlo.dot_general(a, b, (dims_a, dims_b), batch, dtype)


def _wide(dtype: torch.dtype) -> torch.dtype | None:
    """Result dtype that keeps the accumulator of a 16-bit product; None: that of the operands."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else None


def _scaled(value: Value, factor) -> Value:
    """``factor * value`` in the dtype of ``value``; ``factor`` is a number or a run-time Scalar."""
    if not isinstance(factor, Value):
        if factor == 1:
            return value
        factor = hlo.constant(factor, value.dtype)
    return hlo.binary("multiply", value, hlo.expand(factor.to(value.dtype), value.shape))


def _by_blas(operand: Value) -> bool:
    """Whether BLAS multiplies this dtype on the CPU; other kernels multiply by 0, too."""
    return operand.dtype.itemsize > 2 and (operand.is_floating or operand.is_complex)


def _accumulate(
    self: Value, product: Value, beta, alpha, operand: Value, ignored: bool = True
) -> Value:
    """``beta * self + alpha * product``, rounded once to the expected dtype.

    ``operand`` is a factor of the product: ``self`` has its dtype or that of the result. NaNs of a
    product times 0 are ``ignored`` if BLAS multiplies the operand.
    """
    result = _scaled(product, alpha)
    if ignored and _by_blas(operand) and not isinstance(alpha, Value) and alpha == 0:
        result = hlo.zeros_like(product)
    if isinstance(beta, Value) or beta != 0:
        if self.dtype not in (operand.dtype, expected()[0].dtype):
            raise RuntimeError(
                f"self and mat2 must have the same dtype, but got {self.dtype} and {operand.dtype}"
            )
        addend = hlo.expand(self.to(product.dtype), product.shape)
        result = hlo.binary("add", _scaled(addend, beta), result)
    return result.to(expected()[0].dtype)


def _no_bools(name: str, *factors: str, empty: bool = True) -> dict:
    """The `check` of a product: PyTorch has none of booleans, unless there is nothing to sum."""

    def check(**given) -> None:
        tensors = [given[factor] for factor in factors]
        if not empty or all(x.numel() for x in tensors):
            refuse(name, *tensors, bool=NotImplementedError)

    return {"check": check}


# ---- plain products ------------------------------------------------------------------------


@op("aten::mm", **_no_bools("mm", "self", "mat2"))
def mm(self, mat2):
    return _contract(self, mat2, [1], [0])


@op("aten::bmm", **_no_bools("bmm", "self", "mat2"))
def bmm(self, mat2):
    return _contract(self, mat2, [2], [1], ([0], [0]))


@op("aten::mv", **_no_bools("mv", "self", "vec"))
def mv(self, vec):
    return _contract(self, vec, [1], [0])


@op("aten::dot", **_no_bools("dot", "self", "tensor", empty=False))
def dot(self, tensor):
    return _contract(self, tensor, [0], [0])


@op("aten::vdot", **_no_bools("vdot", "self", "other", empty=False))
def vdot(self, other):
    if self.is_complex:
        self = hlo.complex(hlo.real(self), hlo.neg(hlo.imag(self)))
    return _contract(self, other, [0], [0])


@op("aten::mm.dtype")
def mm_dtype(self, mat2):
    return _contract(self, mat2, [1], [0], dtype=expected()[0].dtype)


@op("aten::bmm.dtype")
def bmm_dtype(self, mat2):
    return _contract(self, mat2, [2], [1], ([0], [0]), dtype=expected()[0].dtype)


@op("aten::_int_mm")
def _int_mm(self, mat2):
    if self.dtype is not mat2.dtype:  # uint8 activations times int8 weights
        self, mat2 = self.to(torch.int32), mat2.to(torch.int32)
    return hlo.dot_general(self, mat2, ([1], [0]), dtype=torch.int32)


# ---- product and sum -----------------------------------------------------------------------


def _check_dtypes(self, mat2=None, batch2=None) -> None:
    other = batch2 if mat2 is None else mat2
    if self.dtype is not other.dtype:
        raise RuntimeError(
            f"self and mat2 must have the same dtype, but got {self.dtype} and {other.dtype}"
        )
    if other.numel():
        refuse("addmm" if batch2 is None else "addbmm", other, bool=NotImplementedError)


@op("aten::addmm.dtype", specialize=_SCALES)
@op("aten::addmm", specialize=_SCALES, check=_check_dtypes)
def addmm(self, mat1, mat2, beta=1, alpha=1):
    product = _contract(mat1, mat2, [1], [0], dtype=_wide(mat1.dtype))
    return _accumulate(self, product, beta, alpha, mat1)


_BLAS_BATCH = 400
"""Products in a matrix from which the CPU gives a batch to BLAS; its own loop multiplies by 0."""


def _baddbmm_dtype_meta(batch1, batch2, out_dtype, **_) -> list:
    """PyTorch's own meta kernel takes out_dtype for beta."""
    return [torch.ops.aten.bmm.dtype(batch1, batch2, out_dtype)]


@op("aten::baddbmm.dtype", specialize=_SCALES, meta=_baddbmm_dtype_meta)
@op("aten::baddbmm", specialize=_SCALES, **_no_bools("baddbmm", "batch1", "batch2"))
def baddbmm(self, batch1, batch2, beta=1, alpha=1):
    product = _contract(batch1, batch2, [2], [1], ([0], [0]), dtype=_wide(batch1.dtype))
    large = math.prod(batch1.shape[1:]) * batch2.shape[2] >= _BLAS_BATCH
    return _accumulate(self, product, beta, alpha, batch1, ignored=large)


@op("aten::addbmm", specialize=_SCALES, check=_check_dtypes)
def addbmm(self, batch1, batch2, beta=1, alpha=1):
    product = _contract(batch1, batch2, [0, 2], [0, 1], dtype=_wide(batch1.dtype))
    return _accumulate(self, product, beta, alpha, batch1)


@op("aten::addmv", specialize=_SCALES, **_no_bools("addmv", "mat", "vec"))
def addmv(self, mat, vec, beta=1, alpha=1):
    product = _contract(mat, vec, [1], [0], dtype=_wide(mat.dtype))
    return _accumulate(self, product, beta, alpha, mat, ignored=not mat.is_complex)


def _addr_meta(self, vec1, vec2, **scales):
    # ATen expands `self` before it promotes, so that a 0-dim one ranks with the vectors.
    if vec1.ndim == vec2.ndim == 1:
        self = self.expand(len(vec1), len(vec2))
    return [torch.ops.aten.addr(self, vec1, vec2, **scales)]


@op("aten::addr", specialize=_SCALES, meta=_addr_meta)
def addr(self, vec1, vec2, beta=1, alpha=1):
    # Unlike the others, addr promotes its tensors and takes bool (and/or instead of times/plus).
    dtype = promote.compute_dtype(expected()[0].dtype)
    self, vec1, vec2 = (v.to(dtype) for v in (self, vec1, vec2))
    shape = (vec1.shape[0], vec2.shape[0])
    rows = hlo.broadcast_in_dim(vec1, shape, [0])
    columns = hlo.broadcast_in_dim(vec2, shape, [1])
    if dtype is not torch.bool:
        outer = hlo.binary("multiply", rows, columns)
        return _accumulate(self, outer, beta, alpha, self, ignored=False)
    result = hlo.binary("and", rows, columns)
    if isinstance(alpha, Value):
        result = hlo.binary("and", result, hlo.expand(alpha.to(torch.bool), shape))
    if not isinstance(beta, Value) and beta == 0:
        return result
    kept = hlo.expand(self, shape)
    if isinstance(beta, Value):
        kept = hlo.binary("and", kept, hlo.expand(beta.to(torch.bool), shape))
    return hlo.binary("or", kept, result)


def _check_addmm_activation(mat1, mat2) -> None:
    refuse("_addmm_activation", mat1, mat2, **NUMBERS_ONLY)  # of complex numbers, none is larger


@op("aten::_addmm_activation", specialize=_SCALES, check=_check_addmm_activation)
def _addmm_activation(self, mat1, mat2, beta=1, alpha=1, use_gelu=False):
    dtype = expected()[0].dtype
    # The reference applies the activation to the rounded sum.
    total = addmm(self, mat1, mat2, beta, alpha).to(promote.compute_dtype(dtype))
    active = gelu(total) if use_gelu else hlo.maximum(total, hlo.zeros_like(total))
    return active.to(dtype)


# ---- scaled fp8 ----------------------------------------------------------------------------


def _scaled_mm_meta(self, mat2, *rest, **options) -> list:
    # PyTorch's meta kernel demands what CUDA's does: a row-major and a column-major factor.
    factors = torch.empty_like(self, memory_format=torch.contiguous_format), mat2.mT.contiguous().mT
    return [torch.ops.aten._scaled_mm(*factors, *rest, **options)]


@op("aten::_scaled_mm", meta=_scaled_mm_meta)
def _scaled_mm(self, mat2, scale_a, scale_b, bias=None, scale_result=None, use_fast_accum=False):
    """Scales are one number, or one per row of ``self`` and per column of ``mat2``."""
    wanted = expected()[0]
    rows, columns = wanted.shape
    for name, scale, fits in (
        ("scale_a", scale_a, (rows, 1)),
        ("scale_b", scale_b, (1, columns)),
    ):
        if scale.numel != 1 and scale.shape != fits:
            raise NotImplementedError(
                f"aten::_scaled_mm on {self.dtype}: {name} of shape {scale.shape}; only "
                "tensor-wise and row-wise scales are lowered"
            )
    f32 = torch.float32
    result = hlo.dot_general(self.to(f32), mat2.to(f32), ([1], [0]))
    for scale in (scale_a, scale_b):
        if scale.numel == 1:
            scale = hlo.reshape(scale, ())
        result = hlo.binary("multiply", result, hlo.expand(scale.to(f32), result.shape))
    if bias is not None:
        result = hlo.binary("add", result, hlo.expand(bias.to(f32), result.shape))
    if scale_result is not None and wanted.dtype.itemsize == 1:
        # As on CPU (CUDA multiplies): the scale of the result is what its stored values stand for.
        divisor = hlo.reshape(scale_result, ()).to(f32)
        result = hlo.binary("divide", result, hlo.expand(divisor, result.shape))
    if wanted.dtype is torch.float8_e4m3fn:
        # It has no infinity: the kernels saturate, where a conversion gives NaN.
        most = hlo.constant(torch.finfo(wanted.dtype).max, f32)
        result = hlo.clamp(-most, result, most)
    return result.to(wanted.dtype)
