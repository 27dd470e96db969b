"""What the compiled core works on: a Program and the state of its run as arrays of records.

A record has what belongs to one server, hop, flow and so on, so that what is used together lies together.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled_loop import BLOCK
from .control import IDLE
from .layout import NONE, Int64Array, starts
from .outcome import NEVER
from .program import Program
from .windows import window_ticks

Records = npt.NDArray[np.void]

_BLOCKS_AT_FIRST = 1 << 17
"""Blocks to begin with, 64 MiB, or those all units could need if that is less: what is not touched costs nothing."""


def _layout(*names: str) -> np.dtype[np.void]:
    return np.dtype([(name, np.int64) for name in names])


ENTRY = _layout("time", "what")  # of a heap
_SERVER = _layout("service", "latency", "free", "heap", "heads")  # heap: where among the heads its own begin
_STREAM = _layout("front", "back", "live")  # first unit and the place for the next; whether one is among the heads
UNIT = _layout("time", "hop")  # in a stream behind its head; room comes in blocks
_HOP = _layout("server", "stream", "injected", "following", "flow")  # injected: whether the first hop of its flow
_FLOW = _layout("first_hop", "gap", "offset", "to_inject", "to_deliver", "last", "stage", "in_train")
_STAGE = _layout("op", "hold", "end", "flows_left", "first_flow", "flows_end")
_OP = _layout(
    *("pool", "turn", "setup", "release", "waits", "stage", "stages_end", "first_follower", "followers_end"),
    *("ready", "start", "done"),
)
_POOL = _layout("slots", "queue", "queued", "stirred")  # queue: where in the queues its own begins
_COUNTS = _layout("window", "events", "stirred", "served", "free_block", "blocks")


class State(NamedTuple):
    """Everything a run knows; the arrays change in place."""

    servers: Records  # [S]
    streams: Records
    hops: Records  # [H]
    flows: Records  # [F]
    stages: Records  # [T]
    ops: Records  # [O]
    pools: Records  # [P]
    followers: Int64Array  # [E] ops that wait for an op
    by_turn: Int64Array  # [O] ops in order of (local id, rank)
    heads: Records  # a heap of (time, hop) for each server: heads of its streams, and trains that begin
    next_unit: Int64Array  # tree of minima; the latter half is by server, the time of its next unit or IDLE
    events: Records  # [O] heap of (time, op): whatever comes next for the op, so there is one at most
    queues: Records  # [O] a heap of (ready, turn) for each pool
    stirred: Int64Array  # [P] pools with a new slot or a new op in the queue
    units: Records  # blocks of units in streams; grows
    links: Int64Array  # [blocks] the block that continues this one, or the next that is free; grows
    counts: Records  # [1] W, and how much of the arrays above is in use


def initial_state(program: Program) -> State:
    """The state before anything has happened."""
    ops, by_turn = _op_records(program)
    events, num_events = _first_events(program)
    hops, num_streams, heads_by_server = _hop_records(program)
    queued = np.bincount(program.op_pool[program.op_pool != NONE], minlength=len(program.pool_slots))
    leaves = 1 << max(program.num_servers - 1, 1).bit_length()
    own_blocks = np.arange(num_streams) * BLOCK  # each stream begins with one
    most_blocks = 2 * num_streams + (int(program.flow_units.sum()) + program.num_flows) // BLOCK
    num_blocks = max(num_streams, min(most_blocks, _BLOCKS_AT_FIRST))
    return State(
        servers=_records(
            _SERVER,
            program.num_servers,
            service=program.service_ticks,
            latency=program.latency_ticks,
            heap=starts(heads_by_server)[:-1],
        ),
        streams=_records(_STREAM, num_streams, front=own_blocks, back=own_blocks),
        hops=hops,
        flows=_flow_records(program),
        stages=_stage_records(program),
        ops=ops,
        pools=_records(_POOL, len(program.pool_slots), slots=program.pool_slots, queue=starts(queued)[:-1]),
        followers=np.ascontiguousarray(program.op_next),
        by_turn=by_turn,
        heads=np.zeros(heads_by_server.sum(), ENTRY),
        next_unit=np.full(2 * leaves, IDLE, np.int64),
        events=events,
        queues=np.zeros(program.num_ops, ENTRY),
        stirred=np.zeros(len(program.pool_slots), np.int64),
        units=np.empty(num_blocks * BLOCK, UNIT),
        links=np.empty(num_blocks, np.int64),
        counts=_records(
            _COUNTS, 1, window=window_ticks(program), events=num_events, free_block=NONE, blocks=num_streams
        ),
    )


def _records(layout: np.dtype[np.void], count: int, /, **columns: Int64Array | int) -> Records:
    """[count] records, zero where no column is given."""
    records = np.zeros(count, layout)
    for name, values in columns.items():
        records[name] = values
    return records


def _first_events(program: Program) -> tuple[Records, int]:
    """[O] the heap of events, with the readies of ops that wait for none, and how many those are."""
    first = np.flatnonzero(program.op_num_waits == 0)
    first = first[np.argsort(program.op_release_ticks[first], kind="stable")]  # what is sorted is a heap
    events = np.zeros(program.num_ops, ENTRY)
    events["time"][: len(first)], events["what"][: len(first)] = program.op_release_ticks[first], first
    return events, len(first)


def _hop_records(program: Program) -> tuple[Records, int, Int64Array]:
    """The hops, how many streams there are, and [S] how many heads there can be at a server at one time."""
    source = np.full(program.num_hops, NONE, np.int64)  # server a unit comes from
    inner = program.hop_next != NONE
    source[program.hop_next[inner]] = program.hop_server[inner]
    injected = source == NONE
    gap = np.where(injected, program.flow_gap_ticks[program.hop_flow], 0)
    # What agrees in the server it reaches, the server it comes from and the gap is one stream.
    order = np.lexsort((gap, source, program.hop_server))
    keys = np.stack((program.hop_server, source, gap))[:, order]
    begins = np.ones(program.num_hops, np.bool_)  # in that order, whether a stream begins
    begins[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    stream = np.empty(program.num_hops, np.int64)
    stream[order] = np.cumsum(begins) - 1
    columns = {"server": program.hop_server, "following": program.hop_next, "flow": program.hop_flow}
    records = _records(_HOP, program.num_hops, stream=stream, injected=injected, **columns)
    # Heads at a server are those of streams between servers and, for each flow injected there, one of its train.
    first = np.zeros(program.num_hops, np.bool_)  # [H] of its stream
    first[order[begins]] = True
    heads = program.hop_server[first | injected]
    return records, int(begins.sum()), np.bincount(heads, minlength=program.num_servers)


def _flow_records(program: Program) -> Records:
    return _records(
        _FLOW,
        program.num_flows,
        first_hop=program.flow_first_hop,
        gap=program.flow_gap_ticks,
        offset=program.flow_offset_ticks,
        to_inject=program.flow_units,
        to_deliver=program.flow_units,
        last=NEVER,
        stage=program.flow_stage,
    )


def _stage_records(program: Program) -> Records:
    has_units = program.flow_units > 0
    return _records(
        _STAGE,
        program.num_stages,
        op=program.stage_op,
        hold=program.stage_hold_ticks,
        flows_left=np.bincount(program.flow_stage[has_units], minlength=program.num_stages),
        first_flow=program.stage_flow_ptr[:-1],
        flows_end=program.stage_flow_ptr[1:],
    )


def _op_records(program: Program) -> tuple[Records, Int64Array]:
    """The ops, and [O] the order in which they are served of those that got ready at one time."""
    by_turn = np.lexsort((program.op_rank, program.op_local_id))  # the last key counts first; then construction
    turn = np.empty(program.num_ops, np.int64)
    turn[by_turn] = np.arange(program.num_ops)
    records = _records(
        _OP,
        program.num_ops,
        pool=program.op_pool,
        turn=turn,
        setup=program.op_setup_ticks,
        release=program.op_release_ticks,
        waits=program.op_num_waits,
        stage=program.op_stage_ptr[:-1],
        stages_end=program.op_stage_ptr[1:],
        first_follower=program.op_next_ptr[:-1],
        followers_end=program.op_next_ptr[1:],
        ready=NEVER,
        start=NEVER,
        done=NEVER,
    )
    return records, by_turn
