"""From a finished run to figures: intervals, busy times, traffic, utilization."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

import numpy as np

from ..compiler.schedule import Direction, EngineKind, Reduction, TileGroup, Transfer
from .accounting import units_delivered
from .engine import Run
from .kernels.gemm import gemm_work
from .lower import Lowered, StepOps, moved_bytes
from .program import OpKind, Program, TrafficClass
from .result import Interval, IntervalKind, ServerLoad, Timeline, Traffic, Utilization


def timeline_of(lowered: Lowered, run: Run) -> Timeline:
    """Every step that ran as an interval, transfers dealt to engines in the order in which they started."""
    found = [interval for ops in lowered.steps if (interval := _interval(lowered, ops, run)) is not None]
    kernels = [interval for interval in found if interval.kind is not IntervalKind.COMM]
    copies = sorted(
        (i for i in found if i.kind is IntervalKind.COMM), key=lambda i: (i.rank, i.start_ticks, i.end_ticks)
    )
    dealt = [lane for _, group in groupby(copies, key=lambda i: i.rank) for lane in _dealt(list(group))]
    return Timeline(lowered.scenario.num_ranks, run.makespan_ticks, (*kernels, *dealt))


def _interval(lowered: Lowered, ops: StepOps, run: Run) -> Interval | None:
    """The step from the first start of its work to its end; None if it never finished."""
    done = int(run.op_done[ops.done])
    if done < 0:
        return None
    start = int(run.op_start[ops.work.start : ops.work.stop].min())
    match ops.step:
        case Transfer():
            engine = "dma" if lowered.schedule.engine.kind is EngineKind.DMA else "copy"
            return Interval(ops.rank, engine, ops.step.name, IntervalKind.COMM, start, done)
        case TileGroup():
            return Interval(ops.rank, f"stream {ops.step.stream}", ops.step.name, IntervalKind.COMPUTE, start, done)
        case Reduction():
            return Interval(ops.rank, f"stream {ops.step.stream}", ops.step.name, IntervalKind.REDUCE, start, done)


def _dealt(copies: list[Interval]) -> list[Interval]:
    """Copies of one rank, each on the lowest lane that is free when it starts."""
    ends: list[int] = []
    placed = []
    for copy in copies:
        lane = next((i for i, end in enumerate(ends) if end <= copy.start_ticks), len(ends))
        ends[lane : lane + 1] = [copy.end_ticks]
        placed.append(
            Interval(copy.rank, f"{copy.lane} {lane}", copy.name, copy.kind, copy.start_ticks, copy.end_ticks)
        )
    return placed


def union_ticks(intervals: Iterable[Interval]) -> int:
    """Time during which at least one of ``intervals`` runs."""
    total, reached = 0, 0
    for start, end in sorted((i.start_ticks, i.end_ticks) for i in intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def busy_ticks(timeline: Timeline) -> tuple[int, int, int]:
    """(kernels, transfers, both together) of one rank, the one that is busy longest."""
    per_rank = []
    for rank in sorted({interval.rank for interval in timeline.intervals} or {0}):
        mine = [interval for interval in timeline.intervals if interval.rank == rank]
        kernels = [interval for interval in mine if interval.kind is not IntervalKind.COMM]
        copies = [interval for interval in mine if interval.kind is IntervalKind.COMM]
        per_rank.append((union_ticks(kernels), union_ticks(copies), union_ticks(mine)))
    return max(per_rank, key=lambda busy: busy[2])


def kernel_ticks(timeline: Timeline) -> int:
    """Sum of the durations of all kernels, side by side or not."""
    return sum(interval.ticks for interval in timeline.intervals if interval.kind is not IntervalKind.COMM)


def dil_of(lowered: Lowered) -> float | None:
    """Decomposition loss: the parts, each alone with the SMs the schedule leaves, over the whole kernel alone."""
    gemm = lowered.scenario.workload.gemm
    parts = [
        (ops.rank, ops.kernel.alone_ticks) for ops in lowered.steps if ops.kernel and isinstance(ops.step, TileGroup)
    ]
    if gemm is None or not parts:
        return None
    whole = gemm_work(lowered.scenario.gpu, gemm, lowered.scenario.gpu.sms)
    per_rank = [sum(ticks for at, ticks in parts if at == rank) for rank in {rank for rank, _ in parts}]
    return max(per_rank) / whole.alone_ticks


def traffic_of(lowered: Lowered, run: Run) -> Traffic:
    """Bytes at one rank by the plan, of the rank with the most HBM traffic; flags as they were read."""
    ranks = sorted({ops.rank for ops in lowered.steps} or {0})
    found = [_traffic_at(lowered, [ops for ops in lowered.steps if ops.rank == rank]) for rank in ranks]
    most = max(found, key=lambda traffic: traffic.hbm_read_bytes + traffic.hbm_write_bytes)
    reads = _flag_reads(lowered.program, run)
    return replace(most, flag_reads=reads, flag_bytes=reads * lowered.program.unit_bytes)


def _flag_reads(program: Program, run: Run) -> int:
    """Units that polls read, of the rank that read most."""
    flags = program.flow_traffic == TrafficClass.FLAGS
    units = units_delivered(program, run.flow_last, run.op_polls)[flags]
    ranks = program.op_rank[program.stage_op[program.flow_stage[flags]]]
    return int(np.bincount(ranks, units, minlength=1).max())


def server_loads(program: Program, run: Run) -> tuple[ServerLoad, ...]:
    """Every declared server that did anything, at the rank where it was busiest."""
    busy = run.server_busy_ticks.sum(axis=1).reshape(-1, program.ranks_simulated)  # [declared servers, ranks]
    at_hop = units_delivered(program, run.flow_last, run.op_polls)[program.hop_flow]
    units = np.bincount(program.hop_server, at_hop, minlength=program.num_servers)
    waited = None
    if run.hop_wait_ticks is not None:
        waited = np.bincount(program.hop_server, run.hop_wait_ticks, minlength=program.num_servers)
    loads = []
    for number in np.flatnonzero(busy.max(axis=1, initial=0)).tolist():
        rank = int(busy[number].argmax())
        server = program.server_instance(number, rank)
        mean = None if waited is None else float(waited[server]) / max(1.0, float(units[server]))
        compute, comm, flags = run.server_busy_ticks[server].tolist()
        name = program.server_names[number]
        loads.append(ServerLoad(name, rank, compute, comm, flags, int(units[server]), mean))
    return tuple(loads)


def _traffic_at(lowered: Lowered, steps: list[StepOps]) -> Traffic:
    """Bytes that the steps of one rank move: its kernels', and each transfer at both ends as if both were here."""
    works = [ops.kernel for ops in steps if ops.kernel is not None]
    read = sum(work.hbm_read_bytes for work in works)
    written = sum(work.hbm_write_bytes for work in works)
    l2 = sum(work.l2_hit_bytes + work.hbm_read_bytes + work.hbm_write_bytes for work in works)
    links, by_sms = 0, lowered.schedule.engine.kind is EngineKind.SM
    for step in (ops.step for ops in steps):
        if isinstance(step, Transfer):
            size = moved_bytes(lowered.scenario, step.region)
            read += size * (2 if step.reduce else 1)
            written += size
            l2 += size if by_sms else 0
            distance = step.peer if step.direction is Direction.PUT else -step.peer
            links += size * lowered.hops_to[distance % lowered.scenario.num_ranks]
    return Traffic(read, written, l2, links, 0, 0)


def utilization_of(lowered: Lowered, run: Run) -> Utilization:
    """Busy share of each kind of resource, of the busiest instance or rank."""
    program, makespan = lowered.program, max(1, run.makespan_ticks)
    busy = run.server_busy_ticks.sum(axis=1) / makespan
    names = np.array([program.server_names[i // program.ranks_simulated] for i in range(program.num_servers)])

    def worst(prefixes: tuple[str, ...]) -> float:
        chosen = np.array([str(name).startswith(prefixes) for name in names])
        return float(busy[chosen].max()) if chosen.any() else 0.0

    return Utilization(
        sms=_pool_share(lowered, run, (OpKind.TILE, OpKind.REDUCE), lowered.schedule.compute_sms),
        engines=_pool_share(lowered, run, (OpKind.TRANSFER,), lowered.schedule.engine.count),
        hbm=worst(("hbm",)),
        l2=worst(("l2",)),
        links=worst(("link", "up", "down", "left", "right")),
    )


def _pool_share(lowered: Lowered, run: Run, kinds: tuple[OpKind, ...], slots: int) -> float:
    """Slot time in use over slot time there is, at the busiest rank."""
    program = lowered.program
    chosen = np.isin(program.op_kind, [int(kind) for kind in kinds]) & (run.op_done >= 0)
    held = np.bincount(program.op_rank[chosen], weights=(run.op_done - run.op_start)[chosen], minlength=1)
    return float(held.max()) / (max(1, run.makespan_ticks) * slots)
