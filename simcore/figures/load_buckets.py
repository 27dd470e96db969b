"""From a run to the loads of links and memories over time.

A run knows when each op began, and when the last unit of each flow was delivered. Between the time at which its first
unit can reach a server, and that at which its last must have left there, a flow is spread evenly. Where flows that
share a server add up to more than it can serve in a bucket, the rest is served in the next, as in the queue; so a
bucket is never more than full, and what a server served in all is what the run says.
"""

from dataclasses import dataclass

import numpy as np

from ..cores.endings import units_delivered
from ..lower.steps import LoweredPart
from ..program.arrays import NONE, FloatArray, Int64Array
from ..program.outcome import NEVER, Run
from ..program.program import Program
from .loads import Load, LoadKind, Loads, bucket_edges

MAX_BUCKETS = 256
MIN_BUCKETS = 16
MAX_CELLS = 1 << 15
"""Links and memories times buckets: more links have fewer buckets, of which there are ``MIN_BUCKETS`` at least."""


@dataclass(frozen=True, slots=True)
class _Resource:
    """What carries a load, and its server instances."""

    kind: LoadKind
    name: str
    source: int
    target: int
    servers: tuple[int, ...]


def loads_of(lowered: LoweredPart, run: Run) -> Loads:
    """Loads of all links and memories of the simulated ranks."""
    program = lowered.program
    resources = _resources(lowered, run)
    num_buckets = max(MIN_BUCKETS, min(MAX_BUCKETS, MAX_CELLS // max(1, len(resources))))
    span = max(run.makespan_ticks, int(run.flow_last.max(initial=0)))
    edges = bucket_edges(span, num_buckets)
    row_of = np.full(program.num_servers, NONE, np.int64)
    for row, resource in enumerate(resources):
        row_of[list(resource.servers)] = row
    busy = _spread(program, run, row_of, edges, len(resources))
    room = np.diff(edges) * np.array([len(resource.servers) for resource in resources], np.int64).reshape(-1, 1)
    return Loads(
        span_ticks=span,
        num_buckets=num_buckets,
        unit_bytes=program.unit_bytes,
        period=program.ranks_simulated,
        each=tuple(
            Load(
                resource.kind,
                resource.name,
                resource.source,
                resource.target,
                int(program.service_ticks[resource.servers[0]]),
                len(resource.servers),
                tuple(ticks),
            )
            for resource, ticks in zip(resources, _queued(busy, room).tolist(), strict=True)
        ),
    )


def _resources(lowered: LoweredPart, run: Run) -> list[_Resource]:
    """What was busy: links in the order of the network's edges, then the memory of each rank."""
    ranks, machine = lowered.program.ranks_simulated, lowered.machine
    network = machine.network
    number_at = {link: number for number, link in enumerate(machine.links)}
    memory = machine.memory[0]
    channels = range(memory.hbm, memory.hbm + memory.channels)
    links: dict[tuple[int, int], _Resource] = {}
    memories: dict[int, _Resource] = {}
    for instance in np.flatnonzero(run.server_busy_ticks.any(axis=1)).tolist():
        server, rank = divmod(instance, ranks)
        home = rank % network.period
        if (server, home) in number_at:
            number, shift = number_at[server, home], rank - home
            edge = network.shifted(network.own[number], shift)
            links[shift, number] = _Resource(LoadKind.LINK, edge.name, *edge.ends, (instance,))
        elif server in channels:
            servers = tuple(channel * ranks + rank for channel in channels)
            memories[rank] = _Resource(LoadKind.HBM, LoadKind.HBM.value, rank, rank, servers)
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
    order = np.lexsort((program.hop_index, program.hop_flow))
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
    asked, could = np.cumsum(busy, axis=1), np.cumsum(room, axis=1)
    # Served by the end of a bucket: all that was asked for by some earlier time, and from then on as much as could be.
    served = could + np.minimum(0, np.minimum.accumulate(asked - could, axis=1))
    # What the rest of the time has no room for must have been served before.
    served = np.maximum(served, asked[:, -1:] - (could[:, -1:] - could))
    return np.diff(served, axis=1, prepend=0)
