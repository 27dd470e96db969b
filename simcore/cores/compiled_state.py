"""What the compiled core works on: a Program and the state of its run as arrays of records.

A record has what belongs to one server, hop, flow and so on, so that what is used together lies together.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..program.arrays import NONE, BoolArray, Int64Array, buffer_feeders, buffers_left, previous_hops, starts
from ..program.outcome import NEVER
from ..program.program import Program
from .compiled_loop import BLOCK
from .op_scheduler import IDLE
from .windows import window_ticks

Records = npt.NDArray[np.void]

_BLOCKS_AT_FIRST = 1 << 17
"""Blocks to begin with, 64 MiB, or those all units could need if that is less: what is not touched costs nothing."""


def _layout(*names: str) -> np.dtype[np.void]:
    return np.dtype([(name, np.int64) for name in names])


ENTRY = _layout("time", "what")  # of a heap; or a unit in a stream and its hop
# heap: where among the heads its own begin; waits_for: the buffer in which its first unit has no room, or NONE
_SERVER = _layout("service", "latency", "free", "heap", "heads", "waits_for")
_STREAM = _layout("front", "back", "live")  # first unit and the place for the next; whether one is among the heads
BYTES_A_BLOCK = BLOCK * ENTRY.itemsize + np.dtype(np.int64).itemsize
# train: whether a train brings units here; buffer: which they go to; leaves_buffer: which they come through
_HOP = _layout("server", "stream", "train", "following", "flow", "buffer", "leaves_buffer", "waited")
# window: 0 for a train; injected: the latest injection of one with a window; in_train: whether it is in the stream
_FLOW = _layout(
    *("gap", "to_inject", "in_train", "to_deliver", "window", "last", "stage", "first_hop", "injected"),
    *("offset", "units"),
)
_BUFFER = _layout("units", "credit", "feeder", "room", "first", "free")  # a ring of its slots begins at room
_STAGE = _layout("op", "hold", "polls", "end", "num_flows", "flows_left", "first_flow", "flows_end")
_OP = _layout(
    *("pool", "turn", "setup", "release", "waits", "stage", "stages_end", "first_follower", "followers_end"),
    *("ready", "start", "done", "polls", "polling", "flags", "flags_time", "first_poller", "pollers_end"),
)
_POOL = _layout("slots", "queue", "queued", "stirred")  # queue: where in the queues its own begins
_COUNTS = _layout(
    *("window", "events", "stirred", "served", "free_block", "blocks"),
    *("under_way", "polling", "stuck", "in_vain", "wait_shift", "last_poll"),
)


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
    pollers: Int64Array  # [G] ops that poll for an op's flag
    buffers: Records  # [B]
    room: Int64Array  # [slots of all buffers] when each free slot is there
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
    windows = effective_windows(program)
    hops, num_streams, heads_by_server = _hop_records(program, windows)
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
            waits_for=NONE,
        ),
        streams=_records(_STREAM, num_streams, front=own_blocks, back=own_blocks),
        hops=hops,
        flows=_flow_records(program, windows),
        stages=_stage_records(program),
        ops=ops,
        pools=_records(_POOL, len(program.pool_slots), slots=program.pool_slots, queue=starts(queued)[:-1]),
        followers=np.ascontiguousarray(program.op_next),
        pollers=np.ascontiguousarray(program.op_sets),
        buffers=_buffer_records(program),
        room=np.zeros(program.buffer_units.sum(), np.int64),
        by_turn=by_turn,
        heads=np.zeros(heads_by_server.sum(), ENTRY),
        next_unit=np.full(2 * leaves, IDLE, np.int64),
        events=events,
        queues=np.zeros(program.num_ops, ENTRY),
        stirred=np.zeros(len(program.pool_slots), np.int64),
        units=np.empty(num_blocks * BLOCK, ENTRY),
        links=np.empty(num_blocks, np.int64),
        counts=_records(
            _COUNTS,
            1,
            window=window_ticks(program),
            events=num_events,
            free_block=NONE,
            blocks=num_streams,
            under_way=num_events,
        ),
    )


def effective_windows(program: Program) -> Int64Array:
    """[F] windows of flows, 0 where there is none or all units fit in: such a flow is a train."""
    return np.where(program.flow_window_units < program.flow_units, program.flow_window_units, 0)


def _records(layout: np.dtype[np.void], count: int, /, **columns: Int64Array | BoolArray | int) -> Records:
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


def _hop_records(program: Program, windows: Int64Array) -> tuple[Records, int, Int64Array]:
    """The hops, how many streams there are, and [S] how many heads there can be at a server at one time."""
    before = previous_hops(program.hop_next)
    injected, windowed = before == NONE, windows[program.hop_flow] > 0
    source = np.append(program.hop_server, NONE)[before]  # [H] server a unit comes from; NONE is -1, the last
    source[injected & windowed] = program.num_servers + program.hop_flow[injected & windowed]  # each for itself
    train = injected & ~windowed
    gap = np.where(train, program.flow_gap_ticks[program.hop_flow], 0)
    # What agrees in the server it reaches, the server it comes from and the gap is one stream.
    order = np.lexsort((gap, source, program.hop_server))
    keys = np.stack((program.hop_server, source, gap))[:, order]
    begins = np.ones(program.num_hops, np.bool_)  # in that order, whether a stream begins
    begins[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    stream = np.empty(program.num_hops, np.int64)
    stream[order] = np.cumsum(begins) - 1
    records = _records(
        _HOP,
        program.num_hops,
        server=program.hop_server,
        stream=stream,
        train=train,
        following=program.hop_next,
        flow=program.hop_flow,
        buffer=program.hop_buffer,
        leaves_buffer=buffers_left(program.hop_buffer, program.hop_next),
    )
    # Heads at a server are those of streams and, for each flow that is a train injected there, its first unit.
    first = np.zeros(program.num_hops, np.bool_)  # [H] of its stream
    first[order[begins]] = True
    heads = program.hop_server[first | train]
    return records, int(begins.sum()), np.bincount(heads, minlength=program.num_servers)


def _flow_records(program: Program, windows: Int64Array) -> Records:
    return _records(
        _FLOW,
        program.num_flows,
        first_hop=program.flow_first_hop,
        gap=program.flow_gap_ticks,
        offset=program.flow_offset_ticks,
        units=program.flow_units,
        window=windows,
        last=NEVER,
        stage=program.flow_stage,
    )


def _buffer_records(program: Program) -> Records:
    num_buffers = len(program.buffer_units)
    return _records(
        _BUFFER,
        num_buffers,
        units=program.buffer_units,
        credit=program.buffer_credit_ticks,
        feeder=buffer_feeders(num_buffers, program.hop_buffer, program.hop_server),
        room=starts(program.buffer_units)[:-1],
        free=program.buffer_units,
    )


def _stage_records(program: Program) -> Records:
    has_units = program.flow_units > 0
    return _records(
        _STAGE,
        program.num_stages,
        op=program.stage_op,
        hold=program.stage_hold_ticks,
        polls=program.stage_polls,
        num_flows=np.bincount(program.flow_stage[has_units], minlength=program.num_stages),
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
        flags=program.op_num_flags,
        flags_time=NEVER,
        first_poller=program.op_sets_ptr[:-1],
        pollers_end=program.op_sets_ptr[1:],
        ready=NEVER,
        start=NEVER,
        done=NEVER,
    )
    return records, by_turn
