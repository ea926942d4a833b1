"""Calls that wait for an import: once, right after it, and the module is what it would be."""

import importlib
import subprocess
import sys

import pytest

from torch_tpu.api.imports import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "waited_for.py").write_text("value = 1\n")
    (tmp_path / "broken_module.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("waited_for", "broken_module"):
        sys.modules.pop(name, None)


def test_calls_once_after_the_import(package):
    seen = []
    when_imported("waited_for", lambda module: seen.append(module.value))
    assert seen == []
    module = importlib.import_module("waited_for")
    assert seen == [1]
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    importlib.reload(module)
    assert seen == [1]


def test_calls_at_once_if_it_is_imported_already(package):
    importlib.import_module("waited_for")
    seen = []
    when_imported("waited_for", lambda module: seen.append(module.__name__))
    assert seen == ["waited_for"]


def test_an_import_that_fails_fails_as_before(package):
    when_imported("broken_module", lambda module: pytest.fail("called"))
    with pytest.raises(ValueError, match="broken"):
        import broken_module  # noqa: F401


def test_a_module_that_does_not_exist_is_reported_as_before():
    when_imported("there_is_no_such_module", lambda module: pytest.fail("called"))
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
        import there_is_no_such_module  # noqa: F401


def test_importing_torch_imports_no_dynamo():
    code = "import sys, torch; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_dynamo_gets_our_interface_and_default_backend():
    code = (
        "import torch\n"
        "from torch._dynamo.backends.registry import get_default_backend\n"
        "from torch._dynamo.device_interface import get_interface_for_device\n"
        "print(get_default_backend().__module__, get_interface_for_device('tpu').is_available())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch_tpu.compile.backend", "True"]
