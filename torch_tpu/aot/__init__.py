"""Ahead-of-time compilation for TPUs that are not attached: `compile`, `Topology`, `Executable`.

A program goes `capture.py` (PyTorch to StableHLO, on fake tensors) → `compile.py` → `worker.py`
(libtpu in a child process) → `executable.py`; `estimate.py` reads time and memory off what comes
back, `__main__.py` prints it. Nothing here runs on a device. See docs/aot.md.
"""

from ..errors import CompilationError
from .capture import Captured, capture
from .compile import compile
from .executable import Executable, Memory
from .job import Job
from .sharding import Mesh, constrain, data, fully_sharded, tensor_parallel
from .topology import Topology
from .training import training_step

__all__ = [
    "Captured",
    "CompilationError",
    "Executable",
    "Job",
    "Memory",
    "Mesh",
    "Topology",
    "capture",
    "compile",
    "constrain",
    "data",
    "fully_sharded",
    "tensor_parallel",
    "training_step",
]
