"""The directory of cached programs: its bound, its note of its size, and many processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time

import pytest

from torch_tpu.program.store import DiskStore


def keys(count: int) -> list[str]:
    return [f"{i:064x}" for i in range(count)]


def test_the_least_recently_used_go_when_the_directory_is_full(tmp_path):
    store = DiskStore(tmp_path, limit=1000)
    for age, key in enumerate(reversed(keys(9))):
        store.write(key, bytes(100))
        os.utime(store.path(key), (1e9 - age, 1e9 - age))
    oldest, other = keys(2)
    assert store.read(oldest) == bytes(100)  # used: now it is the most recent one
    assert store.write("a" * 64, bytes(100)) == 0
    assert store.write("b" * 64, bytes(100)) == 2
    assert store.read(oldest) is not None
    assert store.read(other) is None
    assert sum(file.size for file in store.files()) == 900


def test_reading_makes_a_program_recent(tmp_path):
    store = DiskStore(tmp_path, limit=1000)
    store.write("a" * 64, b"x")
    os.utime(store.path("a" * 64), (1, 1))
    store.read("a" * 64)
    (file,) = store.files()
    assert file.used > time.time() - 60


def test_what_exceeds_the_bound_alone_is_not_written(tmp_path):
    store = DiskStore(tmp_path, limit=10)
    assert store.write("a" * 64, bytes(11)) == 0
    assert list(store.files()) == []


def test_the_directory_is_not_scanned_at_every_write(tmp_path, monkeypatch):
    scans = []
    files = DiskStore.files
    monkeypatch.setattr(DiskStore, "files", lambda self: scans.append(1) or files(self))
    for _ in range(2):  # two processes
        store = DiskStore(tmp_path, limit=1 << 20)
        for key in keys(200):
            store.write(key, b"x")
    assert len(scans) == 1


@pytest.mark.parametrize("note", ["", "damaged", "0 0\n", "-5 1", "5 99999999999999999\n"])
def test_the_noted_size_is_made_anew(tmp_path, note):
    store = DiskStore(tmp_path, limit=1000)
    for key in keys(9):
        store.write(key, bytes(100))
    assert (tmp_path / "size").read_text().split()[0] == "900"
    (tmp_path / "size").write_text(note)
    store.write("a" * 64, bytes(50))
    total, measured = map(int, (tmp_path / "size").read_text().split())
    assert total == 950
    assert abs(measured - time.time()) < 60


def test_what_dead_writers_left_is_removed(tmp_path):
    store = DiskStore(tmp_path, limit=1000)
    store.write("a" * 64, b"x")
    left, fresh = (store.path("a" * 64).with_name(f".{name}.tmp") for name in ("1", "2"))
    left.write_bytes(b"")
    fresh.write_bytes(b"")
    os.utime(left, (1, 1))
    assert len(list(store.files())) == 1
    assert not left.exists()
    assert fresh.exists()


def test_processes_write_side_by_side(tmp_path):
    script = """
        import sys
        from pathlib import Path
        from torch_tpu.program.store import DiskStore
        store = DiskStore(Path(sys.argv[1]), 200_000)
        for turn in range(20):
            for i in range(50):
                data = store.read(f"{i:064x}")
                assert data is None or data == bytes([i]) * 8000, i
                store.write(f"{i:064x}", bytes([i]) * 8000)
        """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    writers = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [writer.communicate(timeout=300)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, said
    files = list(DiskStore(tmp_path, 1).files())
    assert 0 < sum(file.size for file in files) <= 200_000 + 4 * 8000
    assert [p for p in tmp_path.rglob("*.tmp")] == []
