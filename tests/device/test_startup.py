"""Processes: `import torch` is never broken or noisy because of us, and processes end cleanly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

LIBM = ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6")


def run(body: str, **environment: str):
    return subprocess.run(
        [sys.executable, "-c", body],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_import_prints_nothing_and_exits_cleanly():
    done = run("import torch; x = torch.ones(3, device='tpu'); y = (x @ x); y.item()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_exit_with_live_tensors_threads_and_pending_work():
    done = run(
        "import torch, threading\n"
        "x = torch.ones(512, 512, device='tpu', requires_grad=True)\n"
        "(x @ x).sum().backward()\n"
        "t = threading.Thread(target=lambda: [x @ x for _ in range(5)]); t.start()\n"
        "keep = [x @ x for _ in range(10)]\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_import_order_does_not_matter():
    for body in ("import torch_tpu, torch", "import torch, torch_tpu"):
        done = run(body + "; print(torch.ones(1, device='tpu').item())")
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "1.0", "")


def test_import_does_not_start_the_runtime():
    done = run(
        "import torch\n"
        "x = torch.ones(2, requires_grad=True); x.sum().backward()\n"
        "torch.manual_seed(0); torch.tpu.is_available(); torch.tpu.memory_allocated()\n"
        "print(torch.tpu.is_initialized())\n"
        "import sys; print('jax' in sys.modules)\n"
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_autoload_can_be_switched_off():
    done = run(
        "import torch, sys\nprint('torch_tpu' in sys.modules, hasattr(torch, 'tpu'))",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert (done.returncode, done.stdout.split()) == (0, ["False", "False"]), done.stderr


BROKEN = """
import torch
print((torch.ones(2) + 1).tolist())
x = torch.ones(2, requires_grad=True); x.sum().backward(); torch.manual_seed(1)
print(torch.tpu.is_available())
for _ in range(2):
    try:
        torch.ones(1, device="tpu")
    except Exception as error:
        print(isinstance(error, RuntimeError), "plugin.so" in str(error))
        print(len(str(error).splitlines()) < 10)
"""


@pytest.mark.parametrize("kind", ["missing", "not a library", "not a plugin"])
def test_a_broken_plugin_leaves_torch_working(kind, tmp_path):
    path = tmp_path / "plugin.so"
    if kind == "not a library":
        path.write_text("nothing")
    elif kind == "not a plugin":
        shutil.copy(next(p for p in LIBM if os.path.exists(p)), path)
    done = run(BROKEN, TORCH_TPU_PJRT_PLUGIN=str(path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "[2.0, 2.0]"
    assert lines[1] == str(kind != "missing")
    assert lines[2:] == ["True True", "True"] * 2


def test_a_wrong_option_is_named():
    for name, value in (("TORCH_TPU_CPU_DEVICES", "many"), ("TORCH_TPU_MEMORY_LIMIT", "-1")):
        done = run(
            "import torch\n"
            "try:\n    torch.ones(1, device='tpu')\n"
            "except Exception as error:\n    print(type(error).__name__, error)\n",
            **{name: value},
        )
        assert done.returncode == 0, done.stderr
        assert name in done.stdout


def test_a_core_that_does_not_load_leaves_torch_working(tmp_path):
    done = run(
        "import sys\n"
        "sys.modules['torch_tpu._core'] = None\n"  # what a failed build looks like
        "import torch\n"
        "print((torch.ones(2) + 1).tolist(), torch.tpu.is_available())\n"
        "print(hasattr(torch.tpu, 'Stream'))\n"
        "try:\n    torch.ones(1, device='tpu')\n"
        "except RuntimeError as error:\n    print('did not load' in str(error))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[2.0, 2.0] False", "False", "True"], done.stdout


@pytest.mark.parametrize("count", [1, 3])
def test_number_of_cpu_devices(count):
    done = run("import torch; print(torch.tpu.device_count())", TORCH_TPU_CPU_DEVICES=str(count))
    assert done.stdout.strip() == str(count), done.stderr


def test_a_forked_child_says_what_is_wrong():
    done = run(
        "import torch, os\n"
        "torch.ones(1, device='tpu')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        torch.ones(1, device='tpu')\n"
        "    except RuntimeError as error:\n        print('forked' in str(error), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    assert done.stdout.strip() == "True", done.stderr
