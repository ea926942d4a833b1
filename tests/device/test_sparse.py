"""Sparse COO tensors: what they are, their operators, and what is refused.

Everything runs on the CPU and on the device and must give the same. Gradients and training are in
`test_sparse_gradients.py`.
"""

from __future__ import annotations

import copy
import io

import pytest
import torch
from sparse_tensors import DEVICES, Make, assert_same, check, outcome

F32, BF, I64, BOOL, C64 = (
    torch.float32,
    torch.bfloat16,
    torch.int64,
    torch.bool,
    torch.complex64,
)
DTYPES = [F32, BF, I64, BOOL, C64]
NUMBERS = [F32, BF, I64, C64]
# What the CPU does on the way is its business.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
]


# ---- what they are -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["x", "hybrid", "empty", "no_sparse_dims"])
def test_goes_to_the_device_and_back(name, dtype):
    there = getattr(Make("tpu", dtype), name)
    here = getattr(Make("cpu", dtype), name)
    assert there.device == torch.device("tpu", 0)
    assert there.is_sparse
    assert there._nnz() == here._nnz()
    for back in (there.cpu(), here.to("tpu").cpu(), there.to("cpu")):
        assert back.device.type == "cpu"
        assert torch.equal(back._indices(), here._indices())
        assert torch.equal(back._values(), here._values())
    assert_same(here.to("tpu"), here)


MAKING = {
    "clone": lambda m: m.x.clone(),
    "detach": lambda m: m.x.detach(),
    "deepcopy": lambda m: copy.deepcopy(m.x),
    "zeros_like": lambda m: torch.zeros_like(m.x),
    "empty_like": lambda m: torch.empty_like(m.x),
    "zeros": lambda m: torch.zeros(2, 3, layout=torch.sparse_coo, device=m.device, dtype=m.dtype),
    "sizes found": lambda m: torch.sparse_coo_tensor(m.places([2, 1]), m.dense[0, :2]),
    "zero_": lambda m: m.x.zero_(),
    "copy_": lambda m: m.empty.copy_(m.x),
    "resize_as_": lambda m: m.empty.resize_as_(m.x),
    "other dtype": lambda m: m.x.to(torch.float64),
    "coalesce": lambda m: m.x.coalesce(),
    "coalesce hybrid": lambda m: m.hybrid.coalesce(),
    "coalesce empty": lambda m: m.empty.coalesce(),
    "coalesce without sparse dims": lambda m: m.no_sparse_dims.coalesce(),
    "indices": lambda m: m.x.coalesce().indices(),
    "values": lambda m: m.x.coalesce().values(),
    "to_dense": lambda m: m.x.to_dense(),
    "to_dense hybrid": lambda m: m.hybrid.to_dense(),
    "to_dense empty": lambda m: m.empty.to_dense(),
    "to_dense without sparse dims": lambda m: m.no_sparse_dims.to_dense(),
    "to_sparse": lambda m: m.dense.to_sparse(),
    "to_sparse hybrid": lambda m: m.dense.to_sparse(1),
    "to_sparse of a number": lambda m: m.dense[0, 1].to_sparse(),
    "to_sparse of zeros": lambda m: torch.zeros_like(m.dense).to_sparse(),
    "transposed": lambda m: m.x.t(),
    "permuted": lambda m: m.x.permute(1, 0),
    "unsqueezed": lambda m: m.x.unsqueeze(0),
    "row": lambda m: m.x[0],
    "column": lambda m: m.x[:, 1],
    "index_select": lambda m: m.x.index_select(0, m.places(2, 0, 2)),
    "index_select, last dim": lambda m: m.x.index_select(1, m.places(1, 1, -3)),
    "index_select, dense dim": lambda m: m.hybrid.index_select(1, m.places(1, 1)),
    "index_select, nothing": lambda m: m.x.index_select(0, m.places(1)),
    "cat": lambda m: torch.cat([m.x, m.y]),
    "stack": lambda m: torch.stack([m.x, m.y]),
    "narrow_copy": lambda m: torch.narrow_copy(m.x, 0, 0, 2),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MAKING)
def test_making(name, dtype):
    check(MAKING[name], dtype)


def test_prints_like_the_cpu():
    here, there = (repr(Make(device, F32).x) for device in DEVICES)
    assert "device='tpu:0'" in there
    assert "".join(there.replace("device='tpu:0', ", "").split()) == "".join(here.split())


def test_saves_and_loads():
    x = Make("tpu", F32).hybrid
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file)["x"]
    assert loaded.device == x.device
    assert_same(loaded, x.cpu())
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].device.type == "cpu"


# ---- operators -----------------------------------------------------------------------------------


ARITHMETIC = {
    "add": lambda m: m.x + m.y,
    "add coalesced": lambda m: m.x.coalesce() + m.y.coalesce(),
    "add alpha": lambda m: m.x.add(m.y, alpha=3),
    "add_": lambda m: m.x.add_(m.y, alpha=2),
    "add out": lambda m: torch.add(m.x, m.y, out=m.empty),
    "add hybrid": lambda m: (m.hybrid + m.hybrid.coalesce()).coalesce(),
    "add empty": lambda m: (m.x + m.empty, m.empty + m.x, m.dense + m.empty),
    "add without sparse dims": lambda m: (m.no_sparse_dims + m.no_sparse_dims).coalesce(),
    "many additions": lambda m: sum([m.x] * 7, m.y).coalesce(),
    "sub": lambda m: m.x - m.y,
    "sub_": lambda m: m.x.sub_(m.y),
    "neg": lambda m: -m.x,
    "dense add": lambda m: m.dense + m.x,
    "dense add alpha": lambda m: torch.add(m.dense, m.x, alpha=3),
    "dense add_": lambda m: m.dense.add_(m.x, alpha=2),
    "dense add_ hybrid": lambda m: (
        m.dense[:2].t().add_(m.sparse([[2, 0, 2]], [[1, 2]] * 3, (3, 2)))
    ),
    "dense add_ transposed": lambda m: m.dense.t().add_(m.x),
    "dense add out": lambda m: torch.add(m.dense, m.y, out=torch.empty_like(m.dense)),
    "dense sub": lambda m: m.dense - m.x,
    "wider sum": lambda m: m.x.to(torch.float64) + m.y,
    "wider dense sum": lambda m: m.dense.to(torch.float64) + m.x,
    "mul": lambda m: m.x.coalesce() * m.y.coalesce(),
    "mul empty": lambda m: (m.x * m.empty, m.empty * m.x),
    "mul number": lambda m: (m.x * 2, 3 * m.x, m.x * 2.5),
    "mul_ number": lambda m: m.x.mul_(2),
    "mul 0-dim": lambda m: (m.x * m.dense[0, 2], m.x * m.dense[0, 2].to_sparse()),
    "mul dense": lambda m: (m.x * m.dense, m.dense * m.x, m.hybrid * m.dense[0, :2]),
    "div": lambda m: (m.x / 2, m.x / m.dense[0, 2]),
    "mm": lambda m: torch.mm(m.x, m.dense),
    "matmul": lambda m: (m.x @ m.dense, m.dense @ m.x),
    "sparse.mm": lambda m: torch.sparse.mm(m.x, m.dense),
    "mm of nothing": lambda m: torch.mm(m.empty, m.dense),
    "mv": lambda m: m.x.mv(m.dense[1]),
    "addmm": lambda m: torch.addmm(m.dense, m.x, m.dense, beta=2, alpha=3),
    "addmm row": lambda m: torch.addmm(m.dense[0], m.x, m.dense),
    "addmm out": lambda m: torch.addmm(m.dense, m.x, m.dense, out=torch.empty_like(m.dense)),
    "addmm_": lambda m: m.dense.addmm_(m.x, m.dense),
    "sparse.addmm": lambda m: torch.sparse.addmm(m.dense, m.x, m.dense),
    "sum": lambda m: (torch.sparse.sum(m.x), m.x.sum(), torch.sparse.sum(m.empty)),
    "sum dims": lambda m: (torch.sparse.sum(m.x, 0), torch.sparse.sum(m.x, (0, 1))),
    "sum hybrid": lambda m: (torch.sparse.sum(m.hybrid, 0), torch.sparse.sum(m.hybrid, 1)),
    "sum dim": lambda m: (m.x.sum(1), m.x.sum(1, keepdim=True)),
    "pow": lambda m: m.x.pow(2),
    "sin, sqrt": lambda m: (m.x.sin(), m.x.sqrt()),
}
FLOATING = {
    "sin_": lambda m: m.x.coalesce().sin_(),
    "sign": lambda m: m.x.sign(),
    "addmm beta=0": lambda m: torch.addmm(m.dense / 0, m.x, m.dense / 1, beta=0),
    "norm": lambda m: (m.x.norm(), m.x.norm(1), m.hybrid.norm()),
    "relu": lambda m: m.x.neg().relu(),
    "isnan": lambda m: m.x.isnan(),
}


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name, dtype):
    check(ARITHMETIC[name], dtype)


@pytest.mark.parametrize("dtype", [F32, BF], ids=str)
@pytest.mark.parametrize("name", FLOATING)
def test_floating_point(name, dtype):
    check(FLOATING[name], dtype)


@pytest.mark.parametrize("dtype", [F32, C64], ids=str)
def test_products_that_the_cpu_has_for_few_dtypes(dtype):
    check(lambda m: (m.x @ m.y, torch.sparse.mm(m.x, m.x.t()), m.x @ m.empty), dtype)
    check(lambda m: torch.bmm(torch.stack([m.x, m.y]), torch.stack([m.dense, m.dense])), dtype)


def test_booleans():
    check(lambda m: (m.dense + m.x, m.dense.logical_not().add(m.y)), BOOL)
    check(lambda m: torch.zeros_like(m.dense).add_(m.x), BOOL)
    check(lambda m: m.x.any(), BOOL)
    m = Make("tpu", BOOL)  # the CPU has no sum of two sparse boolean tensors
    assert (m.x + m.y).to_dense().int().tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]


MASKS = {
    "dense": lambda m: m.dense.sparse_mask(m.x),
    "hybrid": lambda m: torch.ones(5, 2).to(m.dtype).to(m.device).sparse_mask(m.hybrid),
    "sparse": lambda m: (m.x.sparse_mask(m.y), m.y.sparse_mask(m.x)),
    "empty": lambda m: (m.dense.sparse_mask(m.empty), m.empty.sparse_mask(m.x)),
    "no sparse dims": lambda m: m.dense[0, :2].sparse_mask(m.no_sparse_dims),
    "projection": lambda m: m.x._sparse_mask_projection(m.y),
    "counted": lambda m: m.y._sparse_mask_projection(m.x, True),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, dtype):
    check(MASKS[name], dtype)


def test_the_second_device():
    here = Make("cpu", F32)
    there = Make("tpu:1", F32)
    results = (
        there.x.clone(),
        here.x.to("tpu:1"),
        here.x.to("tpu:0").to("tpu:1"),
        there.x + there.y,
        there.x * 2,
        torch.zeros_like(there.x),
        there.dense.to_sparse(),
        there.x @ there.dense,
        there.dense.sparse_mask(there.x),
        torch.empty(2, layout=torch.sparse_coo, device="tpu:1"),
    )
    assert {str(result.device) for result in results} == {"tpu:1"}
    assert_same(there.x.coalesce(), here.x.coalesce())
    assert torch.tpu.current_device() == 0


def test_a_large_sum_of_duplicates():
    def run(m):
        generator = torch.Generator().manual_seed(0)
        indices = torch.randint(0, 50, (2, 1000), generator=generator).to(m.device)
        values = torch.randn(1000, 3, generator=generator).to(m.device)
        x = torch.sparse_coo_tensor(indices, values, (50, 50, 3))
        return x.coalesce(), x.to_dense(), torch.sparse.sum(x, 1)

    check(run, F32)


def test_a_new_number_of_entries_reuses_the_programs_of_its_bucket(compiles):
    def run(kinds: int):
        places = torch.arange(64, device="tpu").remainder(kinds).unsqueeze(0)
        values = torch.ones(64, 2, device="tpu")
        return torch.sparse_coo_tensor(places, values, (64, 2)).coalesce()._nnz()

    assert run(40) == 40
    compiles.reset()
    assert [run(n) for n in (50, 63, 33)] == [50, 63, 33]
    assert compiles() == 0


# ---- refusals ------------------------------------------------------------------------------------


WRONG = {
    "sizes of a sum": lambda m: m.x + m.small,
    "sizes of a dense sum": lambda m: m.dense[:2] + m.x,
    "sizes of a product": lambda m: m.x * m.small,
    "inner sizes": lambda m: torch.mm(m.x, m.dense[:2]),
    "inner sizes, sparse": lambda m: m.x @ m.small,
    "sizes of a mask": lambda m: m.dense[:2].sparse_mask(m.x),
    "sizes of addmm_": lambda m: m.dense[:2].addmm_(m.x, m.dense),
    "dtypes of mm": lambda m: torch.mm(m.x, m.dense.double()),
    "sparse dims": lambda m: m.x + m.dense.to_sparse(1),
    "sparse + dense": lambda m: m.x + m.dense,
    "sparse + number": lambda m: m.x + 1,
    "sparse += number": lambda m: m.x.add_(1),
    "number - sparse": lambda m: 1 - m.x,
    "out of a narrower dtype": lambda m: torch.add(m.dense, m.x, out=m.dense.int()),
    "a dense source": lambda m: m.x.copy_(m.dense),
    "a dense target": lambda m: m.dense.copy_(m.x),
    "values before coalesce": lambda m: m.x.values(),
    "an index out of range": lambda m: m.sparse([[5]], [1], (3,), check=True),
    "a negative index": lambda m: m.sparse([[-1]], [1], (3,), check=True),
    "fewer values": lambda m: m.sparse([[2, 1]], [1], (3,)),
    "one-dimensional indices": lambda m: torch.sparse_coo_tensor(m.places(1), m.dense[0], (9,)),
    "index_select range": lambda m: m.x.index_select(0, m.places(3)),
    "index_select dim": lambda m: m.x.index_select(5, m.places(0)),
    "index_select rank": lambda m: m.x.index_select(0, m.places([1])),
    "storage": lambda m: m.x.untyped_storage(),
    "numpy": lambda m: m.x.numpy(),
    "fill_": lambda m: m.x.fill_(1),
    "log": lambda m: m.x.log(),
    "vector_norm": lambda m: torch.linalg.vector_norm(m.x),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_raises_what_the_cpu_raises(name):
    want = outcome(WRONG[name], "cpu", F32)
    assert isinstance(want, Exception)
    assert_same(outcome(WRONG[name], "tpu", F32), want)


def test_what_is_not_there_is_refused_by_name():
    m = Make("tpu", F32)
    missing = {
        "_sparse_softmax": lambda: torch.sparse.softmax(m.x, 0),
        "hspmm": lambda: torch.hspmm(m.x, m.dense),
        "sspaddmm": lambda: torch.sspaddmm(m.x, m.y, m.dense),
        "_to_sparse_csr": lambda: m.dense.to_sparse_csr(),
        "_to_sparse_csc": lambda: m.x.to_sparse_csc(),
        "_to_sparse_bsr": lambda: m.dense.to_sparse_bsr((1, 1)),
    }
    for name, call in missing.items():
        with pytest.raises(NotImplementedError, match=f"aten::{name}"):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda here, there: there + here,
        lambda here, there: here.to_dense() + there,
        lambda here, there: there.to_dense() + here,
        lambda here, there: there * here,
        lambda here, there: there @ here.to_dense(),
        lambda here, there: there @ here,
        lambda here, there: here.to_dense().sparse_mask(there),
        lambda here, there: there.index_select(0, torch.tensor([0])),
        lambda here, there: torch.cat([there, here]),
    ],
)
def test_devices_do_not_mix(call):
    with pytest.raises(RuntimeError, match="same device"):
        call(Make("cpu", F32).x, Make("tpu", F32).x)


def test_unchecked_indices_out_of_range_add_nothing():
    indices = torch.tensor([[7, -9]], device="tpu")
    values = torch.ones(2, device="tpu")
    x = torch.ops.aten._sparse_coo_tensor_unsafe(indices, values, (3,))
    assert (torch.zeros(3, device="tpu") + x).tolist() == [0, 0, 0]
