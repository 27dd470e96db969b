"""A lower bound on the makespan of any schedule: of any template, algorithm, engine and tactics, or written out.

Each term follows one resource that no schedule can do without: the SMs, the links, the engines, the memory, and the
first (or last) chunk between the kernels and the fabric. The bound is the largest term, computed apart for each way to
copy (by DMA, by SMs in each protocol) and each class of kernels (launched, persistent), the smallest of these. It holds
at every granularity of the simulator: services there are rounded to the tick for each unit, and the terms take the
lowest that this can make of a byte.

With other rules the terms would not hold; ``ASSUMPTIONS`` are part of the answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import product

from ...compiler.ir import EngineKind, Scenario, ShouldStop, checkpoint, heeding
from ...simcore.kernels.min_work import least_sm_ticks
from .cases import BoundCase
from .copy_modes import divisions_of, ways_of
from .copy_modes import served_ticks as served_ticks
from .gemm_area import LOOKS
from .kernels import kernel_limits
from .least_traffic import least_traffic
from .terms import CHEAP, TERMS, Term

__all__ = ["ASSUMPTIONS", "TERMS", "Bound", "Term", "lower_bound", "served_ticks"]

ASSUMPTIONS = (
    "kernels are those of the fitted GEMM form, each group the fastest for its size, whatever rows, columns and slice",
    "every byte is moved by itself, but where the switch copies or sums; no compression; all_to_all blocks go straight",
    "a kernel that uses what arrived has a tile to compute after the last of it",
    "an SM copies or computes; kernels that sum have pieces of at least a line for each SM where blocks are large",
    "ranks have equal shares, or those that an all_to_all says; none is faster than its profile says",
    "one engine kind copies for the whole schedule",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule takes less than ``ticks``; ``binding`` names the term that says so."""

    ticks: int
    binding: str
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS


def lower_bound(
    scenario: Scenario, kinds: tuple[EngineKind, ...] = tuple(EngineKind), should_stop: ShouldStop | None = None
) -> Bound:
    """The bound for schedules that copy by engines of ``kinds``; at least one tick.

    Raises
    ------
    ValueError
        If ``kinds`` is empty.
    Cancelled
        If ``should_stop`` said so.
    """
    if not kinds:
        raise ValueError("a bound needs at least one kind of engine")
    with heeding(should_stop):
        return _lower_bound(scenario, kinds)


def _lower_bound(scenario: Scenario, kinds: tuple[EngineKind, ...]) -> Bound:
    if scenario.workload.then is not None:
        return _of_two(scenario, kinds)
    # The case with the lowest bound is looked at more closely, until that is the one that is known best.
    cases, found = list(_cases(scenario, kinds)), dict[int, Bound]()
    waiting = [(_floor(case), 0, number) for number, case in enumerate(cases)]
    heapify(waiting)
    while True:
        checkpoint()
        _, looks, number = heappop(waiting)
        if -looks == len(LOOKS):
            return found[number]
        bound = _bound_of(cases[number], LOOKS[-looks])
        found[number] = max(bound, found.get(number, bound), key=lambda each: each.ticks)
        heappush(waiting, (found[number].ticks, looks - 1, number))


def _of_two(scenario: Scenario, kinds: tuple[EngineKind, ...]) -> Bound:
    """Of two kernels: what either of them takes with the collective, or both take of SM time."""
    sms, stages = scenario.gpu.sms, scenario.stages
    larger = max((lower_bound(stage, kinds) for stage in stages), key=lambda bound: bound.ticks)
    start = min(kernels.start for kernels in kernel_limits(stages[0]))
    ticks = start + least_sm_ticks(scenario) // sms
    both = Term("work", ticks, f"the tiles of both kernels fill all {sms} SMs this long")
    known = [term for term in larger.terms if term.name == both.name]
    work = max((both, *known), key=lambda term: term.ticks)
    terms = (work, *(term for term in larger.terms if term not in known))
    if both.ticks <= larger.ticks:
        return replace(larger, terms=terms)
    return Bound(ticks, both.name, terms)


def _cases(scenario: Scenario, kinds: tuple[EngineKind, ...]) -> Iterator[BoundCase]:
    """All ways to copy, classes of kernels, and divisions of the SMs."""
    for kind in kinds:
        for way, kernels in product(ways_of(scenario, kind), kernel_limits(scenario)):
            moved = least_traffic(scenario, can_sum=way.can_sum)
            for division in divisions_of(scenario.gpu, way):
                yield BoundCase(scenario, way, kernels, moved, division)


def _floor(limits: BoundCase) -> int:
    """What is known without a look at single kernels."""
    checkpoint()
    ideal = limits.kernels.start + least_sm_ticks(limits.scenario) // limits.division.most
    return max((ideal, *(term.ticks for term in (make(limits) for make in CHEAP) if term is not None)))


def _bound_of(limits: BoundCase, rounds: int) -> Bound:
    limits = replace(limits, rounds=rounds)
    terms = tuple(term for term in (make(limits) for make in TERMS) if term is not None)
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms)
