"""Check a plan of any origin: every byte arrives once, every wait is for something that happens, no cycle of waits.

A plan without overrides is the same for every rank, so that checking rank 0 is enough; where ranks have different parts
those of one period are checked, and with overrides all. Of a plan of several parts each is checked so, then what holds
between them: all ops are there, all waits can end, and what is read is waited for.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..codes import Code
from ..ir import (
    Awaited,
    OpCase,
    OpPlan,
    Part,
    PartWait,
    Pattern,
    Plan,
    PlanFault,
    RankPlan,
    Reach,
    Step,
    System,
    Transfer,
    Workload,
)
from ..planning.knobs.engine import reject_not_stored
from ..planning.parts import PlanError
from ..planning.plan import PartNeed, needs_of
from .data import contribution_faults, data_faults, passes_on
from .happens_before import cycle_in, deadlock_faults, overlap_faults
from .steps import shape_faults

# Only rank 0 has the data at first, so no rank stands for the others; nor does one where loads differ.
_FROM_FIRST = (Pattern.BROADCAST, Pattern.SEND_RECV)


def check_plan(scenario: OpCase, schedule: OpPlan) -> tuple[PlanFault, ...]:
    """Return everything wrong with ``schedule``, nothing if it can run."""
    found_faults = list(_name_faults(scenario, schedule))
    if found_faults:
        return tuple(found_faults)
    if (scenario.shape.pattern in _FROM_FIRST or scenario.shape.loads) and not schedule.overrides:
        schedule = replace(
            schedule, by_rank=schedule.each_rank(scenario.num_ranks) or (schedule.steps,) * scenario.num_ranks
        )
    cycle: tuple[PlanFault, ...] | None = None
    plans = dict[int, RankPlan]()
    for rank in range(schedule.period(scenario.num_ranks)):
        plan = RankPlan.of(scenario, schedule, rank, plans)
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


def _name_faults(scenario: OpCase, schedule: OpPlan) -> Iterator[PlanFault]:
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
        # Puts to all share a signal, which is set when those of all ranks have arrived.
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
        if isinstance(step, Transfer) and step.peer_after:
            peer = plan.of_peer(step)
            for name in step.peer_after:
                if name not in peer.steps and name not in peer.signals:
                    message = f"{step.name} waits for {name} of its peer, which nothing at rank {peer.rank} sets"
                    yield PlanFault(Code.MGS502, step.name, message)


def check_parts(system: System, workload: Workload, plan: Plan) -> tuple[PlanFault, ...]:
    """Return everything wrong with ``plan``, whose parts are of ops of ``workload``; nothing if it can run.

    ``workload`` has as many batches and layers as ``plan``. Parts with the same steps, as those of layers that repeat,
    are checked once.
    """
    faults = [*_step_faults(system, plan)] or [*_part_faults(workload, plan), *_faults_of_waits(plan)]
    if not faults:
        faults = [*_order_faults(plan)] or [*_read_faults(system, workload, plan)]
    return tuple(faults)


def _step_faults(system: System, plan: Plan) -> Iterator[PlanFault]:
    """The faults of each part by itself."""
    checked = {(part.shape, id(part.schedule)): part for part in reversed(plan.parts)}
    for part in reversed(checked.values()):
        for fault in check_plan(OpCase(part.name, system, part.shape), part.schedule):
            yield replace(fault, message=f"{part.name}: {fault.message}", part=part.name)


def _part_faults(workload: Workload, plan: Plan) -> Iterator[PlanFault]:
    """Parts that are there twice or not at all, and those in a stream that is not theirs."""
    names = [part.name for part in plan.parts]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield PlanFault(Code.MGS206, name, f"there are two parts {name}")
    for op in workload.ops:
        if op.name not in names:
            yield PlanFault(Code.MGS507, op.name, f"{op.name} is not computed: no part has this name")
    for part in plan.parts:
        if part.shape.is_collective is not (part.stream < 0):
            message = f"{part.name} is {part.shape.label}, and stands in stream {part.stream}"
            hint = "collectives that stand alone have stream -1, kernels one from 0 on"
            yield PlanFault(Code.MGS509, part.name, message, hint)
        if part.behind_kernels and not part.shape.is_collective:
            message = f"{part.name} has kernels, which are behind those of their stream anyhow"
            yield PlanFault(Code.MGS509, part.name, message, "behind_kernels is for collectives")


def _faults_of_waits(plan: Plan) -> Iterator[PlanFault]:
    """Waits for parts and steps that are not there."""
    parts = {part.name: part for part in plan.parts}
    awaitable = {name: _awaitable(part) for name, part in parts.items()}
    for part in plan.parts:
        steps = _steps(part)
        for name in (*(wait.on for wait in part.waits), *(wait.on for wait in part.step_waits)):
            if name not in parts:
                yield PlanFault(Code.MGS502, part.name, f"{part.name} waits for {name}, which is no part of the plan")
        for wait in part.step_waits:
            if wait.step not in steps:
                yield PlanFault(Code.MGS502, part.name, f"{part.name} has no step {wait.step} that could wait")
            if wait.of not in awaitable.get(wait.on, {wait.of}):
                what = "which is no kernel, sum or signal there"
                message = f"{part.name}.{wait.step} waits for {wait.of} of {wait.on}, {what}"
                yield PlanFault(Code.MGS502, part.name, message)


def _steps(part: Part) -> dict[str, Step]:
    ranks = part.schedule.by_rank or (part.schedule.steps,)
    return {step.name: step for steps in ranks for step in steps}


def _awaitable(part: Part) -> set[str]:
    """The steps and signals that others may wait for: no copies, which are there when their signal says so."""
    steps = _steps(part)
    copies = {name: step for name, step in steps.items() if isinstance(step, Transfer)}
    return (steps.keys() | {step.signal for step in copies.values()}) - copies.keys()


def _order_faults(plan: Plan) -> Iterator[PlanFault]:
    """Parts that wait for each other, or for one that is issued behind them."""
    awaited = {part.name: _awaited(part) for part in plan.parts}
    circle = cycle_in(awaited)
    if circle:
        message = f"parts wait for each other: {' needs '.join(reversed(circle))}"
        yield PlanFault(Code.MGS503, circle[0], message)
        return
    issued: set[str] = set()
    for part in plan.parts:
        for name in awaited[part.name]:
            if name not in issued:
                message = f"{part.name} is issued before {name}, which it waits for"
                yield PlanFault(Code.MGS503, part.name, message, f"put {name} before {part.name}")
        issued.add(part.name)


def _awaited(part: Part) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(wait.on for wait in part.waits), *(wait.on for wait in part.step_waits))))


def _read_faults(system: System, workload: Workload, plan: Plan) -> Iterator[PlanFault]:
    """Parts that read what they do not wait for."""
    parts = {part.name: part for part in plan.parts}
    issued: set[str] = set()
    for part in plan.parts:
        try:
            for need in needs_of(system, workload, parts, part):
                yield from _need_faults(part, need, issued)
        except PlanError as error:
            yield PlanFault(error.rejection.code, part.name, error.rejection.message, error.rejection.hint)
        issued.add(part.name)


def _need_faults(part: Part, need: PartNeed, issued: Collection[str]) -> Iterator[PlanFault]:
    if need.maker not in issued:
        message = f"{part.name} is issued before {need.maker}, which makes {need.tensor} for it"
        yield PlanFault(Code.MGS503, part.name, message, f"put {need.maker} before {part.name}")
    elif not _waits_for(part, need):
        message = f"{part.name} reads {need.tensor}, and does not wait for {need.maker}, which makes it"
        missing = [wait for wait in need.rows if wait not in part.step_waits]
        some = f"{missing[0].step} for {missing[0].of} of it, or all" if len(missing) < len(need.rows) else "it"
        yield PlanFault(Code.MGS508, part.name, message, f"let {some} wait for {need.maker}")


def _waits_for(part: Part, need: PartNeed) -> bool:
    by_rows = bool(need.rows) and set(need.rows) <= set(part.step_waits)
    return by_rows or all(any(_covers(wait, wanted) for wait in part.waits) for wanted in need.whole)


def _covers(wait: PartWait, wanted: PartWait) -> bool:
    """Whether who waits so has waited as is wanted."""
    late_enough = wait.what is Awaited.END or wait.what is wanted.what
    return wait.on == wanted.on and late_enough and (wanted.kernels_only or not wait.kernels_only)
