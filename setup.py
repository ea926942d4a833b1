"""Builds the C++ core with CMake and puts its two libraries and its program into the package.

Everything declarative is in pyproject.toml; this file only says how `build_ext` runs CMake. Torch
and the PJRT header are located without importing torch, which is quicker and cannot be disturbed by
an older installed torch_tpu. The build folder is kept between runs, so a rebuild compiles what
changed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
EXTENSION = "torch_tpu._core"
BUILT = ("libtorch_tpu_engine.so", "aot_compiler")


def package_dir(name: str) -> Path:
    """The folder of an installed package; says what to install when it is missing."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            f"torch-tpu: the package {name!r} is needed to build. Install torch and xla-cpu-pjrt "
            "first and build with `pip install --no-build-isolation .` (see README.md)."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def tool(name: str) -> str:
    """A build tool; one beside this Python comes first (a venv that is not activated)."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=path)
    if found is None:
        raise SystemExit(f"torch-tpu: {name} is needed to build: `pip install {name}`.")
    return found


class CMakeBuild(build_ext):
    """Runs CMake instead of compiling `Extension.sources`."""

    def run(self) -> None:
        tag = f"{sys.implementation.cache_tag}-{sys.platform}"
        build_dir = Path(os.environ.get("TORCH_TPU_BUILD_DIR", ROOT / "build" / f"cmake-{tag}"))
        configure = [
            tool("cmake"),
            *("-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DTORCH_TPU_TORCH_DIR={package_dir('torch')}",
            f"-DTORCH_TPU_PJRT_INCLUDE_DIR={package_dir('xla_plugins.xla_cpu_pjrt') / 'include'}",
        ]
        subprocess.run(configure, check=True)
        # A translation unit that includes torch headers takes about 1 GB: two at once by default.
        jobs = os.environ.get("MAX_JOBS", str(min(os.cpu_count() or 1, 8)))
        subprocess.run([tool("cmake"), "--build", str(build_dir), "-j", jobs], check=True)
        destination = self.destination()
        destination.mkdir(parents=True, exist_ok=True)
        for built in [*build_dir.glob("_core.*.so"), *(build_dir / name for name in BUILT)]:
            install(built, destination / built.name)

    def destination(self) -> Path:
        """The package folder in the source tree for editable installs, else in the build tree."""
        if self.inplace or getattr(self, "editable_mode", False):
            return ROOT / "torch_tpu"
        return Path(self.build_lib) / "torch_tpu"

    def get_outputs(self) -> list[str]:
        folder = self.destination()
        return [str(path) for path in [*folder.glob("*.so"), folder / BUILT[1]]]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


def install(source: Path, target: Path) -> None:
    """Replaces `target` by rename: a process that has the old library mapped must not crash."""
    fresh = target.with_suffix(".new")
    shutil.copy2(source, fresh)
    os.replace(fresh, target)


setup(ext_modules=[Extension(EXTENSION, sources=[])], cmdclass={"build_ext": CMakeBuild})
