"""Whether a plan does what its workload asks: every byte once, no wait for what never comes, no cycle of waits.

Written for any plan, whatever its origin. A plan without overrides is the same for every rank, so rank 0 stands for
all; with overrides every rank is looked at.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from .codes import Code
from .plan_data import data_faults
from .plan_view import Arrival, PlanFault, RankPlan, arrivals_at, queued_behind
from .scenario import Pattern, Scenario
from .schedule import EngineKind, Reduction, Schedule, TileGroup, Transfer

__all__ = ["Arrival", "PlanFault", "arrivals_at", "check_plan"]


def check_plan(scenario: Scenario, schedule: Schedule) -> tuple[PlanFault, ...]:
    """Everything wrong with ``schedule``, nothing if it can run."""
    ranks = range(scenario.num_ranks) if schedule.overrides else range(1)
    found = list(_name_faults(scenario, schedule))
    if found:
        return tuple(found)
    for rank in ranks:
        plan = RankPlan.of(scenario, schedule, rank)
        faults = list(_shape_faults(plan))
        if not faults:
            faults = list(_wait_faults(plan))
        if not faults:
            faults = list(data_faults(plan))
        found.extend(fault for fault in faults if fault not in found)
    return tuple(found)


def _name_faults(scenario: Scenario, schedule: Schedule) -> Iterator[PlanFault]:
    """Names that stand for two things, and overrides of what is not there."""
    names: set[str] = set()
    for step in schedule.steps:
        if step.name in names:
            yield PlanFault(Code.MGS206, step.name, f"there are two steps {step.name}")
        names.add(step.name)
    for override in schedule.overrides:
        name = override.step.name
        if name not in names:
            yield PlanFault(Code.MGS506, name, f"rank {override.rank} overrides {name}, which is no step of the plan")
        if not 0 <= override.rank < scenario.num_ranks:
            message = f"{name} is overridden at rank {override.rank} of {scenario.num_ranks} ranks"
            yield PlanFault(Code.MGS506, name, message)
    for step in (*schedule.steps, *(override.step for override in schedule.overrides)):
        if isinstance(step, Transfer) and step.signal in names:
            yield PlanFault(Code.MGS211, step.name, f"{step.name} sets {step.signal}, which is also the name of a step")


def _shape_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Regions outside their tensors, engines asked for what they cannot do."""
    workload, engine = plan.scenario.workload, plan.schedule.engine
    moved_cols = workload.moved.cols if workload.moved is not None else 0
    output_cols = workload.gemm.n if workload.gemm is not None else moved_cols
    for step in plan.steps.values():
        if isinstance(step, TileGroup):
            regions, cols = step.regions, output_cols
            if workload.gemm is None or not 0 <= step.k.start < step.k.stop <= workload.gemm.k:
                yield PlanFault(Code.MGS509, step.name, f"{step.name} computes k {step.k}, outside this workload")
            if len({region.cols for region in regions}) > 1:
                message = f"{step.name} is one kernel: all its regions have the same columns"
                yield PlanFault(Code.MGS509, step.name, message)
            if workload.moved is None and any(region.owner for region in regions):
                message = f"{step.name} names a block of another rank, and nothing is sharded here"
                yield PlanFault(Code.MGS509, step.name, message)
        else:
            regions, cols = (step.region,), moved_cols
        for region in regions:
            inside = 0 <= region.rows.start < region.rows.stop <= plan.shard_rows
            if not inside or not 0 <= region.cols.start < region.cols.stop <= cols:
                where = f"[{region.rows}, {region.cols}]"
                message = f"{step.name} names {where}, outside a shard of {plan.shard_rows} x {cols}"
                yield PlanFault(Code.MGS509, step.name, message)
        if isinstance(step, Transfer):
            yield from _engine_faults(plan, step, engine.kind, engine.count)
        adds = isinstance(step, Transfer) and step.reduce and engine.kind is EngineKind.SM
        if adds and workload.pattern is Pattern.GEMM_RS:
            message = f"{step.name} adds into a block that its owner's kernel still writes, in no order"
            yield PlanFault(Code.MGS509, step.name, message)
        sums = isinstance(step, Reduction) or (isinstance(step, Transfer) and step.reduce)
        if sums and not workload.pattern.reduces:
            message = f"{step.name} sums, and {workload.pattern.value} has nothing to sum"
            yield PlanFault(Code.MGS509, step.name, message)


def _engine_faults(plan: RankPlan, step: Transfer, kind: EngineKind, count: int) -> Iterator[PlanFault]:
    if step.reduce and kind is EngineKind.DMA:
        yield PlanFault(Code.MGS403, step.name, f"{step.name}: a DMA engine cannot reduce")
    if step.lane is not None and not 0 <= step.lane < count:
        yield PlanFault(Code.MGS401, step.name, f"{step.name} asks for engine {step.lane} of {count}")
    if not 1 <= step.peer < plan.scenario.num_ranks:
        yield PlanFault(
            Code.MGS509, step.name, f"{step.name} names peer {step.peer} of {plan.scenario.num_ranks} ranks"
        )


def _wait_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Waits for what nobody does, signals set twice, cycles."""
    seen: dict[str, str] = {}
    for arrival in arrivals_at(plan.scenario, plan.schedule, plan.rank):
        signal = arrival.transfer.signal
        if signal in seen:
            message = f"signal {signal} is set at rank {plan.rank} by both {seen[signal]} and {arrival.transfer.name}"
            yield PlanFault(Code.MGS502, arrival.transfer.name, message)
        seen[signal] = arrival.transfer.name
    for step in plan.steps.values():
        for name in step.after:
            if name not in plan.steps and name not in plan.arrivals:
                message = f"{step.name} waits for {name}, which nothing at rank {plan.rank} sets"
                yield PlanFault(Code.MGS502, step.name, message)
    cycle = _cycle(plan.scenario, plan.schedule)
    if cycle:
        yield PlanFault(Code.MGS503, cycle[0], f"these wait for each other: {' -> '.join(cycle)}")


def _cycle(scenario: Scenario, schedule: Schedule) -> tuple[str, ...]:
    """A cycle of waits as names, empty if there is none; without overrides all ranks fold onto one."""
    n = scenario.num_ranks
    ranks = range(n) if schedule.overrides else range(1)
    waits: dict[tuple[int, str], set[tuple[int, str]]] = {}
    for rank in ranks:
        signals = {a.transfer.signal: (a.issuer, a.transfer.name) for a in arrivals_at(scenario, schedule, rank)}
        steps = schedule.steps_of(rank)
        names = {step.name for step in steps}
        queued = dict(queued_behind(steps))
        for step in steps:
            mine = {(rank, name) for name in step.after if name in names}
            mine |= {signals[name] for name in step.after if name in signals}
            if step.name in queued:
                mine.add((rank, queued[step.name]))
            folded = {(issuer if schedule.overrides else 0, name) for issuer, name in mine}
            waits[rank, step.name] = folded
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        return tuple(name for _, name in error.args[1])
    return ()
