"""How long one eager operator call takes from Python, on tpu, on torch's CPU and in JAX.

    python benchmarks/eager_overhead.py

Small operators on 4x4 float32 tensors measure the cost of a call; a 1024x1024 `add` measures
bandwidth. Everything is measured in one process and interleaved: each round times every case on
every contestant once, and the median over the rounds is printed, so that a busy machine slows all
of them alike. JAX is measured when it is installed (requirements.txt). Not here: compile times.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# JAX must not take a TPU that torch is using, and its CPU client is what compares with ours.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Contestant:
    """One implementation.

    Attributes:
      name: the column's title.
      cases: case name → a call without arguments.
      finish: waits for a result and for all that was started before it.
    """

    name: str
    cases: dict[str, Call]
    finish: Callable[[object], None]


def torch_contestant(device: torch.device, side: int) -> Contestant:
    x = torch.linspace(-1, 1, 16, device=device).reshape(4, 4)
    y = torch.linspace(1, 2, 16, device=device).reshape(4, 4)
    target = torch.zeros(4, 4, device=device)
    big = torch.ones(side, side, device=device)
    cases: dict[str, Call] = {
        "add": lambda: torch.add(x, y),
        "mul": lambda: torch.mul(x, y),
        "relu": lambda: torch.relu(x),
        "mm": lambda: torch.mm(x, y),
        "sum": lambda: torch.sum(x),
        "x[i]": lambda: x[1],
        "copy_": lambda: target.copy_(x),
        "add_": lambda: target.add_(y),
        big_name(side): lambda: torch.add(big, big),
    }
    synchronize = getattr(torch.get_device_module(device), "synchronize", None)

    def finish(result: object) -> None:
        if synchronize is not None:
            synchronize()

    return Contestant(f"torch {device.type}", cases, finish)


def jax_contestant(side: int) -> Contestant:
    """JAX as one calls it eagerly. Its arrays are immutable, so it has no `copy_` and no `add_`."""
    import jax
    import jax.numpy as jnp

    x = jnp.linspace(-1, 1, 16, dtype=jnp.float32).reshape(4, 4)
    y = jnp.linspace(1, 2, 16, dtype=jnp.float32).reshape(4, 4)
    big = jnp.ones((side, side), jnp.float32)
    cases: dict[str, Call] = {
        "add": lambda: jnp.add(x, y),
        "mul": lambda: jnp.multiply(x, y),
        "relu": lambda: jnp.maximum(x, 0),
        "mm": lambda: jnp.matmul(x, y),
        "sum": lambda: jnp.sum(x),
        "x[i]": lambda: x[1],
        big_name(side): lambda: jnp.add(big, big),
    }
    return Contestant("jax eager", cases, lambda result: jax.block_until_ready(result))


def big_name(side: int) -> str:
    return f"add {side}x{side}"


def microseconds(call: Call, finish: Callable[[object], None], count: int) -> float:
    """Mean time of `count` calls in a row, waiting for the device at the end and not in between."""
    repeat = range(count)
    finish(call())
    start = time.perf_counter()
    for _ in repeat:
        result = call()
    finish(result)
    return (time.perf_counter() - start) / count * 1e6


def measure(
    contestants: list[Contestant], rounds: int, count: int, side: int
) -> dict[tuple[str, str], float]:
    """(case, contestant) → median over the rounds, in microseconds."""
    times: dict[tuple[str, str], list[float]] = {}
    for round_index in range(rounds + 1):
        for case in contestants[0].cases:
            calls = max(1, count // 50) if case == big_name(side) else count
            for contestant in contestants:
                if case in contestant.cases:
                    took = microseconds(contestant.cases[case], contestant.finish, calls)
                    if round_index > 0:  # the first round compiles
                        times.setdefault((case, contestant.name), []).append(took)
    return {key: statistics.median(values) for key, values in times.items()}


def print_table(
    contestants: list[Contestant], medians: dict[tuple[str, str], float], side: int
) -> None:
    """Microseconds per call, and how many times longer the first takes than each of the others."""
    first, others = contestants[0], contestants[1:]
    titles = [c.name for c in contestants] + [f"/ {c.name}" for c in others]
    print(f"{'us per call':<14}" + "".join(f"{title:>14}" for title in titles))
    for case in first.cases:
        row = [medians.get((case, c.name)) for c in contestants]
        ratios = [row[0] / other if other else None for other in row[1:]]
        cells = [f"{value:>14.2f}" if value is not None else f"{'-':>14}" for value in row]
        cells += [f"{ratio:>13.2f}x" if ratio else f"{'-':>14}" for ratio in ratios]
        print(f"{case:<14}" + "".join(cells))
    moved = 3 * 4 * side * side  # two reads and a write of float32
    rates = [moved / medians[big_name(side), c.name] / 1e3 for c in contestants]
    print(f"{'GB/s':<14}" + "".join(f"{rate:>14.1f}" for rate in rates))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="tpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=2000, help="calls in a row per measurement")
    parser.add_argument("--side", type=int, default=1024, help="of the bandwidth test's square")
    parser.add_argument("--max-ratio", type=float, help="fail if add takes more times torch CPU's")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    devices = dict.fromkeys([options.device, torch.device("cpu")])
    contestants = [torch_contestant(device, options.side) for device in devices]
    if importlib.util.find_spec("jax") is not None:
        contestants.append(jax_contestant(options.side))
    else:
        print("jax is not installed: pip install -r benchmarks/requirements.txt")
    medians = measure(contestants, options.rounds, options.count, options.side)
    print_table(contestants, medians, options.side)
    ratio = medians["add", contestants[0].name] / medians["add", "torch cpu"]
    return 1 if options.max_ratio is not None and ratio > options.max_ratio else 0


if __name__ == "__main__":
    raise SystemExit(main())
