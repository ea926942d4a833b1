"""The compilation cache: what hits, what must not, and that nothing wrong with it is fatal.

Most tests stay in this process and empty its memory to see what the outer levels do. What a second
process sees, and what a process prints, is tested in processes of their own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

from torch_tpu import _core, errors
from torch_tpu.program import cache, entry, identity, remote
from torch_tpu.program.compile import compile_options, compile_text, default_options

MODULE = """module @{name} {{
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {{
    %1 = stablehlo.constant dense<{number}.0> : tensor<4xf32>
    %2 = stablehlo.add %arg0, %1 : tensor<4xf32>
    return %2 : tensor<4xf32>
  }}
}}"""

SCRIPT = """
import json, torch
x = torch.arange(12, dtype=torch.float32).reshape(3, 4).to("tpu")
y = (x @ x.t()).softmax(-1)
y[1:] += x[:2, :3]
print(json.dumps([y.tolist(), torch.tpu.compile_count(), torch.tpu.cache_stats()]))
"""


def module(number: int, name: str = "test") -> str:
    return MODULE.format(name=name, number=number)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache directory that this test's programs go to."""
    _core.initialize()
    monkeypatch.setenv("TORCH_TPU_CACHE", "on")
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_told", set())
    cache.memory.clear()
    return tmp_path / "cache"


class Change:
    """What the counters moved by since this was made, without those that did not move."""

    def __init__(self):
        self.start = torch.tpu.cache_stats()

    def __call__(self, *names: str) -> dict[str, float]:
        now = torch.tpu.cache_stats()
        moved = {name: now[name] - self.start[name] for name in now}
        return {n: v for n, v in moved.items() if v and (not names or n in names)}


SOURCES = "compiles memory_hits disk_hits remote_hits errors".split()


def build(number: int, name: str = "test", options: bytes | None = None) -> dict[str, float]:
    """Builds a program as a new process would; what had it."""
    cache.memory.clear()
    change = Change()
    cache.program(module(number, name), options or default_options(), name)
    return change(*SOURCES)


def stored(folder: Path) -> list[Path]:
    return sorted((folder / "programs").glob("*/*"))


def run(script: str, expect: int = 0, **variables: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == expect, done.stderr
    return done


# ---- hits ----------------------------------------------------------------------------------


def test_a_second_process_compiles_nothing_and_computes_the_same(tmp_path):
    where = {"TORCH_TPU_CACHE": "on", "TORCH_TPU_CACHE_DIR": str(tmp_path / "cache")}
    first, second = run(SCRIPT, **where), run(SCRIPT, **where)
    values, compiled, counted = json.loads(first.stdout)
    assert compiled == counted["programs"] == counted["writes"] > 3
    again, compiled, counted = json.loads(second.stdout)
    assert again == values
    assert compiled == 0
    assert counted["disk_hits"] == counted["programs"] == len(stored(tmp_path / "cache"))
    assert first.stderr == second.stderr == ""
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_process_that_compiles_nothing_writes_nothing(tmp_path):
    folder = tmp_path / "cache"
    run(
        "import torch; torch.ones(2) + 1; torch.ones(2).to('tpu').cpu()",
        TORCH_TPU_CACHE="on",
        TORCH_TPU_CACHE_DIR=str(folder),
    )
    assert not folder.exists()


def test_off_means_off(folder, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE", "off")
    assert build(1) == build(1) == {"compiles": 1}
    assert not folder.exists()


def test_dumps_of_the_compiler_are_not_missed(folder, monkeypatch):
    build(2)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/somewhere")
    assert build(2) == {"compiles": 1}


def test_equal_programs_are_shared_in_memory(folder):
    change = Change()
    first = compile_text(module(3, "aten__add"), "aten::add")
    assert compile_text(module(3, "aten__sub"), "aten::sub") is first
    assert change(*SOURCES) == {"compiles": 1, "memory_hits": 1}


def test_memory_is_bounded():
    memory = cache.Memory(2)
    for key in "abab":
        memory.find_or_build(key, object)
    assert memory.find_or_build("a", object)[1]
    memory.find_or_build("c", object)
    assert memory.find_or_build("a", object)[1]
    assert not memory.find_or_build("b", object)[1]


def test_threads_build_a_program_once():
    memory, built = cache.Memory(8), []

    def build_slowly():
        time.sleep(0.05)
        built.append(object())
        return built[-1]

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(memory.find_or_build("k", build_slowly)[0]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert set(found) == set(built)


def test_a_failed_build_is_tried_again():
    memory = cache.Memory(8)
    with pytest.raises(RuntimeError):
        memory.find_or_build("k", lambda: _core.compile("nonsense", b""))
    assert memory.find_or_build("k", lambda: 1) == (1, False)


def test_loaded_programs_keep_options_and_donation_on_every_device(folder):
    """`maximum` propagates NaN by an option of ours, `add_` writes into its operand's memory."""
    body = """
        import torch
        for device in range(torch.tpu.device_count()):
            x, y, nan = (
                torch.full((1 << 20,), value).to(f"tpu:{device}")
                for value in (1.0, 2.0, float("nan"))
            )
            assert torch.maximum(x, nan).isnan().all().item()
            torch.tpu.synchronize(device)
            torch.tpu.reset_peak_memory_stats(device)
            before = torch.tpu.max_memory_allocated(device)
            x.add_(y)
            torch.tpu.synchronize(device)
            assert torch.tpu.max_memory_allocated(device) == before
            assert x.sum().item() == 3 << 20
        print(device, torch.tpu.compile_count())
        """
    where = {"TORCH_TPU_CACHE_DIR": str(folder), "TORCH_TPU_CPU_DEVICES": "2"}
    device, compiled = run(body, **where).stdout.split()
    assert device == "1"
    assert int(compiled) > 0
    assert run(body, **where).stdout.split() == ["1", "0"]


# ---- keys ----------------------------------------------------------------------------------


def test_names_of_modules_are_not_in_the_key(folder):
    assert build(4, "one") == {"compiles": 1}
    assert build(4, "another") == {"disk_hits": 1}
    (path,) = stored(folder)
    with path.open("rb") as file:
        assert entry.read_metadata(file)["name"] == "one"


def test_options_are_in_the_key(folder):
    assert build(5) == {"compiles": 1}
    other = compile_options({"xla_cpu_enable_fast_min_max": True})
    assert build(5, options=other) == {"compiles": 1}
    assert build(5) == build(5, options=other) == {"disk_hits": 1}


FACTS = {
    "torch_tpu": "0.0.0",
    "platform": "cpu",
    "version": "1",
    "plugin": "0" * 64,
    "devices": ["cpu"] * 8,
    "flags": {"XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"},
    "processor": {"machine": "x86_64", "model": "1"},
    "threads": 4096,
}


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_of_compiler_and_machine_is_in_the_key(folder, monkeypatch, fact):
    facts = identity.describe()
    if fact == "platform":
        facts = {**facts, "platform": "other"}
    assert set(facts) == set(FACTS)
    assert build(6) == {"compiles": 1}
    other = {**facts, fact: FACTS[fact] if fact != "platform" else "tpu"}
    monkeypatch.setattr(identity, "describe", lambda: other)
    assert build(6) == {"compiles": 1}
    assert len(stored(folder)) == 2


def test_flags_of_the_compiler_in_another_process_do_not_hit(tmp_path):
    where = {"TORCH_TPU_CACHE": "on", "TORCH_TPU_CACHE_DIR": str(tmp_path)}
    script = "import torch; torch.ones(3).to('tpu').exp(); print(torch.tpu.compile_count())"
    assert int(run(script, **where).stdout) == 1
    flags = "--xla_cpu_enable_fast_math=false"
    assert int(run(script, XLA_FLAGS=flags, **where).stdout) == 1
    assert int(run(script, XLA_FLAGS=flags, **where).stdout) == 0


def test_a_plugin_is_known_by_its_contents(tmp_path):
    plugin, notes = tmp_path / "plugin.so", tmp_path / "cache"
    plugin.write_bytes(b"one")
    first = identity.file_digest(plugin, notes)
    assert identity.file_digest(plugin, notes) == first == identity.file_digest(plugin, None)
    (note,) = (notes / "plugins").iterdir()
    note.write_text("damaged")
    assert identity.file_digest(plugin, notes) == first == note.read_text()
    plugin.write_bytes(b"two")
    os.utime(plugin, ns=(1, 1))
    assert identity.file_digest(plugin, notes) != first


def test_processors_are_told_apart(tmp_path):
    text = "processor\t: 0\nmodel\t\t: 1\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)
    known = identity.processor(cpuinfo)
    assert known["model"] == "1"
    assert known["flags"] == "avx2 fpu"
    cpuinfo.write_text(text.replace("avx2", "avx2 avx512f"))
    assert identity.processor(cpuinfo) != known
    assert {"machine", "flags"} <= set(identity.processor()) or os.uname().machine != "x86_64"


def test_the_bound_is_an_option(folder, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE_SIZE", "8K")
    change = Change()
    for number in range(20, 26):
        build(number)
    assert change()["evictions"] > 0
    assert sum(path.stat().st_size for path in stored(folder)) <= 8 << 10


# ---- damage --------------------------------------------------------------------------------


def _another_entry(data: bytes, path: Path) -> bytes:
    """A valid entry that says it belongs to another key."""
    whole = entry.decode(data, path.name)
    return dataclasses.replace(whole, key="0" * 64).encode()


def _unloadable(data: bytes, path: Path) -> bytes:
    """A valid entry whose executable the plugin refuses."""
    return dataclasses.replace(entry.decode(data, path.name), executable=b"\xff\xff").encode()


DAMAGES = {
    "zero bytes": lambda data, path: b"",
    "truncated head": lambda data, path: data[:20],
    "truncated": lambda data, path: data[:-1],
    "a bit flipped": lambda data, path: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "zeroed": lambda data, path: bytes(len(data)),
    "foreign": lambda data, path: b"\x7fELF" + data,
    "another format": lambda data, path: data.replace(b"program-1", b"program-2", 1),
    "another key": _another_entry,
    "unloadable": _unloadable,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_ignored_and_replaced(folder, damage):
    build(7)
    (path,) = stored(folder)
    path.write_bytes(DAMAGES[damage](path.read_bytes(), path))
    with pytest.warns(errors.CacheWarning, match="disk entry: ignored"):
        assert build(7) == {"compiles": 1, "errors": 1}
    assert build(7) == {"disk_hits": 1}


def test_only_the_first_damage_is_told(folder):
    for number in (8, 9):
        build(number)
    for path in stored(folder):
        path.write_bytes(b"")
    with pytest.warns(errors.CacheWarning) as told:
        assert build(8) == build(9) == {"compiles": 1, "errors": 1}
    assert len(told) == 1


def test_a_directory_that_cannot_be_written_is_done_without(tmp_path, folder, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(errors.CacheWarning) as told:
        assert build(10)["compiles"] == build(10)["compiles"] == 1
    assert {str(w.message).split(":")[1] for w in told} == {" disk"}
    assert len(told) == 1


def test_a_directory_that_can_only_be_read_serves(folder, monkeypatch):
    build(11)

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    # Tests may run as root, whom permissions do not stop.
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(11) == {"disk_hits": 1}
    with pytest.warns(errors.CacheWarning, match="cannot write to .*Permission denied"):
        assert build(12) == {"compiles": 1, "errors": 1}


def test_a_full_disk_is_done_without(folder):
    build(13)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.warns(errors.CacheWarning, match="File too large"):
            assert build(14) == {"compiles": 1, "errors": 1}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(folder.rglob("*.tmp")) == []
    assert len(stored(folder)) == 1


def test_a_user_without_a_home_is_told(folder, monkeypatch):
    monkeypatch.delenv("TORCH_TPU_CACHE_DIR")
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    cache._levels.cache_clear()
    with pytest.warns(errors.CacheWarning, match="no home directory"):
        assert build(15)["compiles"] == 1


def test_an_option_that_makes_no_sense_is_an_error(folder, monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE_SIZE", "much")
    with pytest.raises(errors.ConfigError, match="TORCH_TPU_CACHE_SIZE"):
        build(16)


def test_programs_that_cannot_be_serialised_are_counted(folder, monkeypatch):
    class Silent:
        def serialize(self):
            raise RuntimeError("UNIMPLEMENTED")

    monkeypatch.setattr(_core, "compile", lambda text, options: Silent())
    change = Change()
    build(17)
    assert change("unserializable", "writes", "errors") == {"unserializable": 1}


# ---- the shared URL ------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path, folder, monkeypatch):
    chosen = {"memory": f"memory://{tmp_path.name}", "file": f"file://{tmp_path}/shared"}
    monkeypatch.setenv("TORCH_TPU_CACHE_URL", chosen[request.param])
    return chosen[request.param]


def use_another_machine(tmp_path, monkeypatch, name: str) -> Path:
    """From now on an empty local directory."""
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", str(tmp_path / name))
    return tmp_path / name


def test_machines_share_over_a_url(url, tmp_path, monkeypatch):
    change = Change()
    assert build(30) == {"compiles": 1}
    assert cache.flush()
    assert change("writes", "remote_writes") == {"writes": 1, "remote_writes": 1}
    other = use_another_machine(tmp_path, monkeypatch, "other")
    assert build(30) == {"remote_hits": 1}
    assert len(stored(other)) == 1
    assert build(30) == {"disk_hits": 1}


def test_damage_at_the_url_is_replaced(url, tmp_path, monkeypatch):
    build(31)
    assert cache.flush()
    store = cache.levels().remote
    (path,) = (store.path(p.name) for p in stored(tmp_path / "cache"))
    store._files.pipe_file(path, b"damaged")
    use_another_machine(tmp_path, monkeypatch, "second")
    with pytest.warns(errors.CacheWarning, match="remote entry: ignored"):
        assert build(31) == {"compiles": 1, "errors": 1}
    assert cache.flush()
    use_another_machine(tmp_path, monkeypatch, "third")
    assert build(31) == {"remote_hits": 1}


def test_the_url_is_written_before_the_process_ends(tmp_path):
    where = {
        "TORCH_TPU_CACHE": "on",
        "TORCH_TPU_CACHE_DIR": str(tmp_path / "cache"),
        "TORCH_TPU_CACHE_URL": f"file://{tmp_path}/shared",
    }
    run("import torch; torch.ones(3).to('tpu').exp()", **where)
    written = stored(tmp_path / "shared")
    assert [p.name for p in written] == [p.name for p in stored(tmp_path / "cache")]
    assert [p.read_bytes() for p in written] == [p.read_bytes() for p in stored(tmp_path / "cache")]


UNREACHABLE = """
    import fsspec, time, torch
    from torch_tpu.program import remote

    class Unreachable(fsspec.AbstractFileSystem):
        protocol = "unreachable"
        def cat_file(self, path, **options):
            raise ConnectionError("no route")
        def pipe_file(self, path, value, **options):
            {write}

    fsspec.register_implementation("unreachable", Unreachable)
    remote.FLUSH_SECONDS = 0.2
    x = torch.ones(3).to("tpu")
    for f in (torch.exp, torch.sin, torch.cos, torch.tan, torch.sinh):
        f(x)
    print(torch.tpu.cache_stats()["errors"])
    """


@pytest.mark.parametrize("write", ["raise ConnectionError('no route')", "time.sleep(1000)"])
def test_an_unreachable_url_is_told_once_and_holds_nobody_up(tmp_path, write):
    start = time.perf_counter()
    done = run(
        UNREACHABLE.format(write=write),
        TORCH_TPU_CACHE="on",
        TORCH_TPU_CACHE_DIR=str(tmp_path / "cache"),
        TORCH_TPU_CACHE_URL="unreachable://bucket/programs",
    )
    assert time.perf_counter() - start < 120
    assert done.stderr.count("CacheWarning") == 1
    assert "unreachable://bucket/programs: reading failed: ConnectionError: no route" in done.stderr
    assert 1 <= int(done.stdout) <= 6


@pytest.mark.parametrize("scheme", ["nonsense", "memory"])
def test_a_url_that_nothing_serves_is_told_once(folder, monkeypatch, scheme):
    monkeypatch.setenv("TORCH_TPU_CACHE_URL", f"{scheme}://{folder.name}-missing")
    if scheme == "memory":  # as if fsspec were not installed
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
    wanted = "extra \\[cache\\]" if scheme == "memory" else "nonsense"
    with pytest.warns(errors.CacheWarning, match=wanted) as told:
        assert build(32) == {"compiles": 1, "errors": 1}
    assert len(told) == 1
    assert build(32) == {"disk_hits": 1}


def test_flushing_gives_up_in_time(url, monkeypatch):
    store = remote.RemoteStore(url, failed=print, written=print)
    hold = threading.Event()
    monkeypatch.setattr(store, "_put", lambda path, data: hold.wait())
    store.write("a" * 64, b"x")
    start = time.perf_counter()
    assert not store.flush(0.05)
    assert time.perf_counter() - start < 10
    hold.set()
    assert store.flush(10)


# ---- the log -------------------------------------------------------------------------------


def test_the_log_says_from_where_and_why(tmp_path):
    script = """
        import torch
        x = torch.ones(2, 3).to("tpu")
        x.relu()
        x.t().relu()
        x.double().relu()
        x[0].relu()
        torch.cumsum(x, 0)
        torch.cumsum(x, 1)
        """
    where = {"TORCH_TPU_CACHE": "on", "TORCH_TPU_CACHE_DIR": str(tmp_path)}
    for topics, head, source in (
        ("other, compile", "torch_tpu: compiled ", ""),
        ("compile", "torch_tpu: loaded ", " from disk"),
    ):
        lines = run(script, TORCH_TPU_LOG=topics, **where).stderr.splitlines()
        assert all(re.match(rf"{head}\S+{source} in \d+\.\d ms \(", line) for line in lines)
        relu = [line.partition("(")[2] for line in lines if "aten::relu" in line]
        assert relu[0] == "new operator)"
        assert relu[1].startswith("new shape of self: (2, 3) -> (3, 2), layout of self: ")
        assert relu[2].startswith("new dtype of self: float32 -> float64")
        assert relu[3].startswith("new shape of self: ") and "-> (3,), layout" in relu[3]
        assert any("new option dim: 0 -> 1" in line for line in lines)
