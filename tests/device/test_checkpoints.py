"""What is saved on the device loads again: everywhere, in every form of `map_location`.

Not here: a whole training run that goes on from its checkpoint (`test_training_script.py`).
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

HERE, OTHER, HOST = (torch.device(name) for name in ("tpu:0", "tpu:1", "cpu"))
DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 "
    "float8_e4m3fn float8_e5m2"
).split()


def saved(thing, **options) -> io.BytesIO:
    stream = io.BytesIO()
    torch.save(thing, stream, **options)
    stream.seek(0)
    return stream


def matrix(device="tpu"):
    return torch.arange(6.0, device=device).view(2, 3)


# name → (map_location, device of what was saved on tpu:0)
FORMS = {
    "nothing": (None, HERE),
    "string": ("cpu", HOST),
    "string without index": ("tpu", HERE),
    "string with index": ("tpu:1", OTHER),
    "device": (torch.device("tpu", 1), OTHER),
    "cpu device": (HOST, HOST),
    "dict": ({"tpu:0": "tpu:1"}, OTHER),
    "dict to the cpu": ({"tpu:0": "cpu"}, HOST),
    "dict of others": ({"tpu:1": "cpu"}, HERE),
    "callable that keeps it on the cpu": (lambda storage, place: storage, HOST),
    "callable that declines": (lambda storage, place: None, HERE),
    "callable that moves": (lambda storage, place: storage.to(device=OTHER), OTHER),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weights_only", (True, False))
@pytest.mark.parametrize("zipped", (True, False))
def test_map_location(form, weights_only, zipped):
    where, device = FORMS[form]
    stream = saved({"x": matrix()}, _use_new_zipfile_serialization=zipped)
    got = torch.load(stream, map_location=where, weights_only=weights_only)["x"]
    assert got.device == device
    assert torch.equal(got.cpu(), matrix("cpu"))


def test_from_the_cpu_to_the_device():
    got = torch.load(saved(matrix("cpu")), map_location="tpu")
    assert got.device == HERE
    assert got.tolist() == matrix("cpu").tolist()


def test_a_callable_is_told_the_device():
    places = []
    torch.load(saved(matrix("tpu:1")), map_location=lambda storage, place: places.append(place))
    assert places == ["tpu:1"]


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(RuntimeError, match="TPU device 7.*map_location"):
        torch.load(saved(matrix("cpu")), map_location="tpu:7")


@pytest.mark.parametrize("mmap", (True, False))
def test_files(tmp_path, mmap):
    path = tmp_path / "x.pt"
    torch.save({"x": matrix(), "view": matrix().t()[1:]}, path)
    for where in (None, "cpu", "tpu:1"):
        got = torch.load(path, map_location=where, mmap=mmap)
        assert got["view"].tolist() == matrix("cpu").t()[1:].tolist()


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name):
    want = torch.tensor([0, 1, 0, 1]).to(getattr(torch, name))
    got = torch.load(saved(want.to("tpu")))
    assert got.dtype is want.dtype
    assert got.device == HERE
    assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))


COPIES = {
    "torch": lambda thing: torch.load(saved(thing)),
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
def test_shared_storages_and_layouts_stay(how):
    x = matrix()
    got = COPIES[how]({"x": x, "row": x[1], "turned": x.t()})
    if how != "pickle":  # pickle keeps storages apart on every device
        got["row"].fill_(7)
        assert got["x"][1].tolist() == got["turned"][:, 1].tolist() == [7, 7, 7]
    assert got["turned"].stride() == (1, 3)
    assert x.tolist() == matrix("cpu").tolist()


@pytest.mark.parametrize("how", COPIES)
def test_modules_parameters_and_ties(how):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).to("tpu")
    model[2].weight = model[0].weight
    model(torch.ones(3, 2, device="tpu")).sum().backward()
    options = {"weights_only": False} if how == "torch" else {}
    got = torch.load(saved(model), **options) if how == "torch" else COPIES[how](model)
    assert got[2].weight is got[0].weight
    assert isinstance(got[0].weight, nn.Parameter)
    assert got[0].weight.requires_grad
    for a, b in zip(got.state_dict().values(), model.state_dict().values(), strict=True):
        assert a.device == b.device == HERE
        assert torch.equal(a, b)


def test_deepcopy_keeps_gradients():
    x = matrix().requires_grad_()
    x.square().sum().backward()
    assert copy.deepcopy(x).grad.tolist() == x.grad.tolist()
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def training_state(device="tpu"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1, amsgrad=True)
    model(matrix(device)).square().sum().backward()
    optimiser.step()
    return model, optimiser


@pytest.mark.parametrize("where", ("cpu", "tpu", None))
def test_a_state_dict_moves_to_the_device_of_the_module(where):
    model, optimiser = training_state()
    both = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
    got = torch.load(saved(both), map_location=where, weights_only=True)
    fresh, fresh_optimiser = training_state()
    fresh.load_state_dict(got["model"])
    fresh_optimiser.load_state_dict(got["optimiser"])
    for state in fresh_optimiser.state.values():
        assert state["exp_avg"].device == HERE
    for m, o in ((model, optimiser), (fresh, fresh_optimiser)):
        o.zero_grad()
        m(matrix()).square().sum().backward()
        o.step()
    for a, b in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b)
    assign, _ = training_state("cpu")
    assign.load_state_dict(got["model"], assign=True)
    assert assign[0].weight.device == got["model"]["0.weight"].device


WITHOUT_THE_PACKAGE = """
import sys
sys.modules["torch_tpu"] = None  # importing it is an error
import torch
assert not hasattr(torch, "tpu")
for weights_only in (True, False):
    state = torch.load(sys.argv[1], map_location="cpu", weights_only=weights_only)
    assert state["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state["turned"].stride() == (1, 3)
    assert state["turned"].untyped_storage().data_ptr() == state["x"].untyped_storage().data_ptr()
    assert state["low"].dtype is torch.bfloat16
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model.load_state_dict(state["model"])
    torch.optim.Adam(model.parameters(), amsgrad=True).load_state_dict(state["optimiser"])
    assert state["parameter"].requires_grad
try:
    torch.load(sys.argv[1], weights_only=True)
except RuntimeError as error:
    assert "tpu" in str(error), error
else:
    raise AssertionError("loaded on a device that is not there")
print("loaded")
"""


def test_a_process_without_the_package_loads_on_the_cpu(tmp_path):
    model, optimiser = training_state()
    x, path = matrix(), tmp_path / "state.pt"
    state = {
        "x": x,
        "turned": x.t(),
        "low": x.bfloat16(),
        "parameter": nn.Parameter(x),
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "random": torch.tpu.get_rng_state(),
    }
    torch.save(state, path)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE, str(path)],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "loaded\n", done.stderr


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, _ = training_state()
    path = tmp_path / "model.safetensors"
    safetensors.save_file(model.state_dict(), path)
    got = safetensors.load_file(path)
    fresh, _ = training_state()
    fresh.load_state_dict(got)
    for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True):
        assert a.dtype is b.dtype
        assert torch.equal(a, b)
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("tpu")
    tied[1].weight = tied[0].weight
    safetensors.save_model(tied, path)
    before = tied[0].weight.tolist()
    with torch.no_grad():
        tied[0].weight.zero_()
    safetensors.load_model(tied, path)
    assert tied[1].weight.tolist() == before


def test_saving_compiles_nothing(compiles):
    model, optimiser = training_state()
    with torch.no_grad():
        model[0].weight.add_(1)
    compiles.reset()
    saved([model.state_dict(), optimiser.state_dict()])
    with torch.no_grad():
        model[0].weight.add_(1)  # its array is still one of numbers
    assert compiles() == 0


@pytest.mark.parametrize("mode", ("STRICT", "DEBUG", "DEFER_AND_FUSE"))
def test_whole_storages_as_bytes(mode):
    """Storages are copied as what they hold; the bytes are those of the CPU."""
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode[mode]):
        for want in (torch.tensor([1.5, -2.0]), torch.tensor([True, False]), torch.arange(3)):
            x = want.to("tpu")
            storage = x.untyped_storage()
            assert storage.clone().tolist() == want.untyped_storage().tolist()
            assert storage.cpu().tolist() == want.untyped_storage().tolist()
            bytes_ = torch.empty(0, dtype=torch.uint8, device="tpu").set_(storage)
            copied = torch.empty_like(bytes_).copy_(bytes_)
            assert copied.tolist() == want.view(torch.uint8).tolist()
            assert torch.equal(copied.view(want.dtype).cpu(), want)
            wider = torch.empty(bytes_.shape, dtype=torch.int32, device="tpu").copy_(bytes_)
            assert wider.tolist() == want.view(torch.uint8).tolist()
            copied.fill_(0)  # a copy of its own
            assert torch.equal(x.cpu(), want)
