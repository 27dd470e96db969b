"""From a run to its traffic, and to the loads of links and memories over time.

A run knows when each op began, and when the last unit of each flow was delivered. Between the time at which its first
unit can reach a server, and that at which its last must have left there, a flow is spread evenly. Where flows that
share a server add up to more than it can serve in a bucket, the rest is served in the next, as in the queue; so a
bucket is never more than full, and what a server served in all is what the run says.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import reduce
from operator import add, attrgetter, itemgetter

import numpy as np

from ...compiler.ir import EngineKind, Reach, Transfer, kernels_that_store
from ..cores.endings import units_delivered
from ..lower.copies import ends_of
from ..lower.machine import sent_per_byte
from ..lower.state import StepOps, moved_bytes
from ..lower.steps import LoweredPart
from ..program.arrays import NONE, FloatArray, Int64Array, order_by
from ..program.program import NEVER, OpKind, Program, Run, TrafficClass
from .result import Interval, IntervalKind, Load, LoadKind, Loads, Timeline, Traffic, bucket_edges

# Spans of time: what intervals of a Timeline cover, and where copies run and no kernel does.

Span = tuple[int, int]
"""Begin and end in ticks, the end not included."""


def union_of(intervals: Iterable[Interval]) -> tuple[Span, ...]:
    """Spans in which at least one of ``intervals`` runs, in order of time; they neither meet nor overlap."""
    return union_of_spans((each.start_ticks, each.end_ticks) for each in intervals if each.ticks > 0)


def union_of_spans(each: Iterable[Span]) -> tuple[Span, ...]:
    """The same time in spans that are in order, and neither meet nor overlap."""
    spans: list[Span] = []
    for start, end in sorted(each):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return tuple(spans)


def union_ticks(intervals: Iterable[Interval]) -> int:
    """Time during which at least one of ``intervals`` runs."""
    return total_ticks(union_of(intervals))


def exposed_spans(timeline: Timeline, rank: int) -> tuple[Span, ...]:
    """Spans in which transfers of ``rank`` run and none of its kernels does.

    At the rank that is busy longest their sum is ``union_ticks - compute_ticks`` of the Result.
    """
    own = timeline.of_rank(rank)
    kernels = union_of(each for each in own if each.kind is not IntervalKind.COMM)
    exposed: list[Span] = []
    place = 0
    for start, end in union_of(each for each in own if each.kind is IntervalKind.COMM):
        while place < len(kernels) and kernels[place][1] <= start:
            place += 1
        at, reached = place, start
        while at < len(kernels) and kernels[at][0] < end:
            if kernels[at][0] > reached:
                exposed.append((reached, kernels[at][0]))
            reached = kernels[at][1]
            at += 1
        if reached < end:
            exposed.append((reached, end))
    return tuple(exposed)


def overlap_ticks(some: Sequence[Span], others: Sequence[Span]) -> int:
    """The time that lies in both, each in order and without overlaps."""
    total, place = 0, bisect_right(others, some[0][0], key=itemgetter(1)) if some else 0
    for start, end in some:
        while place < len(others) and others[place][1] <= start:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            total += min(end, others[at][1]) - max(start, others[at][0])
            at += 1
    return total


def total_ticks(spans: Iterable[Span]) -> int:
    """Sum of the lengths of ``spans``."""
    return sum(end - start for start, end in spans)


MAX_BUCKETS = 256
MIN_BUCKETS = 16
MAX_CELLS = 1 << 15
"""Links and memories times buckets: more links have fewer buckets, of which there are ``MIN_BUCKETS`` at least."""


def loads_of(lowered: LoweredPart, run: Run) -> Loads:
    """Loads of all links and memories of the simulated ranks."""
    program = lowered.program
    resources = _resources(lowered, run)
    num_buckets = max(MIN_BUCKETS, min(MAX_BUCKETS, MAX_CELLS // max(1, len(resources))))
    span = max(run.makespan_ticks, int(run.flow_last.max(initial=0)))
    edges = bucket_edges(span, num_buckets)
    row_of = np.full(program.num_servers, NONE, np.int64)
    for row, (_, servers) in enumerate(resources):
        row_of[list(servers)] = row
    busy = _spread(program, run, row_of, edges, len(resources))
    room = np.diff(edges) * np.array([load.num_servers for load, _ in resources], np.int64).reshape(-1, 1)
    return Loads(
        span_ticks=span,
        num_buckets=num_buckets,
        unit_bytes=program.unit_bytes,
        period=program.ranks_simulated,
        each=tuple(
            replace(load, busy_ticks=tuple(ticks))
            for (load, _), ticks in zip(resources, _queued(busy, room).tolist(), strict=True)
        ),
    )


def _resources(lowered: LoweredPart, run: Run) -> list[tuple[Load, tuple[int, ...]]]:
    """What was busy, without its ticks, and its servers: links in the order of edges, then the memory of each rank."""
    program, machine = lowered.program, lowered.machine
    ranks, network = program.ranks_simulated, machine.network
    number_at = {link: number for number, link in enumerate(machine.links)}
    memory = machine.memory[0]
    channels = range(memory.hbm, memory.hbm + memory.channels)
    links: dict[tuple[int, int], tuple[Load, tuple[int, ...]]] = {}
    memories: dict[int, tuple[Load, tuple[int, ...]]] = {}
    for instance in np.flatnonzero(run.server_busy_ticks.any(axis=1)).tolist():
        server, rank = divmod(instance, ranks)
        home, ticks = rank % network.period, int(program.service_ticks[instance])
        if (server, home) in number_at:
            number, shift = number_at[server, home], rank - home
            edge = network.shifted(network.own[number], shift)
            links[shift, number] = Load(LoadKind.LINK, edge.name, *edge.ends, ticks, 1, ()), (instance,)
        elif server in channels:
            servers = tuple(channel * ranks + rank for channel in channels)
            memories[rank] = Load(LoadKind.HBM, LoadKind.HBM.value, rank, rank, ticks, len(servers), ()), servers
    return [*(links[place] for place in sorted(links)), *(memories[rank] for rank in sorted(memories))]


def _spread(program: Program, run: Run, row_of: Int64Array, edges: Int64Array, num_rows: int) -> Int64Array:
    """[rows, B] service ticks in each bucket, as if servers could serve any number at a time."""
    num_buckets = len(edges) - 1
    begins, ends = _hop_spans(program, run)
    work = (
        units_delivered(program, run.flow_last, run.op_polls)[program.hop_flow]
        * program.service_ticks[program.hop_server]
    )
    row = row_of[program.hop_server]
    kept = np.flatnonzero((row != NONE) & (work > 0))
    row, work, begins, ends = row[kept], work[kept], begins[kept], ends[kept]
    first = np.clip(np.searchsorted(edges, begins, "right") - 1, 0, num_buckets - 1)
    last = np.clip(np.searchsorted(edges, ends, "left") - 1, first, num_buckets - 1)
    rate = work / (ends - begins)
    in_first = np.where(first == last, work, rate * (edges[first + 1] - begins))
    in_last = np.where(first == last, 0.0, rate * (ends - edges[last]))

    def added(bucket: Int64Array, amount: FloatArray, width: int = num_buckets) -> FloatArray:
        """[rows, width] sums of ``amount``."""
        sums = np.bincount(row * width + bucket, amount, num_rows * width).astype(np.float64)
        return sums.reshape(num_rows, width)

    between = first < last
    # The rate holds in all buckets between the two.
    steps = added(first + 1, rate * between, num_buckets + 1) - added(last, rate * between, num_buckets + 1)
    inner = np.cumsum(steps, axis=1)[:, :num_buckets] * np.diff(edges)
    so_far = np.rint(np.cumsum(added(first, in_first) + added(last, in_last) + inner, axis=1)).astype(np.int64)
    totals = np.zeros(num_rows, np.int64)
    np.add.at(totals, row, work)
    so_far = np.minimum(np.maximum.accumulate(so_far, axis=1), totals[:, None])
    so_far[:, -1] = totals
    return np.diff(so_far, axis=1, prepend=0)


def _hop_spans(program: Program, run: Run) -> tuple[Int64Array, Int64Array]:
    """[H] when the first unit of each flow-hop can reach its server, and when the last has left it; at least a tick."""
    order = order_by(program.hop_flow, program.hop_index)
    flow, latency = program.hop_flow[order], program.latency_ticks[program.hop_server[order]]
    passed = np.concatenate([[0], np.cumsum(latency)])
    first = np.searchsorted(flow, np.arange(program.num_flows))
    after = np.searchsorted(flow, np.arange(program.num_flows), "right")
    before_hop = passed[:-1] - passed[first][flow]
    from_hop = passed[after][flow] - passed[:-1]
    begins, ends = np.empty(program.num_hops, np.int64), np.empty(program.num_hops, np.int64)
    starts = _stage_begins(program, run)[program.flow_stage] + program.flow_offset_ticks
    begins[order] = starts[flow] + before_hop
    ends[order] = run.flow_last[flow] - from_hop
    return begins, np.maximum(ends, begins + 1)


def _stage_begins(program: Program, run: Run) -> Int64Array:
    """[T] when each stage began: set up, or at the end of the stage before it in its op."""
    last = np.full(program.num_stages, NEVER, np.int64)
    np.maximum.at(last, program.flow_stage, run.flow_last)
    begins = np.zeros(program.num_stages, np.int64)
    number = np.arange(program.num_stages) - program.op_stage_ptr[program.stage_op]
    for place in range(int(number.max(initial=-1)) + 1):
        here = np.flatnonzero(number == place)
        op = program.stage_op[here]
        if place == 0:
            begins[here] = run.op_start[op] + program.op_setup_ticks[op]
        else:
            begins[here] = np.maximum(begins[here - 1] + program.stage_hold_ticks[here - 1], last[here - 1])
    return begins


def _queued(busy: Int64Array, room: Int64Array) -> Int64Array:
    """[rows, B] ``busy`` with what does not fit into a bucket served in the next, at the end in those before."""
    requested, could = np.cumsum(busy, axis=1), np.cumsum(room, axis=1)
    # Served by the end of a bucket: all that was asked for by some earlier time, and from then on as much as could be.
    served = could + np.minimum(0, np.minimum.accumulate(requested - could, axis=1))
    # What the rest of the time has no room for must have been served before.
    served = np.maximum(served, requested[:, -1:] - (could[:, -1:] - could))
    return np.diff(served, axis=1, prepend=0)


def traffic_of(parts: Sequence[LoweredPart], run: Run) -> Traffic:
    """Bytes at one rank by the plans of ``parts``, of the rank with the most HBM traffic; flags as they were read."""
    ranks = sorted({ops.rank for part in parts for ops in part.steps} or {0})
    by_rank = [
        reduce(_sum, (traffic_at(part, [ops for ops in part.steps if ops.rank == rank]) for part in parts))
        for rank in ranks
    ]
    busiest = max(by_rank, key=lambda traffic: traffic.hbm_read_bytes + traffic.hbm_write_bytes)
    reads = _flag_reads(parts[0].program, run)
    return replace(busiest, flag_reads=reads, flag_bytes=reads * parts[0].scenario.gpu.line_bytes)


_BYTES = attrgetter(*(each.name for each in fields(Traffic)))


def _sum(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(*map(add, _BYTES(one), _BYTES(other)))


def _flag_reads(program: Program, run: Run) -> int:
    """Reads of flags, of the rank that read most; a copy that sends a flag reads none."""
    op = program.stage_op[program.flow_stage]
    flags = (program.flow_traffic == TrafficClass.FLAGS) & (program.op_kind[op] != OpKind.TRANSFER)
    if not flags.any():
        return 0
    units = units_delivered(program, run.flow_last, run.op_polls)[flags]
    return int(np.bincount(program.op_rank[op[flags]], units, minlength=1).max())


def traffic_at(lowered: LoweredPart, steps: list[StepOps]) -> Traffic:
    """Bytes that the steps of one rank move: its kernels', and each transfer at both ends as if both were here."""
    works = [ops.kernel for ops in steps if ops.kernel is not None]
    read = sum(work.hbm_read_bytes for work in works)
    written = sum(work.hbm_write_bytes for work in works)
    l2 = sum(work.l2_hit_bytes + work.below_l2_bytes + work.hbm_write_bytes for work in works)
    links = 0
    stored = kernels_that_store([ops.step for ops in steps]) if lowered.schedule.engine.by_tiles else {}
    for ops in steps:
        if isinstance(ops.step, Transfer):
            moved = _copied(lowered, ops.rank, ops.step)
            # What a kernel stores from its registers is read nowhere.
            unread = moved_bytes(lowered.scenario, ops.step.region) if ops.step.name in stored else 0
            read += moved.hbm_read_bytes - unread
            written += moved.hbm_write_bytes
            l2 += moved.l2_bytes - unread
            links += moved.link_bytes
    return Traffic(read, written, l2, links, 0, 0)


def _copied(lowered: LoweredPart, rank: int, step: Transfer) -> Traffic:
    """Bytes that one transfer moves, flags in between included where they are sent with the data."""
    size, n = moved_bytes(lowered.scenario, step.region), lowered.scenario.num_ranks
    sent = int(size * sent_per_byte(lowered.schedule))
    through_l2 = size if lowered.scenario.mover(lowered.schedule.engine, step, rank) is EngineKind.SM else 0
    if step.reach is Reach.PEER:
        hits = int(size * lowered.hits.at_source(rank, step)), int(size * lowered.hits.at_target(rank, step))
        read = size + (sent if step.reduce else 0) - sum(hits)
        if lowered.machine.memory[0].mall is None:
            through_l2 += hits[1] + (0 if through_l2 else hits[0])
        source, target = (end % n for end in ends_of(rank, step))
        return Traffic(read, sent, through_l2, sent * lowered.machine.network.num_links(source, target), 0, 0)
    if step.reduce:
        return Traffic(n * size, size, n * through_l2, (n + 1) * size, 0, 0)
    return Traffic(size, (n - 1) * size, through_l2, n * size, 0, 0)
