"""Which PJRT plugin to run on, decided without loading one.

The order: what `TORCH_TPU_PJRT_PLUGIN` says, else `libtpu` when this machine has TPU chips, else
XLA's CPU plugin. The core calls `find` once, when the runtime starts; `torch.tpu.is_available`
calls it to answer cheaply. Loading the plugin and making the client is the core's work
(`csrc/pjrt`).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

from .. import config
from ..errors import PluginError

GOOGLE_PCI_VENDOR = "0x1ae0"
# Google's network and storage cards have the same vendor; these are the chips, v2 to 7x.
TPU_PCI_DEVICES = frozenset({"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"})


@dataclass(frozen=True)
class Plugin:
    """A PJRT plugin and how to make its client.

    Attributes:
      path: the shared library.
      options: create options, name → int, str, bool or float.
      reason: why this one, for logs and errors.
    """

    path: str
    options: dict[str, int | str | bool | float] = field(default_factory=dict)
    reason: str = ""


def find() -> tuple[str, dict[str, int | str | bool | float]]:
    """(path, create options) of the plugin to use; raises PluginError when there is none."""
    plugin = choose()
    options = dict(plugin.options)
    limit = config.memory_limit()
    if limit is not None:
        options["memory_limit"] = limit  # for our engine, which does not pass it on
    return plugin.path, options


def choose() -> Plugin:
    """The plugin to use and why."""
    wanted = config.pjrt_plugin()
    if wanted.lower() == "cpu":
        return cpu_plugin("TORCH_TPU_PJRT_PLUGIN=cpu")
    if wanted.lower() == "tpu":
        return tpu_plugin("TORCH_TPU_PJRT_PLUGIN=tpu")
    if wanted:
        return named_plugin(Path(wanted).expanduser())
    if has_tpu_chips():
        return tpu_plugin("TPU chips are present")
    return cpu_plugin("no TPU chips on this machine")


def named_plugin(path: Path) -> Plugin:
    if not path.is_file():
        raise PluginError(f"TORCH_TPU_PJRT_PLUGIN={path}: there is no such file")
    reason = "TORCH_TPU_PJRT_PLUGIN"
    cpu_path = library_of("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so")
    if cpu_path is not None and path.resolve() == cpu_path.resolve():
        return cpu_plugin(reason)
    return Plugin(str(path.resolve()), {}, reason)


def tpu_plugin(reason: str) -> Plugin:
    path = library_of("libtpu", "libtpu.so")
    if path is None:
        raise PluginError(
            f"{reason}, but the package libtpu is not installed. Install it "
            "(`pip install libtpu`), or set TORCH_TPU_PJRT_PLUGIN=cpu to run on XLA's CPU plugin."
        )
    return Plugin(str(path), {}, reason)


def cpu_plugin(reason: str) -> Plugin:
    path = library_of("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so")
    if path is None:
        raise PluginError(
            f"{reason}, and the package xla-cpu-pjrt is not installed. Install it "
            "(`pip install xla-cpu-pjrt`), or name a plugin with TORCH_TPU_PJRT_PLUGIN."
        )
    return Plugin(str(path), {"cpu_device_count": config.cpu_devices()}, reason)


def library_of(package: str, file: str) -> Path | None:
    """A shared library inside an installed package, found without importing the package."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    candidates = (Path(folder) / file for folder in spec.submodule_search_locations)
    return next((path for path in candidates if path.is_file()), None)


def has_tpu_chips(root: Path = Path("/")) -> bool:
    """Whether TPU chips are attached and their device files are visible to this process.

    Both are asked: containers often see the host's PCI tree without being given the chips.
    """
    devices = (root / "dev").glob("accel*")
    groups = (path for path in (root / "dev/vfio").glob("*") if path.name.isdigit())
    if next(devices, None) is None and next(groups, None) is None:
        return False
    return any(is_tpu(folder) for folder in (root / "sys/bus/pci/devices").glob("*"))


def is_tpu(folder: Path) -> bool:
    try:
        vendor = (folder / "vendor").read_text().strip()
        device = (folder / "device").read_text().strip()
    except OSError:  # a device that went away, or a sysfs we may not read
        return False
    return vendor == GOOGLE_PCI_VENDOR and device in TPU_PCI_DEVICES
