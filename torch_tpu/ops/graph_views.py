"""Views and factories as they occur in traced graphs (decompositions, torch.compile, export).

In eager mode these never become programs: views are metadata and factories are an empty tensor
plus a fill. In a graph a view is an ordinary value, so each has a rule here, marked ``graph_only``.
"""

from __future__ import annotations

import torch

from ..lowering import hlo, promote
from ..lowering.builder import Value
from ..lowering.registry import expected, op


def _graph(*names: str, **options):
    return op(*names, graph_only=True, **options)


def _dim(dim: int, rank: int) -> int:
    return dim + max(rank, 1) if dim < 0 else dim


@_graph(
    "aten::view",
    "aten::_unsafe_view",
    "aten::_reshape_alias",
    "aten::_reshape_alias_copy",
    "aten::reshape",
)
def view(self, size=None, shape=None, stride=None):
    return hlo.reshape(self, expected()[0].shape)


@_graph(
    "aten::alias", "aten::detach", "aten::detach_copy", "aten::lift_fresh_copy", "aten::lift_fresh"
)
def alias(self):
    return self


@_graph("aten::expand")
def expand(self, size, implicit=False):
    return hlo.expand(self, expected()[0].shape)


@_graph("aten::permute")
def permute(self, dims):
    return hlo.transpose(self, [_dim(d, self.ndim) for d in dims])


@_graph("aten::transpose.int")
def transpose_int(self, dim0, dim1):
    if self.ndim == 0:
        return self
    order = list(range(self.ndim))
    a, b = _dim(dim0, self.ndim), _dim(dim1, self.ndim)
    order[a], order[b] = order[b], order[a]
    return hlo.transpose(self, order)


@_graph("aten::t")
def t(self):
    return hlo.transpose(self, list(range(self.ndim))[::-1])


@_graph("aten::unsqueeze", "aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims")
def unsqueeze(self, dim=None):
    return hlo.reshape(self, expected()[0].shape)


@_graph("aten::select.int", "aten::select_copy.int", runtime=("index",))
def select_int(self, dim, index):
    dim = _dim(dim, self.ndim)
    if isinstance(index, Value):
        size = hlo.constant(self.shape[dim], torch.int64)
        index = hlo.select(index < 0, index + size, hlo.convert(index, torch.int64))
        return hlo.squeeze(hlo.take(self, hlo.reshape(index, (1,)), dim), dim)
    index = index + self.shape[dim] if index < 0 else index
    return hlo.squeeze(hlo.slice_dim(self, dim, index, index + 1), dim)


@_graph("aten::slice.Tensor", "aten::slice_copy.Tensor")
def slice_Tensor(self, dim=0, start=None, end=None, step=1):
    dim = _dim(dim, self.ndim)
    start, end, step = slice(start, end, step).indices(self.shape[dim])
    return hlo.slice_dim(self, dim, start, max(start, end), step)


@_graph(
    "aten::split.Tensor",
    "aten::split_copy.Tensor",
    "aten::split_with_sizes",
    "aten::unsafe_split.Tensor",
)
def split_Tensor(self, split_size=None, dim=0, split_sizes=None):
    dim = _dim(dim, self.ndim)
    pieces, start = [], 0
    for meta in expected()[0]:
        pieces.append(hlo.slice_dim(self, dim, start, start + meta.shape[dim]))
        start += meta.shape[dim]
    return pieces


@_graph("aten::unbind.int")
def unbind_int(self, dim=0):
    dim = _dim(dim, self.ndim)
    return [hlo.squeeze(hlo.slice_dim(self, dim, i, i + 1), dim) for i in range(self.shape[dim])]


@_graph("aten::diagonal")
def diagonal(self, offset=0, dim1=0, dim2=1):
    dim1, dim2 = _dim(dim1, self.ndim), _dim(dim2, self.ndim)
    rest = [d for d in range(self.ndim) if d not in (dim1, dim2)]
    x = hlo.transpose(self, [*rest, dim1, dim2])
    length = expected()[0].shape[-1]
    row = hlo.iota((length,), 0) + hlo.constant(max(-offset, 0), torch.int64)
    column = hlo.iota((length,), 0) + hlo.constant(max(offset, 0), torch.int64)
    width = self.shape[dim2]
    flat = hlo.reshape(x, (*x.shape[:-2], x.shape[-2] * width))
    return hlo.take(flat, row * hlo.constant(width, torch.int64) + column, flat.ndim - 1)


@_graph("aten::as_strided")
def as_strided(self, size, stride, storage_offset=None):
    return hlo.take(hlo.flatten(self), _places(size, stride, storage_offset), 0)


def _places(size, stride, storage_offset) -> Value:
    """Where each element lies in the array, by strides."""
    index = hlo.constant(storage_offset or 0, torch.int64, size)
    for dim, step in enumerate(stride):
        index = index + hlo.iota(size, dim) * hlo.constant(step, torch.int64)
    return index


@_graph("aten::as_strided_scatter", "prims::as_strided_scatter")
def as_strided_scatter(
    self=None, src=None, size=None, stride=None, storage_offset=None, input=None
):
    x = self if input is None else input
    index = hlo.reshape(_places(size, stride, storage_offset), (src.numel, 1))
    written = hlo.scatter(
        hlo.flatten(x),
        index,
        hlo.flatten(hlo.convert(src, x.dtype)),
        "set",
        window_dims=(),
        inserted=(0,),
        index_map=(0,),
        index_vector_dim=1,
    )
    return hlo.reshape(written, x.shape)


@_graph("aten::_conj", "aten::_conj_copy", "aten::conj")
def conj(self):
    return hlo.complex(hlo.real(self), -hlo.imag(self)) if self.is_complex else self


@_graph("aten::_neg_view", "aten::_neg_view_copy")
def neg_view(self):
    return hlo.neg(self)


@_graph("aten::resolve_conj", "aten::resolve_neg")
def resolve(self):
    return self


@_graph("aten::view_as_real", "aten::view_as_real_copy")
def view_as_real(self):
    parts = [hlo.unsqueeze(p, self.ndim) for p in (hlo.real(self), hlo.imag(self))]
    return hlo.concatenate(parts, self.ndim)


@_graph("aten::view_as_complex", "aten::view_as_complex_copy")
def view_as_complex(self):
    last = self.ndim - 1
    return hlo.complex(*(hlo.squeeze(hlo.slice_dim(self, last, i, i + 1), last) for i in range(2)))


@_graph("aten::_to_copy")
def _to_copy(self, dtype=None):
    return hlo.convert(self, expected()[0].dtype)


@_graph("aten::full", "aten::full_like", "aten::new_full")
def full(fill_value, self=None, size=None):
    meta = expected()[0]
    return hlo.expand(promote.as_value(fill_value, meta.dtype), meta.shape)


@_graph("aten::scalar_tensor")
def scalar_tensor(s):
    return promote.as_value(s, expected()[0].dtype)


@_graph(
    "aten::zeros",
    "aten::zeros_like",
    "aten::new_zeros",
    "aten::empty.memory_format",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::empty_permuted",
)
def zeros(self=None, size=None, stride=None, physical_layout=None):
    meta = expected()[0]
    return hlo.constant(0, meta.dtype, meta.shape)


@_graph("aten::ones", "aten::ones_like", "aten::new_ones")
def ones(self=None, size=None):
    meta = expected()[0]
    return hlo.constant(1, meta.dtype, meta.shape)


@_graph("prims::convert_element_type")
def convert_element_type(a: Value):
    return hlo.convert(a, expected()[0].dtype)


@_graph("prims::conj_physical")
def conj_physical(self):
    # What `torch.conj_physical(x, out=y)` decomposes to.
    return hlo.complex(hlo.real(self), -hlo.imag(self)) if self.is_complex else self
