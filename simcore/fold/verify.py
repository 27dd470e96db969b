"""The exact check, without hashes, that members of a class have the same times.

A partition is good if it is a covering; then all members of a class have the same integer times, by induction on time:
what leaves a server or pool depends on the sequence of (time, class) that enters it, on when there is room behind it,
and on nothing else. The conditions of ``Condition`` make it one. They are checked on the program's arrays, whoever
found the partition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from ..program.arrays import NONE, BoolArray, Int64Array, grouped, starts, take_rows
from ..program.limits import op_name
from ..program.program import Program

UInt64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Places:
    """Positions and the tables they are read from; tables are held as pointers."""

    op_flow_ptr: Int64Array  # [O + 1] flows of the op
    op_hop_ptr: Int64Array  # [O + 1] into op_hops
    op_hops: Int64Array  # [H] hop numbers by op, flow and place in the route
    hop_op: Int64Array  # [H] by hop number
    hop_slot: Int64Array  # [H] by hop number: position among the hops of its op
    server_hop_ptr: Int64Array  # [S + 1] into server_hops
    server_hops: Int64Array  # [H] hop numbers by server, in the order of ties
    hop_position: Int64Array  # [H] by hop number: position in the order of its server
    pool_op_ptr: Int64Array  # [P + 1] into pool_ops
    pool_ops: Int64Array  # [ops with a pool] by pool, in the order of ops that are ready at the same time
    op_position: Int64Array  # [O] position in that order, NONE for ops without a pool
    wait_ptr: Int64Array  # [O + 1] into waits
    waits: Int64Array  # [E] ops waited for, by the op that waits
    flag_ptr: Int64Array  # [O + 1] into flags
    flags: Int64Array  # [G] ops that set a flag, by the op that polls for it
    hop_way_out: Int64Array  # [H] by hop number: position of the first hop of its server with the same buffer, or NONE

    @classmethod
    def of(cls, program: Program) -> "Places":
        """Read them off ``program``."""
        op_flow_ptr = program.stage_flow_ptr[program.op_stage_ptr]
        op_hop_ptr = starts(program.flow_num_hops)[op_flow_ptr]
        op_hops = np.empty(program.num_hops, np.int64)
        op_hops[starts(program.flow_num_hops)[program.hop_flow] + program.hop_index] = np.arange(program.num_hops)
        hop_op = program.stage_op[program.flow_stage[program.hop_flow]]
        hop_slot = np.empty(program.num_hops, np.int64)
        hop_slot[op_hops] = np.arange(program.num_hops) - op_hop_ptr[hop_op[op_hops]]

        server_hop_ptr = starts(np.bincount(program.hop_server, minlength=program.num_servers))
        server_hops = grouped(program.hop_server, program.num_servers)  # hop numbers are the order of ties
        hop_position = np.empty(program.num_hops, np.int64)
        hop_position[server_hops] = np.arange(program.num_hops) - server_hop_ptr[program.hop_server[server_hops]]

        pooled = np.flatnonzero(program.op_pool != NONE)
        queue = np.lexsort((pooled, program.op_rank[pooled], program.op_local_id[pooled], program.op_pool[pooled]))
        pool_ops = pooled[queue]
        pool_op_ptr = starts(np.bincount(program.op_pool[pooled], minlength=len(program.pool_slots)))
        op_position = np.full(program.num_ops, NONE, np.int64)
        op_position[pool_ops] = np.arange(len(pool_ops)) - pool_op_ptr[program.op_pool[pool_ops]]

        sources = np.repeat(np.arange(program.num_ops), np.diff(program.op_next_ptr))  # [E]
        setters = np.repeat(np.arange(program.num_ops), np.diff(program.op_sets_ptr))  # [G]
        return cls(
            op_flow_ptr=op_flow_ptr,
            op_hop_ptr=op_hop_ptr,
            op_hops=op_hops,
            hop_op=hop_op,
            hop_slot=hop_slot,
            server_hop_ptr=server_hop_ptr,
            server_hops=server_hops,
            hop_position=hop_position,
            pool_op_ptr=pool_op_ptr,
            pool_ops=pool_ops,
            op_position=op_position,
            wait_ptr=starts(program.op_num_waits),
            waits=sources[np.argsort(program.op_next, kind="stable")],
            flag_ptr=starts(program.op_num_flags),
            flags=setters[np.argsort(program.op_sets, kind="stable")],
            hop_way_out=_ways_out(program, hop_position),
        )


def _ways_out(program: Program, hop_position: Int64Array) -> Int64Array:
    """[H] position of the first hop at the server that goes into the same buffer, NONE without a buffer."""
    first = np.full(len(program.buffer_units) + 1, program.num_hops, np.int64)
    np.minimum.at(first, program.hop_buffer, hop_position)
    first[-1] = NONE  # and so is the last
    ways: Int64Array = first[program.hop_buffer]
    return ways


def mix(*columns: Int64Array | UInt64Array) -> UInt64Array:
    """Hash equally long columns row by row, in order; overflow is meant."""
    mixed = np.full(len(columns[0]), 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        mixed ^= column.view(np.uint64)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def row_sums(pointers: Int64Array, hashes: UInt64Array) -> UInt64Array:
    """Sum of each row of a table held as pointers, modulo 2^64: a hash of the row as a multiset."""
    total = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes, out=total[1:])
    return total[pointers[1:]] - total[pointers[:-1]]


def distinct(values: Int64Array) -> Int64Array:
    """Values in ascending order without repeats; ``np.unique`` would hash them, which takes several times as long."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def op_attributes(program: Program, places: Places) -> UInt64Array:
    """[O] hash of what an op does, wherever it does it: kind, times, and its stages and flows in order."""
    stages = mix(
        np.arange(program.num_stages) - program.op_stage_ptr[program.stage_op],
        program.stage_hold_ticks,
        program.stage_polls.astype(np.int64),
        np.diff(program.stage_flow_ptr),
    )
    flows = mix(
        np.arange(program.num_flows) - places.op_flow_ptr[program.stage_op[program.flow_stage]],
        program.flow_units,
        program.flow_gap_ticks,
        program.flow_offset_ticks,
        program.flow_traffic,
        program.flow_window_units,
        program.flow_num_hops,
    )
    return mix(
        program.op_kind,
        program.op_setup_ticks,
        program.op_release_ticks,
        program.op_priority,
        row_sums(program.op_stage_ptr, stages),
        row_sums(places.op_flow_ptr, flows),
    )


class Condition(Enum):
    """Condition between any two members of a class; the value says it."""

    ATTRIBUTES = "equal attributes"
    WAITS = "the same sets of op classes waited for and polled for"
    BUFFERS = "the same buffers behind the server, shared by the same flow-hops"
    ROUTES = "the same pool class, and the same server classes hop by hop"
    ONE_OF_EACH = "exactly one flow-hop or op of every class that the class sees"
    ORDER = "the same sequence of classes in the order of ties"


class FoldError(ValueError):
    """A partition that is no covering: ``members`` share a class and break ``condition``."""

    def __init__(self, condition: Condition, member: str, other: str) -> None:
        super().__init__(f"{member} cannot share a class with {other}, for want of {condition.value}")
        self.condition = condition
        self.members = (member, other)


@dataclass(frozen=True, slots=True)
class Things:
    """Servers, pools or ops: for each the one that stands for its class, and names for reading."""

    like: Int64Array  # [things]
    name: Callable[[int], str]

    def require(self, condition: Condition, pointers: Int64Array | None, *columns: Int64Array | BoolArray) -> None:
        """Every row of a table held as pointers must equal the row of the thing that stands for its class.

        Without pointers each thing has one entry in every column.
        """
        if pointers is None:
            pointers = np.arange(len(self.like) + 1)
        lengths = np.diff(pointers)
        unlike = lengths != lengths[self.like]
        if not unlike.any():
            _, entries = take_rows(pointers, self.like)
            rows = np.repeat(np.arange(len(self.like)), lengths)
            for column in columns:
                unlike[rows[column != column[entries]]] = True
        if unlike.any():
            thing = int(np.flatnonzero(unlike)[0])
            raise FoldError(condition, self.name(thing), self.name(int(self.like[thing])))


@dataclass(frozen=True, slots=True)
class Covering:
    """A partition that was found to be one: for each flow [F] and flow-hop [H] the member that stands for it."""

    like_flow: Int64Array
    like_hop: Int64Array


def verify(
    program: Program, places: Places, like_op: Int64Array, like_server: Int64Array, like_pool: Int64Array
) -> Covering:
    """Check the partition in which ``like_*`` [O], [S], [P] names the member that stands for each op, server, pool.

    Raises
    ------
    FoldError
        If it is no covering.
    """
    ops = Things(like_op, lambda op: op_name(program, op))
    servers = Things(like_server, program.server_name)
    pools = Things(like_pool, program.pool_name)
    _verify_attributes(program, places, ops, servers, pools)
    # Ops alike have as many flows and hops: the n-th of one is like the n-th of the other.
    first_flow, flow_op = places.op_flow_ptr[:-1], program.stage_op[program.flow_stage]
    like_flow = np.arange(program.num_flows) + (first_flow[like_op] - first_flow)[flow_op]
    like_hop = places.op_hops[places.op_hop_ptr[like_op[places.hop_op]] + places.hop_slot]
    _verify_neighbours(program, places, ops, servers, pools)
    hops, queued = places.server_hops, places.pool_ops
    _verify_seen(
        servers, places.server_hop_ptr, like_hop[hops], lambda i: op_name(program, int(places.hop_op[hops[i]]))
    )
    _verify_seen(pools, places.pool_op_ptr, like_op[queued], lambda i: op_name(program, int(queued[i])))
    return Covering(like_flow, like_hop)


def _verify_attributes(program: Program, places: Places, ops: Things, servers: Things, pools: Things) -> None:
    servers.require(Condition.ATTRIBUTES, None, program.service_ticks, program.latency_ticks)
    pools.require(Condition.ATTRIBUTES, None, program.pool_slots)
    times = (program.op_setup_ticks, program.op_release_ticks)
    ops.require(Condition.ATTRIBUTES, None, program.op_kind, program.op_priority, *times)
    stages = (program.stage_hold_ticks, program.stage_polls, np.diff(program.stage_flow_ptr))
    ops.require(Condition.ATTRIBUTES, program.op_stage_ptr, *stages)
    injected = (program.flow_units, program.flow_gap_ticks, program.flow_offset_ticks)
    rest = (program.flow_window_units, program.flow_traffic, program.flow_num_hops)
    ops.require(Condition.ATTRIBUTES, places.op_flow_ptr, *injected, *rest)
    hops = places.server_hops
    buffer = program.hop_buffer[hops]
    room, credit = (np.append(a, NONE)[buffer] for a in (program.buffer_units, program.buffer_credit_ticks))
    servers.require(Condition.BUFFERS, places.server_hop_ptr, places.hop_way_out[hops], room, credit)


def _verify_neighbours(program: Program, places: Places, ops: Things, servers: Things, pools: Things) -> None:
    """Check the waits, pools and routes of ops."""
    ptr, waits = _sorted_sets(places.wait_ptr, ops.like[places.waits])
    ops.require(Condition.WAITS, ptr, waits)
    ptr, flags = _sorted_sets(places.flag_ptr, ops.like[places.flags])
    ops.require(Condition.WAITS, ptr, flags)
    queue = np.append(pools.like, NONE)[program.op_pool]  # [O]; NONE is -1, the last
    ops.require(Condition.ROUTES, None, queue)
    passed = servers.like[program.hop_server[places.op_hops]]  # [H] by op
    ops.require(Condition.ROUTES, places.op_hop_ptr, passed)


def _verify_seen(things: Things, pointers: Int64Array, seen: Int64Array, name: Callable[[int], str]) -> None:
    """Check the order of ties at each server or pool: one of each class, the same classes, in the same order.

    ``seen`` [entries] tells classes by the member that stands for each; ``name`` names the op of an entry.
    """
    ptr, classes = _sorted_sets(pointers, seen)
    crowded = np.flatnonzero(np.diff(ptr) != np.diff(pointers))
    if len(crowded):
        first, end = pointers[crowded[0]], pointers[crowded[0] + 1]
        by_class = first + np.argsort(seen[first:end], kind="stable")
        twice = np.flatnonzero(np.diff(seen[by_class]) == 0)[0]
        raise FoldError(Condition.ONE_OF_EACH, name(int(by_class[twice])), name(int(by_class[twice + 1])))
    things.require(Condition.ONE_OF_EACH, ptr, classes)
    things.require(Condition.ORDER, pointers, seen)


def _sorted_sets(pointers: Int64Array, values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Each row of a table held as pointers in ascending order, and without repeats."""
    num_rows, stride = len(pointers) - 1, int(values.max(initial=0)) + 1
    rows = np.repeat(np.arange(num_rows), np.diff(pointers))
    row, value = np.divmod(distinct(rows * stride + values), stride)
    return starts(np.bincount(row, minlength=num_rows)), value
