"""The result of a simulated graph plan: that of the whole, and the times of each op."""

from collections import Counter
from dataclasses import dataclass, replace

from ...compiler.ir import COLLECTIVES_STREAM, GraphPlan, Part, Schedule
from ..fold.run import Finished
from ..lower.compose import LoweredGraph
from .critical_path import critical_path
from .deadlock import circle_of_waits
from .load_buckets import loads_of
from .loads import NO_LOADS
from .metrics import (
    busy_ticks,
    dil_of,
    intervals_of,
    server_loads,
    timeline_with,
    union_ticks,
    utilization,
    utilization_of,
)
from .result import Interval, IntervalKind, Result, Timeline, Utilization
from .traffic import traffic_of_parts


@dataclass(frozen=True, slots=True)
class OpResult:
    """One op of a graph at the rank that is busy longest with it.

    It lasts from the begin of its first step to the end of its last. ``exposed_ticks`` is how long in all its copies
    run beside no kernel of the graph.
    """

    name: str
    begin_ticks: int
    end_ticks: int
    compute_ticks: int
    comm_ticks: int
    exposed_ticks: int

    @property
    def makespan_ticks(self) -> int:
        """From its begin to its end."""
        return self.end_ticks - self.begin_ticks


@dataclass(frozen=True, slots=True)
class GraphResult:
    """``whole`` is the result of the program; ``ops`` are in the order in which the plan issues them.

    ``period_ticks`` is by how much each layer comes after the one before, where layers repeat to the tick; else None.
    """

    whole: Result
    ops: tuple[OpResult, ...]
    period_ticks: int | None = None

    def op(self, name: str) -> OpResult:
        """The result of the op of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        return {op.name: op for op in self.ops}[name]


def graph_result_of(
    name: str, lowered: LoweredGraph, finished: Finished, period: int | None = None, *, loads: bool = True
) -> GraphResult:
    """The figures of a finished run."""
    run, program, gpu = finished.run, lowered.program, lowered.system.gpu
    of_parts = _intervals(lowered, finished)
    timeline = timeline_with(program, run, (interval for intervals in of_parts.values() for interval in intervals))
    ops = _op_results(lowered.plan, of_parts, timeline)
    compute, comm, union = busy_ticks(timeline)
    only = lowered.parts[0] if len(lowered.parts) == 1 else None
    whole = Result(
        scenario=name,
        schedule=stand_in(lowered, staging_peak(lowered.plan, ops)) if only is None else only.schedule,
        unit_bytes=program.unit_bytes,
        line_bytes=gpu.line_bytes,
        clock_hz=gpu.clock_hz,
        outcome=run.outcome,
        makespan_ticks=run.makespan_ticks,
        compute_ticks=compute,
        comm_ticks=comm,
        union_ticks=union,
        dil=None if only is None else dil_of(only),
        cil=None,
        waterfall=None,
        line_hops=finished.line_hops,
        line_hops_represented=finished.line_hops_represented,
        traffic=traffic_of_parts(lowered.parts, run),
        utilization=_utilization(lowered, finished) if only is None else utilization_of(only, run),
        num_ranks=program.num_ranks,
        ranks_simulated=finished.ranks_simulated,
        not_alike=finished.not_alike,
        core=run.core,
        timeline=timeline,
        servers=server_loads(program, run),
        critical_path=critical_path(program, run),
        deadlock=circle_of_waits(program, run),
        loads=loads_of(lowered.parts[0], run) if loads else NO_LOADS,  # memories and links are those of all parts
    )
    return GraphResult(whole, ops, period)


def stand_in(lowered: LoweredGraph, staging_bytes: int) -> Schedule:
    """The plan of several parts as one schedule for figures: its name, engines, SMs and memory, and no steps."""
    schedules = [part.schedule for part in lowered.plan.parts]
    moving = [part.schedule for part in lowered.plan.parts if part.workload.moved is not None]
    engine = max((each.engine for each in moving or schedules), key=lambda engine: engine.count)
    sms = min(schedule.compute_sms for schedule in schedules)
    return Schedule(lowered.plan.expression, (), engine, sms, staging_bytes)


def staging_peak(plan: GraphPlan, ops: tuple[OpResult, ...]) -> int:
    """Most memory that a rank holds at one time for data that is neither input nor output of an op.

    That of an op is held from its begin to its end, and what it brings until the last op that reads it has ended.
    """
    times = {op.name: (op.begin_ticks, op.end_ticks) for op in ops}
    holders = plan.holders()
    held = {name: max(times[each][1] for each in (name, *holders[name]) if each in times) for name in times}
    needed: Counter[str] = Counter()
    for part in plan.parts:
        needed[part.op] = max(needed[part.op], part.schedule.staging_bytes, _brought(plan, part))
    changes = [(begin, needed[name]) for name, (begin, _) in times.items()]
    changes += [(end, -needed[name]) for name, end in held.items()]
    peak = now = 0
    for _, change in sorted(changes):  # what is freed at a time is free for what begins then
        now += change
        peak = max(peak, now)
    return peak


def _brought(plan: GraphPlan, part: Part) -> int:
    """What a gather brings that stands alone and whose result others read: no op of its own holds it."""
    moved = part.workload.moved
    if moved is None or not part.workload.is_collective or not part.workload.pattern.gathers or part.name != part.op:
        return 0
    read = any(wait.on == part.name for other in plan.parts for wait in other.waits)
    return moved.num_bytes if read else 0


def _intervals(lowered: LoweredGraph, finished: Finished) -> dict[str, list[Interval]]:
    """The intervals of each part, under names and in lanes of the whole."""
    if len(lowered.parts) == 1:
        return {lowered.plan.parts[0].name: intervals_of(lowered.parts[0], finished.run)}
    return {
        part.name: [
            replace(one, name=f"{part.name}.{one.name}", lane=_lane(part.stream, one))
            for one in intervals_of(here, finished.run)
        ]
        for part, here in zip(lowered.plan.parts, lowered.parts, strict=True)
    }


def _lane(stream: int, interval: Interval) -> str:
    """``stream 1`` for the first stream of a plan, ``stream 1.2`` for those beside it; engines keep their name.

    Sums of collectives that stand alone or apart run in a stream of their own.
    """
    if interval.kind is IntervalKind.COMM:
        return interval.lane
    if stream == COLLECTIVES_STREAM:
        return "collectives 0"
    beside = interval.lane.removeprefix("stream ")
    return f"stream {stream}" if beside == "0" else f"stream {stream}.{beside}"


def _op_results(plan: GraphPlan, of_parts: dict[str, list[Interval]], timeline: Timeline) -> tuple[OpResult, ...]:
    """The results of the ops of which anything has run."""
    by_op: dict[str, list[Interval]] = {}
    for part in plan.parts:
        by_op.setdefault(part.op, []).extend(of_parts[part.name])
    kernels = [each for each in timeline.intervals if each.kind is not IntervalKind.COMM]
    return tuple(_op_result(name, own, kernels) for name, own in by_op.items() if own)


def _op_result(name: str, intervals: list[Interval], kernels: list[Interval]) -> OpResult:
    def at(rank: int) -> OpResult:
        own = [each for each in intervals if each.rank == rank]
        copies = [each for each in own if each.kind is IntervalKind.COMM]
        computing = [each for each in own if each.kind is not IntervalKind.COMM]
        others = [each for each in kernels if each.rank == rank]
        return OpResult(
            name,
            min(each.start_ticks for each in own),
            max(each.end_ticks for each in own),
            union_ticks(computing),
            union_ticks(copies),
            union_ticks((*copies, *others)) - union_ticks(others),
        )

    return max((at(rank) for rank in sorted({each.rank for each in intervals})), key=lambda one: one.makespan_ticks)


def _utilization(lowered: LoweredGraph, finished: Finished) -> Utilization:
    program = lowered.program
    slots = program.pool_slots.reshape(-1, program.ranks_simulated)[:, 0]
    engines = {part.machine.engines for part in lowered.parts if part.scenario.workload.moved is not None}
    sms = lowered.parts[0].machine.sms
    total = sum(int(slots[pool]) for pool in engines)
    return utilization(program, finished.run, lowered.parts[0].machine.link_servers, int(slots[sms]), max(1, total))
