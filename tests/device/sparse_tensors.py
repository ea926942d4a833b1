"""Sparse tensors that are made on the CPU and on the device, and what counts as the same result.

A call is a function of a `Make`, so that one table of calls serves both devices.
"""

from __future__ import annotations

import torch

# Opting out is the default; doing so explicitly keeps PyTorch from warning about it.
torch.sparse.check_sparse_tensor_invariants.disable()

DEVICES = ("cpu", "tpu")
BF = torch.bfloat16


class Make:
    """The tensors of one dtype on one device."""

    def __init__(self, device: str, dtype: torch.dtype):
        self.device, self.dtype = device, dtype

    def sparse(self, indices, values, size, check=False) -> torch.Tensor:
        indices = torch.as_tensor(indices, dtype=torch.int64).to(self.device)
        values = torch.tensor(values).to(self.dtype).to(self.device)
        return torch.sparse_coo_tensor(indices, values, size, check_invariants=check)

    @property
    def x(self):
        """Entries out of order, and one of them twice."""
        return self.sparse([[0, 2, 0], [1, 0, 1]], [1, 2, 3], (3, 3))

    @property
    def y(self):
        return self.sparse([[0, 1], [1, 1]], [5, 7], (3, 3))

    @property
    def hybrid(self):
        return self.sparse([[3, 1, 3, 0]], [[0, 1], [2, 3], [4, 5], [6, 7]], (5, 2))

    @property
    def small(self):
        return self.sparse([[0], [1]], [1], (2, 2))

    @property
    def thin(self):
        return self.sparse([[2, 0, 2]], [[1, 2], [3, 4], [5, 6]], (3, 2))

    @property
    def empty(self):
        return torch.sparse_coo_tensor((3, 3), dtype=self.dtype, device=self.device)

    @property
    def no_sparse_dims(self):
        return self.sparse(torch.zeros(0, 3), [[1, 2], [3, 4], [0, 1]], (2,))

    @property
    def dense(self):
        return torch.arange(9).reshape(3, 3).to(self.dtype).to(self.device)

    def places(self, *index):
        return torch.tensor(index, device=self.device)


def outcome(run, device: str, dtype: torch.dtype):
    """What a call gives, or the exception it raises."""
    try:
        return run(Make(device, dtype))
    except Exception as error:  # noqa: BLE001 - which one it is is compared
        return error


def assert_same(got, want):
    """The device gives what the CPU does, or raises the same class.

    Of tensors that means layout, dtype, shape and values; of sparse ones also the number of sparse
    dims, whether they are coalesced, and the entries once they are.
    """
    if isinstance(want, Exception):
        assert type(got) is type(want), f"{got!r}, CPU {want!r}"
        return
    assert not isinstance(got, Exception), f"{got!r}, CPU {want!r}"
    if isinstance(want, (tuple, list)):
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
        return
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    assert got.device.type == "tpu"
    assert (got.layout, got.dtype, got.shape) == (want.layout, want.dtype, want.shape)
    assert got.requires_grad == want.requires_grad
    got, want = got.detach(), want.detach()
    if want.is_sparse:
        assert got.sparse_dim() == want.sparse_dim()
        assert got.is_coalesced() == want.is_coalesced()
        got, want = got.coalesce(), want.coalesce()
        assert got.indices().tolist() == want.indices().tolist()
        got, want = got.values(), want.values()
    exact = not (want.is_floating_point() or want.is_complex())
    rtol = 0 if exact else 1e-2 if want.dtype is BF else 1e-5
    torch.testing.assert_close(got.cpu(), want, rtol=rtol, atol=0 if exact else 1e-6)


def check(run, dtype: torch.dtype):
    """Both devices give the same, and no exception."""
    want = outcome(run, "cpu", dtype)
    if isinstance(want, Exception):
        raise want
    assert_same(outcome(run, "tpu", dtype), want)
