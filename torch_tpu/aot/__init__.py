"""Ahead-of-time compilation for TPUs that are not attached: `compile`, `Topology`, `Executable`.

A program goes `capture.py` (PyTorch to StableHLO, on fake tensors) → `compile.py` → `worker.py`
(libtpu in a child process) → `executable.py`; `estimate.py` reads time and memory off what comes
back, `__main__.py` prints it. Nothing here runs on a device. See docs/aot.md.
"""
