"""The child process that holds libtpu: what it is asked, and what becomes of it when it dies.

libtpu ends its process on some programs instead of returning an error, and by default allows one
process on a machine. So compiling happens in `aot_compiler` (csrc/aot/main.cc), which is started
with the settings that keep libtpu from looking for chips or asking a metadata service. Here is the
parent's side: requests, time limits, and a crash turned into `CompilationError`. What is compiled
is not known here (`topology.py`, `compile.py`).
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import config
from ..api import plugin
from ..errors import CompilationError, PluginError

PROGRAM = Path(__file__).resolve().parent.parent / "aot_compiler"

Option = bool | int | str | Sequence[int]

# libtpu's own settings: look for no chips and no metadata service, take no lock of the machine.
_SETTINGS = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "TPU_STDERR_LOG_LEVEL": "2",
}
_CODES = {3: "invalid argument", 8: "out of memory", 9: "failed precondition", 12: "unimplemented"}
# The line that a failed CHECK writes: F, date, time, thread, place and reason.
_FATAL = re.compile(r"^F\d{4} [\d:.]+\s+\d+ (.+)$", re.MULTILINE)
_KEPT_OUTPUT = 1 << 16


def libtpu_path() -> Path:
    """The library of the installed package ``libtpu``; raises PluginError if there is none."""
    path = plugin.library_of("libtpu", "libtpu.so")
    if path is None:
        raise PluginError(
            "compiling for TPUs takes the package libtpu, which is not installed: "
            "`pip install 'torch-tpu[tpu]'` from this checkout, or `pip install libtpu`"
        )
    return path


class Worker:
    """One child process; requests from several threads take turns. Start again after a crash is
    automatic, with the next request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._folder: str | None = None  # of its log files and output
        atexit.register(self.close)

    def topology(self, name: str, options: Mapping[str, Option]) -> dict:
        """The plugin's description of a topology; CompilationError if it knows none like it."""
        (described,) = self._ask(["topology", name, _encoded(options)], timeout=120)
        return json.loads(described)

    def compile(
        self,
        name: str,
        options: Mapping[str, Option],
        text: str,
        build_options: bytes,
        timeout: float | None = None,
    ) -> tuple[dict, bytes, bytes]:
        """(facts, optimised program, executable) of StableHLO text for a topology.

        ``timeout`` is in seconds. Raises CompilationError with the compiler's message, also if the
        compiler dies, TimeoutError if it takes longer.
        """
        request = ["compile", name, _encoded(options), text, build_options]
        facts, optimized, executable = self._ask(request, timeout)
        return json.loads(facts), optimized, executable

    def close(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    # ---- requests ------------------------------------------------------------------------------

    def _ask(self, request: Sequence[str | bytes], timeout: float | None) -> list[bytes]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._start()
            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                self._send(request)
                status, *fields = self._receive(deadline)
            except (EOFError, BrokenPipeError):
                raise self._crash(request[0]) from None
            except BaseException:  # the answer would come to the next request
                self.close()
                raise
        if status == b"ok":
            return fields
        code, message = int(fields[0]), fields[1].decode(errors="replace")
        raise CompilationError(message, _CODES.get(code, f"error {code}"))

    def _start(self) -> None:
        library = libtpu_path()
        if not PROGRAM.is_file():
            raise PluginError(f"{PROGRAM} is missing: build torch_tpu again (README.md)")
        self._folder = tempfile.mkdtemp(prefix="torch_tpu_aot_")
        environment = config.child_environment({**_SETTINGS, "TPU_LOG_DIR": self._folder})
        with open(Path(self._folder, "output"), "wb") as output:
            self._process = subprocess.Popen(
                [PROGRAM, library, self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                # The user's Ctrl-C is for the parent, which ends the child in its own time.
                start_new_session=True,
            )

    def _send(self, request: Sequence[str | bytes]) -> None:
        out = self._process.stdin
        out.write(struct.pack("<I", len(request)))
        for field in request:
            data = field.encode() if isinstance(field, str) else field
            out.write(struct.pack("<Q", len(data)))
            out.write(data)
        out.flush()

    def _receive(self, deadline: float | None) -> list[bytes]:
        (count,) = struct.unpack("<I", self._read(4, deadline))
        fields = []
        for _ in range(count):
            (size,) = struct.unpack("<Q", self._read(8, deadline))
            fields.append(self._read(size, deadline))
        return fields

    def _read(self, size: int, deadline: float | None) -> bytes:
        descriptor, parts = self._process.stdout.fileno(), []
        while size:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError("the TPU compiler was not done in the time it was given")
            part = os.read(descriptor, min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _crash(self, what: str | bytes) -> CompilationError:
        """The error of a child that died, with what it printed last."""
        status = self._process.wait()
        with open(Path(self._folder, "output"), "rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _KEPT_OUTPUT))
            printed = output.read().decode(errors="replace")
        fatal = _FATAL.search(printed)
        last = [line for line in printed.splitlines() if line.strip()][-3:]
        message = fatal.group(1) if fatal else "\n".join(last) or "it printed nothing"
        self.close()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return CompilationError(message, f"the compiler ended with {how}", crashed=True)


def _encoded(options: Mapping[str, Option]) -> str:
    """Options as the child reads them, a line each."""
    lines = []
    for name, value in options.items():
        if isinstance(value, bool):
            lines.append(f"{name}=b:{int(value)}")
        elif isinstance(value, int):
            lines.append(f"{name}=i:{value}")
        elif isinstance(value, str):
            lines.append(f"{name}=s:{value}")
        else:
            lines.append(f"{name}=l:{','.join(str(int(v)) for v in value)}")
    return "\n".join(lines)


_shared: Worker | None = None
_shared_lock = threading.Lock()


def shared() -> Worker:
    """The worker of this process, made at the first call; a forked child gets its own."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Worker()
        return _shared


def _forget() -> None:
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
