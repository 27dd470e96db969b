"""The scalar core: a heap with one entry per stream of units, for programs whose windows would be thin.

The units that leave a server do so one after the other and travel equally long, so they are a stream in order of time;
so are the units a flow injects. The heap holds the head of each stream only, not every unit on the way. An entry is
one integer, time above flow-hop: integers order as (time, tie order) does, and Python's have no width to overflow.

Programs in which windows or buffers hold units back are for ``throttled``, which does the same with more care.
"""

import heapq
from collections import deque

import numpy as np

from ..program.arrays import NONE, previous_hops
from ..program.limits import BYTES_A_UNIT
from ..program.outcome import NEVER, Served, WatchFn
from ..program.program import Program
from .accounting import wait_shift, wait_ticks
from .op_scheduler import IDLE, Control

_BATCH = 1 << 16
"""Units served, or times at which ops are settled, between two looks at the watch."""


def simulate(
    program: Program, watch: WatchFn, observe: bool = False, last_poll_ticks: int = IDLE
) -> tuple[Control, Served]:
    """Run ``program`` unit by unit. One long function, since looking things up is what the time goes into."""
    push, pop, replace = heapq.heappush, heapq.heappop, heapq.heapreplace
    bits = program.num_hops.bit_length()
    mask = (1 << bits) - 1
    hop_server, hop_flow, hop_next = (a.tolist() for a in (program.hop_server, program.hop_flow, program.hop_next))
    service = program.service_ticks[program.hop_server].tolist()
    latency = program.latency_ticks[program.hop_server].tolist()
    hop_from = np.append(program.hop_server, NONE)[previous_hops(program.hop_next)].tolist()  # NONE is -1, the last
    first_hop, gap = program.flow_first_hop.tolist(), [gap << bits for gap in program.flow_gap_ticks.tolist()]
    units = program.flow_units.tolist()
    to_inject, to_deliver = units.copy(), units.copy()
    flow_last = [NEVER] * program.num_flows
    free = [0] * program.num_servers
    behind: list[deque[int]] = [deque() for _ in free]  # [S] units of the server's stream behind its head
    streaming = [False] * len(free)  # [S] whether the stream has its head in the heap
    heads: list[int] = []
    waited, shift = ([0] * program.num_hops, wait_shift(program)) if observe else ([], 0)
    served = 0

    def result(cancelled: bool) -> tuple[Control, Served]:
        arrays = (np.array(flow_last, np.int64), np.array(free, np.int64))
        hop_wait = wait_ticks(np.array(waited, np.int64), shift) if observe else None
        return control, Served(*arrays, line_hops=served, windows=0, cancelled=cancelled, hop_wait_ticks=hop_wait)

    def begin_flow(flow: int, time: int) -> None:
        to_inject[flow] = to_deliver[flow] = units[flow]
        push(heads, time << bits | first_hop[flow])

    control = Control(program, begin_flow, last_poll_ticks)
    due = control.next_time << bits
    while not watch(served, BYTES_A_UNIT["heap"] * (len(heads) + sum(map(len, behind)))):
        for _ in range(_BATCH):
            if not heads or heads[0] >= due:  # ops come before units of the same time
                if control.next_time == IDLE:
                    return result(cancelled=False)
                control.advance(control.next_time + 1)
                due = control.next_time << bits
                continue
            key = heads[0]
            hop = key & mask
            server = hop_server[hop]
            time = key >> bits
            if free[server] > time:
                if waited:
                    waited[hop] += free[server] - time >> shift
                time = free[server]
            free[server] = time = time + service[hop]
            time += latency[hop]
            served += 1

            previous = hop_from[hop]
            if previous == NONE:
                flow = hop_flow[hop]
                to_inject[flow] -= 1
                if to_inject[flow]:
                    replace(heads, key + gap[flow])
                else:
                    pop(heads)
            elif behind[previous]:
                replace(heads, behind[previous].popleft())
            else:
                pop(heads)
                streaming[previous] = False

            following = hop_next[hop]
            if following == NONE:
                flow = hop_flow[hop]
                to_deliver[flow] -= 1
                if not to_deliver[flow]:
                    flow_last[flow] = time
                    control.delivered(flow, time)
                    due = control.next_time << bits
            elif streaming[server]:
                behind[server].append(time << bits | following)
            else:
                streaming[server] = True
                push(heads, time << bits | following)
    return result(cancelled=True)
