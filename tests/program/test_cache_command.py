"""`python -m torch_tpu.cache`: what it prints, removes and moves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time

import pytest

from torch_tpu.cache import main, size_text
from torch_tpu.program.entry import Entry
from torch_tpu.program.store import DiskStore

MADE_FOR = {"devices": "1 x cpu", "torch_tpu": "0.1.0", "plugin": "0123456789ab", "machine": "ab"}
DAY = 86400


def program(number: int, size: int = 1000) -> Entry:
    executable = os.urandom(size)
    return Entry(f"{number:064x}", executable, f"aten::op{number}", 25.0, time.time(), MADE_FOR)


@pytest.fixture
def store(tmp_path) -> DiskStore:
    """Four programs, last used 3, 2, 1 and 0 days ago."""
    store = DiskStore(tmp_path / "cache", 1 << 20)
    for number in range(4):
        entry = program(number)
        store.write(entry.key, entry.encode())
        used = time.time() - (3 - number) * DAY
        os.utime(store.path(entry.key), (used, used))
    return store


def run(store: DiskStore, *arguments: str) -> int:
    return main(["--dir", str(store.folder), *arguments])


def left(store: DiskStore) -> list[int]:
    return sorted(int(file.key, 16) for file in store.files())


def test_ls_lists_the_latest_first(store, capsys):
    store.path(f"{2:064x}").write_bytes(b"damaged")
    assert run(store, "ls") == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[-1] for line in lines]
    assert names == ["(unreadable)", "aten::op3", "aten::op1", "aten::op0"]
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d +1\.\d K +25.0 ms", lines[1])


def test_stats_say_how_many_and_what_for(store, capsys):
    assert run(store, "stats") == 0
    out = capsys.readouterr().out
    assert re.search(r"programs +4\n", out)
    assert re.search(r"compiling them took +0.1 s\n", out)
    assert "devices 1 x cpu, torch_tpu 0.1.0, plugin 0123456789ab, machine ab: 4" in out


def test_an_empty_cache_is_no_error(tmp_path, capsys):
    empty = DiskStore(tmp_path / "none", 1)
    assert [run(empty, command) for command in ("ls", "stats", "prune")] == [0, 0, 0]
    assert not empty.folder.exists()
    assert "removed 0 programs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--age", "36h"), [2, 3]),
        (("--age", "0.5d"), [3]),
        (("--size", "4K"), [1, 2, 3]),
        (("--size", "2700", "--age", "60h"), [2, 3]),
        (("--all",), []),
        ((), [0, 1, 2, 3]),
    ],
)
def test_prune_removes_what_it_is_told(store, options, wanted, capsys):
    assert run(store, "prune", *options) == 0
    assert left(store) == wanted
    assert f"removed {4 - len(wanted)} programs" in capsys.readouterr().out


def test_prune_without_options_keeps_to_the_bound(store, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE_SIZE", "2700")
    assert run(store, "prune") == 0
    assert left(store) == [2, 3]


@pytest.mark.parametrize("options", [("--age", "soon"), ("--size", "much"), ("--age", "d")])
def test_prune_refuses_what_it_does_not_understand(store, options, capsys):
    with pytest.raises(SystemExit):
        run(store, "prune", *options)
    assert "expected" in capsys.readouterr().err


def test_export_and_import_move_whole_programs_only(store, tmp_path, capsys):
    store.path(f"{1:064x}").write_bytes(b"damaged")
    archive = str(tmp_path / "programs.tar")
    assert run(store, "export", archive) == 0
    other = DiskStore(tmp_path / "other", 1 << 20)
    assert run(other, "import", archive) == 0
    assert left(other) == [0, 2, 3]
    assert other.read(f"{3:064x}") == store.read(f"{3:064x}")
    assert "imported 3 programs\n" in capsys.readouterr().out


def test_import_trusts_no_name_and_no_content(store, tmp_path, capsys):
    good, wrong = program(7), program(8)
    members = {
        good.key: good.encode(),
        wrong.key: good.encode(),
        "f" * 64: b"damaged",
        "../../escaped": good.encode(),
        f"/{'e' * 64}": good.encode(),
    }
    with tarfile.open(tmp_path / "made.tar", "w") as archive:
        for name, data in members.items():
            source = tmp_path / "member"
            source.write_bytes(data)
            archive.add(source, name)
        folder = tarfile.TarInfo("d" * 64)
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    other = DiskStore(tmp_path / "deep" / "other", 1 << 20)
    assert run(other, "import", str(tmp_path / "made.tar")) == 1
    assert left(other) == [7]
    assert not (tmp_path / "escaped").exists()
    said = capsys.readouterr()
    assert said.out == "imported 1 programs, refused 5\n"
    assert said.err.count("refused ") == 5


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_a_bad_archive_is_a_message(store, tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "bad.tar").write_bytes(content)
    assert run(store, "import", str(tmp_path / "bad.tar")) == 1
    assert capsys.readouterr().err.startswith("python -m torch_tpu.cache: ")


def test_sizes_are_for_people():
    sizes = [0, 1023, 1024, 1536, 5 << 20, 3 << 30, 2 << 40]
    assert [size_text(s) for s in sizes] == [
        "0 B", "1023 B", "1.0 K", "1.5 K", "5.0 M", "3.0 G", "2.0 T",
    ]  # fmt: skip


def test_the_module_is_a_command(store):
    command = [sys.executable, "-m", "torch_tpu.cache", "stats"]
    environment = {**os.environ, "TORCH_TPU_CACHE_DIR": str(store.folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(store.folder) in done.stdout
