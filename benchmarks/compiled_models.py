"""Steps per second of whole models: Strict, compiled, Inductor on the CPU, and `jax.jit`.

    python benchmarks/compiled_models.py [--models gpt,llama] [--dtypes float32] [--modes train]

Every contestant is a process of its own (models/contestants.py) that waits while others run, so
thread pools do not disturb one another. Rounds are interleaved; a ratio is the median over the
rounds of the ratios within a round. JAX takes part when it is installed (requirements.txt).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys

from models.torch_models import MODELS

CONTESTANTS = ("strict", "compiled", "inductor", "jax")


class Contestant:
    """A running process; `None` results mean that it failed, and `error` says how."""

    def __init__(self, kind: str, *arguments: str):
        self.kind = kind
        here = pathlib.Path(__file__).parent
        command = [sys.executable, "-m", "models.contestants", kind, *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=here,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline()
        self.first = json.loads(line) if line else None
        self.error = "" if line else self._process.stderr.read().strip().splitlines()[-1]
        self.times: list[float] = []
        self.peak = 0.0

    def run(self, steps: int) -> float:
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.peak = answer["peak_mib"]
        return answer["seconds"] / steps

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def measure(name: str, dtype: str, mode: str, kinds: list[str], rounds: int) -> None:
    print(f"\n{name} {dtype} {mode}")
    contestants = []
    for kind in kinds:
        made = Contestant(kind, name, dtype, mode)
        if made.first is None:
            print(f"  {kind:9} failed: {made.error}")
        else:
            contestants.append(made)
    steps = {c.kind: max(1, min(50, int(0.5 / c.run(2)))) for c in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            contestant.times.append(contestant.run(steps[contestant.kind]))
    by_kind = {c.kind: c for c in contestants}
    ours = by_kind.get("compiled")
    for c in contestants:
        ratio = ""
        if ours is not None and c is not ours:
            pairs = zip(c.times, ours.times, strict=True)
            ratio = f"compiled takes {statistics.median(b / a for a, b in pairs):.2f}x its time"
        median = statistics.median(c.times)
        results = " ".join(f"{r:.6f}" for r in c.first["results"])
        print(
            f"  {c.kind:9} {1 / median:9.2f} steps/s  {1000 * median:8.2f} ms  first 3 steps "
            f"{c.first['build']:6.1f} s  peak {c.peak:6.0f} MiB  [{results}]  {ratio}",
            flush=True,
        )
        c.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    split = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--models", type=split, default=list(MODELS))
    parser.add_argument("--dtypes", type=split, default=["float32", "bfloat16"])
    parser.add_argument("--modes", type=split, default=["infer", "train"])
    parser.add_argument("--contestants", type=split, default=list(CONTESTANTS))
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    kinds = [k for k in given.contestants if k != "jax" or importlib.util.find_spec("jax")]
    for name in given.models:
        for dtype in given.dtypes:
            for mode in given.modes:
                measure(name, dtype, mode, kinds, given.rounds)


if __name__ == "__main__":
    main()
