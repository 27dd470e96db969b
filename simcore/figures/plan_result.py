"""From a finished run of a plan to its Result: the figures of the whole, and the times of each op."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...compiler.ir import COLLECTIVES_STREAM, OpPlan, Part, Plan
from ..fold.run import DEFAULT_OPTIONS, Finished, RunOptions
from ..lower.plan import Lowered
from ..program.program import Run
from .critical_path import circle_of_waits, critical_path
from .load_buckets import Span, loads_of, overlap_ticks, total_ticks, traffic_of, union_of, union_ticks
from .metrics import (
    busy_ticks,
    dil_of,
    intervals_of,
    server_loads,
    timeline_with,
    utilization,
    utilization_of,
    work_starts,
)
from .result import NO_LOADS, Interval, IntervalKind, OpResult, Result, Timeline, Utilization, Waterfall


def result_of(
    name: str,
    lowered: Lowered,
    finished: Finished,
    *,
    losses: tuple[Waterfall | None, float | None] = (None, None),
    period: int | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
) -> Result:
    """Return the figures of a finished run of the scenario ``name``, with its ``losses``: waterfall and ``cil``.

    Without ``loads`` or ``path`` in its ``options`` those over time, or the critical path, are empty.
    """
    run, program, gpu = finished.run, lowered.program, lowered.system.gpu
    of_parts = _intervals(lowered, run)
    timeline = timeline_with(program, run, (interval for intervals in of_parts.values() for interval in intervals))
    ops = _op_results(lowered.plan, of_parts, timeline)
    compute, comm, union = busy_ticks(timeline)
    only = lowered.parts[0] if len(lowered.parts) == 1 else None
    return Result(
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
        cil=losses[1],
        waterfall=losses[0],
        line_hops=finished.line_hops,
        line_hops_represented=finished.line_hops_represented,
        traffic=traffic_of(lowered.parts, run),
        utilization=_utilization(lowered, finished) if only is None else utilization_of(only, run),
        num_ranks=program.num_ranks,
        ranks_simulated=finished.ranks_simulated,
        not_alike=finished.not_alike,
        core=run.core,
        timeline=timeline,
        servers=server_loads(program, run),
        critical_path=critical_path(program, run) if options.path else (),
        deadlock=circle_of_waits(program, run),
        loads=loads_of(lowered.parts[0], run)
        if options.loads
        else NO_LOADS,  # memories and links are those of all parts
        ops=ops,
        layers=lowered.plan.num_layers,
        num_simulated=lowered.plan.num_layers,
        period_ticks=period,
    )


def stand_in(lowered: Lowered, staging_bytes: int) -> OpPlan:
    """The plan of several parts as one schedule for figures: its name, engines, SMs and memory, and no steps."""
    schedules = [part.schedule for part in lowered.plan.parts]
    moving = [part.schedule for part in lowered.plan.parts if part.shape.moved is not None]
    engine = max((each.engine for each in moving or schedules), key=lambda engine: engine.count)
    sms = min(schedule.compute_sms for schedule in schedules)
    return OpPlan(lowered.plan.expression, (), engine, sms, staging_bytes)


def staging_peak(plan: Plan, ops: tuple[OpResult, ...]) -> int:
    """Most memory that a rank holds at one time for data that is neither input nor output of an op.

    That of an op is held from its begin to its end, and what it brings until the last op that reads it has ended.
    """
    times = {op.name: (op.begin_ticks, op.end_ticks) for op in ops}
    holders = plan.holders()
    held = {name: max(times[each][1] for each in (name, *holders[name]) if each in times) for name in times}
    needed: Counter[str] = Counter()
    for part in plan.parts:
        needed[part.op] = max(needed[part.op], part.schedule.staging_bytes, _delivered(plan, part))
    changes = [(begin, needed[name]) for name, (begin, _) in times.items()]
    changes += [(end, -needed[name]) for name, end in held.items()]
    peak = now = 0
    for _, change in sorted(changes):  # what is freed at a time is free for what begins then
        now += change
        peak = max(peak, now)
    return peak


def _delivered(plan: Plan, part: Part) -> int:
    """What a gather brings that stands alone and whose result others read: no op of its own holds it."""
    moved = part.shape.moved
    if moved is None or not part.shape.is_collective or not part.shape.pattern.gathers or part.name != part.op:
        return 0
    read = any(wait.on == part.name for other in plan.parts for wait in other.waits)
    return moved.num_bytes if read else 0


def _intervals(lowered: Lowered, run: Run) -> dict[str, list[Interval]]:
    """The intervals of each part, under names and in lanes of the whole."""
    if len(lowered.parts) == 1:
        return {lowered.plan.parts[0].name: intervals_of(lowered.parts[0], run)}
    begins = work_starts(lowered.program, run)
    return {
        part.name: [
            replace(one, name=f"{part.name}.{one.name}", lane=_lane(part.stream, one))
            for one in intervals_of(here, run, begins)
        ]
        for part, here in zip(lowered.plan.parts, lowered.parts, strict=True)
    }


def _lane(stream: int, interval: Interval) -> str:
    """``stream 1`` for the first stream of a plan, ``stream 1.2`` for those beside it; engines keep their name.

    Sums of collectives that stand alone or are separated run in a stream of their own.
    """
    if interval.kind is IntervalKind.COMM:
        return interval.lane
    if stream == COLLECTIVES_STREAM:
        return "collectives 0"
    own_stream = interval.lane.removeprefix("stream ")
    return f"stream {stream}" if own_stream == "0" else f"stream {stream}.{own_stream}"


def _op_results(plan: Plan, of_parts: dict[str, list[Interval]], timeline: Timeline) -> tuple[OpResult, ...]:
    """The results of the ops of which anything has run."""
    by_op: dict[str, list[Interval]] = {}
    for part in plan.parts:
        by_op.setdefault(part.op, []).extend(of_parts[part.name])
    of_rank = _by_rank(each for each in timeline.intervals if each.kind is not IntervalKind.COMM)
    kernels = {rank: union_of(own) for rank, own in of_rank.items()}
    return tuple(_op_result(name, own, kernels) for name, own in by_op.items() if own)


def _by_rank(intervals: Iterable[Interval]) -> dict[int, list[Interval]]:
    found: dict[int, list[Interval]] = {}
    for each in intervals:
        found.setdefault(each.rank, []).append(each)
    return found


def _op_result(name: str, intervals: Sequence[Interval], kernels: Mapping[int, Sequence[Span]]) -> OpResult:
    """The times of an op with these ``intervals``, beside the ``kernels`` of each rank."""

    def span(own: Sequence[Interval]) -> tuple[int, int]:
        return min(each.start_ticks for each in own), max(each.end_ticks for each in own)

    by_rank = _by_rank(intervals)
    spans = {rank: span(by_rank[rank]) for rank in sorted(by_rank)}
    rank = max(spans, key=lambda at: spans[at][1] - spans[at][0])
    own = by_rank[rank]
    copies = union_of(each for each in own if each.kind is IntervalKind.COMM)
    return OpResult(
        name,
        *spans[rank],
        union_ticks(each for each in own if each.kind is not IntervalKind.COMM),
        total_ticks(copies),
        total_ticks(copies) - overlap_ticks(copies, kernels.get(rank, ())),
    )


def _utilization(lowered: Lowered, finished: Finished) -> Utilization:
    program = lowered.program
    slots = program.pool_slots.reshape(-1, program.ranks_simulated)[:, 0]
    engines = {part.machine.engines for part in lowered.parts if part.scenario.shape.moved is not None}
    computing = [part for part in lowered.parts if not part.scenario.shape.is_collective] or lowered.parts
    sms = max(int(slots[part.machine.sms]) for part in computing)
    total = sum(int(slots[pool]) for pool in engines)
    return utilization(program, finished.run, lowered.parts[0].machine.link_servers, sms, max(1, total))
