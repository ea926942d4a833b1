"""What an estimate does not know, in sentences, with the share of the time that it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import units

# Of the compiler's own peak figures, see docs/aot_estimates.md.
_ALWAYS = (
    "Nothing was run: cycles are the compiler's cost model, which charges large matrix products "
    "70 to 90 % of the peak rate and memory-bound operations as little as a fifth to four fifths "
    "of the bandwidth; the cost of starting the program and feeding it is not in them."
)


def sentences(estimate, module, collectives: Sequence, cost, simulation) -> list[str]:
    """``simulation`` is what ran, see `estimate.Simulation`; ``cost`` the compiler's count."""
    return [
        _ALWAYS,
        *_of_the_chip(estimate.chip),
        *_without_cycles(estimate),
        *_of_the_schedule(module, simulation),
        *_of_what_is_beside(estimate, collectives),
        *_of_flop(estimate, cost),
    ]


def _of_the_chip(chip) -> Iterator[str]:
    if "clock" in chip.guessed:
        yield (
            f"The clock of {chip.name}, {chip.clock / 1e9:g} GHz, is a guess: libtpu states none "
            "and no published figure gives it. Every time from cycles is off by the same factor."
        )


def _of_the_schedule(module, simulation) -> Iterator[str]:
    if not module.is_scheduled:
        yield "The program has no schedule: the order of operations is only a possible one."
    if simulation.guessed_loops:
        names = ", ".join(simulation.guessed_loops[:4])
        yield f"How often these loops run is unknown, they count once: {names}."
    if simulation.branches:
        yield (
            f"{len(simulation.branches)} conditional(s) count as their longest branch each time."
        )


def _of_what_is_beside(estimate, collectives: Sequence) -> Iterator[str]:
    if collectives:
        yield (
            "Collectives are bytes over link bandwidth, with no latency, no contention with one "
            "another and no stragglers."
        )
    hidden = sum(op.hidden for op in estimate.ops)
    if hidden > 0.01 * estimate.seconds:
        yield (
            f"{units.seconds(hidden)} of copies and collectives are taken to run beside other "
            "work without slowing it down."
        )


def _of_flop(estimate, cost) -> Iterator[str]:
    total = estimate.total_flops
    if cost is not None and cost.flops and total > 1.05 * cost.flops:
        yield (
            f"The compiler itself counts {cost.flops:.3g} flop, because it counts loop bodies "
            f"once; with their trips it is {total:.3g}."
        )
    wide = sum(n for dtype, n in estimate.flops.items() if dtype in ("f32", "f64"))
    if wide > 0.01 * max(total, 1):
        yield (
            f"{wide / total:.0%} of the flop are float32 products, which take several bfloat16 "
            "passes each at high precision; the roofline counts one."
        )


def _without_cycles(estimate) -> list[str]:
    """One sentence for each basis that is not the compiler's, with its share."""
    said = {
        "link model": "of the time is collectives, by the link model of this package",
        "roofline": "of the time is operations without cycles, at full bandwidth or peak rate",
        "kernel's author": "of the time is kernels, by what their authors wrote down",
    }
    shares = {basis: estimate.share(basis) for basis in said}
    return [f"{share:.1%} {said[basis]}." for basis, share in shares.items() if share >= 0.0005]
