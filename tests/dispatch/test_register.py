"""What registration must know of the rules."""

from __future__ import annotations

import ast
import pathlib

import torch_tpu
from torch_tpu.dispatch.register import _PRECISION_FILES
from torch_tpu.lowering.registry import RULES

OPS = pathlib.Path(torch_tpu.__file__).parent / "ops"
DOTS = {"dot_general", "convolution", "precision"}


def functions_with_dots() -> set[tuple[str, str]]:
    """(file, function) of every function that contracts, directly or through another."""
    calls: dict[tuple[str, str], set[tuple[str, str]]] = {}
    found = set()
    for path in OPS.glob("*.py"):
        body = ast.parse(path.read_text()).body
        functions = [node for node in body if isinstance(node, ast.FunctionDef)]
        known = {f.name: (path.stem, f.name) for f in functions}
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                known |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        for function in functions:
            nodes = list(ast.walk(function))
            key = (path.stem, function.name)
            names = {n.id for n in nodes if isinstance(n, ast.Name)}
            calls[key] = {known[name] for name in names & known.keys()}
            if DOTS & {n.attr for n in nodes if isinstance(n, ast.Attribute)}:
                found.add(key)
    while more := {key for key, called in calls.items() if called & found} - found:
        found |= more
    return found


def test_rules_with_dots_have_the_matmul_precision_in_their_key():
    files = {rule.body.__module__.rpartition(".")[2] for rule in RULES.values()}
    needed = {file for file, _ in functions_with_dots()} & files
    assert {"matmul", "conv", "lu"} <= needed
    assert needed <= _PRECISION_FILES
