"""Time to the first step of a training script that is started again: what a restart costs.

    python benchmarks/restart.py [--model gpt-small-op] [--rounds 3]

Each contestant runs twice with caches of its own: the first process fills them, the second is
measured, from the start of Python to the loss of the first step. Contestants take turns; medians
are printed, and how many programs the second process compiled.

- cpu: torch on the CPU, eager
- strict: the device, eager
- model: the model compiled, the optimiser not
- all: model and optimiser compiled
- inductor: as all, on the CPU
- dynamo: as all, on the CPU, with the backend that compiles nothing: what capturing alone costs
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTESTANTS = ("cpu", "strict", "model", "all", "inductor", "dynamo")
HERE = Path(__file__).resolve().parent

SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from models.torch_models import SIZES, Gpt

contestant, size = sys.argv[1], SIZES[sys.argv[2]]
device = "cpu" if contestant in ("cpu", "inductor", "dynamo") else "tpu"
torch.manual_seed(0)
model = Gpt(size).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
tokens = torch.randint(0, size.words, (size.batch, size.length), device=device)


def loss_of(tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())


step = optimizer.step
backend = {"backend": "eager"} if contestant == "dynamo" else {}
if contestant in ("model", "all", "inductor", "dynamo"):
    loss_of = torch.compile(loss_of, **backend)
if contestant in ("all", "inductor", "dynamo"):
    step = torch.compile(step, **backend)
loss = loss_of(tokens)
loss.backward()
step()
loss.item()
print(torch.tpu.compile_count() if device == "tpu" else 0)
"""


def run(contestant: str, model: str, folder: Path) -> tuple[float, int]:
    """(seconds to the end of the first step, programs compiled) of one process."""
    environment = {
        **os.environ,
        "TORCH_TPU_CACHE_DIR": str(folder / "programs"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "graphs"),
    }
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, contestant, model],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{contestant} failed:\n{done.stderr}")
    return time.perf_counter() - start, int(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="gpt-small-op", help="gpt or gpt-small-op")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    first, second = {}, {c: [] for c in CONTESTANTS}
    with tempfile.TemporaryDirectory() as parent:
        for contestant in CONTESTANTS:
            first[contestant], _ = run(contestant, given.model, Path(parent, contestant))
            print(f"{contestant}: caches filled", file=sys.stderr)
        for _ in range(given.rounds):
            for contestant in CONTESTANTS:
                second[contestant].append(run(contestant, given.model, Path(parent, contestant)))
    print(f"{'':<10} {'first s':>8} {'again s':>8} {'/ cpu':>6} {'compiled':>9}")
    base = statistics.median(seconds for seconds, _ in second["cpu"])
    for contestant in CONTESTANTS:
        seconds = statistics.median(seconds for seconds, _ in second[contestant])
        compiled = max(count for _, count in second[contestant])
        row = f"{first[contestant]:>8.1f} {seconds:>8.1f} {seconds / base:>6.2f} {compiled:>9}"
        print(f"{contestant:<10} {row}")


if __name__ == "__main__":
    main()
