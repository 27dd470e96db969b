"""The scalar core: a heap with one entry per stream of units, for programs whose windows would be thin.

The units that leave a server do so one after the other and travel equally long, so they are a stream in order of time;
so are the units a flow injects. The heap holds the head of each stream only, not every unit on the way. An entry is
one integer, time above flow-hop: integers order as (time, tie order) does, and Python's have no width to overflow.

``heap_backpressure`` runs the programs in which windows or buffers hold units back.
"""

import heapq
from collections import deque

import numpy as np

from ..program.arrays import NONE, previous_hops
from ..program.limits import BYTES_PER_UNIT
from ..program.outcome import NEVER, Served, WatchFn
from ..program.program import Program
from .accounting import wait_shift, wait_ticks
from .op_scheduler import IDLE, Control

_BATCH = 1 << 16
"""Units served, or times at which ops are settled, between two calls of the watch."""


def simulate(
    program: Program, watch: WatchFn, observe: bool = False, last_poll_ticks: int = IDLE
) -> tuple[Control, Served]:
    """Run ``program`` unit by unit."""
    return _Heap(program, observe, last_poll_ticks).run(watch)


class _Heap:
    """State of one run. Times in ticks."""

    def __init__(self, program: Program, observe: bool, last_poll_ticks: int) -> None:
        self._control = Control(program, self._begin_flow, last_poll_ticks)
        self._bits = program.num_hops.bit_length()
        source = np.append(program.hop_server, NONE)[previous_hops(program.hop_next)]  # [H]; NONE is -1, the last
        service, latency = program.service_ticks[program.hop_server], program.latency_ticks[program.hop_server]
        columns = (program.hop_server, service, latency, source, program.hop_next, program.hop_flow)
        # [H] server, service and latency there, the server before, next hop, flow
        self._hops = list(zip(*(column.tolist() for column in columns), strict=True))
        self._first_hop, self._units = program.flow_first_hop.tolist(), program.flow_units.tolist()
        self._gap = [gap << self._bits for gap in program.flow_gap_ticks.tolist()]
        self._to_inject = [0] * program.num_flows
        self._to_deliver = [0] * program.num_flows
        self._flow_last = [NEVER] * program.num_flows
        self._free = [0] * program.num_servers
        self._behind: list[deque[int]] = [deque() for _ in self._free]  # [S] units of its stream behind the head
        self._streaming = [False] * program.num_servers  # whether the stream has its head in the heap
        self._heads: list[int] = []
        self._observe = observe
        self._waited = [0] * program.num_hops if observe else []  # [H]
        self._wait_shift = wait_shift(program) if observe else 0
        self._served = 0

    def run(self, watch: WatchFn) -> tuple[Control, Served]:
        """Serve units until none is left, or the watch says stop."""
        cancelled = over = False
        while not over and not cancelled:
            cancelled = watch(self._served, BYTES_PER_UNIT["heap"] * (len(self._heads) + sum(map(len, self._behind))))
            over = not cancelled and self._serve_batch()
        flow_last, free = np.array(self._flow_last, np.int64), np.array(self._free, np.int64)
        waited = wait_ticks(np.array(self._waited, np.int64), self._wait_shift) if self._observe else None
        return self._control, Served(flow_last, free, self._served, 0, cancelled, hop_wait_ticks=waited)

    def _begin_flow(self, flow: int, time: int) -> None:
        self._to_inject[flow] = self._to_deliver[flow] = self._units[flow]
        heapq.heappush(self._heads, time << self._bits | self._first_hop[flow])

    def _serve_batch(self) -> bool:
        """Serve a batch of units, and settle ops in between; whether nothing is left to come.

        One function with local names: the time goes into looking things up.
        """
        push, pop, replace = heapq.heappush, heapq.heappop, heapq.heapreplace
        control, heads, hops, free = self._control, self._heads, self._hops, self._free
        behind, streaming, waited, shift = self._behind, self._streaming, self._waited, self._wait_shift
        to_inject, to_deliver, gap = self._to_inject, self._to_deliver, self._gap
        bits, mask = self._bits, (1 << self._bits) - 1
        due = control.next_time << bits
        served, over = 0, False
        for _ in range(_BATCH):
            if not heads or heads[0] >= due:  # ops come before units of the same time
                if control.next_time == IDLE:
                    over = True
                    break
                control.advance(control.next_time + 1)
                due = control.next_time << bits
                continue
            key = heads[0]
            hop, time = key & mask, key >> bits
            server, service, latency, source, following, flow = hops[hop]
            if free[server] > time:
                if waited:
                    waited[hop] += free[server] - time >> shift
                time = free[server]
            free[server] = time = time + service
            time += latency
            served += 1

            if source == NONE:
                to_inject[flow] -= 1
                if to_inject[flow]:
                    replace(heads, key + gap[flow])
                else:
                    pop(heads)
            elif behind[source]:
                replace(heads, behind[source].popleft())
            else:
                pop(heads)
                streaming[source] = False

            if following == NONE:
                to_deliver[flow] -= 1
                if not to_deliver[flow]:
                    self._flow_last[flow] = time
                    control.delivered(flow, time)
                    due = control.next_time << bits
            elif streaming[server]:
                behind[server].append(time << bits | following)
            else:
                streaming[server] = True
                push(heads, time << bits | following)
        self._served += served
        return over
