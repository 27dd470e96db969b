"""Faults in what a plan does with its data: every byte and every tile once, and nothing used before it is there."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from .codes import Code
from .cover import Rect, uncovered
from .plan_view import PlanFault, RankPlan
from .scenario import Pattern
from .schedule import Direction, Reduction, Region, Step, TileGroup, Transfer


def data_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Bytes that never come, come twice, or are used before they are here."""
    before, pattern = plan.before(), plan.scenario.workload.pattern
    yield from _arrival_faults(plan)
    if plan.scenario.workload.gemm is not None:
        yield from _output_faults(plan)
    if pattern.reduces:
        yield from _sum_faults(plan)
    for step in plan.steps.values():
        if isinstance(step, TileGroup) and pattern is Pattern.AG_GEMM:
            yield from _needs(plan, step, step.regions, before[step.name], cols=(step.k.start, step.k.stop))
        elif isinstance(step, Transfer) and pattern.gathers:
            yield from _source_faults(plan, step, before)
        elif isinstance(step, Transfer) and pattern.reduces:
            yield from _partial_faults(plan, step, step.region, before[step.name])
        elif isinstance(step, Reduction):
            yield from _reduction_faults(plan, step, before[step.name])


def _arrival_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Each remote block once for a gather; each peer's part of the own block once for a scatter."""
    moved, n = plan.scenario.workload.moved, plan.scenario.num_ranks
    if moved is None:
        return
    whole = Rect(0, plan.shard_rows, 0, moved.cols)
    for other in range(1, n):
        gathers = plan.scenario.workload.pattern.gathers
        rects = [
            Rect.of(arrival.region)
            for arrival in plan.arrivals.values()
            if (arrival.region.owner if gathers else arrival.source) == other and (gathers or arrival.region.owner == 0)
        ]
        missing, twice = uncovered(whole, rects)
        sender = (plan.rank + other) % n
        if missing is not None:
            yield PlanFault(
                Code.MGS501, "", f"{missing} of {moved.name} from rank {sender} never reach rank {plan.rank}"
            )
        if twice is not None:
            yield PlanFault(Code.MGS501, "", f"{twice} of {moved.name} from rank {sender} reach rank {plan.rank} twice")


def _sum_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """The own block is reduced exactly once, unless every part is added as it lands."""
    moved = plan.scenario.workload.moved
    assert moved is not None
    rects = [Rect.of(step.region) for step in plan.steps.values() if isinstance(step, Reduction)]
    adds = [arrival.transfer.reduce for arrival in plan.arrivals.values()]
    if not rects and adds and all(adds):
        return
    for arrival in plan.arrivals.values():
        if arrival.transfer.reduce:
            name = arrival.transfer.name
            message = f"{name} adds as it lands; then every transfer must, and no kernel sums"
            yield PlanFault(Code.MGS507, name, message)
    missing, twice = uncovered(Rect(0, plan.shard_rows, 0, moved.cols), rects)
    for rect, what in ((missing, "never summed"), (twice, "summed twice")):
        if rect is not None:
            yield PlanFault(Code.MGS507, "", f"{rect} of the own block are {what}")


def _output_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Every (row, column, k) of the output is computed exactly once."""
    gemm, n = plan.scenario.workload.gemm, plan.scenario.num_ranks
    assert gemm is not None
    owners = range(n) if plan.scenario.workload.moved is not None else range(1)
    groups = [step for step in plan.steps.values() if isinstance(step, TileGroup)]
    cuts = sorted({0, gemm.k} | {edge for group in groups for edge in (group.k.start, group.k.stop)})
    for owner in owners:
        for low, high in pairwise(cuts):
            slices = [group for group in groups if group.k.start <= low and high <= group.k.stop]
            rects = [Rect.of(region) for group in slices for region in group.regions if region.owner % n == owner]
            missing, twice = uncovered(Rect(0, plan.shard_rows, 0, gemm.n), rects)
            for rect, what in ((missing, "never computed"), (twice, "computed twice")):
                if rect is not None:
                    block = (plan.rank + owner) % n
                    yield PlanFault(Code.MGS507, "", f"{rect} of block {block}, k {low}:{high}, are {what}")
    if len(cuts) > 2:
        yield from _slice_faults(plan, groups)


def _slice_faults(plan: RankPlan, groups: list[TileGroup]) -> Iterator[PlanFault]:
    """Slices of k of the same output run one after the other; the first stores and the others add."""
    before, n = plan.before(), plan.scenario.num_ranks
    for group in groups:
        others = [other for other in groups if other.k != group.k and _overlap(group, other, n)]
        earlier = [other for other in others if other.name in before[group.name]]
        for other in others:
            if other not in earlier and group.name not in before[other.name]:
                message = f"{group.name} and {other.name} write the same tiles, and neither waits for the other"
                yield PlanFault(Code.MGS508, group.name, message)
        if group.accumulate and not earlier:
            yield PlanFault(Code.MGS507, group.name, f"{group.name} adds to tiles that nothing wrote before")
        if earlier and not group.accumulate:
            message = f"{group.name} overwrites what {earlier[0].name} wrote; accumulate adds to it"
            yield PlanFault(Code.MGS507, group.name, message)


def _needs(
    plan: RankPlan, step: Step, regions: tuple[Region, ...], before: frozenset[str], cols: tuple[int, int] | None
) -> Iterator[PlanFault]:
    """Remote rows that ``step`` reads and that no signal it waits for has brought."""
    n = plan.scenario.num_ranks
    for region in regions:
        if region.owner % n == 0:
            continue
        low, high = cols or (region.cols.start, region.cols.stop)
        wanted = Rect(region.rows.start, region.rows.stop, low, high)
        here = [
            Rect.of(arrival.region).clip(wanted)
            for signal, arrival in plan.arrivals.items()
            if signal in before and arrival.region.owner == region.owner % n
        ]
        missing, _ = uncovered(wanted, [rect for rect in here if rect is not None])
        if missing is not None:
            owner = (plan.rank + region.owner) % n
            message = f"{step.name} uses {missing} of rank {owner}'s shard without waiting for them"
            yield PlanFault(Code.MGS508, step.name, message)


def _source_faults(plan: RankPlan, step: Transfer, before: Mapping[str, frozenset[str]]) -> Iterator[PlanFault]:
    """A rank sends on only what it has: its own shard, or what arrived. A get reads the peer's own shard."""
    if step.direction is Direction.PUT:
        yield from _needs(plan, step, (step.region,), before[step.name], None)
    elif step.region.owner % plan.scenario.num_ranks != step.peer % plan.scenario.num_ranks:
        yield PlanFault(Code.MGS508, step.name, f"{step.name} gets what its peer does not own; use put to forward")


def _partial_faults(plan: RankPlan, step: Transfer, region: Region, before: frozenset[str]) -> Iterator[PlanFault]:
    """Partial sums leave only after they are computed, and go to their owner."""
    n, computes = plan.scenario.num_ranks, plan.scenario.workload.pattern is Pattern.GEMM_RS
    if step.direction is Direction.GET and not computes:
        if region.owner % n:
            message = f"{step.name} gets a part of block +{region.owner}, which is not its own"
            yield PlanFault(Code.MGS508, step.name, message)
    elif step.direction is Direction.GET:
        yield PlanFault(Code.MGS508, step.name, f"{step.name}: partial sums are put by the rank that computes them")
    elif region.owner % n != step.peer % n:
        yield PlanFault(
            Code.MGS508, step.name, f"{step.name} sends block +{region.owner} to +{step.peer}, not its owner"
        )
    elif computes:
        yield from _computed_faults(plan, step, region, before)


def _computed_faults(plan: RankPlan, step: Step, region: Region, before: frozenset[str]) -> Iterator[PlanFault]:
    """``region`` is whole (all of k) in groups that come before ``step``."""
    gemm, n = plan.scenario.workload.gemm, plan.scenario.num_ranks
    assert gemm is not None
    wanted = Rect.of(region)
    groups = [s for s in plan.steps.values() if isinstance(s, TileGroup) and s.name in before]
    cuts = sorted({0, gemm.k} | {edge for group in groups for edge in (group.k.start, group.k.stop)})
    for low, high in pairwise(cuts):
        slices = [group for group in groups if group.k.start <= low and high <= group.k.stop]
        pieces = [Rect.of(r).clip(wanted) for g in slices for r in g.regions if r.owner % n == region.owner % n]
        missing, _ = uncovered(wanted, [piece for piece in pieces if piece is not None])
        if missing is not None:
            message = f"{step.name} takes {missing} of block +{region.owner} before they are computed"
            yield PlanFault(Code.MGS508, step.name, message)
            return


def _reduction_faults(plan: RankPlan, step: Reduction, before: frozenset[str]) -> Iterator[PlanFault]:
    """A reduction owns its block, waits for every part and counts them right."""
    n, pattern = plan.scenario.num_ranks, plan.scenario.workload.pattern
    if step.region.owner % n:
        yield PlanFault(Code.MGS509, step.name, f"{step.name} reduces a block that belongs to another rank")
    if step.num_parts != n:
        yield PlanFault(Code.MGS509, step.name, f"{step.name} sums {step.num_parts} parts, there are {n}")
    wanted = Rect.of(step.region)
    for other in range(1, n):
        here = [
            Rect.of(arrival.region).clip(wanted)
            for signal, arrival in plan.arrivals.items()
            if signal in before and arrival.source == other and arrival.region.owner == 0
        ]
        missing, _ = uncovered(wanted, [rect for rect in here if rect is not None])
        if missing is not None:
            sender = (plan.rank + other) % n
            message = f"{step.name} sums {missing} without waiting for the part of rank {sender}"
            yield PlanFault(Code.MGS508, step.name, message)
    if pattern is Pattern.GEMM_RS:
        yield from _computed_faults(plan, step, step.region, before)


def _overlap(one: TileGroup, other: TileGroup, num_ranks: int) -> bool:
    """Whether two groups share tiles of the output."""
    return any(
        a.owner % num_ranks == b.owner % num_ranks and Rect.of(a).clip(Rect.of(b)) is not None
        for a in one.regions
        for b in other.regions
    )
