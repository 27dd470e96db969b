"""Clocks of servers, set so that windows can be longer than the shortest service plus latency.

Arrivals at a server are kept in the time of its clock, which is the time of the ops less the server's *offset*. In a
window [T, T + W) of all clocks every arrival is known beforehand, as long as W ticks pass on every way from one clock
to another. With offsets p, what has an effect ``d`` ticks later must have ``d`` at least::

    a unit served at u goes on to v         service(u) + latency(u) + p(u) - p(v) >= W
    a unit is delivered from u to the ops   service(u) + latency(u) + p(u)        >= W
    the ops inject a unit at v                                             - p(v) >= 0
    a unit served at v gives room back to u      service(v) + credit + p(v) - p(u) >= W

So a long latency makes up for a short one on the same way, and W is the least mean over all ways that lead back to
where they began. For one W these are differences, which shortest paths solve (Bellman and Ford). At a server all
arrivals are as much earlier or later as at its clock, so that their order is what it was.
"""

from dataclasses import dataclass

import numpy as np

from ..program.arrays import NONE, Int64Array
from ..program.program import Program
from .op_scheduler import IDLE

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
    hop_ticks = (program.service_ticks + program.latency_ticks)[program.hop_server]
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
