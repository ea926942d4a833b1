"""Storages: resizing, freeing and regrowing, `set_`, `.data`, copies, pickles and checkpoints."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch


def test_resize_keeps_the_common_prefix():
    x = torch.arange(6.0).to("tpu")
    x.resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    x.resize_(3, 3)
    assert x.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    x.fill_(1)
    assert x.sum().item() == 9
    x.resize_(0)
    assert x.numel() == 0
    x.resize_(2).fill_(4)
    assert x.tolist() == [4, 4]


def test_resize_of_a_fresh_tensor():
    x = torch.empty(0, device="tpu").resize_(3).fill_(2)
    assert x.tolist() == [2, 2, 2]
    torch.add(torch.ones(2, device="tpu"), 1, out=(out := torch.empty(0, device="tpu")))
    assert out.tolist() == [2, 2]


def test_resize_as_and_memory_format():
    x = torch.empty(0, device="tpu").resize_as_(torch.empty(2, 3, device="tpu"))
    assert x.shape == (2, 3)
    y = torch.empty(0, device="tpu").resize_(1, 2, 3, 4, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_storage_is_freed_and_regrown():
    x = torch.arange(8.0).to("tpu")
    view = x[2:4]
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    storage = x.untyped_storage()
    size = storage.size()
    assert size == 32
    storage.resize_(0)
    assert storage.size() == 0
    assert torch.tpu.memory_allocated() == before - 32
    storage.resize_(size)
    assert storage.size() == 32
    x.copy_(torch.arange(8.0) * 2)
    assert view.tolist() == [4, 6]


def test_storage_grows_with_its_contents():
    x = torch.arange(4).to("tpu")
    x.untyped_storage().resize_(64)
    assert x.untyped_storage().size() == 64
    assert x.tolist() == [0, 1, 2, 3]
    whole = torch.empty(0, dtype=torch.int64, device="tpu").set_(x.untyped_storage())
    assert whole.shape == (8,)
    assert whole[:4].tolist() == [0, 1, 2, 3]


def test_set_to_a_tensor():
    x, y = torch.zeros(2).to("tpu"), torch.arange(3.0).to("tpu")
    x.set_(y)
    assert x.tolist() == [0, 1, 2]
    y[0] = 9
    assert x[0].item() == 9
    assert x.data_ptr() == y.data_ptr()


def test_set_to_a_storage():
    y = torch.arange(6.0).to("tpu")
    x = torch.empty(0, device="tpu")
    x.set_(y.untyped_storage())
    assert x.tolist() == y.tolist()
    x.set_(y.untyped_storage(), 2, (2, 2))
    assert x.tolist() == [[2, 3], [4, 5]]
    x.set_(y.untyped_storage(), 1, (2, 2), (1, 2))
    assert x.tolist() == [[1, 3], [2, 4]]
    x.fill_(0)
    assert y.tolist() == [0, 0, 0, 0, 0, 5]
    x.set_(y, 3, (2,), (2,))
    assert x.tolist() == [0, 5]


def test_set_to_nothing():
    x = torch.ones(2, device="tpu")
    x.set_()
    assert x.shape == (0,)
    assert x.device.type == "tpu"
    x.resize_(2).fill_(3)
    assert x.tolist() == [3, 3]


def test_data_replaces_the_contents_of_a_parameter():
    p = torch.nn.Parameter(torch.zeros(4, device="tpu"))
    new = torch.arange(8.0).to("tpu")
    p.data = new[:3]
    assert p.shape == (3,)
    assert isinstance(p, torch.nn.Parameter)
    new[1] = 7
    assert p.tolist() == [0, 7, 2]
    p.data.mul_(2)
    assert new[:3].tolist() == [0, 14, 4]
    p.data = torch.ones(2)  # another device, as module.cpu() does
    assert p.device.type == "cpu"
    p.data = p.data.to("tpu")
    assert p.device.type == "tpu"


def test_module_to_keeps_parameters():
    layer = torch.nn.Linear(2, 2)
    weight = layer.weight
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.to("tpu")
    assert layer.weight is weight
    before = weight.detach().cpu().clone()
    layer(torch.ones(1, 2, device="tpu")).sum().backward()
    optimizer.step()
    assert not torch.equal(before, layer.weight.detach().cpu())
    layer.cpu()
    assert layer.weight is weight
    assert weight.device.type == "cpu"


def test_untyped_storage():
    x = torch.arange(6.0).to("tpu")
    storage = x.untyped_storage()
    assert storage.device == x.device
    assert storage.nbytes() == 24
    assert len(storage) == 24
    assert x[1:].untyped_storage().data_ptr() == storage.data_ptr()
    assert x[1:].untyped_storage()._cdata == storage._cdata
    assert storage.cpu().nbytes() == 24
    back = torch.empty(0).set_(storage.cpu())
    assert back.tolist() == x.tolist()


def test_storage_clone_and_copy():
    x = torch.arange(4.0).to("tpu")
    clone = x.untyped_storage().clone()
    assert clone.device == x.device
    y = torch.empty(0, device="tpu").set_(clone)
    x.zero_()
    assert y.tolist() == [0, 1, 2, 3]
    x.untyped_storage().copy_(clone)
    assert x.tolist() == [0, 1, 2, 3]


def test_typed_storage():
    x = torch.arange(4.0).to("tpu")
    with pytest.warns(UserWarning, match="TypedStorage"):
        storage = x.storage()
        assert storage.size() == 4
        assert storage.device.type == "tpu"


def test_deepcopy_keeps_sharing():
    x = torch.arange(4.0).to("tpu")
    base, view = copy.deepcopy([x, x[1:]])
    assert base.data_ptr() != x.data_ptr()
    base[1] = 9
    assert view.tolist() == [9, 2, 3]
    assert x.tolist() == [0, 1, 2, 3]
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to("tpu")
    twin = copy.deepcopy(model)
    assert twin[0].weight.device.type == "tpu"
    assert twin[0].weight.data_ptr() != model[0].weight.data_ptr()
    assert twin[1].num_batches_tracked.item() == 0


def test_copy_copy_shares():
    x = torch.arange(3.0).to("tpu")
    y = copy.copy(x)
    assert y.tolist() == x.tolist()
    assert y.device == x.device


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(4.0),
        torch.arange(12.0).view(3, 4).t()[1:],
        torch.tensor(3),
        torch.zeros(0, 2),
        torch.tensor([1 + 1j]),
        torch.ones(3, dtype=torch.bfloat16),
    ],
    ids=["1d", "view", "0d", "empty", "complex", "bf16"],
)
def test_pickle(x):
    there = x.to("tpu")
    back = pickle.loads(pickle.dumps(there))
    assert back.device == there.device
    assert back.stride() == there.stride()
    assert torch.equal(back.cpu(), x)


def test_pickle_keeps_requires_grad_and_parameters():
    p = torch.nn.Parameter(torch.ones(2, device="tpu"))
    back = pickle.loads(pickle.dumps(p))
    assert isinstance(back, torch.nn.Parameter)
    assert back.requires_grad
    assert back.device.type == "tpu"


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("where", ["cpu", "tpu", "tpu:1", None, "function"])
def test_save_and_load(where, weights_only):
    x = torch.arange(4.0).to("tpu")
    file = io.BytesIO()
    torch.save({"base": x, "view": x[1:], "number": 3}, file)
    file.seek(0)
    location = (lambda storage, location: storage) if where == "function" else where
    loaded = torch.load(file, map_location=location, weights_only=weights_only)
    expected = {"cpu": "cpu", "tpu": "tpu:0", "tpu:1": "tpu:1", None: "tpu:0", "function": "cpu"}
    assert str(loaded["base"].device) == expected[where]
    loaded["base"][1] = 7
    assert loaded["view"].tolist() == [7, 2, 3]
    assert x.tolist() == [0, 1, 2, 3]


def test_save_on_cpu_load_on_tpu():
    file = io.BytesIO()
    torch.save(torch.nn.Linear(2, 3).state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="tpu", weights_only=True)
    assert {v.device.type for v in state.values()} == {"tpu"}
    layer = torch.nn.Linear(2, 3, device="tpu")
    layer.load_state_dict(state)
    assert torch.equal(layer.weight.cpu(), state["weight"].cpu())
    assigned = torch.nn.Linear(2, 3, device="meta")
    assigned.load_state_dict(state, assign=True)
    assert assigned.weight.device.type == "tpu"


def test_meta_module_to_empty():
    layer = torch.nn.Linear(2, 3, device="meta").to_empty(device="tpu")
    torch.nn.init.ones_(layer.weight)
    assert layer.weight.sum().item() == 6
