"""The op level of a run: who is ready, who holds a slot, which stage begins when.

All cores but the compiled one, which has its own, drive the same ``Control``; units never appear here. Events at one
time are settled in rounds: first all ends of stages and all readies, to a fixed point, then a round of grants in every
pool, in queue order; what the grants bring about at the same time starts the next round. So neither the order of pools
nor that of events can matter; nor can it for polls, since a poll sees the flags that were set before it ends, and not
those set at that very time.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...compiler.ir import ShouldStop
from ..program.arrays import NONE, Int64Array
from ..program.program import NEVER, Program

IDLE = 1 << 62
"""Time of the next event when there is none; later than any time a program can reach."""

_STAGE_END, _READY, _FINISH = range(3)
"""Kinds of events: a stage ends, an op has nothing left to wait for, an op without stages ends."""

_POLLS_ALONE = 64
"""Times with nothing but polls settled before the check whether anything else can happen."""

_WATCH_EVERY_SETTLES = 4096
"""Times settled between two calls of the watch."""

InjectFn = Callable[[int, int], None]
"""Called as ``inject(flow, time)`` when a flow that has units begins: its first unit enters at ``time``."""


class Control:
    """Ops of one run. ``advance`` settles what is due; ``delivered`` tells of a flow's last unit."""

    def __init__(self, program: Program, inject: InjectFn, last_poll_ticks: int = IDLE) -> None:
        """No poll begins again after ``last_poll_ticks``; without it polls in vain end when they are noticed."""
        self._inject = inject
        self._last_poll = last_poll_ticks
        self._pool = program.op_pool.tolist()
        self._priority = program.op_priority.tolist()
        self._rank = program.op_rank.tolist()
        self._local_id = program.op_local_id.tolist()
        self._setup = program.op_setup_ticks.tolist()
        self._release = program.op_release_ticks.tolist()
        self._next_ptr = program.op_next_ptr.tolist()
        self._next = program.op_next.tolist()
        self._stage_ptr = program.op_stage_ptr.tolist()
        self._stage_op = program.stage_op.tolist()
        self._hold = program.stage_hold_ticks.tolist()
        self._polls = program.stage_polls.tolist()
        self._flow_ptr = program.stage_flow_ptr.tolist()
        self._flow_stage = program.flow_stage.tolist()
        self._offset = program.flow_offset_ticks.tolist()
        self._has_units = (program.flow_units > 0).tolist()
        self._sets_ptr = program.op_sets_ptr.tolist()
        self._sets = program.op_sets.tolist()

        self._waits = program.op_num_waits.tolist()  # [O] deps not yet done
        self._flags = program.op_num_flags.tolist()  # [O] flags not yet set
        self._flags_time = [NEVER] * program.num_ops  # [O] when the latest was set
        self._num_flows = np.bincount(
            program.flow_stage[program.flow_units > 0], minlength=program.num_stages
        ).tolist()  # [T] flows that have units
        self._flows_left = self._num_flows.copy()  # [T] flows not yet delivered
        self._stage_end = [0] * program.num_stages  # [T] end as far as known
        self._slots = program.pool_slots.tolist()  # [P] free now
        # priority, ready, local id, rank, op
        self._queues: list[list[tuple[int, int, int, int, int]]] = [[] for _ in self._slots]
        self._stirred: set[int] = set()  # pools with a new slot or a new op in the queue

        self.ready = [NEVER] * program.num_ops
        self.start = [NEVER] * program.num_ops
        self.done = [NEVER] * program.num_ops
        self.polls = [0] * program.num_ops  # [O] times the polling stage began
        self.hopeless = False  # all that goes on are polls for flags that nobody will set
        self.stopped = False  # in the middle of ``advance``, since ``look`` said so
        self.look: ShouldStop = _never  # asked now and then within ``advance``, which may take long over polls
        self._settled = 0
        self.stuck_ops: Callable[[], set[int]] = set  # asked for ops whose units are held up for ever
        self._polls_alone = 0  # times settled since anything but a poll in vain happened
        self._ask_at = _POLLS_ALONE
        # (time, kind, stage or op)
        self._events = [(self._release[op], _READY, op) for op, waits in enumerate(self._waits) if not waits]
        heapq.heapify(self._events)
        self._stage = program.op_stage_ptr[:-1].tolist()  # [O] that is under way

    @property
    def next_time(self) -> int:
        """Time of the next event, or IDLE."""
        return self._events[0][0] if self._events else IDLE

    def advance(self, end: int) -> None:
        """Settle every time before ``end``, those included that settling brings about."""
        while self._events and self._events[0][0] < end:
            self._settle(self._events[0][0])
            self._settled += 1
            if not self._settled % _WATCH_EVERY_SETTLES and self.look():
                self.stopped = True
                return
            if self._polls_alone >= self._ask_at and self._last_poll == IDLE:
                self._give_up()
            elif not self._polls_alone:
                self._ask_at = _POLLS_ALONE

    def delivered(self, flow: int, time: int) -> None:
        """Take note that the last unit of ``flow`` arrives at ``time``."""
        if self.hopeless:
            return
        stage = self._flow_stage[flow]
        self._flows_left[stage] -= 1
        self._stage_end[stage] = max(self._stage_end[stage], time)
        if not self._flows_left[stage]:
            heapq.heappush(self._events, (self._stage_end[stage], _STAGE_END, stage))

    @property
    def flows_left(self) -> Int64Array:
        """[T] flows not yet delivered, those of stages that have not begun included."""
        return np.array(self._flows_left, np.int64)

    def _give_up(self) -> None:
        """End the run if nothing but polls in vain can ever happen: all other ops under way are stuck."""
        self._ask_at *= 2  # it is not cheap
        if any(kind != _STAGE_END for _, kind, _ in self._events):
            return
        under_way = {op for op, start in enumerate(self.start) if start != NEVER and self.done[op] == NEVER}
        in_vain = {op for op in under_way if self._flags[op] and self._polls[self._stage[op]]}
        if under_way == in_vain or under_way - in_vain <= self.stuck_ops():
            self.hopeless = True
            self._events.clear()

    def _settle(self, now: int) -> None:
        events, stirred = self._events, self._stirred
        self._polls_alone += 1
        while True:
            while events and events[0][0] == now:
                _, kind, idx = heapq.heappop(events)
                if kind == _STAGE_END:
                    self._end_stage(idx, now)
                elif kind == _READY:
                    self._make_ready(idx, now)
                else:
                    self._finish(idx, now)
            if not stirred:
                return
            pools = tuple(stirred)
            stirred.clear()
            for pool in pools:
                self._grant(pool, now)

    def _make_ready(self, op: int, now: int) -> None:
        self.ready[op] = now
        self._polls_alone = 0
        pool = self._pool[op]
        if pool == NONE:
            self._begin(op, now)
        else:
            heapq.heappush(self._queues[pool], (self._priority[op], now, self._local_id[op], self._rank[op], op))
            self._stirred.add(pool)

    def _grant(self, pool: int, now: int) -> None:
        """Hand out free slots in queue order; what the ops do with them at once is settled afterwards."""
        queue = self._queues[pool]
        while queue and self._slots[pool]:
            self._slots[pool] -= 1
            self._begin(heapq.heappop(queue)[4], now)

    def _begin(self, op: int, now: int) -> None:
        self.start[op] = now
        begin = now + self._setup[op]
        first = self._stage_ptr[op]
        if first < self._stage_ptr[op + 1]:
            self._begin_stage(first, begin)
        else:
            heapq.heappush(self._events, (begin, _FINISH, op))

    def _begin_stage(self, stage: int, begin: int) -> None:
        self._stage_end[stage] = begin + self._hold[stage]
        if self._polls[stage]:
            self.polls[self._stage_op[stage]] += 1
            self._flows_left[stage] = self._num_flows[stage]
        if not self._flows_left[stage]:
            heapq.heappush(self._events, (self._stage_end[stage], _STAGE_END, stage))
            return
        for flow in range(self._flow_ptr[stage], self._flow_ptr[stage + 1]):
            if self._has_units[flow]:
                self._inject(flow, begin + self._offset[flow])

    def _end_stage(self, stage: int, now: int) -> None:
        op = self._stage_op[stage]
        if self._polls[stage] and (self._flags[op] or self._flags_time[op] >= now):
            if now <= self._last_poll:
                self._begin_stage(stage, now)
            return
        self._polls_alone = 0
        if stage + 1 < self._stage_ptr[op + 1]:
            self._stage[op] = stage + 1
            self._begin_stage(stage + 1, now)
        else:
            self._finish(op, now)

    def _finish(self, op: int, now: int) -> None:
        self.done[op] = now
        self._polls_alone = 0
        pool = self._pool[op]
        if pool != NONE:
            self._slots[pool] += 1
            self._stirred.add(pool)
        for successor in self._next[self._next_ptr[op] : self._next_ptr[op + 1]]:
            self._waits[successor] -= 1
            if not self._waits[successor]:
                heapq.heappush(self._events, (max(now, self._release[successor]), _READY, successor))
        for poller in self._sets[self._sets_ptr[op] : self._sets_ptr[op + 1]]:
            self._flags[poller] -= 1
            self._flags_time[poller] = now


def _never() -> bool:
    return False


MIN_GAIN = 1.05
"""Gains of windows below this factor are not worth it."""

MAX_LINE_HOPS_PER_WINDOW = 4_000
"""Above this many line-hops in a window as it was, longer ones are no faster: their arrays leave the cache."""

MIN_LINE_HOPS = 20_000
"""Runs of fewer line-hops are too short to gain."""

MIN_WINDOWS = 256
"""Runs of fewer windows take less time than the search for offsets."""

_ROUNDS = 64
"""Most steps of a shortest path; a W that needs more is taken to be too long."""

_STEPS = 32
"""W is found to within this part of the shortest window."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Offsets of the clocks, and the ticks by which windows are longer because of them."""

    offsets: Int64Array  # [S] ticks by which a server's clock is behind that of the ops
    gained_ticks: int


def unit_effects(program: Program) -> tuple[Int64Array, Int64Array]:
    """Ticks from a unit's service to its effects: [H] elsewhere or on the ops, [hops into a buffer] by giving room."""
    hop_ticks = (program.service_ticks + program.latency_ticks).take(program.hop_server)
    into_buffer = np.flatnonzero(program.hop_buffer != NONE)
    service = program.service_ticks[program.hop_server[program.hop_next[into_buffer]]]
    return hop_ticks, service + program.buffer_credit_ticks[program.hop_buffer[into_buffer]]


def set_clocks(program: Program) -> Clocks:
    """Offsets with which windows are longer, all 0 where those would not pay."""
    if program.num_line_hops > MIN_LINE_HOPS:
        hop_ticks, room_ticks = unit_effects(program)
        shortest = int(min(hop_ticks.min(), room_ticks.min(initial=IDLE)))
        if _pays(program, shortest):
            longest = _longest_window(program, hop_ticks)
            if longest >= MIN_GAIN * shortest:
                return _search(program, shortest, longest)
    return Clocks(np.zeros(program.num_servers, np.int64), 0)


def _longest_window(program: Program, hop_ticks: Int64Array) -> int:
    """Upper bound on windows: the mean over a flow's hops, and servers that are first of some flows and last of others.

    Both are cycles through the clock of the ops.
    """
    ticks = np.bincount(program.hop_flow, hop_ticks, minlength=program.num_flows)
    first = np.zeros(program.num_servers, np.bool_)
    first[program.hop_server[program.flow_first_hop]] = True
    both = first[program.hop_server] & (program.hop_next == NONE)
    return int(min((ticks / program.flow_num_hops).min(), hop_ticks[both].min(initial=IDLE)))


def _pays(program: Program, shortest: int) -> bool:
    """Whether windows are many and thin; their number is at least the busy time of the busiest server over W."""
    busy = (program.flow_units[program.hop_flow] * program.service_ticks[program.hop_server]).astype(np.float64)
    num_windows = np.bincount(program.hop_server, busy).max() / shortest
    return bool(num_windows >= MIN_WINDOWS and program.num_line_hops <= MAX_LINE_HOPS_PER_WINDOW * num_windows)


def _search(program: Program, shortest: int, longest: int) -> Clocks:
    """Find the longest windows by bisection."""
    effects = _Effects(program)
    found, offsets = shortest, np.zeros(program.num_servers, np.int64)
    too_long, attempt = longest + 1, longest
    while too_long - found > max(1, shortest // _STEPS):
        solution = effects.offsets(attempt)
        if solution is None:
            too_long = attempt
        else:
            found, offsets = attempt, solution
        attempt = (found + too_long) // 2
    return Clocks(offsets, found - shortest)


class _Effects:
    """Graph of clocks: an edge leads from each clock to those its events affect. Clock 0 is that of the ops."""

    def __init__(self, program: Program) -> None:
        hop_ticks, room_ticks = unit_effects(program)
        clock = program.hop_server + 1  # [H]
        following = np.append(clock, 0)[program.hop_next]  # [H]; NONE is -1, the last
        buffered = program.hop_buffer != NONE
        first = clock[program.flow_first_hop]
        tails = np.concatenate((np.zeros_like(first), clock, following[buffered]))
        heads = np.concatenate((first, following, clock[buffered]))
        ticks = np.concatenate((np.zeros_like(first), hop_ticks, room_ticks))
        order = np.lexsort((ticks, tails, heads))
        tails, heads, ticks = tails[order], heads[order], ticks[order]
        new = np.flatnonzero(np.diff(heads * (program.num_servers + 1) + tails, prepend=-1))
        self._tails, self._ticks, heads = tails[new], ticks[new], heads[new]
        self._begins = np.flatnonzero(np.diff(heads, prepend=-1))
        self._heads = heads[self._begins]
        self._num_clocks = program.num_servers + 1

    def offsets(self, window_ticks: int) -> Int64Array | None:
        """[S] offsets that allow windows that long; None if there are none or the search takes too many rounds."""
        ticks = np.where(self._tails > 0, self._ticks - window_ticks, self._ticks)
        offsets = np.zeros(self._num_clocks, np.int64)
        for _ in range(_ROUNDS):
            limits = np.minimum.reduceat(offsets[self._tails] + ticks, self._begins)
            lower = np.minimum(offsets[self._heads], limits)
            if (lower == offsets[self._heads]).all():
                found: Int64Array = offsets[1:] - offsets[0]
                return found
            offsets[self._heads] = lower
        return None
