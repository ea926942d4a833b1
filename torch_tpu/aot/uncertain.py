"""What an estimate does not know, in sentences, with the share of the time that it concerns."""

from __future__ import annotations

from collections.abc import Sequence

# Of the compiler's own peak figures, see docs/aot_estimates.md.
_ALWAYS = (
    "Nothing was run: cycles are the compiler's cost model, which charges large matrix products "
    "70 to 90 % of the peak rate and memory-bound operations as little as a fifth to four fifths "
    "of the bandwidth; the cost of starting the program and feeding it is not in them."
)


def sentences(estimate, module, collectives: Sequence, cost, simulation) -> list[str]:
    found = [_ALWAYS]
    chip = estimate.chip
    if "clock" in chip.guessed:
        found.append(
            f"The clock of {chip.name}, {chip.clock / 1e9:g} GHz, is a guess: libtpu states none "
            "and no published figure gives it. Every time from cycles is off by the same factor."
        )
    if not module.is_scheduled:
        found.append("The program has no schedule: the order of operations is only a possible one.")
    found += _without_cycles(estimate)
    if simulation.guessed_loops:
        names = ", ".join(simulation.guessed_loops[:4])
        found.append(f"How often these loops run is unknown, they count once: {names}.")
    if simulation.branches:
        found.append(
            f"{len(simulation.branches)} conditional(s) count as their longest branch each time."
        )
    if collectives:
        found.append(
            "Collectives are bytes over link bandwidth, with no latency, no contention with one "
            "another and no stragglers."
        )
    hidden = sum(op.hidden for op in estimate.ops)
    if hidden > 0.01 * estimate.seconds:
        found.append(
            f"{_time(hidden)} of copies and collectives are taken to run beside other work without "
            "slowing it down."
        )
    if cost is not None and cost.flops and estimate.total_flops > 1.05 * cost.flops:
        found.append(
            f"The compiler itself counts {cost.flops:.3g} flop, because it counts loop bodies "
            f"once; with their trips it is {estimate.total_flops:.3g}."
        )
    wide = sum(n for dtype, n in estimate.flops.items() if dtype in ("f32", "f64"))
    if wide > 0.01 * max(estimate.total_flops, 1):
        found.append(
            f"{wide / estimate.total_flops:.0%} of the flop are float32 products, which take "
            "several bfloat16 passes each at high precision; the roofline counts one."
        )
    return found


def _without_cycles(estimate) -> list[str]:
    """One sentence for each basis that is not the compiler's, with its share."""
    said = {
        "link model": "of the time is collectives, by the link model of this package",
        "roofline": "of the time is operations without cycles, at full bandwidth or peak rate",
        "kernel's author": "of the time is kernels, by what their authors wrote down",
    }
    shares = {basis: estimate.share(basis) for basis in said}
    return [f"{share:.1%} {said[basis]}." for basis, share in shares.items() if share >= 0.0005]


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
