"""The process that runs units, in the eager mode that its first argument names.

A second argument, ``tpu``, has programs lowered for that platform whatever the plugin is.

Reads one job a line from stdin, answers with one record a line. A job is JSON
``{"unit": ..., "samples": ...}``, ``{"numerics": ...}``, ``{"fuzz": ...}``, ``{"collect": ...}`` or
``{"compile": ...}`` (`programs.answer`). Answers go to the file descriptor that was stdout at the
start; what operators print goes to stderr.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings

import torch

from .. import _core
from ..lowering import target
from . import units

_MOST_ENTRIES = 2000  # compiled programs kept; each costs memory and memory mappings


def _answer_stream():
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def _run(job: dict) -> dict:
    if "fuzz" in job:
        from . import fuzz

        return fuzz.run(job["fuzz"], job["calls"], job["ops"], job["skip"]).fields()
    if "numerics" in job:
        from . import numerics

        return numerics.measure(units.Unit.parse(job["numerics"]), job["samples"])
    if "collect" in job or "compile" in job:
        from . import programs

        return programs.answer(job)
    return units.run(units.Unit.parse(job["unit"]), job["samples"]).fields()


def main() -> None:
    """Answer jobs until stdin ends."""
    answers = _answer_stream()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        target.lower_everything_for(sys.argv[2])
    units.databases()
    torch.tpu.set_eager_mode(units.MODES[sys.argv[1]])
    answers.write("ready\n")
    for line in sys.stdin:
        record = _run(json.loads(line))
        if torch.tpu.cache_stats()["entries"] > _MOST_ENTRIES:
            _core.clear_caches()
            gc.collect()
        answers.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
