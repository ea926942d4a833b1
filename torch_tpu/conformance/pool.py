"""Worker processes: each unit runs in one, a crash or a hang costs only that unit.

A worker that dies or exceeds the time limit is replaced, and the unit gets a record whose failure
is of kind ``abort`` or ``hang``.
"""

from __future__ import annotations

import json
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from .record import Record

_START_LIMIT = 300  # seconds until a worker is ready


def worker_command(mode: str) -> tuple[str, ...]:
    """What starts a worker in an eager mode, by its name in `units.MODES`."""
    return sys.executable, "-m", "torch_tpu.conformance.worker", mode


class _Worker:
    def __init__(self, log, command: Sequence[str]):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        self._rest = b""
        if self._line(_START_LIMIT) != b"ready":
            self.stop()
            raise RuntimeError("a conformance worker did not start; see the log file")

    def _line(self, limit: float) -> bytes | None:
        """The next line; None if the process ended. Raises TimeoutError after ``limit`` s."""
        pipe = self._process.stdout
        while b"\n" not in self._rest:
            ready, _, _ = select.select([pipe], [], [], limit)
            if not ready:
                raise TimeoutError
            chunk = pipe.read1(1 << 20)
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def run(self, job: dict, name: str, limit: float) -> tuple[dict, bool]:
        """(record, whether the worker is still usable)."""
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(limit)
        except TimeoutError:
            return _lost(name, "hang", f"no answer within {limit:.0f} s"), False
        except BrokenPipeError:
            line = None
        if line is None:
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return _lost(name, "abort", f"the process ended: {how}"), False
        return json.loads(line), True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def _lost(name: str, kind: str, message: str) -> dict:
    record = Record(name)
    record.add("process", kind, "", message)
    return record.fields()


def run(
    jobs: Sequence[tuple[str, dict]],
    workers: int,
    limit: float,
    log,
    done: Callable[[dict], None],
    command: Sequence[str],
) -> None:
    """Run ``(name, job)`` pairs; ``done`` gets each record, one at a time.

    ``limit`` is in seconds per job; ``log`` is a file for the stderr of the workers, which are
    started by ``command``. Raises RuntimeError if a worker does not start.
    """
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for pair in jobs:
        waiting.put(pair)
    lock = threading.Lock()
    problems: list[BaseException] = []

    def report(record: dict) -> None:
        with lock:
            done(record)

    def serve() -> None:
        try:
            _serve(waiting, limit, lambda: _Worker(log, command), report, lambda: bool(problems))
        except BaseException as error:  # noqa: BLE001 (handed to the caller's thread)
            problems.append(error)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt as error:
        problems.append(error)
    if problems:
        raise problems[0]


def _serve(waiting, limit: float, start, report, stopped: Callable[[], bool]) -> None:
    """Run jobs in one worker process (and its successors) until there are none."""
    worker = None
    try:
        while not stopped():
            try:
                name, job = waiting.get_nowait()
            except queue.Empty:
                return
            worker = worker or start()
            record, usable = worker.run(job, name, limit)
            if not usable:
                worker.stop()
                worker = None
            report(record)
    finally:
        if worker is not None:
            worker.stop()
