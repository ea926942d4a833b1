"""Mistakes are Python exceptions with a reason, the device works afterwards, and `import torch` is
never broken or noisy because of us."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch


def ones(*shape, **options):
    return torch.ones(*shape, device="tpu", **options)


MISTAKES = {
    "broadcast": lambda: ones(10) + ones(20),
    "matmul shapes": lambda: ones(2, 3) @ ones(2, 3),
    "matmul dtypes": lambda: torch.mm(ones(2, 2), ones(2, 2, dtype=torch.int64)),
    "linear shapes": lambda: torch.nn.functional.linear(ones(2, 3), ones(4, 5)),
    "cat shapes": lambda: torch.cat([ones(2, 3), ones(2, 4)]),
    "cat nothing": lambda: torch.cat([]),
    "view": lambda: ones(6).view(4),
    "conv channels": lambda: torch.nn.functional.conv2d(ones(1, 3, 8, 8), ones(4, 2, 3, 3)),
    "bitwise float": lambda: ones(2) & ones(2),
    "in-place dtype": lambda: ones(2, dtype=torch.int64).add_(1.5),
    "in-place shape": lambda: ones(2).add_(ones(3, 2)),
    "in-place expanded": lambda: ones(1).expand(3).add_(1),
    "out dtype": lambda: torch.add(ones(2), 1, out=ones(2, dtype=torch.int64)),
    "mean of integers": lambda: ones(3, dtype=torch.int64).mean(),
    "item of many": lambda: ones(2).item(),
    "mixed devices": lambda: ones(2) + torch.ones(2),
    "two tpus": lambda: ones(2) + torch.ones(2, device="tpu:1"),
    "mixed in matmul": lambda: ones(2, 2) @ torch.ones(2, 2),
    "mixed in a list": lambda: torch.cat([ones(2), torch.ones(2)]),
    "gather shape": lambda: torch.gather(ones(2, 2), 0, ones(3, 3, 3, dtype=torch.int64)),
    "index dtype": lambda: torch.index_select(ones(3), 0, ones(1)),
    "embedding dtype": lambda: torch.nn.functional.embedding(ones(2), ones(3, 4)),
    "cholesky shape": lambda: torch.linalg.cholesky(ones(2, 3)),
    "numpy of nothing like it": lambda: torch.from_numpy(ones(2)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_exception(name):
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)) as caught:
        result = MISTAKES[name]()
        result.cpu()
    assert len(str(caught.value)) > 10
    assert not isinstance(caught.value, torch.OutOfMemoryError)
    assert "INTERNAL ASSERT" not in str(caught.value)
    assert (ones(2) * 2).sum().item() == 4


@pytest.mark.parametrize("name", ["dim of sum", "dim of select", "index"])
def test_out_of_range_is_an_index_error(name):
    call = {
        "dim of sum": lambda: ones(2).sum(3),
        "dim of select": lambda: ones(2).select(2, 0),
        "index": lambda: ones(2)[5],
    }[name]
    with pytest.raises(IndexError):
        call()


def test_the_same_mistake_twice_raises_twice():
    for _ in range(3):
        with pytest.raises(RuntimeError, match="size"):
            ones(10) + ones(20)


def test_messages_name_both_devices():
    with pytest.raises(RuntimeError, match="tpu:0.*cpu"):
        ones(2) + torch.ones(2)
    with pytest.raises(RuntimeError, match="tpu:0.*tpu:1"):
        ones(2) + torch.ones(2, device="tpu:1")


def test_a_failed_write_changes_nothing():
    x = torch.arange(3.0).to("tpu")
    for bad in (lambda: x.add_(ones(2)), lambda: x.copy_(ones(7)), lambda: x.add_(torch.ones(3))):
        with pytest.raises(RuntimeError):
            bad()
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", ["tpu:7", "tpu:100"])
def test_a_device_that_is_not_there(device):
    for call in (
        lambda: torch.ones(1, device=device),
        lambda: torch.ones(1).to(device),
        lambda: torch.tpu.set_device(device),
        lambda: torch.tpu.synchronize(device),
        lambda: torch.tpu.get_device_properties(device),
        lambda: torch.tpu.memory_allocated(device),
    ):
        with pytest.raises((RuntimeError, ValueError), match=device):
            call()
    assert torch.tpu.current_device() == 0
    assert ones(1).item() == 1


def test_other_layouts_are_refused():
    with pytest.raises((RuntimeError, NotImplementedError), match="[Ss]parse|layout"):
        torch.empty(2, 2, device="tpu", layout=torch.sparse_coo).add(1)


def test_errors_of_ours_are_also_what_others_catch():
    from torch_tpu import errors

    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.TorchTpuError):
            assert kind is errors.TorchTpuError or len(kind.__mro__) > 4
            assert kind.__doc__


# ---- processes of their own ----------------------------------------------------------------


def run(body: str, **environment: str):
    return subprocess.run(
        [sys.executable, "-c", body],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_import_prints_nothing_and_exits_cleanly():
    done = run("import torch")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
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
print(torch.tpu.is_available(), torch.tpu.device_count())
for _ in range(2):
    try:
        torch.ones(1, device="tpu")
    except Exception as error:
        print(isinstance(error, RuntimeError), "PJRT_PLUGIN" in str(error) or "/plugin.so" in str(error))
        print(len(str(error).splitlines()) < 10)
"""


@pytest.mark.parametrize("kind", ["missing", "not a library", "not a plugin"])
def test_a_broken_plugin_leaves_torch_working(kind, tmp_path):
    path = tmp_path / "plugin.so"
    if kind == "not a library":
        path.write_text("nothing")
    elif kind == "not a plugin":
        import ctypes.util
        import shutil

        libm = next(p for p in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6")
                    if os.path.exists(p))
        shutil.copy(libm, path)
    done = run(BROKEN, TORCH_TPU_PJRT_PLUGIN=str(path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "[2.0, 2.0]"
    if kind == "missing":
        assert lines[1] == "False 0"
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
        "print((torch.ones(2) + 1).tolist(), torch.tpu.is_available(), hasattr(torch.tpu, 'Stream'))\n"
        "try:\n    torch.ones(1, device='tpu')\n"
        "except RuntimeError as error:\n    print('did not load' in str(error))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[2.0, 2.0] False False", "True"], done.stdout


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
