"""The loop of the compiled core, as machine code made by numba; ``compiled`` says how it works.

All that is compiled, and the constants it uses that could ever change, are in this file: numba makes its cached
machine code anew when this file changes or a type does, and notices nothing else.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from ..program.arrays import NONE, Int64Array
from ..program.program import NEVER
from .compiled_types import Records, State
from .op_scheduler import IDLE

_Function = TypeVar("_Function", bound=Callable[..., object])

BLOCK = 32
"""Units for which a stream makes room at once. Here because machine code has it fixed; a power of two."""


def _compiled(function: _Function, *, inlined: bool = False, entry: bool = False) -> _Function:
    """``function`` as machine code, kept on disk if there is a folder to keep it in.

    Python calls the ``entry`` alone. The others get no wrappers for it, which take numba a third of its time.

    Without ``_nrt``, numba's counts of who uses an array: nothing is allocated in here, and counting takes as long as
    all the rest. With ``nogil`` other threads go on meanwhile: no two share a state.
    """
    compiler: Any = numba.njit  # whose declared types leave some of these out
    wrappers = {"no_cpython_wrapper": not entry, "no_cfunc_wrapper": not entry}
    options = {"nogil": True, "_nrt": False, "forceinline": inlined, **wrappers}
    try:
        compiled = compiler(cache=True, **options)(function)
        _load_kept_code_alone(compiled._cache)
    except RuntimeError:  # neither beside this file nor in the user's cache folder
        compiled = compiler(**options)(function)
    return cast("_Function", compiled)


def _load_kept_code_alone(cache: Any) -> None:
    """Have ``cache`` load machine code from disk without all that numba can compile.

    Numba loads that first, which takes ten times as long as the code; what it then has to compile loads it too.
    """

    def load_overload(signature: object, context: object) -> object:
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)

    cache.load_overload = load_overload


def _inlined(function: _Function) -> _Function:
    """``function`` as machine code within that of its callers: a call with a State takes as long as ten units."""
    return _compiled(function, inlined=True)


def _entry(function: _Function) -> _Function:
    """``function`` as machine code that Python calls."""
    return _compiled(function, entry=True)


@_compiled
def _at(index: int) -> np.uint64:
    """``index`` as one that is not negative: where it could be, numba looks, which takes a quarter of the time."""
    return np.uint64(index)


@_compiled
def _push(heap: Records, base: int, count: int, time: int, what: int) -> int:
    """Add an entry to the heap of ``count`` that begins at ``base``; returns the new count."""
    place = count
    while place:
        parent = (place - 1) >> 1
        above = heap[_at(base + parent)]
        if above.time < time or (above.time == time and above.what < what):
            break
        below = heap[_at(base + place)]
        below.time, below.what = above.time, above.what
        place = parent
    entry = heap[_at(base + place)]
    entry.time, entry.what = time, what
    return count + 1


@_compiled
def _replace(heap: Records, base: int, count: int, time: int, what: int) -> bool:
    """Take the first entry off the heap of ``count`` that begins at ``base``, and add one.

    Returns whether that is the first now.
    """
    place = 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        below = heap[_at(base + child)]
        if child + 1 < count:
            other = heap[_at(base + child + 1)]
            if other.time < below.time or (other.time == below.time and other.what < below.what):
                child, below = child + 1, other
        if below.time > time or (below.time == time and below.what >= what):
            break
        above = heap[_at(base + place)]
        above.time, above.what = below.time, below.what
        place = child
    entry = heap[_at(base + place)]
    entry.time, entry.what = time, what
    return not place


@_compiled
def _pop(heap: Records, base: int, count: int) -> int:
    """Take the first entry off the heap of ``count`` that begins at ``base``; returns the new count."""
    last = heap[base + count - 1]
    _replace(heap, base, count - 1, last.time, last.what)
    return count - 1


@_entry
def run_slices(s: State, number: int, budget: int, room: int, buffers: Records | None) -> bool:
    """Run up to ``number`` slices of ``budget`` units, for each of which there must be ``room``: so many free blocks.

    Where ops poll one slice alone, since who is stuck is looked for between two. Returns whether the run is over.
    """
    counts = s.counts[0]
    for _ in range(number):
        if run_slice(s, budget, buffers):
            return True
        if counts.polling or counts.blocks + room > len(s.links):
            break
    return False


@_compiled
def run_slice(s: State, budget: int, buffers: Records | None) -> bool:
    """Serve ``budget`` units, the ops' events in between, but those of so many times at most.

    Returns whether the run is over: nothing is left to come, or nothing but polls for flags that nobody will set, since
    all other ops under way are known to be stuck.

    ``buffers`` are those of ``s``, or None if there are none: for such programs numba makes code that does not look.
    """
    counts = s.counts[0]
    stop, settle_on = counts.served + budget, budget
    while counts.served < stop:
        due = s.events[0].time if counts.events else IDLE
        start = min(due, s.next_unit[1])
        if start == IDLE:
            return True
        end = _window_end(s, start)
        while counts.events and s.events[0].time < end:
            if not settle_on:  # polls need not have units
                return False
            settle_on -= 1
            _settle(s, s.events[0].time)
            end = _window_end(s, start)
            if counts.in_vain and counts.last_poll == IDLE:
                if counts.polling + counts.stuck == counts.under_way:
                    return True
                counts.in_vain = 0
        for i in range(len(s.quick)):
            if s.next_unit[s.quick[i] + (len(s.next_unit) >> 1)] < end:
                _serve(s, s.quick[i], end, stop, buffers)
        while s.next_unit[1] < end and counts.served < stop:
            _serve(s, _first_server(s.next_unit), end, stop, buffers)
    return False


@_compiled
def _window_end(s: State, start: int) -> int:
    """Up to when all that arrives is known at ``start``: for W, or until an early train can be delivered."""
    counts = s.counts[0]
    while counts.ends and s.ends[0].time <= start:  # its last unit arrived before and is served
        counts.ends = _pop(s.ends, 0, counts.ends)
    end: int = start + counts.window
    return min(end, s.ends[0].time) if counts.ends else end


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
def _serve(s: State, number: int, end: int, stop: int, buffers: Records | None) -> None:
    """Serve what reaches a server before ``end``, until ``stop`` units are served in all or the first has no room."""
    hops, counts = s.hops, s.counts[0]
    server = s.servers[_at(number)]
    first = s.heads[_at(server.heap)]
    while server.heads and server.waits_for == NONE and first.time < end and counts.served < stop:
        if hops[_at(first.what)].train:
            _serve_ring(s, server, end, stop, buffers)
        else:
            _serve_queue(s, server, end, stop, buffers)
    _set_next_unit(s.next_unit, number, first.time if server.heads and server.waits_for == NONE else IDLE)


@_inlined
def _serve_queue(s: State, server: Any, end: int, stop: int, buffers: Records | None) -> None:
    """Serve the first head of a server, which no train brings, and the units of its stream that come before others.

    The second head is looked for only if more than one did when the stream was last served.
    """
    hops, heads, units, counts = s.hops, s.heads, s.units, s.counts[0]
    base, service, latency, free = server.heap, server.service, server.latency, server.free
    head = heads[_at(base)]
    time, what = head.time, head.what
    stream = s.streams[_at(hops[_at(what)].stream)]
    due, served = (time, what), counts.served
    if stream.runs:
        due = _second_head(heads, base, server.heads, end)
    while counts.served < stop and (time < due[0] or (time == due[0] and what <= due[1])):
        hop = hops[_at(what)]
        begins = max(time, free)
        if buffers is not None and hop.buffer != NONE:
            buffer = buffers[_at(hop.buffer)]
            if not buffer.free:
                server.waits_for = hop.buffer
                break
            begins = max(begins, _take_room(buffer, s.room))
        hop.waited += (begins - time) >> counts.wait_shift
        free = begins + service
        counts.served += 1
        if buffers is not None and hop.leaves_buffer != NONE:
            _give_room(s, hop.leaves_buffer, free)
        if hop.following == NONE:
            _arrive(s, hop.flow, free + latency)
        else:
            _send_on(s, hop.following, free + latency)
        if stream.front == stream.back:
            stream.live = 0
            server.free = free
            server.heads = _pop(heads, base, server.heads)
            return
        unit = units[_at(stream.front)]
        time, what = unit.time, unit.what
        _step_front(stream, s.links, counts)
    server.free = free
    stays_first = _replace(heads, base, server.heads, time, what)
    stream.runs = stays_first or counts.served > served + 1


@_inlined
def _serve_ring(s: State, server: Any, end: int, stop: int, buffers: Records | None) -> None:
    """Serve the first head of a server, a unit of a train, and the units of its ring that come before other heads."""
    heads, base = s.heads, server.heap
    head = heads[_at(base)]
    hop = s.hops[_at(head.what)]
    stream, flow = s.streams[_at(hop.stream)], s.flows[_at(hop.flow)]
    due = _second_head(heads, base, server.heads, end)
    apart = stream.live and not flow.in_ring
    if apart:  # the ring has a head of its own; the train joins it with the second unit
        due = head.time, head.what
    if not flow.in_ring:
        stream.front -= 1
        turn = s.rings[_at(stream.ring + (stream.front & stream.mask))]
        turn.time, turn.what, turn.left = head.time, head.what, flow.units
    if hop.following == NONE and not s.counts[0].observe:
        served = _take_turns(s, stream, due, stop, None, None)
    else:
        served = _take_turns(s, stream, due, stop, s.hops, buffers)
    if not served:
        stream.front += not flow.in_ring
        return
    flow.in_ring = 1
    if apart or stream.front == stream.back:
        stream.live = apart
        server.heads = _pop(heads, base, server.heads)
    else:
        turn = s.rings[_at(stream.ring + (stream.front & stream.mask))]
        stream.live = 1
        _replace(heads, base, server.heads, turn.time, turn.what)


@_inlined
def _second_head(heads: Records, base: int, count: int, end: int) -> tuple[int, int]:
    """The second entry of the heap of ``count`` that begins at ``base``, or ``end`` if it is later than that."""
    time, what = end, NONE
    for child in range(1, min(3, count)):
        other = heads[_at(base + child)]
        if other.time < time or (other.time == time and other.what < what):
            time, what = other.time, other.what
    return time, what


@_inlined
def _take_turns(
    s: State, stream: Any, due: tuple[int, int], stop: int, hops: Records | None, buffers: Records | None
) -> int:
    """Serve the units of a ring in turn up to one that comes after ``due``; returns how many.

    ``hops`` are those of ``s``, or None if units neither go on nor have their waits observed. Most units are served in
    such rings, and the code for them then touches nothing but the turns.
    """
    rings, ring, mask, gap = s.rings, stream.ring, stream.mask, stream.gap
    server = s.servers[_at(stream.server)]
    service, latency, free = server.service, server.latency, server.free
    front, back, last, latest = stream.front, stream.back, NONE, stream.front + stop - s.counts[0].served
    while front < latest:
        turn = rings[_at(ring + (front & mask))]
        time, what, left = turn.time, turn.what, turn.left - 1
        if time >= due[0] and (time > due[0] or what > due[1]):
            break
        begins = max(time, free)
        if hops is not None:
            hop = hops[_at(what)]
            if buffers is not None and hop.buffer != NONE:
                buffer = buffers[_at(hop.buffer)]
                if not buffer.free:
                    server.waits_for = hop.buffer
                    break
                begins = max(begins, _take_room(buffer, s.room))
            hop.waited += (begins - time) >> s.counts[0].wait_shift
        free = begins + service
        front += 1
        if hops is not None and hop.following != NONE:
            _send_on(s, hop.following, free + latency)
        if not left:
            last = what
            break
        turn = rings[_at(ring + (back & mask))]
        turn.time, turn.what, turn.left = time + gap, what, left
        back += 1
    served: int = front - stream.front
    s.counts[0].served += served
    server.free = free
    stream.front, stream.back = front, back
    if last != NONE and s.hops[_at(last)].following == NONE:
        _arrive_all(s, s.hops[_at(last)].flow, free + latency)
    return served


@_compiled
def _take_room(buffer: Any, room: Int64Array) -> int:
    """Take a slot of a buffer that has one; returns when it is there."""
    place = buffer.room + buffer.first
    buffer.free -= 1
    buffer.first += 1
    if buffer.first == buffer.units:
        buffer.first = 0
    time: int = room[_at(place)]
    return time


@_compiled
def _give_room(s: State, number: int, leaves: int) -> None:
    """A unit that came through a buffer leaves its server: the slot goes to whoever waits for one.

    Who does goes on in this very window, with units that arrived before: it cannot begin before ``leaves``, so what it
    sends arrives after the window.
    """
    buffer = s.buffers[_at(number)]
    place = buffer.first + buffer.free
    if place >= buffer.units:
        place -= buffer.units
    s.room[_at(buffer.room + place)] = leaves + buffer.credit
    buffer.free += 1
    feeder = s.servers[_at(buffer.feeder)]
    if feeder.waits_for == number:
        feeder.waits_for = NONE
        _set_next_unit(s.next_unit, buffer.feeder, s.heads[_at(feeder.heap)].time)


@_compiled
def _step_front(stream: Any, links: Int64Array, counts: Any) -> None:
    """Take the first unit off a stream."""
    front = stream.front + 1
    if not front & (BLOCK - 1):  # the block is used up
        block = front // BLOCK - 1
        front = links[_at(block)] * BLOCK
        links[_at(block)] = counts.free_block
        counts.free_block = block
    stream.front = front


@_compiled
def _send_on(s: State, hop_number: int, time: int) -> None:
    """A unit is under way to the server of the hop."""
    hop = s.hops[_at(hop_number)]
    stream = s.streams[_at(hop.stream)]
    if stream.live:
        _put(stream, s.units, s.links, s.counts[0], time, hop_number)
    else:
        stream.live = 1
        _add_head(s.heads, s.servers, s.next_unit, hop.server, time, hop_number)


@_compiled
def _arrive(s: State, number: int, time: int) -> None:
    """A unit of a flow is delivered: its window lets in one more; tell the stage if it is the last."""
    flow = s.flows[_at(number)]
    flow.to_deliver -= 1
    if flow.window and flow.to_inject:
        flow.to_inject -= 1
        flow.injected = max(flow.injected + flow.gap, time)
        _send_on(s, flow.first_hop, flow.injected)
    if not flow.to_deliver:
        _arrive_all(s, number, time)


@_compiled
def _arrive_all(s: State, number: int, time: int) -> None:
    """The last unit of a flow is delivered."""
    flow = s.flows[_at(number)]
    flow.last = time
    _delivered(s, flow.stage, time)


@_compiled
def _add_head(heads: Records, servers: Records, next_unit: Int64Array, number: int, time: int, hop_number: int) -> None:
    """A stream that was empty has a head."""
    server = servers[_at(number)]
    server.heads = _push(heads, server.heap, server.heads, time, hop_number)
    if server.waits_for == NONE and time < next_unit[_at(number + (len(next_unit) >> 1))]:
        _set_next_unit(next_unit, number, time)


@_compiled
def _put(stream: Any, units: Records, links: Int64Array, counts: Any, time: int, hop_number: int) -> None:
    """Add a unit to the end of a stream; there is always room for one, so that a new block is linked ahead of need."""
    back = stream.back
    unit = units[_at(back)]
    unit.time, unit.what = time, hop_number
    back += 1
    if not back & (BLOCK - 1):
        block = counts.free_block
        if block == NONE:
            block = counts.blocks
            counts.blocks += 1
        else:
            counts.free_block = links[_at(block)]
        links[_at(back // BLOCK - 1)] = block
        back = block * BLOCK
    stream.back = back


@_compiled
def _delivered(s: State, number: int, time: int) -> None:
    """A flow of stage ``number`` is delivered."""
    stage = s.stages[number]
    stage.flows_left -= 1
    stage.end = max(stage.end, time)
    if not stage.flows_left:
        _await(s, stage.end, stage.op)


@_compiled
def _await(s: State, time: int, op: int) -> None:
    """Whatever comes next for the op comes at ``time``."""
    s.counts[0].events = _push(s.events, 0, s.counts[0].events, time, op)


@_compiled
def _settle(s: State, now: int) -> None:
    """Everything that happens to ops at ``now``: readies and ends until there are none, then a round of grants."""
    counts = s.counts[0]
    while True:
        while counts.events and s.events[0].time == now:
            number = s.events[0].what
            counts.events = _pop(s.events, 0, counts.events)
            op = s.ops[number]
            if op.ready == NEVER:
                _make_ready(s, number, now)
            elif op.polling and (op.flags or op.flags_time >= now):
                counts.in_vain = 1
                if now <= counts.last_poll:
                    _begin_stage(s, op.stage, now)
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
def _make_ready(s: State, number: int, now: int) -> None:
    op = s.ops[number]
    op.ready = now
    if op.pool == NONE:
        _begin(s, number, now)
        return
    s.counts[0].under_way -= 1
    pool = s.pools[op.pool]
    pool.queued = _push(s.queues, pool.queue, pool.queued, now + op.ahead, op.turn)
    _stir(s, op.pool)


@_compiled
def _stir(s: State, number: int) -> None:
    """Have the pool's grants looked at, once, in the next round."""
    if not s.pools[number].stirred:
        s.pools[number].stirred = 1
        s.stirred[s.counts[0].stirred] = number
        s.counts[0].stirred += 1


@_compiled
def _grant(s: State, number: int, now: int) -> None:
    """Hand out free slots in queue order; what the ops do with them at once is settled afterwards."""
    pool = s.pools[number]
    pool.stirred = 0
    while pool.queued and pool.slots:
        pool.slots -= 1
        s.counts[0].under_way += 1
        op = s.by_turn[s.queues[pool.queue].what]
        pool.queued = _pop(s.queues, pool.queue, pool.queued)
        _begin(s, op, now)


@_compiled
def _begin(s: State, number: int, now: int) -> None:
    op = s.ops[number]
    op.start = now
    if op.stage < op.stages_end:
        _begin_stage(s, op.stage, now + op.setup)
    else:
        _await(s, now + op.setup, number)


@_compiled
def _begin_stage(s: State, number: int, begin: int) -> None:
    stage = s.stages[number]
    stage.end = begin + stage.hold
    stage.flows_left = stage.num_flows
    op = s.ops[stage.op]
    if stage.polls:
        op.polls += 1
        if op.flags and not op.polling:
            s.counts[0].polling += 1
    op.polling = stage.polls
    if not stage.flows_left:
        _await(s, stage.end, stage.op)
        return
    for i in range(stage.first_flow, stage.flows_end):
        if s.flows[i].units:
            _begin_flow(s, i, begin + s.flows[i].offset)


@_compiled
def _begin_flow(s: State, number: int, time: int) -> None:
    """Inject the first unit at ``time``: of a train, which is a head of its own, or of those the window lets in."""
    flow = s.flows[number]
    flow.to_inject = flow.to_deliver = flow.units
    if not flow.window:
        flow.in_ring = 0
        if flow.early:
            end = time + (flow.units - 1) * flow.gap + flow.early
            s.counts[0].ends = _push(s.ends, 0, s.counts[0].ends, end, number)
        _add_head(s.heads, s.servers, s.next_unit, s.hops[flow.first_hop].server, time, flow.first_hop)
        return
    flow.to_inject -= flow.window
    for _ in range(flow.window):
        _send_on(s, flow.first_hop, time)
        flow.injected = time
        time += flow.gap


@_compiled
def _finish(s: State, number: int, now: int) -> None:
    op = s.ops[number]
    op.done = now
    s.counts[0].under_way -= 1
    if op.pool != NONE:
        s.pools[op.pool].slots += 1
        _stir(s, op.pool)
    for i in range(op.first_follower, op.followers_end):
        follower = s.ops[s.followers[i]]
        follower.waits -= 1
        if not follower.waits:
            s.counts[0].under_way += 1
            _await(s, max(now, follower.release), s.followers[i])
    for i in range(op.first_poller, op.pollers_end):
        poller = s.ops[s.pollers[i]]
        poller.flags -= 1
        poller.flags_time = now
        if poller.polling and not poller.flags:
            s.counts[0].polling -= 1
