"""Eigenvalues, singular values and what else is LAPACK's own: ATen's CPU kernels in the program.

StableHLO has no operation for these. On the CPU plugin a program calls the kernel that CPU PyTorch
uses (`host.aten_call`); on another one the call runs on the CPU, visibly. What can be written with
StableHLO is in `linalg.py`, `lu.py`, `qr.py` and `matrix_exp.py`.
"""

from __future__ import annotations

import torch

from ..lowering import host
from ..lowering.registry import Rule, expected, procedure, register

_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def by_columns(x):
    """Metadata ``x`` with its matrices laid out by columns, as LAPACK leaves them."""
    return x.new_empty(x.mT.shape).mT


def _svd_meta(A, full_matrices=False, compute_uv=True, driver=None) -> list:
    u, s, vh = torch.ops.aten._linalg_svd(A, full_matrices, compute_uv, driver=driver)
    return [u, s, by_columns(vh) if compute_uv else vh]


def _eig_meta(self) -> list:
    values, vectors = torch.ops.aten.linalg_eig(self)
    return [values, by_columns(vectors)]


def _host_kernel(name: str, meta=None, finite: bool = False) -> None:
    """Register ``name`` as a call of its own CPU kernel (``finite``: see `host.aten_call`)."""

    def body(**arguments):
        return host.aten_call(name, (), arguments, expected(), finite)

    register(Rule(name=name, body=body, meta=meta, host_kernel=True))


_host_kernel("aten::_linalg_eigh")
# On infs and NaNs MKL's eigenvalues of general matrices end the process.
_host_kernel("aten::_linalg_eigvals", finite=True)
_host_kernel("aten::linalg_eig", meta=_eig_meta, finite=True)
_host_kernel("aten::_linalg_svd", meta=_svd_meta)
_host_kernel("aten::linalg_ldl_factor_ex")
_host_kernel("aten::linalg_ldl_solve")


@procedure("aten::linalg_eigvals.out")
def linalg_eigvals_out(self, out):
    # The only form of this composite that has a kernel of its own.
    values = torch.ops.aten._linalg_eigvals(self)
    if not torch.can_cast(values.dtype, out.dtype):
        raise RuntimeError(
            f"torch.linalg.eigvals: Expected eigenvalues to be safely castable from {values.dtype} "
            f"dtype, but got eigenvalues with dtype {out.dtype}"
        )
    if out.shape != values.shape:
        out.resize_(values.shape)
    return out.copy_(values)


# ---- least squares -------------------------------------------------------------------------

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(f"torch.linalg.lstsq: {text}")


def _check_lstsq(a, b, driver: str) -> None:
    _require(a.ndim >= 2, "input must have at least 2 dimensions.")
    _require(b.ndim >= 1, "other must have at least 1 dimension.")
    _require(
        0 <= a.ndim - b.ndim <= 1,
        "input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1",
    )
    _require(
        a.dtype is b.dtype,
        "Expected input and other to have the same dtype, but got input's dtype "
        f"{a.dtype} and other's dtype {b.dtype}",
    )
    _require(a.dtype in _DTYPES, f"{a.dtype} is not supported; use float or double, or complex")
    _require(driver in _DRIVERS, f"parameter `driver` should be one of ({', '.join(_DRIVERS)})")


def _is_vector(a, b) -> bool:
    return b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])


def _is_zero(a):
    return (a == 0).all(-1).all(-1)


def _by_qr(a, b):
    """The solution for matrices of full rank; 0 for those that are all zero, as LAPACK has it."""
    wide = a.shape[-2] < a.shape[-1]
    q, r = torch.linalg.qr(a.mH if wide else a)
    zero = _is_zero(a)
    lacking = (r.diagonal(dim1=-2, dim2=-1) == 0).any(-1) & ~zero
    if bool(lacking.any()):
        raise torch.linalg.LinAlgError(
            "torch.linalg.lstsq: The least squares solution could not be computed because the "
            "input matrix does not have full rank"
        )
    if wide:
        solution = q @ torch.linalg.solve_triangular(r.mH, b, upper=False)
    else:
        solution = torch.linalg.solve_triangular(r, q.mH @ b, upper=True)
    return torch.where(zero[..., None, None], 0, solution)


def _by_svd(a, b, rcond: float | None):
    """(solution of least norm, rank, singular values); the rank counts those above the cut."""
    u, values, vh = torch.linalg.svd(a, full_matrices=False)
    limits = torch.finfo(a.dtype)
    if rcond is None:
        rcond = limits.eps * max(a.shape[-2:])
    elif rcond < 0:
        rcond = limits.eps
    kept = values > (values[..., :1] * rcond).clamp_min(limits.tiny)
    inverse = torch.where(kept, values.reciprocal(), 0).unsqueeze(-1)
    return vh.mH @ (inverse * (u.mH @ b)), kept.sum(-1), values


@procedure("aten::linalg_lstsq")
def linalg_lstsq(self, b, rcond=None, driver=None):
    """By QR (``gels``) or by singular values, whatever the name of the driver.

    A procedure because only the rank tells whether there are residuals. ``gelsy`` differs from the
    others in the results it leaves out.
    """
    driver = driver or "gelsy"
    _check_lstsq(self, b, driver)
    vector = _is_vector(self, b)
    right = b.unsqueeze(-1) if vector else b
    # As PyTorch has it, also where ``b`` has one dim less and is no vector.
    batch = torch.broadcast_shapes(self.shape[:-2], b.shape[: self.ndim - 2])
    rows, columns = self.shape[-2:]
    _require(rows == right.shape[-2], "input.size(-2) should match other.size(-2)")
    right = right.expand(*batch, *right.shape[-2:])
    values = self.new_empty(0, dtype=self.dtype.to_real())
    rank, residuals = values.to(torch.int64), values
    if driver == "gels":
        solution = _by_qr(self, right)
    else:
        solution, rank, singular = _by_svd(self, right, rcond)
        values = values if driver == "gelsy" else singular
    if rows > columns and driver != "gelsy" and bool((rank == columns).all()):
        residuals = (self @ solution - right).abs().square().sum(-2)
        if driver == "gels":  # LAPACK zeroes the right hand sides, too
            residuals = torch.where(_is_zero(self)[..., None], 0, residuals)
    # LAPACK leaves the solution in the place of the right hand sides, by columns.
    solution = torch.nn.functional.pad(solution.mT, (0, max(rows - columns, 0))).contiguous()
    solution = solution[..., :columns].mT
    return solution.squeeze(-1) if vector else solution, residuals, rank, values
