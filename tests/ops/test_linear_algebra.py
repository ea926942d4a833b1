"""What users call of linear algebra, against the CPU: values, strides of results, gradients.

Most of `torch.linalg` is composed by PyTorch from the operators that rows test one by one. Batches,
matrices without elements and every dtype go through each of these compositions.
"""

from __future__ import annotations

import pytest
import torch

from ops.row import t

L = torch.linalg
F, D, C, Z = torch.float32, torch.float64, torch.complex64, torch.complex128
SHAPES = [((3, 3), F), ((2, 3, 3), Z), ((2, 0, 0), D)]


def well(*shape, dtype=F):
    """Well conditioned, and with gaps between its eigenvalues."""
    x = t(*shape, dtype=dtype, seed=3) / 2
    diagonal = x.diagonal(dim1=-2, dim2=-1)
    diagonal += torch.arange(2, 2 + 2 * diagonal.shape[-1], 2)
    return x


def positive(a):
    return a @ a.mH


def on(b):
    """A right hand side for ``b``: its first two columns, turned."""
    return b[..., :2].flip(-2)


def size(x):
    """The part of singular and eigenvectors that is defined."""
    return [v.abs() for v in x]


SQUARE = {
    "cholesky": lambda a: L.cholesky(positive(a)),
    "cholesky_ex": lambda a: L.cholesky_ex(positive(a), upper=True),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(L.cholesky(positive(a))),
    "cholesky_solve": lambda a: torch.cholesky_solve(on(a), L.cholesky(positive(a))),
    "det": L.det,
    "eig": lambda a: size(L.eig(a)),
    "eigh": lambda a: size(L.eigh(positive(a))),
    "eigh of the upper triangle": lambda a: size(L.eigh(positive(a), UPLO="U")),
    "eigvals": L.eigvals,
    "eigvalsh": lambda a: L.eigvalsh(positive(a)),
    "householder_product": lambda a: L.householder_product(a, a.diagonal(dim1=-2, dim2=-1) / 16),
    "inv": L.inv,
    "inv_ex": L.inv_ex,
    "ldl_factor": lambda a: L.ldl_factor(positive(a).detach(), hermitian=True),
    "ldl_solve": lambda a: L.ldl_solve(*L.ldl_factor(a.detach() + a.detach().mT), on(a.detach())),
    "lu": L.lu,
    "lu_factor_ex": L.lu_factor_ex,
    "lu_solve": lambda a: L.lu_solve(*L.lu_factor(a), on(a)),
    "lu_solve of the adjoint": lambda a: L.lu_solve(*L.lu_factor(a), on(a), adjoint=True),
    "lu_solve from the right": lambda a: L.lu_solve(*L.lu_factor(a), on(a).mT, left=False),
    "lu_unpack": lambda a: torch.lu_unpack(*L.lu_factor(a)),
    "matrix_exp": L.matrix_exp,
    "matrix_power": lambda a: L.matrix_power(a, 3),
    "matrix_power to the minus": lambda a: L.matrix_power(a, -2),
    "pinv of a Hermitian": lambda a: L.pinv(positive(a), hermitian=True),
    "slogdet": L.slogdet,
    "solve": lambda a: L.solve(a, on(a)),
    "solve_ex": lambda a: L.solve_ex(a, on(a)),
    "solve from the right": lambda a: L.solve(a, on(a).mT, left=False),
    "solve_triangular": lambda a: L.solve_triangular(a, on(a), upper=True),
}
ANY = {
    "geqrf": lambda a: torch.geqrf(a.detach()),
    "lstsq": lambda a: L.lstsq(a, on(a)),
    "lstsq by gelsd": lambda a: L.lstsq(a, on(a), driver="gelsd"),
    "matrix_rank": L.matrix_rank,
    "nuclear norm": lambda a: L.matrix_norm(a, "nuc"),
    "pinv": L.pinv,
    "pinv of low rank": lambda a: L.pinv(a, rtol=0.3),
    "qr": L.qr,
    "qr complete": lambda a: L.qr(a.detach(), "complete"),
    "qr without q": lambda a: L.qr(a.detach(), "r"),
    "svd": lambda a: size(L.svd(a, full_matrices=False)),
    "svd complete": lambda a: size(L.svd(a.detach())),
    "svdvals": L.svdvals,
}
# Where singular values are not used, PyTorch's own backward overwrites what it needs.
WITH_GRADIENT = (None, 2, -2)
CONDITIONS = (*WITH_GRADIENT, "fro", "nuc", 1, -1, torch.inf, -torch.inf)


def results(x) -> list:
    return [r for v in x for r in results(v)] if isinstance(x, (list, tuple)) else [x]


def strides(x: torch.Tensor) -> tuple:
    """Those that mean something."""
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1) if x.numel() else ()


def compare(call, matrix):
    single = matrix.dtype in (F, C)
    tolerance = {"rtol": 2e-4, "atol": 5e-5} if single else {"rtol": 1e-9, "atol": 1e-10}
    leaves = [matrix.clone().requires_grad_(), matrix.to("tpu").requires_grad_()]
    want, got = (results(call(leaf)) for leaf in leaves)
    for reference, actual in zip(want, got, strict=True):
        assert actual.device.type == "tpu"
        assert strides(actual) == strides(reference)
        torch.testing.assert_close(actual.detach().cpu(), reference.detach(), **tolerance)
    want, got = (gradient(r, leaf) for r, leaf in zip((want, got), leaves, strict=True))
    if want is not None:
        torch.testing.assert_close(got.cpu(), want, **tolerance)


def gradient(produced: list, leaf):
    parts = [(r.abs() if r.is_complex() else r).sum() for r in produced if r.requires_grad]
    if not parts:
        return None
    return torch.autograd.grad(sum(parts), leaf, allow_unused=True)[0]


@pytest.mark.parametrize("case", SQUARE)
@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_square(case, shape, dtype):
    compare(SQUARE[case], well(*shape, dtype=dtype))


@pytest.mark.parametrize("case", ANY)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 3), F), ((2, 3, 4), D), ((3, 3), C), ((2, 3, 0), F)]
)
def test_any_shape(case, shape, dtype):
    compare(ANY[case], well(*shape, dtype=dtype))


@pytest.mark.parametrize("p", CONDITIONS)
def test_condition_number(p):
    compare(lambda a: L.cond(a if p in WITH_GRADIENT else a.detach(), p), well(2, 3, 3, dtype=D))


def test_tensors_as_matrices():
    compare(lambda a: L.tensorinv(a, 2), well(6, 6, dtype=D).reshape(2, 3, 6))
    compare(lambda a: L.tensorsolve(a.reshape(2, 3, 6), a[0].reshape(2, 3)), well(6, 6, dtype=D))


@pytest.mark.parametrize("p", [None, 1, 3.5, torch.inf])
def test_norms(p):
    compare(lambda a: L.norm(a, p, (-2, -1) if p in (None, 1) else -1), well(2, 3, 4, dtype=Z))


WRONG = {
    "not square": lambda a: L.eigh(a[:2]),
    "no triangle of that name": lambda a: L.eigh(a, UPLO="x"),
    "no mode of that name": lambda a: L.qr(a, "some"),
    "no driver of that name": lambda a: L.lstsq(a, a, driver="best"),
    "rows that do not fit": lambda a: L.lstsq(a, a[:2]),
    "dtypes that do not fit": lambda a: L.lstsq(a, a.double()),
    "16 bits": lambda a: L.svd(a.half()),
    "singular": lambda a: L.inv(a * 0),
    "not positive": lambda a: L.cholesky(-a),
    "not finite": lambda a: L.eig(a / 0),
    "without pivots": lambda a: L.lu_factor(a, pivot=False),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_the_error_of_the_cpu(case):
    with pytest.raises(RuntimeError) as want:
        WRONG[case](torch.eye(3))
    with pytest.raises(want.type):
        [r.cpu() for r in results(WRONG[case](torch.eye(3, device="tpu")))]
