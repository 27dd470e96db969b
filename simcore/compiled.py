"""The compiled core: ops as in ``control`` and units as on the other cores, as machine code made by numba.

The rules and the integers that come out are those of the other cores; how the next unit is found is not. What reaches
a server are *streams*, each in order of time: the units from one other server, or those of all trains with one gap.
(A train is a flow that injects. When one of its units is served the next follows a gap later, so after every unit
that waits in the stream.) So each server merges its few streams by a small heap of their heads. As on the windowed
core, whatever arrives before ``start + W`` is known at ``start``, so one server after the other may work until then;
a tree over the times of their next units says which do.

State lives in arrays of records, one record a server, hop, flow and so on, so that what is used together lies
together. The loop runs a slice at a time: between slices Python looks at the watch and makes room for more units.

Optional: needs numba, the extra ``fast``, and nothing else imports this module before a run asks for it. Everything
compiled is in this file, since numba's cache of machine code notices changes of this file alone. The cache lies in
``__pycache__`` beside it, or where that is read-only in the user's cache folder; ``NUMBA_CACHE_DIR`` says otherwise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from .control import IDLE
from .layout import NONE, Int64Array, starts
from .outcome import NEVER, Served, WatchFn
from .program import Program
from .windows import window_ticks

Records = npt.NDArray[np.void]
_Function = TypeVar("_Function", bound=Callable[..., object])

_LINE_HOPS_A_SLICE = 1 << 17
"""Units served between two looks at the watch: some ten milliseconds, beside which a call into numba is nothing."""

_BLOCK = 32
"""Units for which a stream makes room at once."""


def _layout(*names: str) -> np.dtype[np.void]:
    return np.dtype([(name, np.int64) for name in names])


_ENTRY = _layout("time", "what")  # of a heap
_SERVER = _layout("service", "latency", "free", "heap", "heads")  # heap: where among the heads its own begin
_STREAM = _layout("front", "back", "live")  # first unit and the place for the next; whether one is among the heads
_UNIT = _layout("time", "hop")  # in a stream behind its head; room comes in blocks
_HOP = _layout("server", "stream", "injected", "following", "flow")  # injected: whether the first hop of its flow
_FLOW = _layout("first_hop", "gap", "offset", "to_inject", "to_deliver", "last", "stage", "in_train")
_STAGE = _layout("op", "hold", "end", "flows_left", "first_flow", "flows_end")
_OP = _layout(
    *("pool", "turn", "setup", "release", "waits", "stage", "stages_end", "first_follower", "followers_end"),
    *("ready", "start", "done"),
)
_POOL = _layout("slots", "queue", "queued", "stirred")  # queue: where in the queues its own begins
_COUNTS = _layout("window", "events", "stirred", "served", "free_block", "blocks")


class OpTimes(NamedTuple):
    """What became of the ops, in ticks, NEVER where it did not happen."""

    ready: Int64Array  # [O]
    start: Int64Array  # [O]
    done: Int64Array  # [O]


class _State(NamedTuple):
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


def _compiled(function: _Function) -> _Function:
    """``function`` as machine code, kept on disk if there is a folder to keep it in."""
    try:
        return cast(_Function, numba.njit(cache=True)(function))
    except RuntimeError:  # neither beside this file nor in the user's cache folder
        return cast(_Function, numba.njit(function))


def simulate(program: Program, watch: WatchFn) -> tuple[OpTimes, Served]:
    """Run ``program`` slice by slice."""
    state = _state(program)
    counts = state.counts[0]
    over = False
    cancelled = watch(0)
    while not over and not cancelled:
        state = _with_room(state)
        over = _run_slice(state, _LINE_HOPS_A_SLICE)
        cancelled = not over and watch(int(counts["served"]))
    times = OpTimes(*(state.ops[name].copy() for name in OpTimes._fields))
    flow_last, free = state.flows["last"].copy(), state.servers["free"].copy()
    return times, Served(flow_last, free, int(counts["served"]), windows=0, cancelled=cancelled)


def _with_room(state: _State) -> _State:
    """Make room for one slice: each unit served enters two streams at most, and no stream needs a block it has."""
    blocks = int(state.counts["blocks"][0]) + 2 * _LINE_HOPS_A_SLICE // _BLOCK + len(state.streams)
    if blocks <= len(state.links):
        return state
    links = np.concatenate((state.links, np.zeros(blocks, np.int64)))
    units = np.concatenate((state.units, np.zeros(blocks * _BLOCK, _UNIT)))
    return state._replace(units=units, links=links)


def _state(program: Program) -> _State:
    """The state before anything has happened."""
    ops, by_turn = _op_records(program)
    events = _first_events(program)
    hops, num_streams, heads_by_server = _hop_records(program)
    queued = np.bincount(program.op_pool[program.op_pool != NONE], minlength=len(program.pool_slots))
    leaves = 1 << max(program.num_servers - 1, 1).bit_length()
    blocks = np.arange(num_streams) * _BLOCK
    return _State(
        servers=_records(
            *(_SERVER, program.num_servers),
            **{"service": program.service_ticks, "latency": program.latency_ticks, "heap": starts(heads_by_server)[:-1]},
        ),
        streams=_records(_STREAM, num_streams, front=blocks, back=blocks),
        hops=hops,
        flows=_records(
            *(_FLOW, program.num_flows),
            **{"first_hop": program.flow_first_hop, "gap": program.flow_gap_ticks, "last": NEVER},
            **{"offset": program.flow_offset_ticks, "stage": program.flow_stage},
            **{"to_inject": program.flow_units, "to_deliver": program.flow_units},
        ),
        stages=_stage_records(program),
        ops=ops,
        pools=_records(
            *(_POOL, len(program.pool_slots)),
            **{"slots": program.pool_slots, "queue": starts(queued)[:-1]},
        ),
        followers=np.ascontiguousarray(program.op_next),
        by_turn=by_turn,
        heads=np.zeros(heads_by_server.sum(), _ENTRY),
        next_unit=np.full(2 * leaves, IDLE, np.int64),
        events=events,
        queues=np.zeros(program.num_ops, _ENTRY),
        stirred=np.zeros(len(program.pool_slots), np.int64),
        units=np.zeros(num_streams * _BLOCK, _UNIT),
        links=np.zeros(num_streams, np.int64),
        counts=_records(
            *(_COUNTS, 1),
            **{"window": window_ticks(program), "free_block": NONE, "blocks": num_streams},
            events=np.count_nonzero(program.op_num_waits == 0),
        ),
    )


def _records(layout: np.dtype[np.void], count: int, /, **columns: Int64Array | int) -> Records:
    """[count] records, zero where no column is given."""
    records = np.zeros(count, layout)
    for name, values in columns.items():
        records[name] = values
    return records


def _first_events(program: Program) -> Records:
    """[O] the heap of events, with the readies of ops that wait for none."""
    first = np.flatnonzero(program.op_num_waits == 0)
    first = first[np.argsort(program.op_release_ticks[first], kind="stable")]  # what is sorted is a heap
    events = np.zeros(program.num_ops, _ENTRY)
    events["time"][: len(first)], events["what"][: len(first)] = program.op_release_ticks[first], first
    return events


def _hop_records(program: Program) -> tuple[Records, int, Int64Array]:
    """The hops, how many streams there are, and [S] how many heads there can be at a server at one time."""
    source = np.full(program.num_hops, NONE, np.int64)  # server a unit comes from
    inner = program.hop_next != NONE
    source[program.hop_next[inner]] = program.hop_server[inner]
    injected = source == NONE
    gap = np.where(injected, program.flow_gap_ticks[program.hop_flow], 0)
    # By server it reaches, server it comes from and gap: what agrees in all three is one stream.
    pairs, stream = np.unique(np.stack((program.hop_server, source, gap)), axis=1, return_inverse=True)
    columns = {"server": program.hop_server, "following": program.hop_next, "flow": program.hop_flow}
    records = _records(_HOP, program.num_hops, stream=stream.reshape(-1), injected=injected, **columns)
    between = np.bincount(pairs[0, pairs[1] != NONE], minlength=program.num_servers)
    return records, pairs.shape[1], between + np.bincount(program.hop_server[injected], minlength=program.num_servers)


def _stage_records(program: Program) -> Records:
    has_units = program.flow_units > 0
    return _records(
        *(_STAGE, program.num_stages),
        op=program.stage_op, hold=program.stage_hold_ticks,
        first_flow=program.stage_flow_ptr[:-1], flows_end=program.stage_flow_ptr[1:],
        flows_left=np.bincount(program.flow_stage[has_units], minlength=program.num_stages),
    )


def _op_records(program: Program) -> tuple[Records, Int64Array]:
    """The ops, and [O] the order in which they are served of those that got ready at one time."""
    by_turn = np.lexsort((program.op_rank, program.op_local_id))  # the last key counts first; then construction
    turn = np.empty(program.num_ops, np.int64)
    turn[by_turn] = np.arange(program.num_ops)
    records = _records(
        *(_OP, program.num_ops),
        pool=program.op_pool, turn=turn, waits=program.op_num_waits,
        setup=program.op_setup_ticks, release=program.op_release_ticks,
        stage=program.op_stage_ptr[:-1], stages_end=program.op_stage_ptr[1:],
        first_follower=program.op_next_ptr[:-1], followers_end=program.op_next_ptr[1:],
        ready=NEVER, start=NEVER, done=NEVER,
    )
    return records, by_turn


@_compiled
def _push(heap: Records, base: int, count: int, time: int, what: int) -> int:
    """Add an entry to the heap of ``count`` that begins at ``base``; returns the new count."""
    place = count
    while place:
        parent = (place - 1) >> 1
        above = heap[base + parent]
        if above.time < time or (above.time == time and above.what < what):
            break
        heap[base + place].time, heap[base + place].what = above.time, above.what
        place = parent
    heap[base + place].time, heap[base + place].what = time, what
    return count + 1


@_compiled
def _replace(heap: Records, base: int, count: int, time: int, what: int) -> None:
    """Take the first entry off the heap of ``count`` that begins at ``base``, and add one."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        below = heap[base + child]
        if child + 1 < count:
            other = heap[base + child + 1]
            if other.time < below.time or (other.time == below.time and other.what < below.what):
                child, below = child + 1, other
        if below.time > time or (below.time == time and below.what >= what):
            break
        heap[base + place].time, heap[base + place].what = below.time, below.what
        place = child
    heap[base + place].time, heap[base + place].what = time, what


@_compiled
def _pop(heap: Records, base: int, count: int) -> int:
    """Take the first entry off the heap of ``count`` that begins at ``base``; returns the new count."""
    last = heap[base + count - 1]
    _replace(heap, base, count - 1, last.time, last.what)
    return count - 1


@_compiled
def _run_slice(s: _State, budget: int) -> bool:
    """Serve ``budget`` units, the ops' events in between; returns whether nothing is left to come."""
    counts = s.counts[0]
    stop = counts.served + budget
    while counts.served < stop:
        due = s.events[0].time if counts.events else IDLE
        start = min(due, s.next_unit[1])
        if start == IDLE:
            return True
        end = start + counts.window
        while counts.events and s.events[0].time < end:
            _settle(s, s.events[0].time)
        while s.next_unit[1] < end and counts.served < stop:
            _serve(s, _first_server(s.next_unit), end, stop)
    return False


@_compiled
def _first_server(tree: Int64Array) -> int:
    """The server with the earliest unit."""
    node, leaves = 1, len(tree) >> 1
    while node < leaves:
        node = 2 * node + (tree[2 * node] != tree[node])
    return node - leaves


@_compiled
def _set_next_unit(tree: Int64Array, server: int, time: int) -> None:
    """The next unit reaches ``server`` at ``time``."""
    node = server + (len(tree) >> 1)
    tree[node] = time
    while node > 1:
        node >>= 1
        earliest = min(tree[2 * node], tree[2 * node + 1])
        if tree[node] == earliest:
            break
        tree[node] = earliest


@_compiled
def _serve(s: _State, number: int, end: int, stop: int) -> None:
    """Serve what reaches a server before ``end``, until ``stop`` units are served in all."""
    servers, streams, hops, flows, counts = s.servers, s.streams, s.hops, s.flows, s.counts[0]
    heads, next_unit, units, links = s.heads, s.next_unit, s.units, s.links
    server = servers[number]
    base = server.heap
    while server.heads and heads[base].time < end and counts.served < stop:
        time, hop_number = heads[base].time, heads[base].what
        hop = hops[hop_number]
        leaves = max(time, server.free) + server.service
        server.free = leaves
        counts.served += 1
        stream = streams[hop.stream]
        if hop.injected:
            _advance_train(heads, server, stream, flows[hop.flow], units, links, counts, time, hop_number)
        else:
            _advance(heads, server, stream, units, links, counts)
        arrives = leaves + server.latency
        following = hop.following
        if following != NONE:
            hop = hops[following]
            stream = streams[hop.stream]
            if stream.live:
                _put(stream, units, links, counts, arrives, following)
            else:
                stream.live = 1
                _add_head(heads, servers, next_unit, hop.server, arrives, following)
        else:
            flow = flows[hop.flow]
            flow.to_deliver -= 1
            if not flow.to_deliver:
                flow.last = arrives
                _delivered(s, flow.stage, arrives)
    _set_next_unit(next_unit, number, heads[base].time if server.heads else IDLE)


@_compiled
def _advance(heads: Records, server: Any, stream: Any, units: Records, links: Int64Array, counts: Any) -> None:
    """Put the next unit of the stream in the place of the first head, which was the stream's."""
    front = stream.front
    if front == stream.back:
        stream.live = 0
        server.heads = _pop(heads, server.heap, server.heads)
        return
    unit = units[front]
    _replace(heads, server.heap, server.heads, unit.time, unit.hop)
    front += 1
    if not front & (_BLOCK - 1):  # the block is used up
        block = front // _BLOCK - 1
        front = links[block] * _BLOCK
        links[block] = counts.free_block
        counts.free_block = block
    stream.front = front


@_compiled
def _advance_train(heads: Records, server: Any, stream: Any, flow: Any, units: Records, links: Int64Array, counts: Any, time: int, hop_number: int) -> None:
    """Go on with the train whose unit is the first head, and with the stream of all trains of its gap."""
    flow.to_inject -= 1
    if flow.in_train:
        if flow.to_inject:
            _put(stream, units, links, counts, time + flow.gap, hop_number)
        _advance(heads, server, stream, units, links, counts)
    elif not flow.to_inject:
        server.heads = _pop(heads, server.heap, server.heads)
    else:
        flow.in_train = 1
        if stream.live:
            _put(stream, units, links, counts, time + flow.gap, hop_number)
            server.heads = _pop(heads, server.heap, server.heads)
        else:
            stream.live = 1
            _replace(heads, server.heap, server.heads, time + flow.gap, hop_number)


@_compiled
def _add_head(heads: Records, servers: Records, next_unit: Int64Array, number: int, time: int, hop_number: int) -> None:
    """A stream that was empty has a head."""
    server = servers[number]
    server.heads = _push(heads, server.heap, server.heads, time, hop_number)
    if time < next_unit[number + (len(next_unit) >> 1)]:
        _set_next_unit(next_unit, number, time)


@_compiled
def _put(stream: Any, units: Records, links: Int64Array, counts: Any, time: int, hop_number: int) -> None:
    """Add a unit to the end of a stream; there is always room for one, so that a new block is linked ahead of need."""
    back = stream.back
    unit = units[back]
    unit.time, unit.hop = time, hop_number
    back += 1
    if not back & (_BLOCK - 1):
        block = counts.free_block
        if block == NONE:
            block = counts.blocks
            counts.blocks += 1
        else:
            counts.free_block = links[block]
        links[back // _BLOCK - 1] = block
        back = block * _BLOCK
    stream.back = back


@_compiled
def _delivered(s: _State, number: int, time: int) -> None:
    """A flow of stage ``number`` is delivered."""
    stage = s.stages[number]
    stage.flows_left -= 1
    stage.end = max(stage.end, time)
    if not stage.flows_left:
        _await(s, stage.end, stage.op)


@_compiled
def _await(s: _State, time: int, op: int) -> None:
    """Whatever comes next for the op comes at ``time``."""
    s.counts[0].events = _push(s.events, 0, s.counts[0].events, time, op)


@_compiled
def _settle(s: _State, now: int) -> None:
    """Everything that happens to ops at ``now``: readies and ends until there are none, then a round of grants."""
    counts = s.counts[0]
    while True:
        while counts.events and s.events[0].time == now:
            number = s.events[0].what
            counts.events = _pop(s.events, 0, counts.events)
            op = s.ops[number]
            if op.ready == NEVER:
                _make_ready(s, number, now)
            elif op.stage + 1 < op.stages_end:
                op.stage += 1
                _begin_stage(s, op.stage, now)
            else:
                _finish(s, number, now)
        if not counts.stirred:
            return
        stirred = counts.stirred
        counts.stirred = 0
        for i in range(stirred):
            _grant(s, s.stirred[i], now)


@_compiled
def _make_ready(s: _State, number: int, now: int) -> None:
    op = s.ops[number]
    op.ready = now
    if op.pool == NONE:
        _begin(s, number, now)
        return
    pool = s.pools[op.pool]
    pool.queued = _push(s.queues, pool.queue, pool.queued, now, op.turn)
    _stir(s, op.pool)


@_compiled
def _stir(s: _State, number: int) -> None:
    """Have the pool's grants looked at, once, in the next round."""
    if not s.pools[number].stirred:
        s.pools[number].stirred = 1
        s.stirred[s.counts[0].stirred] = number
        s.counts[0].stirred += 1


@_compiled
def _grant(s: _State, number: int, now: int) -> None:
    """Hand out free slots in queue order; what the ops do with them at once is settled afterwards."""
    pool = s.pools[number]
    pool.stirred = 0
    while pool.queued and pool.slots:
        pool.slots -= 1
        op = s.by_turn[s.queues[pool.queue].what]
        pool.queued = _pop(s.queues, pool.queue, pool.queued)
        _begin(s, op, now)


@_compiled
def _begin(s: _State, number: int, now: int) -> None:
    op = s.ops[number]
    op.start = now
    if op.stage < op.stages_end:
        _begin_stage(s, op.stage, now + op.setup)
    else:
        _await(s, now + op.setup, number)


@_compiled
def _begin_stage(s: _State, number: int, begin: int) -> None:
    stage = s.stages[number]
    stage.end = begin + stage.hold
    if not stage.flows_left:
        _await(s, stage.end, stage.op)
        return
    for i in range(stage.first_flow, stage.flows_end):
        flow = s.flows[i]
        if flow.to_inject:
            _add_head(s.heads, s.servers, s.next_unit, s.hops[flow.first_hop].server, begin + flow.offset, flow.first_hop)


@_compiled
def _finish(s: _State, number: int, now: int) -> None:
    op = s.ops[number]
    op.done = now
    if op.pool != NONE:
        s.pools[op.pool].slots += 1
        _stir(s, op.pool)
    for i in range(op.first_follower, op.followers_end):
        follower = s.ops[s.followers[i]]
        follower.waits -= 1
        if not follower.waits:
            _await(s, max(now, follower.release), s.followers[i])
