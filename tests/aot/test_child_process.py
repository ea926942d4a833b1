"""The child process that holds libtpu: answers, refusals, crashes, time limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from torch_tpu.aot import worker
from torch_tpu.aot.topology import Topology
from torch_tpu.api import plugin
from torch_tpu.errors import CompilationError, PluginError
from torch_tpu.program.compile import compile_options

HAS_LIBTPU = plugin.library_of("libtpu", "libtpu.so") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="needs libtpu: pip install libtpu")

ADD = """module @add {
  func.func public @main(%arg0: tensor<8x128xf32>) -> (tensor<8x128xf32>) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<8x128xf32>
    return %0 : tensor<8x128xf32>
  }
}"""


@pytest.fixture
def process():
    held = worker.Worker()
    yield held
    held.close()


def test_names_are_checked_without_libtpu():
    for wrong in ("", "v6e", "v6e:2", "v99:2x2", "tpu7x:2x2x1x1", "v6e:2x2 ", 3):
        with pytest.raises(ValueError, match="no TPU topology"):
            Topology(wrong)


def test_without_libtpu_the_error_says_what_to_install(process, monkeypatch):
    monkeypatch.setattr(plugin, "library_of", lambda *_: None)
    with pytest.raises(PluginError, match="pip install"):
        process.topology("v6e:2x2", {})


@needs_libtpu
def test_a_topology_has_its_devices():
    topology = Topology("tpu7x:2x2x1")
    assert topology.size == 8
    assert {device.kind for device in topology.devices} == {"TPU7x"}
    assert {(*d.coords, d.core) for d in topology.devices} == {
        (x, y, 0, core) for x in range(2) for y in range(2) for core in range(2)
    }
    assert 90e9 < topology.memory_limit < 104e9
    assert topology.chip.name == "tpu7x"
    assert Topology("v6e:1x1").size == 1


@needs_libtpu
def test_an_unknown_topology_is_refused(process):
    with pytest.raises(CompilationError, match="v6e:1x9") as caught:
        process.topology("v6e:1x9", {})
    assert not caught.value.crashed
    assert process.topology("v6e:2x2", {})["platform"] == "tpu"  # and the child lives on


@needs_libtpu
def test_a_program_is_compiled(process):
    facts, optimized, executable = process.compile("v5e:2x2", {}, ADD, compile_options())
    assert facts["memory"]["argument_size_in_bytes"] == 8 * 128 * 4
    assert facts["cost"]["flops"] == 8 * 128
    assert len(optimized) > 100
    assert len(executable) > 1000


@needs_libtpu
def test_what_the_compiler_refuses_is_an_error_with_its_words(process):
    with pytest.raises(CompilationError, match="unregistered|nonsense"):
        process.compile("v5e:2x2", {}, ADD.replace("stablehlo.add", "nonsense.add"), b"")
    with pytest.raises(CompilationError, match="no_such_flag"):
        process.compile("v5e:2x2", {}, ADD, compile_options({"xla_tpu_no_such_flag": True}))


@needs_libtpu
def test_a_program_too_large_says_so(process):
    large = ADD.replace("8x128xf32", "262144x262144xf32")
    with pytest.raises(CompilationError) as caught:
        process.compile("v5e:2x2", {}, large, compile_options())
    assert caught.value.kind == "out of memory"


@needs_libtpu
def test_a_child_that_dies_is_an_error_and_is_replaced(process):
    process.topology("v5e:2x2", {})
    os.kill(process._process.pid, signal.SIGSTOP)  # so that it dies with the request unanswered
    threading.Timer(0.3, process._process.kill).start()
    with pytest.raises(CompilationError, match="signal 9") as caught:
        process.topology("v5e:2x2", {})
    assert caught.value.crashed
    assert process.topology("v5e:2x2", {})["platform"] == "tpu"


@needs_libtpu
def test_a_time_limit_ends_the_child(process):
    process.topology("v5e:2x2", {})
    os.kill(process._process.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError, match="not done"):
        process.compile("v5e:2x2", {}, ADD, compile_options(), timeout=0.5)
    assert process.topology("v5e:2x2", {})["platform"] == "tpu"


@needs_libtpu
def test_the_child_ends_with_its_parent_and_cleans_up():
    script = """
from torch_tpu.aot import worker
import os, signal
held = worker.shared()
held.topology("v5e:2x2", {})
print(held._process.pid, held._folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    child, folder = done.stdout.split()
    for _ in range(100):
        if not os.path.exists(folder) and not os.path.exists(f"/proc/{child}/exe"):
            return
        time.sleep(0.1)
    left = os.path.exists(folder), os.path.exists(f"/proc/{child}/exe")
    pytest.fail(f"the child, or its folder, outlived its parent: {left}")


@needs_libtpu
def test_v4_shares_a_chip():
    assert Topology("v4:2x2x1").memory_limit < 17e9


@needs_libtpu
def test_two_processes_compile_at_once(process):
    process.topology("v6e:2x2", {})
    script = "from torch_tpu.aot.topology import Topology; print(Topology('v6e:2x2').size)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "4", done.stderr
