"""`examples/train_checkpointed.py`: one script on two devices, resumed in a new process."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest
import torch

pytest.importorskip("rich")
pytest.importorskip("sklearn")

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_checkpointed.py"
SMALL = "--images 96 --batch-size 32 --learning-rate 0.01 --dtype float16".split()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train_checkpointed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def run(script, folder, *more):
    return script.run(script.parse_arguments([*SMALL, "--folder", str(folder), *more]))


RESUME = """
import json, runpy, sys
names = runpy.run_path(sys.argv[1])
print("LOSSES " + json.dumps(names["run"](names["parse_arguments"](sys.argv[2:]))))
"""


def resume_in_a_new_process(folder, *more) -> dict[int, list[float]]:
    arguments = [*SMALL, "--folder", str(folder), "--resume", *more]
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("LOSSES "))
    return {int(k): v for k, v in json.loads(line.removeprefix("LOSSES ")).items()}


def test_a_resumed_run_is_the_uninterrupted_run(script, tmp_path):
    # Dropout draws on the device and the workers draw on the CPU: both streams must go on.
    device = ["--device", "tpu", "--dropout", "0.2"]
    whole = run(script, tmp_path / "whole", *device, "--epochs", "3")
    first = run(script, tmp_path / "halves", *device, "--epochs", "1")
    rest = resume_in_a_new_process(tmp_path / "halves", *device, "--epochs", "3")
    assert first | rest == whole
    assert len({x for losses in whole.values() for x in losses}) == 9  # it trains
    trace = json.loads((tmp_path / "whole" / script.TRACE).read_text())
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"forward", "aten::convolution"} <= names


def test_only_the_device_string_changes(script, tmp_path):
    options = ["--dropout", "0", "--epochs", "2", "--workers", "0"]
    want = run(script, tmp_path / "cpu", "--device", "cpu", *options)
    got = run(script, tmp_path / "tpu", "--device", "tpu", *options)
    # Float16 keeps 11 bits, and the devices round in different places.
    for epoch, losses in want.items():
        torch.testing.assert_close(got[epoch], losses, rtol=5e-3, atol=0)
