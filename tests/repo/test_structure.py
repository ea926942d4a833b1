"""The rules of the house that a machine can check: size, heads, directions of imports, names."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess

import pytest

from torch_tpu.lowering import registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = 600

# Room → the rooms of the package it may import (itself and the root files are always allowed).
ROOMS = {
    "api": {"dispatch", "program"},
    "compile": {"dispatch", "program", "lowering"},
    "export": {"compile", "dispatch", "program", "lowering"},
    "aot": {"api", "export", "compile", "program", "lowering"},
    "dispatch": {"program", "lowering", "ops"},
    "program": {"lowering"},
    "lowering": set(),
    "ops": {"lowering"},
}
ROOT_FILES = {"config", "errors", "_core", "__version__"}
# What rule files may import besides the standard library.
OPS_PACKAGES = {"torch", "torch_tpu"}


def tracked(*endings: str) -> list[pathlib.Path]:
    """Source files in the checkout, also those not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        files = [ROOT / line for line in listed.splitlines()]
    except (OSError, subprocess.CalledProcessError):  # not a checkout: an unpacked archive
        files = [p for room in ("torch_tpu", "csrc", "tests") for p in (ROOT / room).rglob("*")]
    return sorted(p for p in files if p.suffix in endings and p.is_file())


SOURCES = tracked(".py", ".cc", ".h", ".sh")
PYTHON = [p for p in SOURCES if p.suffix == ".py" and (ROOT / "torch_tpu") in p.parents]


def label(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_are_sources():
    assert len(SOURCES) > 60
    assert len(PYTHON) > 40


def test_no_file_is_too_long():
    lengths = {label(p): len(p.read_text().splitlines()) for p in SOURCES}
    assert {name: n for name, n in lengths.items() if n > LINES} == {}


def test_every_file_says_what_it_is():
    silent = []
    for path in SOURCES:
        text = path.read_text()
        if not text:
            continue
        if path.suffix == ".py":
            opened = ast.get_docstring(ast.parse(text)) is not None
        else:
            mark = "#" if path.suffix == ".sh" else "//"
            lines = [line for line in text.splitlines() if not line.startswith("#!")]
            opened = bool(lines) and lines[0].startswith(mark)
        if not opened:
            silent.append(label(path))
    assert silent == []


def imported(path: pathlib.Path) -> set[str]:
    """Absolute names of the modules a file imports, anywhere in it."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, base]) if base else ".".join(parts)
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way(room):
    allowed = ROOMS[room] | ROOT_FILES | {room}
    wrong = []
    for path in PYTHON:
        if path.relative_to(ROOT).parts[1] != room:
            continue
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "torch_tpu" and len(parts) > 1 and parts[1] not in allowed:
                wrong.append(f"{label(path)} imports {name}")
    assert wrong == []


def test_rules_import_only_the_vocabulary():
    import sys

    wrong = []
    for path in PYTHON:
        if path.relative_to(ROOT).parts[1] != "ops":
            continue
        for name in imported(path):
            top = name.split(".")[0]
            if top not in OPS_PACKAGES and top not in sys.stdlib_module_names:
                wrong.append(f"{label(path)} imports {name}")
    assert wrong == []


def test_only_config_reads_our_variables():
    readers = [
        label(p)
        for p in PYTHON
        if re.search(r"os\.environ|getenv", p.read_text()) and p.name != "config.py"
    ]
    assert readers == []


def test_only_pjrt_knows_pjrt():
    wrong = [
        label(p)
        for p in SOURCES
        if p.suffix in (".cc", ".h")
        and "pjrt" not in p.relative_to(ROOT).parts
        and "pjrt_c_api.h" in p.read_text()
    ]
    assert wrong == []


def test_a_second_rule_for_an_operator_is_refused():
    name = next(iter(registry.RULES))
    with pytest.raises(ValueError, match="already has a rule at"):
        registry.register(registry.Rule(name=name, body=lambda self: self))


@pytest.mark.parametrize("name", ["aten::neg_", "aten::neg.out", "aten::add_.Tensor"])
def test_derived_forms_are_not_registered(name):
    with pytest.raises(ValueError, match="register the functional overload"):
        registry.register(registry.Rule(name=name, body=lambda self: self))
    assert name not in registry.RULES


def test_no_registry_is_named():
    """Where packages come from is the installer's business, not the repository's."""
    hosts = "|".join(
        ("pypi" + r"\.org", "python" + "hosted", "--index" + "-url", "/opt" + "/wheels")
    )
    text = tracked(".py", ".cc", ".h", ".sh", ".md", ".toml", ".txt", ".cfg", ".yml")
    named = [label(p) for p in text if re.search(hosts, p.read_text(errors="replace"))]
    assert named == []


def test_every_room_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    rooms = [f"torch_tpu/{room}/" for room in ROOMS] + [
        f"csrc/{p.name}/" for p in (ROOT / "csrc").iterdir() if p.is_dir()
    ]
    assert [room for room in rooms if f"`{room}`" not in readme] == []


def test_no_two_test_modules_have_one_name():
    # pytest imports them by name, and would leave the second out of the run with an error.
    names = [p.name for p in SOURCES if p.suffix == ".py" and p.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))
