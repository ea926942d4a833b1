"""Reductions: sums, products, extremes, truth, counts, moments and vector norms.

Every rule reduces over some dims to one value each; running reductions are in `scan.py`, sorting
ones (median, mode) in `sort.py`. 16-bit floats accumulate in float32 and round once. A plain
`stablehlo.reduce` is accurate enough: XLA rewrites long reductions as trees (1e6 float32 numbers
sum to within 1e-7 of float64, as in ATen). `axes`, `widen` and `mean_of` also serve other files.
"""

from __future__ import annotations

import math

import torch

from ..lowering import hlo
from ..lowering.builder import Value
from ..lowering.promote import compute_dtype
from ..lowering.registry import expected, op, procedure
from .common import check_dtypes, refuse, undefined
from .shape import wrap

# ---- shared helpers ------------------------------------------------------------------------


def axes(x: Value, dim=None) -> list[int]:
    """The non-negative dims that ``dim`` (int, list or None) names; None and [] mean all."""
    if dim is None or dim in ([], ()):
        return list(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    dims = {wrap(d, x.ndim) for d in dims}
    return sorted(dims) if x.ndim else []


def widen(x: Value, dtype: torch.dtype | None = None) -> Value:
    """``x`` cast to ``dtype`` (default: its own) and then to the dtype arithmetic runs in."""
    x = x if dtype is None else hlo.convert(x, dtype)
    return hlo.convert(x, compute_dtype(x.dtype))


def count_over(x: Value, dims) -> int:
    return math.prod(x.shape[d] for d in dims)


def mean_of(x: Value, dims, keepdim: bool = True) -> Value:
    """Mean of an inexact ``x`` in its own dtype."""
    return hlo.reduce(x, "add", dims, keepdim) / count_over(x, dims)


def squared_magnitude(x: Value) -> Value:
    if x.is_complex:
        re, im = hlo.real(x), hlo.imag(x)
        return re * re + im * im
    return x * x


def _fold(word: str, x: Value, dim=None, keepdim: bool = False) -> Value:
    dtype = expected()[0].dtype
    result = hlo.reduce(widen(x, dtype), word, axes(x, dim), keepdim)
    return hlo.convert(result, dtype)


# ---- sums, products, means -----------------------------------------------------------------


@op("aten::sum", "aten::sum.dim_IntList", out="decides")
def sum_dim_IntList(self, dim=None, keepdim=False):
    return _fold("add", self, dim, keepdim)


@op("aten::nansum", out="decides")
def nansum(self, dim=None, keepdim=False):
    if self.is_floating:
        self = hlo.select(hlo.is_nan(self), hlo.zeros_like(self), self)
    return _fold("add", self, dim, keepdim)


@op("aten::prod", "aten::prod.dim_int", out="decides")
def prod_dim_int(self, dim=None, keepdim=False):
    return _fold("multiply", self, dim, keepdim)


@op("aten::mean", "aten::mean.dim")
def mean_dim(self, dim=None, keepdim=False):
    dtype = expected()[0].dtype
    return hlo.convert(mean_of(widen(self, dtype), axes(self, dim), keepdim), dtype)


# ---- truth and counts ----------------------------------------------------------------------


def _truth(word: str, x: Value, dim, keepdim: bool) -> Value:
    # Unlike every other reduction, any/all over an empty list of dims reduces nothing.
    dims = [] if dim in ([], ()) else axes(x, dim)
    result = hlo.reduce(hlo.convert(x, torch.bool), word, dims, keepdim)
    return hlo.convert(result, expected()[0].dtype)


@op("aten::any", "aten::any.dim", "aten::any.dims")
def any_dims(self, dim=None, keepdim=False):
    return _truth("or", self, dim, keepdim)


@op("aten::all", "aten::all.dim", "aten::all.dims")
def all_dims(self, dim=None, keepdim=False):
    return _truth("and", self, dim, keepdim)


@op("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero_dim_IntList(self, dim=None):
    return _fold("add", hlo.convert(self, torch.bool), dim)


@procedure("aten::equal")
def equal(self, other):
    if self.shape != other.shape:
        return False
    return bool((self == other).all().item())


@op("aten::hash_tensor")
def hash_tensor(self, dim=(), keepdim=False, mode=0):
    if mode != 0:
        raise NotImplementedError(f"aten::hash_tensor: mode {mode}; only 0 (xor) is defined")
    if self.is_complex:
        undefined("hash_tensor", self.dtype)
    # ATen hashes the bits of the number as a double, and of an integer as itself.
    wide = torch.float64 if self.is_floating else torch.int64
    if self.dtype is not torch.uint64:
        self = hlo.bitcast(hlo.convert(self, wide), torch.uint64)
    dims = axes(self, list(dim))
    if dims:
        zero = hlo.constant(0, torch.uint64)
        [self] = hlo.reduce_many([self], [zero], dims, lambda a, b: [hlo.binary("xor", a, b)])
    return hlo.reshape(self, expected()[0].shape)


# ---- extremes ------------------------------------------------------------------------------


def _nonempty(x, name: str, dim) -> None:
    """Refuse an extreme of nothing, as ATen does; ``dim`` is an int, a list or None."""
    if dim is None or dim in ([], ()):
        if x.numel() == 0:
            kind = IndexError if name.startswith("arg") else RuntimeError
            raise kind(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        return
    for d in [dim] if isinstance(dim, int) else dim:
        # A dim out of range is for the meta kernel to refuse.
        if x.ndim and -x.ndim <= d < x.ndim and not x.shape[d]:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


_UNORDERED = {"complex": NotImplementedError}


def choosing(name: str, kinds: dict | None = None, **dtypes) -> dict:
    """The `check` of an operator that picks elements along ``dim``: of an empty one there is none,
    complex numbers have no order (``kinds``: see `refuse`), and out= arguments have exactly
    ``dtypes`` (see `check_dtypes`)."""

    def check(self, dim=None, **given):
        _nonempty(self, name, dim)
        refuse(name, self, **(_UNORDERED if kinds is None else kinds))
        check_dtypes(name, self, given, **dtypes)

    return {"check": check}


@op("aten::max", **choosing("max"))
def max_all(self):
    return amax(self)


@op("aten::min", **choosing("min"))
def min_all(self):
    return amin(self)


@op("aten::amax", **choosing("amax", out=None))
def amax(self, dim=None, keepdim=False):
    return hlo.reduce(self, "maximum", axes(self, dim), keepdim)


@op("aten::amin", **choosing("amin", out=None))
def amin(self, dim=None, keepdim=False):
    return hlo.reduce(self, "minimum", axes(self, dim), keepdim)


@op("aten::aminmax", **choosing("aminmax", min=None, max=None))
def aminmax(self, dim=None, keepdim=False):
    return amin(self, dim, keepdim), amax(self, dim, keepdim)


def index_dtype(size: int) -> torch.dtype:
    """The narrowest index dtype worth computing in; results are int64 all the same."""
    return torch.int32 if size < 2**31 else torch.int64


def extreme(x: Value, word: str, dim: int) -> tuple[Value, Value]:
    """The extreme values along ``dim`` and their first positions (the first NaN, if any), dim kept.

    Two plain reductions, since XLA vectorizes neither a reduction of pairs nor its comparator.
    """
    values = hlo.reduce(x, word, [dim], keepdim=True)
    hit = hlo.compare(x, hlo.expand(values, x.shape), "EQ")
    if x.is_floating:
        hit = hit | hlo.is_nan(x)
    dtype = index_dtype(x.shape[dim])
    position = hlo.iota(x.shape, dim, dtype)
    position = hlo.select(hit, position, hlo.full_like(position, x.shape[dim]))
    index = hlo.reduce(position, "minimum", [dim], keepdim=True)
    return values, hlo.convert(index, torch.int64)


def _extreme_dim(x: Value, word: str, dim: int, keepdim: bool) -> list[Value]:
    if not x.ndim:
        return [x, hlo.constant(0, torch.int64)]
    dim = wrap(dim, x.ndim)
    pair = extreme(x, word, dim)
    return [p if keepdim else hlo.squeeze(p, dim) for p in pair]


@op("aten::max.dim", **choosing("max", {"complex": RuntimeError}))
def max_dim(self, dim, keepdim=False):
    return _extreme_dim(self, "maximum", dim, keepdim)


@op("aten::min.dim", **choosing("min", {"complex": RuntimeError}))
def min_dim(self, dim, keepdim=False):
    return _extreme_dim(self, "minimum", dim, keepdim)


def _arg_extreme(x: Value, word: str, dim) -> Value:
    x = hlo.flatten(x) if dim is None else x
    _, index = _extreme_dim(x, word, 0 if dim is None else dim, keepdim=True)
    return hlo.reshape(index, expected()[0].shape)


def _placing(name: str) -> dict:
    """The `check` of argmax and argmin, which look at the dtype before anything else."""

    def check(self, dim=None):
        refuse(name, self, complex=RuntimeError, bool=RuntimeError)
        _nonempty(self, name, dim)

    return {"check": check}


@op("aten::argmax", **_placing("argmax"))
def argmax(self, dim=None, keepdim=False):
    return _arg_extreme(self, "maximum", dim)


@op("aten::argmin", **_placing("argmin"))
def argmin(self, dim=None, keepdim=False):
    return _arg_extreme(self, "minimum", dim)


# ---- moments -------------------------------------------------------------------------------


def moments(x: Value, dims, correction=None) -> tuple[Value, Value]:
    """Variance and mean over ``dims`` (kept), by two passes in the dtype of ``x``."""
    mean = mean_of(x, dims)
    total = hlo.reduce(squared_magnitude(x - mean), "add", dims, keepdim=True)
    count = count_over(x, dims)
    if isinstance(correction, Value):
        free = hlo.constant(count, total.dtype) - hlo.convert(correction, total.dtype)
        divisor = hlo.maximum(free, hlo.constant(0, total.dtype))
    else:
        divisor = max(count - (1 if correction is None else correction), 0)
    return total / divisor, mean


def _variance(x: Value, dim, correction, keepdim: bool, root: bool) -> list[Value]:
    """[variance or its root, mean] in the compute dtype, shaped as the results are."""
    dims = axes(x, dim)
    variance, mean = moments(widen(x), dims, correction)
    pair = [hlo.sqrt(variance) if root else variance, mean]
    return pair if keepdim else [hlo.squeeze(v, *dims) for v in pair]


def _as_expected(values) -> list[Value]:
    return [hlo.convert(v, r.dtype) for v, r in zip(values, expected(), strict=True)]


def _check_moments(self) -> None:
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise RuntimeError(
            f"std and var only support floating point and complex dtypes, got {self.dtype}"
        )


@op("aten::var.correction", check=_check_moments)
def var_correction(self, dim=None, correction=None, keepdim=False):
    return _as_expected(_variance(self, dim, correction, keepdim, root=False)[:1])


@op("aten::std.correction", check=_check_moments)
def std_correction(self, dim=None, correction=None, keepdim=False):
    return _as_expected(_variance(self, dim, correction, keepdim, root=True)[:1])


@op("aten::var_mean.correction", check=_check_moments)
def var_mean_correction(self, dim=None, correction=None, keepdim=False):
    return _as_expected(_variance(self, dim, correction, keepdim, root=False))


@op("aten::std_mean.correction", check=_check_moments)
def std_mean_correction(self, dim=None, correction=None, keepdim=False):
    return _as_expected(_variance(self, dim, correction, keepdim, root=True))


# ---- norms ---------------------------------------------------------------------------------


def vector_norm(x: Value, ord, dims, keepdim: bool = True) -> Value:
    """The ``ord``-norm (a Python number) over ``dims`` of a ``x`` (a real result)."""
    if ord == 2:
        return hlo.sqrt(hlo.reduce(squared_magnitude(x), "add", dims, keepdim))
    x = hlo.abs(x)
    if ord == 0:
        ones = hlo.convert(hlo.convert(x, torch.bool), x.dtype)
        return hlo.reduce(ones, "add", dims, keepdim)
    if ord == 1:
        return hlo.reduce(x, "add", dims, keepdim)
    if math.isinf(ord):
        if ord > 0 and not count_over(x, dims):
            return hlo.reduce(x, "add", dims, keepdim)
        return hlo.reduce(x, "maximum" if ord > 0 else "minimum", dims, keepdim)
    return hlo.reduce(x**ord, "add", dims, keepdim) ** (1.0 / ord)


def _norm(x: Value, ord, dim, keepdim: bool) -> Value:
    dtype = expected()[0].dtype
    x = widen(hlo.abs(x) if x.is_complex else x, dtype)
    return hlo.convert(vector_norm(x, 2 if ord is None else ord, axes(x, dim), keepdim), dtype)


@op("aten::linalg_vector_norm", static=("ord",))
def linalg_vector_norm(self, ord=2, dim=None, keepdim=False):
    return _norm(self, ord, dim, keepdim)


@op(
    "aten::norm.Scalar",
    "aten::norm.ScalarOpt_dtype",
    "aten::norm.ScalarOpt_dim",
    "aten::norm.ScalarOpt_dim_dtype",
    static=("p",),
)
def norm_ScalarOpt_dim(self, p=2, dim=None, keepdim=False):
    return _norm(self, p, dim, keepdim)


@op("aten::logsumexp")
def logsumexp(self, dim, keepdim=False):
    dims = axes(self, dim)
    dtype = expected()[0].dtype
    x = widen(self, dtype)
    if not count_over(x, dims):
        # The logarithm of an empty sum.
        return hlo.constant(-math.inf, dtype, expected()[0].shape)
    # Infinite maxima are not subtracted: inf - inf would turn the result into NaN.
    high = hlo.reduce(hlo.real(x), "maximum", dims, keepdim=True)
    infinite = hlo.compare(hlo.abs(high), hlo.full_like(high, math.inf), "EQ")
    high = hlo.select(infinite, hlo.zeros_like(high), high)
    total = hlo.reduce(hlo.exp(x - high), "add", dims, keepdim=True)
    result = hlo.log(total) + high
    return hlo.convert(result if keepdim else hlo.squeeze(result, *dims), dtype)
