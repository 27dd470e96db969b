"""A lower bound on the makespan of any schedule: of any template, algorithm, engine and tactics, or written out.

Each term follows one resource that no schedule can do without: the SMs, the links, the engines, the memory, and the
first (or last) chunk between the kernels and the fabric. The bound is the largest term, computed apart for each way to
copy (by DMA, by SMs in each protocol) and each class of kernels (launched, persistent), the smallest of these. It holds
at every granularity of the simulator: services there are rounded to the tick for each unit, and the terms take the
lowest that this can make of a byte.

With other rules the terms would not hold; ``ASSUMPTIONS`` are part of the answer.
"""

from dataclasses import dataclass
from itertools import product

from ..compiler.scenario import Scenario
from ..compiler.schedule import EngineKind
from .bounds_kernels import kernel_limits
from .bounds_limits import Limits
from .bounds_terms import TERMS, Term
from .bounds_ways import served_ticks as served_ticks
from .bounds_ways import ways_of
from .least_traffic import least_traffic

__all__ = ["ASSUMPTIONS", "TERMS", "Bound", "Term", "lower_bound", "served_ticks"]

ASSUMPTIONS = (
    "kernels are those of the fitted GEMM form, each group the fastest for its size, whatever rows, columns and slice",
    "every byte is moved by itself, but where the switch copies or sums; no compression; all_to_all blocks go straight",
    "a kernel that uses what arrived has a tile to compute after the last of it",
    "an SM copies or computes; kernels that sum have pieces of at least a line for each SM where blocks are large",
    "ranks have equal shares, none is faster than its profile says, and one engine kind copies for the whole schedule",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule takes less than ``ticks``; ``binding`` names the term that says so."""

    ticks: int
    binding: str
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS


def lower_bound(scenario: Scenario, kinds: tuple[EngineKind, ...] = tuple(EngineKind)) -> Bound:
    """The bound for schedules that copy by engines of ``kinds``; at least one tick.

    Raises
    ------
    ValueError
        If ``kinds`` is empty.
    """
    if not kinds:
        raise ValueError("a bound needs at least one kind of engine")
    if scenario.workload.then is not None:
        return max((lower_bound(scenario.stage(kernel), kinds) for kernel in range(2)), key=lambda bound: bound.ticks)
    ways = [way for kind in kinds for way in ways_of(scenario, kind)]
    found = (
        _bound_of(Limits(scenario, way, kernels, least_traffic(scenario, can_sum=way.can_sum)))
        for way, kernels in product(ways, kernel_limits(scenario))
    )
    return min(found, key=lambda bound: bound.ticks)


def _bound_of(limits: Limits) -> Bound:
    terms = tuple(term for term in (make(limits) for make in TERMS) if term is not None)
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms)
