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

from ..program.arrays import NONE, BoolArray, Int64Array, starts, take_rows
from ..program.checks import op_name
from ..program.program import Program
from .adjacency import Places, distinct


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
