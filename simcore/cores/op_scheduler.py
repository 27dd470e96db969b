"""The op level of a run: who is ready, who holds a slot, which stage begins when.

All cores but the compiled one, which has its own, drive the same ``Control``; units never appear here. Events at one
time are settled in rounds: first all ends of stages and all readies, to a fixed point, then a round of grants in every
pool, in queue order; what the grants bring about at the same time starts the next round. So neither the order of pools
nor that of events can matter; nor can it for polls, since a poll sees the flags that were set before it ends, and not
those set at that very time.
"""

import heapq
from collections.abc import Callable

import numpy as np

from ...compiler.ir import ShouldStop
from ..program.arrays import NONE, Int64Array
from ..program.outcome import NEVER
from ..program.program import Program

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
            turn = (self._priority[op], now, self._local_id[op], self._rank[op], op)
            heapq.heappush(self._queues[pool], turn)
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
