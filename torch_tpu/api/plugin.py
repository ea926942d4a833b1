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
from ..errors import ConfigError, PluginError

GOOGLE_PCI_VENDOR = "0x1ae0"
# PCI device → devices per chip. Google's network and storage cards have the same vendor.
DEVICES_PER_CHIP = {
    "0x0027": 2,  # v2, v3
    "0x0056": 1,  # a chip without a public name
    "0x005e": 1,  # v4
    "0x0062": 1,  # v5p
    "0x0063": 1,  # v5e
    "0x006f": 1,  # v6e
    "0x0076": 2,  # 7x
}


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


def expected_device_count() -> int:
    """How many devices the chosen plugin will have at most, without loading it; 0 if not known.

    PyTorch asks how many devices there are at the first backward pass of any program, also one that
    never uses a tpu. Starting the runtime for the answer would take the chips from who needs them.
    """
    try:
        plugin = choose()
    except (PluginError, ConfigError):
        return 0
    if Path(plugin.path).name == "libtpu.so":
        return sum(tpu_devices())
    return int(plugin.options.get("cpu_device_count", 0))


def has_tpu_chips(root: Path = Path("/")) -> bool:
    """Whether TPU chips are attached and their device files are visible to this process.

    Both are asked: containers often see the host's PCI tree without being given the chips.
    """
    devices = (root / "dev").glob("accel*")
    groups = (path for path in (root / "dev/vfio").glob("*") if path.name.isdigit())
    if next(devices, None) is None and next(groups, None) is None:
        return False
    return bool(tpu_devices(root))


def tpu_devices(root: Path = Path("/")) -> list[int]:
    """For each TPU chip on the PCI bus, how many devices it has."""
    folders = (root / "sys/bus/pci/devices").glob("*")
    kinds = (pci_device(folder) for folder in folders)
    return [DEVICES_PER_CHIP[kind] for kind in kinds if kind in DEVICES_PER_CHIP]


def pci_device(folder: Path) -> str | None:
    """The device id of a PCI device of Google's; None for others."""
    try:
        vendor = (folder / "vendor").read_text().strip()
        device = (folder / "device").read_text().strip()
    except OSError:  # a device that went away, or a sysfs we may not read
        return None
    return device if vendor == GOOGLE_PCI_VENDOR else None
