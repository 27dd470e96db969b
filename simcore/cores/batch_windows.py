"""The batched core: independent programs, simulated side by side in the same windows.

A small program has thin windows, and a window costs about the same whatever is in it. The units of many programs in
one window share that cost. Their servers, flows and hops are numbered one program after the other; their ops stay with
a ``Control`` each. Every program has a clock of its own, its lane's time; all lanes share the windows' time::

    lane's time = windows' time + phase of the lane

The phase grows when a lane has no unit under way and nothing happens in it for a while: the lane jumps to what happens
next, so that an idle lane costs nothing. No unit ever passes from one lane to another, so phases cannot matter.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..program.arrays import NONE, starts
from ..program.outcome import NEVER, Served, WatchFn
from ..program.program import Program
from .op_scheduler import IDLE, Control
from .windows import Windows, window_ticks

UNIT_FIELDS: dict[str, str] = {
    "service_ticks": "",
    "latency_ticks": "",
    "buffer_units": "",
    "buffer_credit_ticks": "",
    "flow_units": "",
    "flow_gap_ticks": "",
    "flow_window_units": "",
    "flow_first_hop": "hop_server",
    "flow_num_hops": "",
    "hop_server": "service_ticks",
    "hop_flow": "flow_units",
    "hop_index": "",
    "hop_next": "hop_server",
    "hop_buffer": "buffer_units",
}
"""Arrays of a Program about units, each with the array that its entries index, if any."""


def side_by_side(programs: Sequence[Program]) -> Program:
    """All units of ``programs``, numbered program by program; the arrays about ops are those of the first program."""
    fields: dict[str, Any] = {}
    for name, target in UNIT_FIELDS.items():
        parts = [getattr(program, name) for program in programs]
        if target:
            offsets = _offsets(programs, target)[:-1]
            parts = [np.where(part == NONE, NONE, part + offset) for part, offset in zip(parts, offsets, strict=True)]
        fields[name] = np.concatenate(parts)
    return replace(programs[0], **fields)


def simulate(programs: Sequence[Program], watch: WatchFn) -> list[tuple[Control, Served]]:
    """Run ``programs`` in one run of windows, as long as the shortest of theirs.

    Raises
    ------
    KeyWidthError
        If they do not fit into one; fewer of them may.
    """
    shortest = min((window_ticks(program) for program in programs if program.num_hops), default=1)
    windows = Windows(side_by_side(programs), shortest)
    lanes = _Lanes(programs, windows)
    return lanes.results(windows.run(lanes, watch))


def _offsets(programs: Sequence[Program], name: str) -> list[int]:
    """Start of each program's part of the array ``name``, and the end of the last."""
    offsets: list[int] = starts(np.array([len(getattr(program, name)) for program in programs], np.int64)).tolist()
    return offsets


class _Lanes:
    """The ops of all lanes, in the windows' time. A lane with no unit under way is *parked* until the next window."""

    hopeless = False
    stopped = False

    def __init__(self, programs: Sequence[Program], windows: Windows) -> None:
        self._windows = windows
        self._first_server = _offsets(programs, "service_ticks")
        self._first_flow = _offsets(programs, "flow_units")
        num_flows = self._first_flow[-1]
        self._lane = np.repeat(np.arange(len(programs)), np.diff(self._first_flow)).tolist()  # [F] lane of the flow
        self._phase = [0] * len(programs)
        self._under_way = [0] * len(programs)  # flows begun and not delivered
        self._held: list[list[tuple[int, int]]] = [
            [] for _ in programs
        ]  # heaps of flows yet to begin: lane's time, flow
        self._rounds = [0] * num_flows  # times the flow began
        self._flow_last = [NEVER] * num_flows  # in the lane's time
        self._controls = [Control(program, self._injector(lane)) for lane, program in enumerate(programs)]
        self._end = 0  # of the window
        self._due = [IDLE] * len(programs)  # time of the lane's next event, once looked up
        self._stirred = set(range(len(programs)))  # lanes to which something happened since then
        self._parked: list[int] = []

    @property
    def next_time(self) -> int:
        """Time of the next event, or IDLE; that of a parked lane can be had at once."""
        for lane in self._stirred:
            next_time = self._next_of(lane)
            self._due[lane] = IDLE if next_time == IDLE else next_time - self._phase[lane]
            if next_time < IDLE and not self._under_way[lane]:
                self._parked.append(lane)
        self._stirred.clear()
        return self._end if self._parked else min(self._due)

    def advance(self, end: int) -> None:
        """Settle every time before ``end`` in all lanes, once the parked ones have come to the window."""
        self._end = end
        for lane in self._parked:
            if self._due[lane] >= end:
                self._jump(lane, self._due[lane] - self._windows.start)
        self._parked.clear()
        for lane, due in enumerate(self._due):
            if due < end:
                self._controls[lane].advance(end + self._phase[lane])
                self._release(lane)
                self._stirred.add(lane)

    def delivered(self, flow: int, time: int) -> None:
        """Take note that the last unit of ``flow`` arrives at ``time``."""
        lane = self._lane[flow]
        time += self._phase[lane]
        self._flow_last[flow] = time
        self._under_way[lane] -= 1
        self._stirred.add(lane)
        control = self._controls[lane]
        if not control.hopeless:
            control.delivered(flow - self._first_flow[lane], time)

    def results(self, served: Served) -> list[tuple[Control, Served]]:
        """The result of each lane in its own time, from the result of all windows."""
        line_hops = self._line_hops()
        results = []
        for lane, control in enumerate(self._controls):
            unfinished = not control.hopeless and (self._under_way[lane] > 0 or self._next_of(lane) < IDLE)
            own = Served(
                flow_last=np.array(self._flow_last[self._first_flow[lane] : self._first_flow[lane + 1]], np.int64),
                server_free=served.server_free[self._servers(lane)] + self._phase[lane],
                line_hops=line_hops[lane],
                windows=served.windows,
                cancelled=served.cancelled and unfinished,
            )
            results.append((control, own))
        return results

    def _next_of(self, lane: int) -> int:
        """The lane's time of its next event, or IDLE."""
        held, next_time = self._held[lane], self._controls[lane].next_time
        return min(next_time, held[0][0]) if held else next_time

    def _injector(self, lane: int) -> Callable[[int, int], None]:
        """The inject function of the lane's ``Control``; it holds flows that begin late, so that the lane can jump."""
        phase, under_way, held = self._phase, self._under_way, self._held[lane]

        def begin(flow: int, time: int) -> None:
            if under_way[lane] or time - phase[lane] < self._end:
                self._inject(lane, flow, time)
            else:
                heapq.heappush(held, (time, flow))

        return begin

    def _release(self, lane: int) -> None:
        """Begin flows that are due."""
        held, end = self._held[lane], self._end + self._phase[lane]
        while held and held[0][0] < end:
            time, flow = heapq.heappop(held)
            self._inject(lane, flow, time)

    def _inject(self, lane: int, flow: int, time: int) -> None:
        flow += self._first_flow[lane]
        self._under_way[lane] += 1
        self._rounds[flow] += 1
        self._windows.inject(flow, time - self._phase[lane])

    def _servers(self, lane: int) -> slice:
        return slice(self._first_server[lane], self._first_server[lane + 1])

    def _jump(self, lane: int, ticks: int) -> None:
        """Move the time of this lane alone forward by ``ticks``."""
        self._phase[lane] += ticks
        self._due[lane] -= ticks
        self._windows.advance_servers(self._servers(lane), ticks)

    def _line_hops(self) -> list[int]:
        """[lane] units served, summed over servers: those of all flows that began, less the hops still to come."""
        union, num_lanes = self._windows.program, len(self._controls)
        lane = np.array(self._lane, np.int64)
        begun = np.array(self._rounds, np.int64) * union.flow_units * union.flow_num_hops  # [F]
        hops_left = union.flow_num_hops[union.hop_flow] - union.hop_index  # [H]
        to_come = self._windows.units_waiting() * hops_left
        line_hops = np.zeros(num_lanes, np.int64)
        np.add.at(line_hops, lane, begun)
        np.subtract.at(line_hops, lane[union.hop_flow], to_come)
        return [int(count) for count in line_hops]
