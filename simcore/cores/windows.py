"""The windowed core: all units that arrive anywhere within one short window, as a few passes over arrays.

A unit that arrives at ``a`` has its effect elsewhere no sooner than ``a + W``, where ``W`` is the smallest service plus
latency of any server in use. So all arrivals in ``[start, start + W)`` are known before any of them is served, and the
window can be served as a whole. For one server, with arrivals ``a_i`` in order and service ``s``, the departures are::

    d_i = max(a_i, d_{i-1}) + s = s * (i + 1) + max_{j <= i} (a_j - s * j)

which is one running maximum. A unit is one integer (``keys``); sorting puts units in the order in which they are
served. The server field doubles as an offset that keeps the running maximum of one server out of the next. What is
sorted consists of few ascending runs, which numpy's stable sort merges far faster than its default sorts.

Between windows units lie in blocks sorted by time, without the server field: a window takes the front of each. Units
for which there is no room where they go (``held_back``) are held until the next window, with all behind them. Every
server has a clock of its own, and those may be set so that windows are longer (``clock_skew``).
"""

import numpy as np

from ..program.arrays import NONE, Int64Array, starts
from ..program.limits import BYTES_PER_UNIT
from ..program.program import NEVER, Program, Served, WatchFn
from .endings import locked_servers, stuck_ops, wait_shift, wait_ticks
from .keys import SIGN, Gates, Keys, KeyWidthError, Pending, Room, Trains
from .op_scheduler import IDLE, Control, set_clocks, unit_effects

_WATCH_EVERY_WINDOWS, _WATCH_EVERY_LINE_HOPS = 512, 1 << 16
"""Windows, or line-hops if those come first, between two calls of the watch."""

_NOTHING: Int64Array = np.zeros(0, np.int64)

_WINDOWS_AHEAD = 8
"""Windows beyond the current one for which trains are made into keys: a pass over all trains is not cheap."""


def simulate(program: Program, watch: WatchFn, observe: bool = False, last_poll_ticks: int = IDLE) -> Served:
    """Run ``program`` window by window."""
    clocks = set_clocks(program)
    windows = Windows(program, window_ticks(program) + clocks.gained_ticks, observe, clocks.offsets)
    control = Control(program, windows.inject, last_poll_ticks)
    control.stuck_ops = lambda: windows.stuck_ops(control.flows_left)
    control.look = lambda: watch(windows.line_hops)
    return windows.run(control, watch)


def window_ticks(program: Program) -> int:
    """W, the length of a window: nothing that arrives at a server in use has an effect elsewhere any sooner.

    Effects are what a unit does at its next hop, and the room it gives back.
    """
    hop_ticks, room_ticks = unit_effects(program)
    return int(min(hop_ticks.min(initial=IDLE), room_ticks.min(initial=IDLE))) if len(hop_ticks) else 1


class Windows:
    """State of one run of all units of ``program``; nothing here knows of ops."""

    def __init__(
        self, program: Program, window_ticks: int, observe: bool = False, offsets: Int64Array | None = None
    ) -> None:
        """``offsets`` [S] are those of the servers' clocks (``clock_skew``), None if all clocks show the same time."""
        self.program = program
        offsets = np.zeros(program.num_servers, np.int64) if offsets is None else offsets
        self._keys = Keys(program, offsets)
        self._gates = Gates(program) if program.flow_window_units.any() else None
        self._room = Room(program) if len(program.buffer_units) else None
        self._waited = np.zeros(program.num_hops, np.int64) if observe else None  # [H]
        self._wait_shift = wait_shift(program) if observe else 0
        one_by_one = np.where(program.flow_units > 1, program.flow_gap_ticks, 0)
        self._behind = offsets[program.hop_server[program.flow_first_hop]]  # [F] offset of the first server
        rows = (program.flow_first_hop << 1, program.flow_units, one_by_one, self._behind)
        # [F] flow-hop field of a new unit, units, gap if there is any, offset
        self._flows = list(zip(*(row.tolist() for row in rows), strict=True))
        self._window_ticks = window_ticks
        spread = int(offsets.max(initial=0) - offsets.min(initial=0))
        self._max_latency = int(program.latency_ticks[program.hop_server].max(initial=0)) + spread  # as clocks show it
        self._max_service = int(program.service_ticks[program.hop_server].max(initial=0))
        self.start, self._end = 0, 0  # of the window
        self._epoch = 0
        self._latest = 0  # upper end of all departures so far, since the epoch
        self._clock = self._keys.server_field - offsets  # [S] what is added to the time of the ops
        self._free = self._clock.copy()  # [S] departure of the last unit, with the server field
        self._pending = Pending()
        self._held = _NOTHING  # keys, in order, of units that wait for room
        self._served_any = False  # in the latest window
        self._trains = Trains(self._keys.time_shift)
        self._bursts: list[tuple[int, int, int]] = []  # flows that begin: time, flow-hop field, units
        self._index = np.arange(1 << 14)
        self._flow_last = np.full(program.num_flows, NEVER, np.int64)
        self.line_hops = 0
        self._num_windows = 0

    def inject(self, flow: int, time: int) -> None:
        """Begin a flow that has units: the first enters at ``time``, within the window or later."""
        low, units, gap, behind = self._flows[flow]
        if self._gates is not None and self._gates.window[flow]:
            low, units = low + 1, self._gates.begin(flow, time)
        time -= behind
        if gap:
            self._trains.new.append((time, low, units, gap))
        else:
            self._bursts.append((time, low, units))

    def run(self, ops: Control, watch: WatchFn) -> Served:
        """Run window after window, until nothing is left to come."""
        self._ops = ops
        watch_at_window, watch_at_line_hops = 0, 0
        while True:
            start = min(ops.next_time, self._next_unit())
            if len(self._held) and self._served_any:
                start = min(start, self._end)  # what was served may have made room
            if start == IDLE or ops.hopeless:
                break
            if self._num_windows >= watch_at_window or self.line_hops >= watch_at_line_hops:
                watch_at_window = self._num_windows + _WATCH_EVERY_WINDOWS
                watch_at_line_hops = self.line_hops + _WATCH_EVERY_LINE_HOPS
                if watch(self.line_hops, BYTES_PER_UNIT * (len(self._held) + len(self._pending))):
                    break
            self.start, self._end = start, start + self._window_ticks
            ops.advance(self._end)
            if ops.stopped or self._too_many_at_once(watch):
                break
            keys = self._arrivals()
            before = self.line_hops
            if len(keys):
                self._serve(keys)
            self._served_any = self.line_hops > before
            self._num_windows += 1
        return Served(
            op_ready=np.array(ops.ready, np.int64),
            op_start=np.array(ops.start, np.int64),
            op_done=np.array(ops.done, np.int64),
            op_polls=np.array(ops.polls, np.int64),
            flow_last=self._flow_last,
            server_free=self._free - self._clock + self._epoch,
            server_blocked=self._blocked(),
            line_hops=self.line_hops,
            windows=self._num_windows,
            hop_wait_ticks=None if self._waited is None else wait_ticks(self._waited, self._wait_shift),
        )

    def _too_many_at_once(self, watch: WatchFn) -> bool:
        """Whether the flows that enter all at once have more units than the watch allows."""
        if not self._bursts:
            return False
        units = sum(units for _, _, units in self._bursts)
        under_way = len(self._held) + len(self._pending)
        return units > _WATCH_EVERY_LINE_HOPS and watch(self.line_hops, BYTES_PER_UNIT * (3 * units + under_way))

    def _blocked(self) -> Int64Array:
        """[S] hop of the first unit held at each server, NONE where none is."""
        hops = (self._held & self._keys.low_mask) >> 1
        blocked = np.full(self.program.num_servers, NONE, np.int64)
        blocked[self.program.hop_server[hops[::-1]]] = hops[::-1]  # so that the first of a server is written last
        return blocked

    def stuck_ops(self, flows_left: Int64Array) -> set[int]:
        """Ops whose units are held up for ever; ``flows_left`` [T] are to be delivered."""
        locked = locked_servers(self.program, self._blocked())
        hops = (self._held & self._keys.low_mask) >> 1
        return stuck_ops(self.program, hops[locked[self.program.hop_server[hops]]], flows_left)

    def _next_unit(self) -> int:
        """Earliest arrival not yet served, or IDLE."""
        first = self._pending.first_key
        in_blocks = IDLE if first is None else self._epoch + (first >> self._keys.time_shift)
        return min(in_blocks, self._trains.next_time)

    def _arrivals(self) -> Int64Array:
        """Keys, in no order, of all units that arrive before the window's end."""
        horizon = self._end + _WINDOWS_AHEAD * self._window_ticks
        self._make_room(horizon, 0)
        if self._bursts:
            self._put_bursts()
        if self._trains.next_time < self._end:
            injected = self._trains.take(self._end, horizon, self._epoch)
            injected.sort(kind="stable")
            self._pending.put(injected)
        fronts = self._pending.take((self._end - self._epoch) << self._keys.time_shift)
        if not fronts:
            held, self._held = self._held, _NOTHING
            return held
        keys = np.concatenate(fronts)
        keys += self._keys.server_bits[keys & self._keys.low_mask]
        if len(self._held):
            keys = np.concatenate((self._held, keys))
            self._held = _NOTHING
        return keys

    def _put_bursts(self) -> None:
        """Flows whose units enter all at once become a block, in order of time."""
        self._make_room(max(self._bursts)[0], 0)
        time, low, units = np.array(self._bursts, np.int64).T
        self._bursts.clear()
        keys = (((time - self._epoch) << self._keys.time_shift) + low).repeat(units)
        keys[units.cumsum() - 1] |= 1
        keys.sort(kind="stable")
        self._pending.put(keys)

    def _serve(self, keys: Int64Array) -> None:
        """Pass the window's units through their servers, and on."""
        shift = self._keys.time_shift
        keys.sort(kind="stable")
        bounds = keys.searchsorted(self._keys.server_edges)
        used = (bounds[1:] - bounds[:-1]).nonzero()[0]
        first, counts = bounds[used], bounds[used + 1] - bounds[used]
        slots = None
        if self._room is not None:
            keys, slots, used, first, counts = self._admit(self._room, keys, used, first, counts)
        if not len(keys):
            return
        count, last = len(keys), first + counts - 1
        service = self.program.service_ticks[used]
        ramp = service.repeat(counts)
        if self._has_room(self._end, count * self._max_service):
            # Counting i over all servers, not from the first unit of each, shifts a server's terms by a constant.
            ramp *= self._counting(count)
        else:
            keys -= self._make_room(self._end, int((counts * service).max()), keys) << shift
            ramp *= self._counting(count) - first.repeat(counts)
        level = keys >> shift
        arrivals = level.copy() if self._waited is not None else level
        if slots is not None:
            np.maximum(level, slots - self._epoch + self._clock[used].repeat(counts), out=level)
        level[first] = np.maximum(level[first], self._free[used])
        level -= ramp
        np.maximum.accumulate(level, out=level)
        self._free[used] = level[last] + ramp[last] + service
        self._latest = max(self._latest, int((self._free[used] - self._keys.server_field[used]).max()))
        self.line_hops += count

        low = keys
        low &= self._keys.low_mask
        if self._waited is not None:
            np.add.at(self._waited, low >> 1, (level + ramp - arrivals) >> self._wait_shift)
        if self._room is not None:
            leave = level + ramp + (service - self._clock[used]).repeat(counts) + self._epoch
            self._room.give_back(low >> 1, leave)
        going = self._keys.heard_of[low].nonzero()[0]
        if len(going) == count:
            self._send_on(level + ramp, low)
        elif len(going):
            self._send_on(level[going] + ramp[going], low[going])

    def _admit(
        self, room: Room, keys: Int64Array, used: Int64Array, first: Int64Array, counts: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
        """Hold the units that have no room where they go; of the others the keys, times of their slots, and servers."""
        slots, admitted = room.admit((keys & self._keys.low_mask) >> 1, first, counts)
        place = self._counting(len(keys)) - first.repeat(counts)
        may = place < admitted.repeat(counts)
        self._held = keys[~may]
        some = admitted > 0
        used, counts = used[some], admitted[some]
        return keys[may], slots[may], used, starts(counts)[:-1], counts

    def _send_on(self, departures: Int64Array, low: Int64Array) -> None:
        """Put units into a block for their next hops, and tell of those that are delivered.

        ``departures`` are before service and have the server field; ``low`` is the flow-hop with the last-flag.
        """
        keys = departures << self._keys.time_shift
        keys += self._keys.onward[low]
        keys.sort(kind="stable")
        deliveries = int(keys.searchsorted(0))
        if deliveries < len(keys):
            self._pending.put(keys[deliveries:])
        if deliveries:
            self._deliver(keys[:deliveries])

    def _deliver(self, keys: Int64Array) -> None:
        flows = self.program.hop_flow[(keys & self._keys.low_mask) >> 1]
        times = ((keys - SIGN) >> self._keys.time_shift) + self._epoch
        if self._gates is not None:
            flows, times = self._pass_gates(self._gates, flows, times)
        self._flow_last[flows] = times
        for flow, time in zip(flows.tolist(), times.tolist(), strict=True):
            self._ops.delivered(flow, time)

    def _pass_gates(self, gates: Gates, flows: Int64Array, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Let units in for those delivered of flows with a window; which flows are delivered whole, and when."""
        gated = gates.window[flows] > 0
        if not gated.any():
            return flows, times
        done, done_times, entering, when = gates.delivered(flows[gated], times[gated])
        if len(entering):
            when = when - self._behind[entering]
            self._make_room(int(when.max()), 0)
            keys = ((when - self._epoch) << self._keys.time_shift) + (self.program.flow_first_hop[entering] << 1) + 1
            keys.sort(kind="stable")
            self._pending.put(keys)
        return np.concatenate((flows[~gated], done)), np.concatenate((times[~gated], done_times))

    def _counting(self, count: int) -> Int64Array:
        """0, 1, ... count - 1."""
        if count > len(self._index):
            self._index = np.arange(2 * count)
        return self._index[:count]

    def _has_room(self, time: int, queue_ticks: int) -> bool:
        """Whether ``time``, and all departures after ``queue_ticks`` more of service, fit their field."""
        reserve = queue_ticks + self._max_latency
        return max(time - self._epoch, self._latest) + reserve < self._keys.time_limit

    def _make_room(self, time: int, queue_ticks: int, in_hand: Int64Array = _NOTHING) -> int:
        """Move the epoch up if there is no room for ``time`` and ``queue_ticks`` of service.

        Units that are held, and those with the keys ``in_hand``, may have arrived before the window: not beyond them.
        Returns by how many ticks. Raises KeyWidthError if that is not enough.
        """
        if self._has_room(time, queue_ticks):
            return 0
        arrivals = (np.concatenate((self._held, in_hand)) >> self._keys.time_shift) & (self._keys.time_limit - 1)
        moved = min(self.start - self._epoch, int(arrivals.min(initial=IDLE)))
        self._epoch += moved
        self._latest = max(self._latest - moved, 0)
        self._free -= moved
        ticks = moved << self._keys.time_shift
        if len(self._held):  # a jump over nothing may be longer than a key has bits
            self._held = self._held - ticks
        self._pending.subtract(ticks)
        if not self._has_room(time, queue_ticks):
            raise KeyWidthError.of(self.program)
        return moved
