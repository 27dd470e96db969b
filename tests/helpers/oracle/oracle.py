"""The simulated machine, one event at a time: slow, plain, and written from its rules rather than from the simulator.

Units are events (time, place in the order of ties, hop) in one heap: a unit reaches a server. Of what is still to come
from a source or a server, which comes in order, the heap holds the first. Ops, stages and pools are objects that call
each other. It reads the same ``Program``, and works out the order of ties for itself.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import inf

from magus.simcore.program.program import OpKind, Program
from tests.helpers.oracle.oracle_parts import NEVER, NONE, Flow, Hop, Op, Stage, read_program

__all__ = ["Flow", "Hop", "NEVER", "NONE", "Op", "Oracle", "OracleRun", "Stage", "read_program"]


@dataclass
class OracleRun:
    """Times in ticks, NEVER (-1) where it did not happen."""

    ready: list[int]
    start: list[int]
    done: list[int]
    flow_last: list[int]
    server_free: list[int]
    makespan: int
    line_hops: int
    polls: list[int] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)  # [servers] hop of a unit without room where it goes, or NONE
    hop_wait: list[int] = field(default_factory=list)  # [hops] from arrival to service, over units; in order of ties
    hopeless: bool = False  # ops polled for flags that nobody will set, and were made to stop

    @property
    def deadlock(self) -> bool:
        return NEVER in self.done


class Oracle:
    """One run of a program; no poll begins again after ``last_poll``."""

    def __init__(self, program: Program, last_poll: float = inf) -> None:
        self.program, self.last_poll = program, last_poll
        self.service = program.service_ticks.tolist()
        self.latency = program.latency_ticks.tolist()
        self.free = [0] * len(self.service)
        self.slots = program.pool_slots.tolist()
        self.line: list[list[Op]] = [[] for _ in self.slots]  # who queues for each pool, in no order
        self.ops, self.flows = read_program(program)
        self.units: list[tuple[int, int, Hop]] = []  # arrivals: time, tie, where
        self.under_way: list[deque[tuple[int, int, Hop]]] = [deque() for _ in self.free]  # all that come from a server
        self.alarms: dict[int, list[Op]] = {}  # time -> ops to which something happens then
        self.alarm_times: list[int] = []
        self.line_hops = 0
        self.polled_in_vain = self.hopeless = False
        self.mover: Op | None = None  # the op that could move when this was last asked
        # A server that feeds a buffer is a queue of units, of which the first is served when the server is free and
        # there is room. At any other server nothing can come between, so a unit's turn is known when it arrives.
        self.room = program.buffer_units.tolist()
        self.credit_ticks = program.buffer_credit_ticks.tolist()
        self.feeder = [NONE] * len(self.room)
        self.queue: list[deque[tuple[int, Hop]] | None] = [None] * len(self.service)
        self.hops = sorted((hop for flow in self.flows for hop in flow.hops), key=lambda hop: hop.turn)
        for hop in self.hops:
            if hop.to_buffer != NONE:
                self.feeder[hop.to_buffer] = hop.server
                self.queue[hop.server] = deque()
        self.signals: list[tuple[int, int, int]] = []  # time, server that may go on, buffer with new room or NONE

    def run(self) -> OracleRun:
        """The run; of ops that poll in vain only so long as it may matter to others.

        That is until the last time at which an op got ready, began or ended, or later by 1, 3, 7 ... ticks if without
        their polls something would come of the others.
        """
        found = self.run_once()
        if not any(op.polls and op.flags_unset for op in self.ops if op.done == NEVER):
            return found
        times, later = (found.ready, found.start, found.done), 0
        while True:
            again = Oracle(self.program, max(max(each) for each in times) + later).run_once()
            if (again.ready, again.start, again.done) == times:
                again.hopeless = True
                return again
            later = 2 * later + 1

    def run_once(self) -> OracleRun:
        """The run as it comes; polls in vain end when they are noticed, or with ``last_poll``."""
        for op in self.ops:
            if not op.waits_for:
                self.wake(op, op.release)
        units, signals, alarm_times = self.units, self.signals, self.alarm_times
        while not self.hopeless:
            now = units[0][0] if units else inf
            if signals and signals[0][0] <= now:
                now = signals[0][0]
            if alarm_times and alarm_times[0] <= now:  # ops come before units of the same time
                self.settle(alarm_times[0])
            elif signals and signals[0][0] == now:
                time, server, buffer = heappop(signals)
                if buffer != NONE:
                    self.room[buffer] += 1
                self.serve_next(server, time)
            elif units:
                self.arrive(units[0][2], units[0][0])
            else:
                break
        ends = zip((op.done for op in self.ops), self.program.op_kind.tolist(), strict=True)
        return OracleRun(
            [op.ready for op in self.ops],
            [op.start for op in self.ops],
            [op.done for op in self.ops],
            [flow.delivered for flow in self.flows],
            self.free,
            max((done for done, kind in ends if kind != OpKind.TRAFFIC and done != NEVER), default=0),
            self.line_hops,
            [op.polls for op in self.ops],
            [queue[0][1].turn if queue and queue[0][1].to_buffer != NONE else NONE for queue in self.queue],
            [hop.wait for hop in self.hops],
            self.hopeless,
        )

    def arrive(self, hop: Hop, time: int) -> None:
        """Take the first of all units off the heap and have it served."""
        if hop.came_from == NONE:
            heappop(self.units)
            flow = hop.flow
            flow.uninjected -= 1
            flow.next_time = time + flow.gap
            if flow.uninjected:
                self.inject(flow)
        else:
            behind = self.under_way[hop.came_from]
            behind.popleft()
            if behind:
                heapreplace(self.units, behind[0])
            else:
                heappop(self.units)
        queue = self.queue[hop.server]
        if queue is None:
            self.serve(hop, time, max(time, self.free[hop.server]))
        else:
            queue.append((time, hop))
            self.serve_next(hop.server, time)

    def inject(self, flow: Flow) -> None:
        """Let the next unit of a flow set out, if it need not wait for a credit."""
        hop, time = flow.hops[0], flow.next_time
        if flow.window:
            flow.starved = not flow.credits
            if flow.starved:
                return
            time = max(time, flow.credits.popleft())
        heappush(self.units, (time, hop.turn, hop))

    def serve_next(self, server: int, now: int) -> None:
        """Serve the first unit in the queue if the server is free and there is room where the unit goes."""
        queue = self.queue[server]
        assert queue is not None, "only servers that feed a buffer have a queue"
        if not queue or self.free[server] > now:
            return
        arrived, hop = queue[0]
        if hop.to_buffer != NONE:
            if not self.room[hop.to_buffer]:
                return
            self.room[hop.to_buffer] -= 1
        queue.popleft()
        self.serve(hop, arrived, now)
        heappush(self.signals, (self.free[server], server, NONE))

    def serve(self, hop: Hop, arrived: int, begin: int) -> None:
        """Take a unit through a server."""
        server = hop.server
        hop.wait += begin - arrived
        leaves = begin + self.service[server]
        self.free[server] = leaves
        self.line_hops += 1
        if hop.from_buffer != NONE:
            given_back = leaves + self.credit_ticks[hop.from_buffer]
            heappush(self.signals, (given_back, self.feeder[hop.from_buffer], hop.from_buffer))
        following, arrives = hop.next, leaves + self.latency[server]
        if following is not None:
            arrival = (arrives, following.turn, following)
            under_way = self.under_way[server]
            if not under_way:
                heappush(self.units, arrival)
            under_way.append(arrival)
            return
        flow = hop.flow
        flow.undelivered -= 1
        flow.last = arrives
        if flow.window:
            flow.credits.append(arrives)
            if flow.starved:
                self.inject(flow)
        if not flow.undelivered:
            flow.delivered = flow.last
            self.close_stage(flow.stage)

    def wake(self, op: Op, time: int) -> None:
        if time not in self.alarms:
            self.alarms[time] = []
            heappush(self.alarm_times, time)
        self.alarms[time].append(op)

    def settle(self, now: int) -> None:
        """Everything that happens to ops at ``now``: readies and ends until there are none, then a round of grants."""
        while self.alarms[now]:
            while self.alarms[now]:
                op = self.alarms[now].pop()
                if op.ready == NEVER:
                    self.make_ready(op, now)
                else:
                    self.go_on(op, now)
            for pool, line in enumerate(self.line):
                line.sort(key=lambda op: (op.priority, op.ready, op.local_id, op.rank))
                granted = line[: self.slots[pool]]
                self.slots[pool] -= len(granted)
                del line[: len(granted)]
                for op in granted:
                    self.begin(op, now)
        del self.alarms[now]
        heappop(self.alarm_times)
        if self.polled_in_vain:
            self.hopeless = not self.can_go_on(now)
            self.polled_in_vain = False

    def can_go_on(self, now: int) -> bool:
        """Whether anything but polling in vain will happen."""
        if self.room:  # an op may have all its units stuck
            moving = self.ops_with_moving_units(now)
            return any(op.can_move() and (op in moving or not op.waits_for_units()) for op in self.ops)
        if self.mover is None or not self.mover.can_move():
            self.mover = next((op for op in self.ops if op.can_move()), None)
        return self.mover is not None

    def ops_with_moving_units(self, now: int) -> set[Op]:
        """All but those of which every unit is in a queue that waits for room where others of these queues wait."""
        coming = {buffer for _, _, buffer in self.signals}
        waits_for = {}  # of a server whose first unit has no room: the server that it waits for
        for server, queue in enumerate(self.queue):
            if queue and self.free[server] <= now:
                buffer, following = queue[0][1].to_buffer, queue[0][1].next
                if following is not None and buffer != NONE and buffer not in coming and not self.room[buffer]:
                    waits_for[server] = following.server
        while free := [server for server, other in waits_for.items() if other not in waits_for]:
            for server in free:
                del waits_for[server]
        moving = [queue for server, queue in enumerate(self.queue) if queue and server not in waits_for]
        in_queues = [hop for queue in moving for _, hop in queue]
        on_the_way = [hop for units in (self.units, *self.under_way) for _, _, hop in units]
        return {hop.flow.stage.op for hop in in_queues + on_the_way}

    def make_ready(self, op: Op, now: int) -> None:
        op.ready = now
        if op.pool == NONE:
            self.begin(op, now)
        else:
            self.line[op.pool].append(op)

    def begin(self, op: Op, now: int) -> None:
        op.start = now
        self.open_stage(op, now + op.setup)

    def go_on(self, op: Op, now: int) -> None:
        """A stage is over, or a set-up without any stages to follow."""
        if op.polling and (op.flags_unset or op.flag_time >= now):
            self.polled_in_vain = self.last_poll == inf
            if now <= self.last_poll:
                self.open_stage(op, now)
            return
        op.polling = False
        op.stages_over += 1
        if op.stages_over < len(op.stages):
            self.open_stage(op, now)
            return
        op.done = now
        if op.pool != NONE:
            self.slots[op.pool] += 1
        for poller in op.sets:
            poller.flags_unset -= 1
            poller.flag_time = now
        for follower in op.followers:
            follower.waits_for -= 1
            if not follower.waits_for:
                self.wake(follower, max(now, follower.release))

    def open_stage(self, op: Op, begin: int) -> None:
        if not op.stages:
            self.wake(op, begin)
            return
        stage = op.stages[op.stages_over]
        op.polling = stage.polls
        op.polls += stage.polls
        stage.end = begin + stage.hold
        for flow in stage.flows:
            flow.uninjected = flow.undelivered = flow.units
            flow.next_time = begin + flow.offset
            flow.credits = deque([begin] * flow.window)
            if flow.units:
                self.inject(flow)
        self.close_stage(stage)

    def close_stage(self, stage: Stage) -> None:
        if all(not flow.undelivered for flow in stage.flows):
            end = max([stage.end, *[flow.last for flow in stage.flows]])
            self.wake(stage.op, end)
