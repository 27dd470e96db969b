"""A lower bound on the makespan of any schedule, of any template, algorithm, engine and options, or written out.

Each term bounds one resource that every schedule needs: the SMs, the links, the engines, the memory, and the first (or
last) chunk between kernels and fabric. A case is a copy mode (DMA, or SMs in one protocol), a class of kernels
(launched, persistent) and a division of the SMs. The bound of a case is its largest term; the bound is the smallest of
all cases. It holds at every granularity of the simulator: service times there are rounded to the tick for each unit,
and the terms use the lowest time for a byte that this rounding can give.

The terms hold under ``ASSUMPTIONS``, which are part of the answer.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import product

from ...compiler.ir import (
    SPLITS,
    ElementwiseShape,
    EngineKind,
    Explore,
    GroupedGemmShape,
    Made,
    Op,
    OpCase,
    Read,
    Scenario,
    Shard,
    ShouldStop,
    System,
    Tensor,
    Workload,
    checkpoint,
    heeding,
)
from ...compiler.planning.parts import batch_counts, in_batches
from ...compiler.text.units import bytes_text
from ...simcore.kernels.dispatch import least_bytes, least_sm_ticks
from ...simcore.lower.collective import with_fastest_links
from ...simcore.memo.memo import ADVISOR, memo_of, memoized
from .copy_modes import BoundCase, copy_modes_of, divisions_of, served_ticks
from .kernels import REFINEMENT_ROUNDS, kernel_limits
from .link_loads import least_traffic
from .terms import CHEAP, TERMS, Term

__all__ = ["ASSUMPTIONS", "TERMS", "Bound", "Term", "lower_bound"]

ASSUMPTIONS = (
    "kernels are those of the fitted GEMM form, each group the fastest for its size, whatever rows, columns and slice",
    "every byte is moved by itself, but where the switch copies or sums; no compression",
    "all_to_all blocks go straight, but in one alone, of equal blocks, on up to 16 GPUs, where that loads links more",
    "a kernel that uses what arrived has a tile to compute after the last of it",
    "an SM copies or computes; kernels that sum have pieces of at least a line for each SM where blocks are large",
    "ranks have equal shares, or those that an all_to_all says; none is faster than its profile says",
    "one engine kind copies for the whole schedule",
    "rates are those of the profile, which states a mean error: a single GEMM may be faster by up to twice that",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule takes less than ``ticks``; ``binding`` is the name of the largest term."""

    ticks: int
    binding: str
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS


def lower_bound(
    scenario: OpCase,
    kinds: tuple[EngineKind, ...] = tuple(EngineKind),
    should_stop: ShouldStop | None = None,
    *,
    in_memory: bool = True,
) -> Bound:
    """Return the bound for schedules that copy by engines of ``kinds``; at least one tick.

    Of an op of a layer inputs and results need not be ``in_memory``: neighbours may be fused with it.

    Raises
    ------
    ValueError
        If ``kinds`` is empty.
    Cancelled
        If ``should_stop`` returned true.
    """
    if not kinds:
        raise ValueError("a bound needs at least one kind of engine")

    def compute() -> Bound:
        with heeding(should_stop):
            return _lower_bound(scenario, kinds, in_memory)

    return memoized(memo_of(("lower bound", scenario, kinds, in_memory), ADVISOR), Bound, compute)


@lru_cache(maxsize=64)
def quick_bound_ticks(scenario: OpCase, *, in_memory: bool = True, beside: float = 0.0) -> int:
    """Return a bound that needs no search over kernels, in milliseconds: at most ``lower_bound``, at least one tick.

    Who asks whether times of ``beside`` ticks and more are above it need not wait for the least of all cases: where it
    is no more than that, what is returned is the bound of some case that is no more either.
    """
    if scenario.shape.then is not None:
        return max(quick_bound_ticks(stage, in_memory=False, beside=beside) for stage in scenario.stages)
    least = math.inf
    for case in _cases(_over_fastest_links(scenario), tuple(EngineKind), in_memory):
        least = min(least, _first_bound(case, least))
        if least <= beside:
            break
    return max(1, int(least))


def _over_fastest_links(scenario: OpCase) -> OpCase:
    """``scenario`` with links as fast as anything was measured to send over them."""
    return replace(scenario, system=with_fastest_links(scenario.system))


def _lower_bound(scenario: OpCase, kinds: tuple[EngineKind, ...], in_memory: bool) -> Bound:
    if scenario.shape.then is not None:
        return _bound_of_two_kernels(scenario, kinds)
    scenario = _over_fastest_links(scenario)
    # Refine the case with the lowest bound, until it is one that is fully refined.
    cases, bounds = list(_cases(scenario, kinds, in_memory)), dict[int, Bound]()
    waiting = [(_first_bound(case), 0, number) for number, case in enumerate(cases)]
    heapify(waiting)
    while True:
        checkpoint()
        _, refinements, number = heappop(waiting)
        if -refinements == len(REFINEMENT_ROUNDS):
            return bounds[number]
        bound = _bound_of(cases[number], REFINEMENT_ROUNDS[-refinements])
        bounds[number] = max(bound, bounds.get(number, bound), key=lambda bound: bound.ticks)
        heappush(waiting, (bounds[number].ticks, refinements - 1, number))


def _bound_of_two_kernels(scenario: OpCase, kinds: tuple[EngineKind, ...]) -> Bound:
    """Return the bound of two kernels: that of either with the collective, or the SM time or the memory of both.

    What one hands to the other need not pass memory.
    """
    sms, stages = scenario.gpu.sms, scenario.stages
    larger = max((lower_bound(stage, kinds, in_memory=False) for stage in stages), key=lambda bound: bound.ticks)
    start = min(kernels.start for kernels in kernel_limits(stages[0]))
    ticks = start + least_sm_ticks(scenario) // sms
    both = Term("work", ticks, f"the tiles of both kernels fill all {sms} SMs this long")
    known = [term for term in larger.terms if term.name == both.name]
    work, memory = max((both, *known), key=lambda term: term.ticks), Term("hbm", *_memory_of_both(scenario))
    terms = (work, memory, *(term for term in larger.terms if term not in known))
    largest = max((both, memory), key=lambda term: term.ticks)
    return replace(larger, terms=terms) if largest.ticks <= larger.ticks else Bound(largest.ticks, largest.name, terms)


def _memory_of_both(scenario: OpCase) -> tuple[int, str]:
    """Return the time of the inputs and the result of two kernels in memory, without what one hands to the other."""
    gpu, (first, _), moved = scenario.gpu, scenario.shape.stages, scenario.shape.moved
    assert first.compute is not None and moved is not None, "a kernel stands on both sides of a collective"
    num_bytes = max(0, least_bytes(scenario) - first.compute.output_bytes - moved.num_bytes)
    ticks = served_ticks(num_bytes, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    return ticks, "inputs of the first and results of the last kernel pass the memory of a rank"


def _cases(scenario: OpCase, kinds: tuple[EngineKind, ...], in_memory: bool) -> Iterator[BoundCase]:
    """Yield all copy modes, classes of kernels, and divisions of the SMs."""
    for kind in kinds:
        for mode, kernels in product(copy_modes_of(scenario, kind), kernel_limits(scenario)):
            if mode.from_tiles and not kernels.persistent:
                continue
            moved = least_traffic(scenario, can_sum=mode.can_sum)
            for division in divisions_of(scenario.gpu, mode):
                yield BoundCase(scenario, mode, kernels, moved, division, in_memory=in_memory)


def _first_bound(case: BoundCase, enough: float = math.inf) -> int:
    """Return a bound in ticks that needs no search over kernels: the largest term, or any of ``enough`` ticks."""
    checkpoint()
    ticks = case.kernels.start + least_sm_ticks(case.scenario) // case.division.most
    for make in reversed(CHEAP):  # links, which take longest, last
        term = make(case) if ticks < enough else None
        ticks = ticks if term is None else max(ticks, term.ticks)
    return ticks


def _bound_of(case: BoundCase, rounds: int) -> Bound:
    case = replace(case, rounds=rounds)
    terms = tuple(term for term in (make(case) for make in TERMS) if term is not None)
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms)


GRAPH_ASSUMPTIONS = (
    *ASSUMPTIONS,
    "every op runs, in whatever pieces, fused with whichever others; row-wise kernels then cost nothing",
    "inputs lie in memory at the beginning, results at the end; what ops hand to each other need not pass it",
    "tensors have the type that the file says: a kernel whose weights are of fewer bits reads less",
)


SEVERAL = 4
"""Layers from which on no op alone sets the bound: they share the work and the links of all."""


def workload_bound(scenario: Scenario, should_stop: ShouldStop | None = None, *, quick: bool = False) -> Bound:
    """Return the bound for a workload, all its layers, in whichever number of batches: the least of all.

    It holds for what ``scenario`` asks about; of another plan it is that of ``scenario.covering(plan)``. A ``quick``
    one of ``SEVERAL`` layers does not look at each op by itself.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true.
    """
    with heeding(should_stop):
        workload, alone = scenario.workload, not quick or scenario.num_layers < SEVERAL
        explore = Explore.of(split_k=SPLITS if scenario.splits_k else ())
        counts = batch_counts(workload)
        bounds = [_bound(scenario.system, in_batches(workload, count), explore, alone=alone) for count in counts]
    return min(bounds, key=lambda bound: bound.ticks)


def _bound(system: System, workload: Workload, explore: Explore, *, alone: bool) -> Bound:
    system, ops = with_fastest_links(system), [op for op in workload.ops if not _is_row_wise(op)]
    scenarios = {op.name: OpCase(op.name, system, op.shape, explore=explore) for op in ops}
    terms = tuple(_terms(system, workload, scenarios, alone=alone))
    largest = max(terms, key=lambda term: term.ticks)
    return Bound(max(1, largest.ticks), largest.name, terms, GRAPH_ASSUMPTIONS)


def _is_row_wise(op: Op) -> bool:
    """Whether a neighbour may do it in passing."""
    return isinstance(op.shape.compute, ElementwiseShape) and not op.shape.pattern.overlaps


def _terms(system: System, workload: Workload, scenarios: dict[str, OpCase], *, alone: bool) -> Iterator[Term]:
    gpu, layers = system.gpu, workload.num_layers
    starts = [limits.start for each in scenarios.values() if least_sm_ticks(each) for limits in kernel_limits(each)]
    work = layers * sum(map(least_sm_ticks, scenarios.values())) // gpu.sms
    products = f"the products of {layers * len(scenarios)} ops"
    yield Term("work", min(starts, default=0) + work, f"{products} fill all {gpu.sms} SMs this long")
    memory = sum(_memory_bytes(system, workload))
    ticks = served_ticks(memory, gpu.hbm.achieved_bytes_per_s, gpu.line_bytes)
    yield Term("hbm", ticks, f"{bytes_text(float(memory))} of inputs and results pass the memory of a rank")
    links = layers * _link_ticks(scenarios.values(), gpu.line_bytes)
    yield Term("links", links, "what the collectives of all ops move passes the links of one rank")
    by_workload = {each.shape: name for name, each in scenarios.items() if each.shape.moved}  # batches are alike
    if alone and by_workload:
        ticks_of = {name: lower_bound(scenarios[name], in_memory=False).ticks for name in by_workload.values()}
        longest = max(ticks_of, key=lambda name: ticks_of[name])
        yield Term("op", ticks_of[longest], f"{longest} takes this long by itself, in whatever pieces")


def _memory_bytes(system: System, workload: Workload) -> Iterator[int]:
    """Bytes of inputs and results at a rank: once in each layer, but what layers hand on once in all."""
    carried = {} if workload.repeat is None else workload.repeat.carried
    tensors = {tensor.name: tensor for tensor in workload.tensors}
    inputs = defaultdict[str, dict[str, int]](dict)  # by tensor: what is read of each of its parts
    for op in workload.ops:
        for read in op.reads:
            if not read.made_by and read.tensor in tensors:
                parts, num_bytes = inputs[read.tensor], _read_bytes(system, tensors[read.tensor], op, read)
                parts[read.name] = max(num_bytes, parts.get(read.name, 0))
    for name, parts in inputs.items():
        num_bytes = min(_rank_bytes(system, tensors[name]), sum(parts.values()))
        yield num_bytes * (1 if name in carried else workload.num_layers)
    taken = {read.made_by for op in workload.ops for read in op.reads if read.what is Made.OUTPUT}
    for op in workload.ops:
        made = [
            name for name, by, what in workload.results if by == op.name and what is Made.OUTPUT and name in tensors
        ]
        if made and op.name not in taken:
            num_bytes = min(_rank_bytes(system, tensors[name]) for name in made)  # not the parts that are summed
            yield num_bytes * (1 if set(made) & set(carried.values()) else workload.num_layers)


def _read_bytes(system: System, tensor: Tensor, op: Op, read: Read) -> int:
    """What an op reads of an input: of experts the weights of those that have rows."""
    compute, num_bytes = op.shape.compute, _rank_bytes(system, tensor)
    if read.part is not None:
        num_bytes = num_bytes * read.part.cols // read.part.of
    if isinstance(compute, GroupedGemmShape) and read != op.reads[0]:
        return num_bytes * sum(rows > 0 for rows in compute.rows) // len(compute.rows)
    return num_bytes


def _rank_bytes(system: System, tensor: Tensor) -> int:
    return tensor.num_bytes // (1 if tensor.shard is Shard.NONE else system.num_ranks)


def _link_ticks(scenarios: Iterable[OpCase], line_bytes: int) -> int:
    """The time of the busiest links of a rank, in or out, with the bytes of all ops."""
    into, out, network = Counter[int](), Counter[int](), None
    for scenario in scenarios:
        moved = least_traffic(scenario)
        if moved is not None:
            network = scenario.network
            into.update(dict(enumerate(moved.into)))
            out.update(dict(enumerate(moved.out)))
    if network is None:
        return 0
    ways = ((into, network.bytes_per_s_into), (out, network.bytes_per_s_out))
    return max(
        served_ticks(passed[rank], rate, line_bytes) for passed, rates in ways for rank, rate in enumerate(rates)
    )
