"""The state in which the compiled core begins a program, as records; ``compiled`` says how it works."""

from threading import local

import numpy as np

from ..program.arrays import (
    NONE,
    BoolArray,
    Int64Array,
    buffer_feeders,
    buffers_left,
    order_and_groups,
    order_by,
    previous_hops,
    starts,
)
from ..program.program import MAX_HORIZON_TICKS, NEVER, Program
from .compiled_loop import BLOCK
from .compiled_types import (
    BUFFER,
    COUNTS,
    ENTRY,
    FLOW,
    HOP,
    OP,
    POOL,
    SERVER,
    STAGE,
    STREAM,
    TURN,
    Records,
    State,
)
from .op_scheduler import IDLE, unit_effects
from .windows import window_ticks

_BLOCKS_AT_FIRST = 1 << 17
"""Blocks to begin with, 64 MiB, or those all units could need if that is less: what is not touched costs nothing."""

BYTES_PER_BLOCK = BLOCK * ENTRY.itemsize + np.dtype(np.int64).itemsize
"""Bytes of a block: its units, and its link to the next block."""


def initial_state(program: Program) -> State:
    """The state before anything has happened; a thread has one at a time."""
    ops, by_turn = _op_records(program)
    events, num_events = _first_events(program)
    windows = effective_windows(program)
    hops, streams, heads_by_server = _hop_and_stream_records(program, windows)
    window, quick, early = _lookahead(program, windows)
    queued = np.bincount(program.op_pool[program.op_pool != NONE], minlength=len(program.pool_slots))
    leaves = 1 << max(program.num_servers - 1, 1).bit_length()
    first_blocks = int(streams["back"].max(initial=0)) // BLOCK + 1
    most_blocks = 2 * first_blocks + (int(program.flow_units.sum()) + program.num_flows) // BLOCK
    num_blocks = max(first_blocks, min(most_blocks, _BLOCKS_AT_FIRST))
    return State(
        servers=_records(
            SERVER,
            program.num_servers,
            service=program.service_ticks,
            latency=program.latency_ticks,
            heap=starts(heads_by_server)[:-1],
            waits_for=NONE,
        ),
        streams=streams,
        hops=hops,
        flows=_flow_records(program, windows, early),
        stages=_stage_records(program),
        ops=ops,
        pools=_records(POOL, len(program.pool_slots), slots=program.pool_slots, queue=starts(queued)[:-1]),
        followers=np.ascontiguousarray(program.op_next),
        pollers=np.ascontiguousarray(program.op_sets),
        buffers=_buffer_records(program),
        room=np.zeros(program.buffer_units.sum(), np.int64),
        by_turn=by_turn,
        heads=np.zeros(heads_by_server.sum(), ENTRY),
        quick=quick,
        next_unit=np.full(2 * leaves, IDLE, np.int64),
        events=events,
        ends=np.zeros(np.count_nonzero(early), ENTRY),
        queues=np.zeros(program.num_ops, ENTRY),
        stirred=np.zeros(len(program.pool_slots), np.int64),
        units=np.empty(num_blocks * BLOCK, ENTRY),
        rings=np.zeros((streams["mask"] + 1).sum(), TURN),
        links=np.empty(num_blocks, np.int64),
        counts=_records(
            COUNTS, 1, window=window, events=num_events, free_block=NONE, blocks=first_blocks, under_way=num_events
        ),
    )


def effective_windows(program: Program) -> Int64Array:
    """[F] windows of flows, 0 where there is none or all units fit in: such a flow is a train."""
    return np.where(program.flow_window_units < program.flow_units, program.flow_window_units, 0)


def _lookahead(program: Program, windows: Int64Array) -> tuple[int, Int64Array, Int64Array]:
    """W, the quick servers, and [F] the ticks to delivery of trains that are delivered there, 0 for other flows.

    A quick server takes less than W. All it sends goes to servers that are not quick, so that those are served after it
    in each window; or it is delivered and of a train without other hops. Of such a train only the last unit has an
    effect elsewhere. When that arrives is known as soon as the train begins, and bounds the windows up to then.
    """
    if len(program.buffer_units) or not program.num_hops:  # units held back are served later than they arrive
        return window_ticks(program), np.zeros(0, np.int64), np.zeros(program.num_flows, np.int64)
    hop_ticks, _ = unit_effects(program)
    alone = (windows == 0) & (program.flow_num_hops == 1)  # [F]
    going_on = np.flatnonzero(program.hop_next != NONE)
    on_the_way = np.maximum(hop_ticks.take(going_on), hop_ticks.take(program.hop_next.take(going_on)))
    delivered = hop_ticks[(program.hop_next == NONE) & ~alone.take(program.hop_flow)]
    window = min(int(ticks.min(initial=hop_ticks.max())) for ticks in (on_the_way, delivered))
    quick = np.unique(program.hop_server[hop_ticks < window])
    ticks = hop_ticks[program.flow_first_hop]
    return window, quick, np.where(alone & (ticks < window), ticks, 0)


_AT_ONCE = 1 << 12
"""Records whose columns are filled in turn: so many stay in a cache meanwhile."""

_KEPT_BYTES = 1 << 28
"""Most bytes of records that a thread keeps for its next run: pages that are new take longer to fill."""


class _Kept(local):
    """The records of the thread's last run, by layout."""

    def __init__(self) -> None:
        self.by_layout = dict[np.dtype[np.void], Records]()


_KEPT = _Kept()


def _records(layout: np.dtype[np.void], count: int, /, **columns: Int64Array | BoolArray | int) -> Records:
    """[count] records, zero where no column is given; those of the thread's last run are overwritten."""
    kept = _KEPT.by_layout.get(layout)
    records = np.empty(count, layout) if kept is None or len(kept) < count else kept[:count]
    others = sum(each.nbytes for other, each in _KEPT.by_layout.items() if other != layout)
    if records.base is None and records.nbytes + others <= _KEPT_BYTES:
        _KEPT.by_layout[layout] = records
    for first in range(0, count, _AT_ONCE):
        rows = slice(first, first + _AT_ONCE)
        for name in layout.names or ():
            values = columns.get(name, 0)
            records[name][rows] = values if isinstance(values, int) else values[rows]
    return records


def _first_events(program: Program) -> tuple[Records, int]:
    """[O] the heap of events, with the readies of ops that wait for none, and how many those are."""
    first = np.flatnonzero(program.op_num_waits == 0)
    first = first[np.argsort(program.op_release_ticks[first], kind="stable")]  # what is sorted is a heap
    events = np.zeros(program.num_ops, ENTRY)
    events["time"][: len(first)], events["what"][: len(first)] = program.op_release_ticks[first], first
    return events, len(first)


def _hop_and_stream_records(program: Program, windows: Int64Array) -> tuple[Records, Records, Int64Array]:
    """The hops, the streams, and [S] how many heads there can be at a server at one time."""
    before = previous_hops(program.hop_next)
    injected, windowed = before == NONE, windows.take(program.hop_flow) > 0
    train = injected & ~windowed
    source = np.append(program.hop_server, NONE).take(before)  # [H] server a unit comes from; NONE is -1, the last
    source[injected & windowed] = program.num_servers + program.hop_flow[injected & windowed]  # each for itself
    source[train & (program.hop_next == NONE)] = NONE - 1  # trains whose units do not go on have rings without others
    gap = np.where(train, program.flow_gap_ticks.take(program.hop_flow), 0)
    # What agrees in the server it reaches, the server it comes from and the gap is one stream.
    order, begins = order_and_groups(program.hop_server, source, gap)
    first_of_stream = order[begins]
    stream = np.empty(program.num_hops, np.int64)
    stream[order] = np.cumsum(begins) - 1
    records = _records(
        HOP,
        program.num_hops,
        server=program.hop_server,
        stream=stream,
        train=train,
        following=program.hop_next,
        flow=program.hop_flow,
        buffer=program.hop_buffer,
        leaves_buffer=buffers_left(program.hop_buffer, before),
    )
    # Heads at a server are those of streams and, for each flow that is a train injected there, its first unit.
    first = np.zeros(program.num_hops, np.bool_)  # [H] of its stream
    first[first_of_stream] = True
    heads = np.bincount(program.hop_server[first | train], minlength=program.num_servers)
    trains = np.bincount(stream[train], minlength=len(first_of_stream))
    return records, _stream_records(program.hop_server[first_of_stream], gap[first_of_stream], trains), heads


def _stream_records(server: Int64Array, gap: Int64Array, trains: Int64Array) -> Records:
    """The streams: rings of so many ``trains``, or, where those are none, queues, which begin with a block each."""
    ring = trains > 0
    turns = np.where(ring, 1 << np.frexp(trains - 1)[1].astype(np.int64), 0)  # a power of two, no less than the trains
    begin = np.where(ring, 0, np.cumsum(~ring) - 1) * BLOCK
    return _records(
        STREAM,
        len(trains),
        front=begin,
        back=begin,
        ring=starts(turns)[:-1],
        mask=turns - 1,
        gap=gap,
        server=server,
    )


def _flow_records(program: Program, windows: Int64Array, early: Int64Array) -> Records:
    return _records(
        FLOW,
        program.num_flows,
        first_hop=program.flow_first_hop,
        gap=program.flow_gap_ticks,
        offset=program.flow_offset_ticks,
        units=program.flow_units,
        early=early,
        window=windows,
        last=NEVER,
        stage=program.flow_stage,
    )


def _buffer_records(program: Program) -> Records:
    num_buffers = len(program.buffer_units)
    return _records(
        BUFFER,
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
        STAGE,
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
    by_turn = order_by(program.op_local_id, program.op_rank)  # then construction
    turn = np.empty(program.num_ops, np.int64)
    turn[by_turn] = np.arange(program.num_ops)
    records = _records(
        OP,
        program.num_ops,
        pool=program.op_pool,
        turn=turn,
        ahead=program.op_priority * MAX_HORIZON_TICKS,
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
