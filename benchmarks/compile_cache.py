"""What the compilation cache saves: a program run in processes that compile and that do not.

    python benchmarks/compile_cache.py
    python benchmarks/compile_cache.py --rounds 5 -- examples/train_digits.py --model cnn --steps 50

The script runs as it would from a shell, with an empty cache directory, again with the full one,
and without any cache. Each of these is repeated, in turn, and the medians are printed. Needs what
the script needs; the default one is this project's example.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ["examples/train_digits.py", "--device", "tpu", "--steps", "20"]

# Runs a script and reports what the caches did to a file of its own.
REPORTING = """
import atexit, json, runpy, sys
import torch
report = sys.argv.pop(1)
del sys.argv[0]
atexit.register(lambda: json.dump(torch.tpu.cache_stats(), open(report, "w")))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(script: list[str], folder: Path, cache: str) -> dict[str, float]:
    """Runs the script in a process of its own; what its caches did, and the time it took."""
    environment = {**os.environ, "TORCH_TPU_CACHE": cache, "TORCH_TPU_CACHE_DIR": str(folder)}
    with tempfile.NamedTemporaryFile("r") as report:
        start, used = time.perf_counter(), cpu_seconds()
        done = subprocess.run(
            [sys.executable, "-c", REPORTING, report.name, *script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            sys.exit(f"{' '.join(script)} failed:\n{done.stderr}")
        return {**json.load(report), "seconds": seconds, "cpu": cpu_seconds() - used}


def cpu_seconds() -> float:
    """What finished child processes computed: on a busy machine this says more than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("script", nargs="*", default=SCRIPT, help="after --: a script's command")
    options = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"empty": [], "full": [], "off": []}
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "cache")
        for _ in range(options.rounds):
            shutil.rmtree(folder, ignore_errors=True)
            rows["empty"].append(run(options.script, folder, "on"))
            rows["full"].append(run(options.script, folder, "on"))
            rows["off"].append(run(options.script, folder, "off"))

    def median(name: str, figure: str) -> float:
        return statistics.median(row[figure] for row in rows[name])

    print("cache    programs  compiled  ms/program   seconds  ratio   CPU s  ratio")
    for name in rows:
        programs = median(name, "programs")
        building = (median(name, "compile_ms") + median(name, "load_ms")) / max(programs, 1)
        line = f"{name:7}{programs:10.0f}{median(name, 'compiles'):10.0f}{building:12.2f}"
        for figure, width in (("seconds", 10), ("cpu", 8)):
            value = median(name, figure)
            line += f"{value:{width}.2f}{value / median('empty', figure):7.2f}"
        print(line)


if __name__ == "__main__":
    main()
