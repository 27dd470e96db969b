"""Check a plan of any origin: every byte arrives once, every wait is for something that happens, no cycle of waits.

A plan without overrides is the same for every rank, so that checking rank 0 is enough; where ranks have different parts
those of one period are checked, and with overrides all.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..codes import Code
from ..ir import Pattern, PlanFault, RankPlan, Reach, Scenario, Schedule, Transfer
from ..planning.knobs.tile_stores import reject_not_stored
from .contributions import contribution_faults
from .data import data_faults, passes_on
from .overlap import overlap_faults
from .sm_deadlock import deadlock_faults
from .steps import shape_faults

# Only rank 0 has the data at first, so no rank stands for the others; nor does one where loads differ.
_FROM_FIRST = (Pattern.BROADCAST, Pattern.SEND_RECV)


def check_plan(scenario: Scenario, schedule: Schedule) -> tuple[PlanFault, ...]:
    """Return everything wrong with ``schedule``, nothing if it can run."""
    found_faults = list(_name_faults(scenario, schedule))
    if found_faults:
        return tuple(found_faults)
    if (scenario.workload.pattern in _FROM_FIRST or scenario.workload.loads) and not schedule.overrides:
        schedule = replace(
            schedule, by_rank=schedule.each_rank(scenario.num_ranks) or (schedule.steps,) * scenario.num_ranks
        )
    cycle: tuple[PlanFault, ...] | None = None
    for rank in range(schedule.period(scenario.num_ranks)):
        plan = RankPlan.of(scenario, schedule, rank)
        faults = list(shape_faults(plan))
        if not faults:
            faults = [*_store_faults(plan), *_wait_faults(plan)]
            cycle = tuple(deadlock_faults(scenario, schedule)) if cycle is None else cycle
            faults.extend(cycle)
        if not faults:
            faults = list(data_faults(plan))
        found_faults.extend(fault for fault in faults if fault not in found_faults)
    if not found_faults and passes_on(scenario, schedule):
        found_faults = list(contribution_faults(scenario, schedule))
    return tuple(found_faults or overlap_faults(scenario, schedule))


def _store_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """The first transfer that no tile can store, where tiles store."""
    unfit = reject_not_stored(plan.steps.values()) if plan.schedule.engine.by_tiles else None
    if unfit is not None:
        name, rejection = unfit
        yield PlanFault(rejection.code, name, rejection.message, rejection.hint)


def _name_faults(scenario: Scenario, schedule: Schedule) -> Iterator[PlanFault]:
    """Names used twice, and overrides of steps or ranks that do not exist."""
    names: set[str] = set()
    for steps in schedule.by_rank or (schedule.steps,):
        own: set[str] = set()
        for step in steps:
            if step.name in own:
                yield PlanFault(Code.MGS206, step.name, f"there are two steps {step.name}")
            own.add(step.name)
        names |= own
    overridden: set[tuple[int, str]] = set()
    for override in schedule.overrides:
        name = override.step.name
        if (override.rank, name) in overridden:
            yield PlanFault(Code.MGS206, name, f"{name} is overridden twice at rank {override.rank}")
        overridden.add((override.rank, name))
        if name not in names:
            yield PlanFault(Code.MGS506, name, f"rank {override.rank} overrides {name}, which is no step of the plan")
        if not 0 <= override.rank < scenario.num_ranks:
            message = f"{name} is overridden at rank {override.rank} of {scenario.num_ranks} ranks"
            yield PlanFault(Code.MGS506, name, message)
    ranks = schedule.by_rank or (schedule.steps, tuple(override.step for override in schedule.overrides))
    for step in (step for steps in ranks for step in steps):
        if isinstance(step, Transfer) and step.signal in names:
            yield PlanFault(Code.MGS211, step.name, f"{step.name} sets {step.signal}, which is also the name of a step")


def _wait_faults(plan: RankPlan) -> Iterator[PlanFault]:
    """Waits for names that nothing sets, and signals set twice."""
    seen: dict[str, Transfer] = {}
    for arrival in plan.arrivals:
        moved = arrival.transfer
        before = seen.get(moved.signal)
        # Puts to all share a signal, which is set when those of all ranks have landed.
        alike = before is not None and before.name == moved.name and before.reach is moved.reach is Reach.ALL
        if before is not None and not alike:
            message = f"signal {moved.signal} is set at rank {plan.rank} by both {before.name} and {moved.name}"
            yield PlanFault(Code.MGS502, moved.name, message)
        seen[moved.signal] = moved
    signals = plan.signals
    for step in plan.steps.values():
        for name in step.after:
            if name not in plan.steps and name not in signals:
                message = f"{step.name} waits for {name}, which nothing at rank {plan.rank} sets"
                yield PlanFault(Code.MGS502, step.name, message)
