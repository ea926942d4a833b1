"""The case files beside the repository (`../shared/cases`) pass with ``DEV=tpu`` in every mode.

Each is a plain script that asserts what users of other backends ran into. They run in this process,
one after the other, so that programs compiled by one serve the next.
"""

from __future__ import annotations

import os
import pathlib
import runpy

import pytest
import torch

CASES = pathlib.Path(__file__).resolve().parents[2] / "shared" / "cases"
NAMES = (
    "r01 r02 r04 r05 r07 r08 r10 r11 r12 r14 r15 r16 r17 r19 r20 r23 r24 r25 r27 r28 r29 r31 r33 "
    "r35 r36 r38 r39 x2 x3"
).split()
XFAIL = {
    "r36": pytest.mark.xfail(
        # Not strict: programs that other tests of the process compiled may make it pass.
        strict=False,
        reason="PyTorch formats on the device, for every shape and number of nonzero elements anew",
    )
}


@pytest.mark.skipif(not CASES.is_dir(), reason=f"there is no folder {CASES}")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=XFAIL[n]) if n in XFAIL else n for n in NAMES]
)
@pytest.mark.parametrize("mode", ("STRICT", "DEBUG", "DEFER_AND_FUSE"))
def test_case(name, mode, monkeypatch):
    monkeypatch.setitem(os.environ, "DEV", "tpu")
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode[mode]):
        runpy.run_path(str(CASES / f"{name}.py"), run_name="__main__")


@pytest.mark.skipif(not CASES.is_dir(), reason=f"there is no folder {CASES}")
def test_no_case_is_forgotten():
    files = {path.stem for path in CASES.glob("*.py")}
    assert files == set(NAMES)
