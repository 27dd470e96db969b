"""The loop of the compiled core, as machine code made by numba; ``compiled`` says how it works.

All that is compiled, and the constants it uses that could ever change, are in this file: numba makes its cached
machine code anew when this file changes or a type does, and notices nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba

from .control import IDLE
from .layout import NONE, Int64Array
from .outcome import NEVER

if TYPE_CHECKING:
    from .compiled_state import Records, State

_Function = TypeVar("_Function", bound=Callable[..., object])

BLOCK = 32
"""Units for which a stream makes room at once. Here because machine code has it fixed; a power of two."""


def _compiled(function: _Function) -> _Function:
    """``function`` as machine code, kept on disk if there is a folder to keep it in.

    Without ``_nrt``, numba's counts of who uses an array: nothing is allocated in here, and counting takes as long as
    all the rest.
    """
    compiler: Any = numba.njit  # whose declared types leave _nrt out
    try:
        compiled = compiler(cache=True, _nrt=False)(function)
    except RuntimeError:  # neither beside this file nor in the user's cache folder
        compiled = compiler(_nrt=False)(function)
    return cast("_Function", compiled)


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
def run_slice(s: State, budget: int) -> bool:
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
def _serve(s: State, number: int, end: int, stop: int) -> None:
    """Serve what reaches a server before ``end``, until ``stop`` units are served in all."""
    streams, hops, flows, counts = s.streams, s.hops, s.flows, s.counts[0]
    heads, units, links = s.heads, s.units, s.links
    server = s.servers[number]
    base = server.heap
    while server.heads and heads[base].time < end and counts.served < stop:
        time, hop_number = heads[base].time, heads[base].what
        hop = hops[hop_number]
        leaves = max(time, server.free) + server.service
        server.free = leaves
        counts.served += 1

        stream = streams[hop.stream]
        own = True  # whether the first head was the stream's, and not the first unit of a train
        if hop.injected:
            flow = flows[hop.flow]
            own = flow.in_train or not stream.live
            flow.in_train = 1
            flow.to_inject -= 1
            if flow.to_inject:
                _put(stream, units, links, counts, time + flow.gap, hop_number)
        if own and stream.front != stream.back:
            stream.live = 1
            next_time, next_hop = units[stream.front].time, units[stream.front].hop
            _step_front(stream, links, counts)
        else:
            if own:
                stream.live = 0
            server.heads -= 1
            next_time, next_hop = heads[base + server.heads].time, heads[base + server.heads].what
        _replace(heads, base, server.heads, next_time, next_hop)

        if hop.following == NONE:
            _arrive(s, hop.flow, leaves + server.latency)
        else:
            _send_on(s, hop.following, leaves + server.latency)
    _set_next_unit(s.next_unit, number, heads[base].time if server.heads else IDLE)


@_compiled
def _step_front(stream: Any, links: Int64Array, counts: Any) -> None:
    """Take the first unit off a stream."""
    front = stream.front + 1
    if not front & (BLOCK - 1):  # the block is used up
        block = front // BLOCK - 1
        front = links[block] * BLOCK
        links[block] = counts.free_block
        counts.free_block = block
    stream.front = front


@_compiled
def _send_on(s: State, hop_number: int, time: int) -> None:
    """A unit is under way to the server of the hop."""
    hop = s.hops[hop_number]
    stream = s.streams[hop.stream]
    if stream.live:
        _put(stream, s.units, s.links, s.counts[0], time, hop_number)
    else:
        stream.live = 1
        _add_head(s.heads, s.servers, s.next_unit, hop.server, time, hop_number)


@_compiled
def _arrive(s: State, number: int, time: int) -> None:
    """A unit of a flow is delivered; tell the stage if it is the last."""
    flow = s.flows[number]
    flow.to_deliver -= 1
    if not flow.to_deliver:
        flow.last = time
        _delivered(s, flow.stage, time)


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
    if not back & (BLOCK - 1):
        block = counts.free_block
        if block == NONE:
            block = counts.blocks
            counts.blocks += 1
        else:
            counts.free_block = links[block]
        links[back // BLOCK - 1] = block
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
    pool = s.pools[op.pool]
    pool.queued = _push(s.queues, pool.queue, pool.queued, now, op.turn)
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
    if not stage.flows_left:
        _await(s, stage.end, stage.op)
        return
    for i in range(stage.first_flow, stage.flows_end):
        flow = s.flows[i]
        if flow.to_inject:
            _add_head(
                s.heads, s.servers, s.next_unit, s.hops[flow.first_hop].server, begin + flow.offset, flow.first_hop
            )


@_compiled
def _finish(s: State, number: int, now: int) -> None:
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
