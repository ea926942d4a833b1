"""Who holds the TPU chips of this machine, for the error that says they are taken.

libtpu gives a chip to one process at a time and refuses the others in words that differ between
its versions. Here those words are recognised, and the holders are looked up: by the process id in
the message, else among the processes that have the chips' device files or libtpu's lock file open.
Only asked when the runtime did not start. Not here: choosing the plugin (`plugin.py`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

# "The TPU is already in use by process with pid 42", "libtpu.so already in use by another process
# probably owned by another user", "Internal error when accessing libtpu multi-process lockfile",
# "open(/dev/vfio/0): Device or resource busy".
TAKEN = re.compile(
    r"already in use|multi-process lockfile|(/dev/(accel|vfio)|iommu group|TPU).*resource busy",
    re.IGNORECASE | re.DOTALL,
)
PROCESS = re.compile(r"\bpid[ :=]*(\d+)", re.IGNORECASE)
CHIP_FILE = re.compile(r"/dev/(accel\d+|vfio/\d+)|.*/libtpu_lockfile\w*")


def explain(message: str, root: Path = Path("/")) -> str | None:
    """What to tell the user if `message`, of a start that failed, says that a chip is taken."""
    if not TAKEN.search(message):
        return None
    named = PROCESS.search(message)
    holders = [int(named[1])] if named else processes_with_chips(root)
    if holders:
        who = "held by " + ", ".join(description(pid, root) for pid in holders)
        advice = "End that process or wait for it"
    else:
        who = "held by a process that cannot be seen from here, maybe another user's"
        advice = (
            "Find it with `sudo lsof /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile`. If there is "
            "none, a process that died left its lock: remove /tmp/libtpu_lockfile"
        )
    return (
        f"the TPU chips of this machine are {who}; a chip serves one process at a time. {advice}, "
        "give each process chips of its own with TPU_VISIBLE_CHIPS, or set "
        f"TORCH_TPU_PJRT_PLUGIN=cpu to run on XLA's CPU plugin. The plugin said: {message}"
    )


def processes_with_chips(root: Path = Path("/")) -> list[int]:
    """The processes that have a TPU chip or libtpu's lock file open, as far as we may see."""
    folders = (path for path in (root / "proc").glob("*") if path.name.isdigit())
    return sorted(int(folder.name) for folder in folders if holds_chip(folder))


def holds_chip(process: Path) -> bool:
    try:
        links = list((process / "fd").iterdir())
    except OSError:  # it ended meanwhile, or is another user's
        return False
    return any(CHIP_FILE.fullmatch(target_of(link)) for link in links)


def target_of(link: Path) -> str:
    """What a link leads to; "" for one that went away."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def description(pid: int, root: Path = Path("/")) -> str:
    """A process as people know it: its number and its command, if it may be read."""
    if pid == os.getpid():
        return f"process {pid} (this one, through another library)"
    try:
        command = (root / "proc" / str(pid) / "cmdline").read_bytes()
    except OSError:
        return f"process {pid}"
    text = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return f"process {pid} ({text[:80]})" if text else f"process {pid}"
