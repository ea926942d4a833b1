"""Cached programs at a URL that machines share: a directory, a bucket, whatever fsspec can reach.

Read on the way of a compilation, written behind it by one thread. At the end of the process that
thread gets `FLUSH_SECONDS` to finish. A program that cannot be stored or fetched is no error: it is
counted, told once, and after a few failures in a row the URL is left alone. fsspec is imported here
and only when a URL is set.
"""

from __future__ import annotations

import atexit
import importlib
import queue
import secrets
import threading
from collections.abc import Callable

FLUSH_SECONDS = 10.0
# So many failures in a row and the URL is not asked again by this process.
_PATIENCE = 3


class RemoteStore:
    """Files by key below a URL. Raises ImportError or ValueError if fsspec cannot serve it.

    Attributes:
      failed: called with a message whenever something failed, from any thread.
      written: called with a number of bytes whenever a file was stored.
    """

    source = "remote"

    def __init__(self, url: str, failed: Callable[[str], None], written: Callable[[int], None]):
        self.url = url
        self.failed = failed
        self.written = written
        self._files, folder = _filesystem(url)
        self._folder = folder.rstrip("/")
        self._queue: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self._failures = 0
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def path(self, key: str) -> str:
        return f"{self._folder}/programs/{key[:2]}/{key}"

    def read(self, key: str) -> bytes | None:
        """The contents of a file, or None."""
        if self._failures >= _PATIENCE:
            return None
        try:
            data = self._files.cat_file(self.path(key))
        except FileNotFoundError:
            self._failures = 0
            return None
        except Exception as error:  # noqa: BLE001 - every protocol has errors of its own
            self._fail("reading", error)
            return None
        self._failures = 0
        return data

    def write(self, key: str, data: bytes) -> None:
        """Stores ``data`` some time later."""
        try:
            with self._lock:
                if self._writer is None:
                    self._start_writer()
        except RuntimeError as error:  # Python is ending and starts no more threads
            self._fail("writing", error)
            return
        self._queue.put((key, data))

    def flush(self, seconds: float) -> bool:
        """Waits until all is stored that was to be; False if it was not by then."""
        with self._queue.all_tasks_done:
            done = self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, seconds
            )
        return done

    def _start_writer(self) -> None:
        writer = threading.Thread(
            target=self._write_all, name="torch_tpu cache writer", daemon=True
        )
        writer.start()
        # Clients of object stores need executors and threads, which Python refuses by the time
        # atexit runs. These hooks are what shuts executors down, the last registered going first.
        importlib.import_module("concurrent.futures.thread")
        getattr(threading, "_register_atexit", atexit.register)(self._at_exit)
        self._writer = writer

    def _at_exit(self) -> None:
        if not self.flush(FLUSH_SECONDS):
            left = self._queue.unfinished_tasks
            self.failed(f"{left} programs could not be written within {FLUSH_SECONDS:g} s")

    def _write_all(self) -> None:
        while True:
            key, data = self._queue.get()
            try:
                if self._failures < _PATIENCE:
                    self._put(self.path(key), data)
                    self._failures = 0
                    self.written(len(data))
            except Exception as error:  # noqa: BLE001 - every protocol has errors of its own
                self._fail("writing", error)
            finally:
                self._queue.task_done()

    def _put(self, path: str, data: bytes) -> None:
        if "file" not in _protocols(self._files):
            self._files.pipe_file(path, data)  # object stores show whole objects only
            return
        parent = path.rpartition("/")[0]
        temporary = f"{parent}/.{secrets.token_hex(8)}.tmp"
        self._files.makedirs(parent, exist_ok=True)
        self._files.pipe_file(temporary, data)
        self._files.mv(temporary, path)

    def _fail(self, doing: str, error: Exception) -> None:
        self._failures += 1
        self.failed(f"{doing} failed: {type(error).__name__}: {error}")


def _filesystem(url: str):
    """The fsspec file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(
            "the package fsspec is not installed; install torch-tpu with the extra [cache]"
        ) from error
    return url_to_fs(url)


def _protocols(files) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
