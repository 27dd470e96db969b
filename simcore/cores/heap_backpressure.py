"""The scalar core for programs in which units are held back: by the window of their flow, or for want of room.

As ``heap``, it keeps one entry in a heap for each stream of units; a flow with a window is a stream of its own. A unit
that reaches a server joins its line, and the line moves while its first unit has room where it goes. Room is given back
when a unit leaves, which may let the server before move, and the one before that.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np

from ..program.arrays import NONE, Int64Array, buffer_feeders, buffers_left, previous_hops
from ..program.limits import BYTES_PER_UNIT
from ..program.outcome import NEVER, Served, WatchFn
from ..program.program import Program
from .accounting import wait_shift, wait_ticks
from .locked import locked_servers, stuck_ops
from .op_scheduler import IDLE, Control

_BATCH = 1 << 14
"""Units that arrive, or times at which ops are settled, between two looks at the watch."""


def simulate(
    program: Program, watch: WatchFn, observe: bool = False, last_poll_ticks: int = IDLE
) -> tuple[Control, Served]:
    """Run ``program`` unit by unit."""
    return _Throttled(program, observe, last_poll_ticks).run(watch)


class _Throttled:
    """State of one run. Times in ticks."""

    def __init__(self, program: Program, observe: bool, last_poll_ticks: int) -> None:
        self._waited = [0] * program.num_hops if observe else None  # [H]
        self._wait_shift = wait_shift(program) if observe else 0
        self._program = program
        self._control = Control(program, self._begin_flow, last_poll_ticks)
        self._control.stuck_ops = self._stuck_ops
        self._bits = program.num_hops.bit_length()
        self._mask = (1 << self._bits) - 1
        self._service, self._latency = program.service_ticks.tolist(), program.latency_ticks.tolist()
        self._server, self._flow = program.hop_server.tolist(), program.hop_flow.tolist()
        self._next, self._buffer = program.hop_next.tolist(), program.hop_buffer.tolist()
        before = previous_hops(program.hop_next)
        self._leaves_buffer = buffers_left(program.hop_buffer, program.hop_next).tolist()  # [H]
        self._first_hop, self._units = program.flow_first_hop.tolist(), program.flow_units.tolist()
        self._gap, self._window = program.flow_gap_ticks.tolist(), program.flow_window_units.tolist()
        # A stream holds what comes from one server, or what one flow injects.
        injects = program.num_servers + program.hop_flow
        self._stream = np.where(before == NONE, injects, np.append(program.hop_server, NONE)[before]).tolist()  # [H]
        self._behind: list[deque[int]] = [deque() for _ in range(program.num_servers + program.num_flows)]
        self._streaming = [False] * len(self._behind)  # whether the stream has its head in the heap
        self._heads: list[int] = []  # heap of time above flow-hop

        self._to_inject = [0] * program.num_flows
        self._to_deliver = [0] * program.num_flows
        self._slot = [0] * program.num_flows  # [F] latest injection
        self._flow_last = [NEVER] * program.num_flows
        self._free = [0] * program.num_servers
        self._line: list[deque[tuple[int, int]]] = [deque() for _ in self._free]  # [S] arrival and hop, in order
        self._room = [deque([0] * units) for units in program.buffer_units.tolist()]  # [B] when each slot is there
        self._credit = program.buffer_credit_ticks.tolist()
        self._feeder = buffer_feeders(len(self._room), program.hop_buffer, program.hop_server).tolist()  # [B]
        self._served = 0

    def run(self, watch: WatchFn) -> tuple[Control, Served]:
        """Unit after unit, until nothing is left to come."""
        cancelled = over = False
        while not over and not cancelled:
            cancelled = watch(self._served, BYTES_PER_UNIT["throttled"] * self._num_under_way())
            over = not cancelled and self._take_batch()
        flow_last, free = np.array(self._flow_last, np.int64), np.array(self._free, np.int64)
        waited = None if self._waited is None else wait_ticks(np.array(self._waited, np.int64), self._wait_shift)
        return self._control, Served(flow_last, free, self._served, 0, cancelled, self._blocked(), waited)

    def _blocked(self) -> Int64Array:
        """[S] hop of the first unit in line, NONE where there is no line."""
        return np.array([line[0][1] if line else NONE for line in self._line], np.int64)

    def _stuck_ops(self) -> set[int]:
        locked = locked_servers(self._program, self._blocked())
        held = [hop for server in np.flatnonzero(locked).tolist() for _, hop in self._line[server]]
        return stuck_ops(self._program, np.array(held, np.int64), self._control.flows_left)

    def _num_under_way(self) -> int:
        """Units in streams and lines."""
        return len(self._heads) + sum(map(len, self._behind)) + sum(map(len, self._line))

    def _take_batch(self) -> bool:
        """Let a batch of units arrive and of ops go on; whether nothing is left to come."""
        control, heads, bits = self._control, self._heads, self._bits
        for _ in range(_BATCH):
            if not heads or heads[0] >= control.next_time << bits:  # ops come before units of the same time
                if control.next_time == IDLE:
                    return True
                control.advance(control.next_time + 1)
                continue
            key = heappop(heads)
            hop = key & self._mask
            stream = self._stream[hop]
            if self._behind[stream]:
                heappush(heads, self._behind[stream].popleft())
            else:
                self._streaming[stream] = False
            if stream >= len(self._free):
                self._follow_up(hop, key >> bits)
            self._arrive(hop, key >> bits)
        return False

    def _begin_flow(self, flow: int, time: int) -> None:
        """The flow injects its first unit at ``time``; those its window allows follow by the gap alone."""
        units, window = self._units[flow], self._window[flow]
        self._to_deliver[flow] = units
        at_once = min(units, window) if window else 1
        self._to_inject[flow] = units - at_once
        for _ in range(at_once):
            self._enter(self._first_hop[flow], time)
            time += self._gap[flow]
        self._slot[flow] = time - self._gap[flow]

    def _follow_up(self, hop: int, time: int) -> None:
        """A unit was injected at ``time``: without a window the next follows a gap later."""
        flow = self._flow[hop]
        if not self._window[flow] and self._to_inject[flow]:
            self._to_inject[flow] -= 1
            self._enter(hop, time + self._gap[flow])

    def _enter(self, hop: int, time: int) -> None:
        """A unit will reach the server of ``hop`` at ``time``, later than all others of its stream."""
        stream = self._stream[hop]
        if self._streaming[stream]:
            self._behind[stream].append(time << self._bits | hop)
        else:
            self._streaming[stream] = True
            heappush(self._heads, time << self._bits | hop)

    def _arrive(self, hop: int, time: int) -> None:
        """A unit is at the server of ``hop``; let the line move, and those that wait for the room that makes."""
        server = self._server[hop]
        self._line[server].append((time, hop))
        if len(self._line[server]) > 1:
            return
        moving = [server]
        while moving:
            server = moving.pop()
            while self._line[server]:
                arrival, hop = self._line[server][0]
                start, buffer = max(arrival, self._free[server]), self._buffer[hop]
                if buffer != NONE:
                    if not self._room[buffer]:
                        break
                    start = max(start, self._room[buffer].popleft())
                self._line[server].popleft()
                if self._waited is not None:
                    self._waited[hop] += start - arrival >> self._wait_shift
                left = self._leaves_buffer[hop]
                self._serve(server, hop, start)
                if left != NONE:
                    self._room[left].append(self._free[server] + self._credit[left])
                    moving.append(self._feeder[left])

    def _serve(self, server: int, hop: int, start: int) -> None:
        """Serve a unit from ``start`` and send it on its way."""
        self._served += 1
        self._free[server] = leaves = start + self._service[server]
        arrives, following = leaves + self._latency[server], self._next[hop]
        if following != NONE:
            self._enter(following, arrives)
            return
        flow = self._flow[hop]
        self._to_deliver[flow] -= 1
        if self._window[flow] and self._to_inject[flow]:
            self._to_inject[flow] -= 1
            self._slot[flow] = max(self._slot[flow] + self._gap[flow], arrives)
            self._enter(self._first_hop[flow], self._slot[flow])
        if not self._to_deliver[flow]:
            self._flow_last[flow] = arrives
            self._control.delivered(flow, arrives)
