"""Positions of the parts of a Program: hops in their ops, hops in a server's order of ties, ops in a pool's queue.

Two parts in the same position of two ranks are alike if all parts they touch are alike; folding rests on this. Axes are
those of ``Program``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..program.arrays import NONE, Int64Array, grouped, starts
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
