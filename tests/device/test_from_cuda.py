"""Every public name of torch.cuda is in the table of from_cuda.py, and the table is true."""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import pkgutil

import pytest
import torch
import torch.cuda

from torch_tpu.api import from_cuda
from torch_tpu.api.device import known_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATES = {row.name: row.state for row in from_cuda.rows()}
PRESENT = sorted(name for name, state in STATES.items() if state != "absent")
ABSENT = sorted(name for name, state in STATES.items() if state == "absent")


def submodules() -> dict[str, object]:
    """The public submodules of torch.cuda by name."""
    names = [m.name for m in pkgutil.iter_modules(torch.cuda.__path__) if m.name[0] != "_"]
    return {name: importlib.import_module(f"torch.cuda.{name}") for name in names}


def declared(class_name: str) -> list[str]:
    """The public members of a class of the extension, which a torch without CUDA does not have."""
    source = pathlib.Path(torch.__file__).with_name("_C") / "__init__.pyi"
    found = (node for node in ast.walk(ast.parse(source.read_text())) if is_class(node, class_name))
    members = [
        member.target.id if isinstance(member, ast.AnnAssign) else member.name
        for node in found
        for member in node.body
        if isinstance(member, (ast.AnnAssign, ast.FunctionDef))
    ]
    return [name for name in members if not name.startswith("_")]


def is_class(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def public(module: object) -> list[str]:
    """What a submodule offers: its `__all__`, and what it defines itself."""
    own = [
        n for n in dir(module) if getattr(getattr(module, n), "__module__", "") == module.__name__
    ]
    return [name for name in {*getattr(module, "__all__", ()), *own} if name[0] != "_"]


def names_of_cuda() -> set[str]:
    modules = submodules()
    top = {name for name in dir(torch.cuda) if not name.startswith("_")} | set(modules)
    names = set(top)
    for prefix, module in modules.items():
        # A name that torch.cuda has too is one thing with one row.
        shared = {n for n in public(module) if getattr(torch.cuda, n, None) is getattr(module, n)}
        names |= {f"{prefix}.{name}" for name in public(module) if name not in shared}
    for name, base in (("Stream", "_CudaStreamBase"), ("Event", "_CudaEventBase")):
        members = {*dir(getattr(torch.cuda, name)), *dir(getattr(torch, name)), *declared(base)}
        names |= {f"{name}.{member}" for member in members if not member.startswith("_")}
    names |= {f"get_device_properties.{name}" for name in declared("_CudaDeviceProperties")}
    return names


def find(name: str, root: object = torch.tpu):
    """The object that `name` of the table stands for; AttributeError without it."""
    for part in name.split("."):
        found = getattr(root, part)
        root = found() if part == "get_device_properties" and "." in name else found
    return root


def test_the_table_is_complete_and_knows_no_other_names():
    assert len(declared("_CudaDeviceProperties")) > 10  # the stub says what it is thought to say
    assert sorted(names_of_cuda() ^ set(STATES)) == []


def test_no_name_is_in_two_lists():
    names = [row.name for row in from_cuda.rows()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", PRESENT)
def test_what_is_said_to_be_there_is_there(name):
    found = find(name)
    if "." in name:  # a torch without CUDA has no objects to compare these members with
        return
    theirs = find(name, torch.cuda)
    if inspect.isfunction(theirs) or inspect.isclass(theirs):
        assert callable(found)
    else:
        assert callable(found) == callable(theirs)


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_said_to_be_absent_is_absent(name):
    with pytest.raises(AttributeError):
        find(name)


def test_submodules_hold_the_same_objects():
    for prefix, module in submodules().items():
        if STATES[prefix] == "absent":
            continue
        for name in public(module):
            if STATES.get(name, "absent") != "absent":
                assert find(f"{prefix}.{name}") is find(name), (prefix, name)
                assert importlib.import_module(f"torch.tpu.{prefix}") is find(prefix)
    assert torch.tpu.memory.memory_stats is torch.tpu.memory_stats


def takes_calls_of(ours: inspect.Signature, theirs: inspect.Signature) -> bool:
    """Whether every call that fits `theirs` fits `ours`."""
    mine, variadic = list(ours.parameters.values()), (inspect._VAR_POSITIONAL, inspect._VAR_KEYWORD)
    wanted = [p for p in theirs.parameters.values() if p.kind not in variadic]
    for position, parameter in enumerate(wanted):
        if position >= len(mine) or mine[position].name != parameter.name:
            return False
        optional = parameter.default is not inspect.Parameter.empty
        if optional and mine[position].default is inspect.Parameter.empty:
            return False
    return all(p.default is not inspect.Parameter.empty for p in mine[len(wanted) :])


# Classes of PyTorch that say themselves how they are called; their rows say what is different.
UNINSPECTABLE = {"Event", "Stream"}


@pytest.mark.parametrize("name", PRESENT)
def test_what_is_there_takes_the_same_arguments(name):
    if "." in name or name in UNINSPECTABLE or not callable(find(name, torch.cuda)):
        return
    ours, theirs = find(name), find(name, torch.cuda)
    if ours is not theirs:
        assert takes_calls_of(inspect.signature(ours), inspect.signature(theirs)), name


def test_defaults_are_the_same():
    for name in PRESENT:
        ours, theirs = find(name), getattr(torch.cuda, name, None)
        if inspect.isfunction(ours) and inspect.isfunction(theirs):
            mine = inspect.signature(ours).parameters
            for key, parameter in inspect.signature(theirs).parameters.items():
                default = "tpu" if parameter.default == "cuda" else parameter.default
                assert mine[key].default == default, (name, key)


def test_the_page_is_up_to_date():
    assert (ROOT / "docs/from_cuda.md").read_text() == from_cuda.page(), (
        "run python -m torch_tpu.api.from_cuda --write docs/from_cuda.md"
    )


def test_accelerator_names():
    listed = from_cuda.ACCELERATOR_SAME | set(from_cuda.ACCELERATOR_REMARKS)
    assert sorted(listed) == sorted(torch.accelerator.__all__)


@pytest.mark.parametrize("name", sorted(from_cuda.ACCELERATOR_SAME))
def test_accelerator_functions_answer(name):
    function = getattr(torch.accelerator, name)
    if name.startswith("set_device"):
        function(torch.device("tpu:0"))
    elif name == "set_stream":
        function(torch.tpu.current_stream())
    elif name == "device_index":
        with function(1):
            assert torch.tpu.current_device() == 1
    else:
        function()
    assert torch.tpu.current_device() == 0


def test_accelerator_remarks():
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.is_available()
    with pytest.raises(RuntimeError, match="tpu"):
        torch.accelerator.Graph()


def test_what_is_different_is_as_the_table_says():
    assert torch.tpu.is_tf32_supported() is False
    assert torch.tpu.get_arch_list() == [torch.tpu.get_device_name()]
    assert isinstance(torch.tpu.seed(), int)
    assert torch.tpu.seed_all() == torch.tpu.initial_seed()
    assert torch.tpu.get_device_capability() == torch.accelerator.get_device_capability()
    properties = torch.tpu.get_device_properties()
    assert properties.total_memory == torch.tpu.mem_get_info()[1] > 0
    assert (properties.platform == "tpu") == ("not a TPU" not in properties.name)
    assert properties.kind in properties.name


@pytest.mark.parametrize(
    ("kind", "name"),
    [("TPU v4", "TPU v4"), ("TPU v5 lite", "TPU v5e"), ("TPU v5", "TPU v5p"), ("TPU9", "TPU9")],
)
def test_tpus_have_the_names_that_libraries_look_for(kind, name):
    assert known_name(kind, "tpu") == name
    assert known_name(kind, "other").endswith("(XLA other plugin, not a TPU)")


def test_ipc_of_events_is_refused():
    event = torch.tpu.Event()
    with pytest.raises(NotImplementedError):
        event.ipc_handle()
    with pytest.raises(NotImplementedError):
        torch.tpu.Event.from_ipc_handle(torch.device("tpu:0"), b"")


def test_out_of_memory_error_is_the_one_class():
    assert torch.tpu.OutOfMemoryError is torch.OutOfMemoryError is torch.cuda.OutOfMemoryError


def test_device_contexts():
    assert torch.tpu.current_device() == 0
    with torch.tpu.device("tpu:1"):
        assert torch.tpu.current_device() == 1
        with torch.tpu.device_of(torch.ones(1, device="tpu:0")):
            assert torch.tpu.current_device() == 0
        with torch.tpu.device_of(torch.ones(1)), torch.tpu.device(-1), torch.tpu.device(None):
            assert torch.tpu.current_device() == 1
    assert torch.tpu.current_device() == 0
    with pytest.raises(RuntimeError, match="tpu:7"):
        torch.tpu.set_device(7)
    with pytest.raises(ValueError, match="cpu"):
        torch.tpu.set_device("cpu")


def test_peers():
    assert torch.tpu.can_device_access_peer(0, 1)
    assert not torch.tpu.can_device_access_peer("tpu:1", 1)
    with pytest.raises(ValueError, match="2 devices"):
        torch.tpu.can_device_access_peer(0, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bits8, torch.int4])
def test_capability_lists_the_dtypes_that_can_be_used(dtype):
    listed = torch.tpu.get_device_capability()["supported_dtypes"]
    try:
        torch.empty(2, dtype=dtype, device="tpu")
    except TypeError:
        assert dtype not in listed
    else:
        assert dtype in listed
