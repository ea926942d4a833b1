"""Operators whose result size depends on a mask, and indexing with masks, against CPU PyTorch.

These are procedures over real tensors (`torch_tpu/ops/masks.py`): each case tries many masks on
small tensors. A mask that CPU PyTorch refuses must be refused on the device too.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from ops.row import t

COVERS = ("aten::nonzero", "aten::masked_select", "aten::repeat_interleave.Tensor")
X = t(3, 4, 5)
ALL, SOME, NONE = X[:, 0, 0] > -9, X[:, 0, 0] > 0, X[:, 0, 0] > 9


def on_device(value):
    if isinstance(value, torch.Tensor):
        return value.to("tpu")
    return [on_device(v) for v in value] if isinstance(value, list) else value


def same(op, *args):
    """``op`` gives the CPU's result on the device, or both raise the same kind of error."""
    try:
        want = op(*args)
    except (RuntimeError, IndexError) as error:
        with pytest.raises(type(error)):
            op(*on_device(list(args)))
        return None
    got = op(*on_device(list(args)))
    assert got.device.type == "tpu"
    torch.testing.assert_close(got.cpu(), want, rtol=1e-6, atol=1e-6)
    return want


SOURCES = [
    t(5, 4) > 0,
    t(3, 4, 5, dtype=torch.bool),
    torch.tensor(1.0),
    torch.tensor(0),
    torch.zeros(3, 0),
    torch.zeros(4),
    torch.ones(3, 3),
    t(2, 3, dtype=torch.complex64),
    t(6, dtype=torch.bfloat16).round(),
]


@pytest.mark.parametrize("x", SOURCES, ids=lambda x: f"{x.dtype}{list(x.shape)}")
def test_nonzero(x):
    same(torch.nonzero, x)


def test_masked_select():
    x = t(4, 5)
    masks = (x > 0, torch.tensor([1, 0, 1, 0, 1]).bool(), torch.tensor(True), x[:, :1] > 9)
    for mask in masks:
        same(torch.masked_select, x, mask)
    same(torch.masked_select, torch.randn(0), torch.zeros(0).bool())
    same(torch.masked_select, x[0], x > 0)


def test_repeat_interleave():
    for repeats, dtype in itertools.product(
        ([1, 2, 0, 3], [0, 0], [5], []), (torch.int32, torch.int64)
    ):
        repeats = torch.tensor(repeats, dtype=dtype)
        same(torch.repeat_interleave, repeats)
        total = int(repeats.sum())
        same(lambda r, n=total: torch.repeat_interleave(r, output_size=n), repeats)
    same(torch.repeat_interleave, torch.tensor([1, -1]))
    same(lambda x, r: x.repeat_interleave(r, 0), t(3, 2), torch.tensor([2, 0, 1]))


# Masks at every place, of several ranks, with other indices beside them.
INDICES = [
    [X > 0],
    [None, X[0] > 0],
    [X[:, :, 0] > 0],
    [None, X[0, :, 0] > 0],
    [None, None, X[0, 0] > 9],
    [None, None, X[0, 0] > -9],
    [SOME, None, torch.tensor([1])],
    [ALL, torch.tensor([1, 0, 2])],
    [SOME.to(torch.uint8)],
    [SOME, X[0, :, 0] > -9],
    [NONE],
    [X[:2] > 0],
]
NAMES = [
    "+".join("-" if i is None else f"{i.dtype}{list(i.shape)}".removeprefix("torch.") for i in ix)
    for ix in INDICES
]


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("indices", INDICES, ids=NAMES)
def test_index(indices):
    same(torch.ops.aten.index.Tensor, X, indices)


def values_for(shape):
    """Values of every rank that broadcast to a result, and some that do not."""
    shapes = [(), (1,), shape, shape[1:], shape[-1:], (*shape[:-1], 1)]
    shapes += [(*shape[:d], 1, *shape[d + 1 :]) for d in range(len(shape))]
    return [t(*s, seed=1) for s in dict.fromkeys(map(tuple, shapes))]


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("indices", INDICES[:-1], ids=NAMES[:-1])
def test_index_put(indices):
    shape = tuple(torch.ops.aten.index.Tensor(X, indices).shape)

    def put(x, indices, values, accumulate):
        return torch.ops.aten.index_put_(x.clone(), indices, values, accumulate)

    for values, accumulate in itertools.product(values_for(shape), (False, True)):
        if indices[0] is not None and indices[0].dtype is torch.uint8 and values.numel() == 1:
            continue  # CPU PyTorch demands a bool mask here; the device takes this one too
        same(put, X, indices, values, accumulate)


@pytest.mark.parametrize("flag", [True, False])
def test_mask_without_dims(flag):
    mask = torch.tensor(flag)
    same(lambda x, m: x[m], X, mask)

    def put(x, m, value):
        x = x.clone()
        x[m] = value
        return x

    for value in (torch.tensor(3.0), t(1, 3, 4, 5, seed=1), 2.0):
        same(put, X, mask, value)


def test_masks_of_one_size_class_share_programs(compiles):
    def select(count):
        x = torch.arange(100.0).to("tpu")
        return x[x < count].sum().item()

    select(40)
    compiles.reset()
    assert select(60) == sum(range(60))
    # Only the narrowed result has a new shape.
    assert compiles() <= 2


COUNTED = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero of a matrix": lambda x: x.view(8, 8).nonzero(),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique(x.view(32, 2), dim=0, return_counts=True),
    "unique columns": lambda x: torch.unique(x.view(2, 32), dim=1, return_inverse=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x, return_counts=True),
    "bincount": torch.bincount,
    "repeat_interleave": torch.repeat_interleave,
    "write": lambda x: x.masked_scatter(x > 0, x),
    "put": lambda x: x.index_put((x > 0,), torch.tensor(7, device=x.device)),
}


@pytest.mark.parametrize("name", COUNTED)
def test_programs_are_bounded_over_all_counts(name, compiles):
    """Results are right, strides too, for every count; programs are per size class."""
    call = COUNTED[name]

    def results(x):
        found = call(x)
        return found if isinstance(found, tuple) else (found,)

    used = []
    for most in range(1, 40, 3):
        x = t(64, low=0, high=most, dtype=torch.int64, seed=most)
        compiles.reset()
        on_device = results(x.to("tpu"))
        used.append(compiles())
        for mine, theirs in zip(on_device, results(x), strict=True):
            assert torch.equal(mine.cpu(), theirs)
            assert mine.stride() == theirs.stride()
    # A size class doubles: 64 elements have 7 of them, and few are left for the larger counts.
    assert sum(1 for n in used[1:] if n) <= 6
