"""Calls a function once a module has been imported, whenever that is, without importing it.

`import torch` must stay quick, so what extends a slow part of PyTorch (Dynamo) or another library
waits here for somebody to import it. An import hook is Python's own means for that; the module
itself is not changed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

_waiting: dict[str, list[Callable[[ModuleType], None]]] = {}


def when_imported(name: str, call: Callable[[ModuleType], None]) -> None:
    """Call ``call(module)`` right after ``name`` is imported; now if it is already."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        call(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _waiting.setdefault(name, []).append(call)


class _Loader(importlib.abc.Loader):
    """The loader that would have been used, and then the calls."""

    def __init__(self, loader: importlib.abc.Loader):
        self._loader = loader

    def __getattr__(self, name: str):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for call in _waiting.pop(module.__name__, ()):
            call(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: asks the finders after it and wraps the loader they give."""

    def find_spec(self, name, path=None, target=None) -> importlib.machinery.ModuleSpec | None:
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


_finder = _Finder()
