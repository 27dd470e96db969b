"""Check a whole plan of any origin: each part by itself, then what holds between them.

All ops are there, all waits can end, and what is read is waited for.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..codes import Code
from ..ir import Awaited, Graph, GraphPlan, Part, PartWait, PlanFault, Scenario, Step, System, Transfer
from ..planning.graph_build import Need, needs_of
from ..planning.graph_order import GraphPlanError
from .check import check_plan
from .happens_before import cycle_in


def check_parts(system: System, graph: Graph, plan: GraphPlan) -> tuple[PlanFault, ...]:
    """Return everything wrong with ``plan``, whose parts are of ops of ``graph``; nothing if it can run.

    ``graph`` has as many batches and layers as ``plan``. Parts with the same steps, as those of layers that repeat,
    are checked once.
    """
    faults = [*_step_faults(system, plan)] or [*_part_faults(graph, plan), *_wait_faults(plan)]
    if not faults:
        faults = [*_order_faults(plan)] or [*_read_faults(system, graph, plan)]
    return tuple(faults)


def _step_faults(system: System, plan: GraphPlan) -> Iterator[PlanFault]:
    """The faults of each part by itself."""
    checked = {(part.workload, id(part.schedule)): part for part in reversed(plan.parts)}
    for part in reversed(checked.values()):
        for fault in check_plan(Scenario(part.name, system, part.workload), part.schedule):
            yield replace(fault, message=f"{part.name}: {fault.message}", part=part.name)


def _part_faults(graph: Graph, plan: GraphPlan) -> Iterator[PlanFault]:
    """Parts that are there twice or not at all, and those in a stream that is not theirs."""
    names = [part.name for part in plan.parts]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield PlanFault(Code.MGS206, name, f"there are two parts {name}")
    for op in graph.ops:
        if op.name not in names:
            yield PlanFault(Code.MGS507, op.name, f"{op.name} is not computed: no part has this name")
    for part in plan.parts:
        if part.workload.is_collective is not (part.stream < 0):
            message = f"{part.name} is {part.workload.label}, and stands in stream {part.stream}"
            hint = "collectives that stand alone have stream -1, kernels one from 0 on"
            yield PlanFault(Code.MGS509, part.name, message, hint)
        if part.behind_kernels and not part.workload.is_collective:
            message = f"{part.name} has kernels, which are behind those of their stream anyhow"
            yield PlanFault(Code.MGS509, part.name, message, "behind_kernels is for collectives")


def _wait_faults(plan: GraphPlan) -> Iterator[PlanFault]:
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


def _order_faults(plan: GraphPlan) -> Iterator[PlanFault]:
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


def _read_faults(system: System, graph: Graph, plan: GraphPlan) -> Iterator[PlanFault]:
    """Parts that read what they do not wait for."""
    parts = {part.name: part for part in plan.parts}
    issued: set[str] = set()
    for part in plan.parts:
        try:
            for need in needs_of(system, graph, parts, part):
                yield from _need_faults(part, need, issued)
        except GraphPlanError as error:
            yield PlanFault(error.rejection.code, part.name, error.rejection.message, error.rejection.hint)
        issued.add(part.name)


def _need_faults(part: Part, need: Need, issued: Collection[str]) -> Iterator[PlanFault]:
    if need.maker not in issued:
        message = f"{part.name} is issued before {need.maker}, which makes {need.tensor} for it"
        yield PlanFault(Code.MGS503, part.name, message, f"put {need.maker} before {part.name}")
    elif not _waits_for(part, need):
        message = f"{part.name} reads {need.tensor}, and does not wait for {need.maker}, which makes it"
        missing = [wait for wait in need.rows if wait not in part.step_waits]
        some = f"{missing[0].step} for {missing[0].of} of it, or all" if len(missing) < len(need.rows) else "it"
        yield PlanFault(Code.MGS508, part.name, message, f"let {some} wait for {need.maker}")


def _waits_for(part: Part, need: Need) -> bool:
    by_rows = bool(need.rows) and set(need.rows) <= set(part.step_waits)
    return by_rows or all(any(_covers(wait, wanted) for wait in part.waits) for wanted in need.whole)


def _covers(wait: PartWait, wanted: PartWait) -> bool:
    """Whether who waits so has waited as is wanted."""
    late_enough = wait.what is Awaited.END or wait.what is wanted.what
    return wait.on == wanted.on and late_enough and (wanted.kernels_only or not wait.kernels_only)
