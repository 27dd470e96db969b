"""The windowed core: all units that arrive anywhere within one short window, as a few passes over arrays.

A unit that arrives at ``a`` has its effect elsewhere no sooner than ``a + W``, where ``W`` is the smallest service plus
latency of any server in use. So all arrivals in ``[start, start + W)`` are known before any of them is served, and the
window can be served as a whole. For one server, with arrivals ``a_i`` in order and service ``s``, the departures are::

    d_i = max(a_i, d_{i-1}) + s = s * (i + 1) + max_{j <= i} (a_j - s * j)

which is one running maximum. A unit is one int64, fields from the top: server, time since ``epoch``, flow-hop, and
whether it is the last of its flow. Sorting those integers sorts by server, then by time, then in the order in which
ties are served. The server field doubles as an offset that keeps the running maximum of one server out of the next.
What is sorted consists of few ascending runs, which numpy's stable sort merges far faster than its default sorts.

Between windows units lie in blocks sorted by time, without the server field: a window takes the front of each.
"""

import heapq

import numpy as np

from .control import IDLE, Control
from .layout import NONE, Int64Array
from .outcome import NEVER, Served, WatchFn
from .program import Program

_WINDOWS_A_LOOK, _LINE_HOPS_A_LOOK = 512, 1 << 16
"""Windows, or line-hops if those come first, between two looks at the watch."""

_WINDOWS_AHEAD = 8
"""Windows beyond the current one for which trains are made into keys: going through all of them is not cheap."""

_SIGN = -(1 << 63)
"""Marks a departure that is a flow's delivery; such keys sort before all others."""

KEY_BITS = 63
"""Bits of a key, the sign left out."""


class KeyWidthError(OverflowError):
    """Server, time and flow-hop do not fit into one int64."""


def simulate(program: Program, watch: WatchFn) -> tuple[Control, Served]:
    """Run ``program`` window by window."""
    return _Windows(program).run(watch)


def window_ticks(program: Program) -> int:
    """W, the length of a window: nothing that arrives at a server in use has an effect elsewhere any sooner."""
    hop_ticks = (program.service_ticks + program.latency_ticks)[program.hop_server]  # [H]
    return int(hop_ticks.min()) if len(hop_ticks) else 1


class _Windows:
    """State of one run."""

    def __init__(self, program: Program) -> None:
        self._begun: list[tuple[int, int]] = []  # flows that begin: flow, time of the first unit
        self._program = program
        self._control = Control(program, lambda flow, time: self._begun.append((flow, time)))
        self._lay_out_keys()
        self._window_ticks = window_ticks(program)
        self._max_latency = int(program.latency_ticks.max(initial=0))
        self._max_service = int(program.service_ticks.max(initial=0))
        self._start, self._end = 0, 0  # of the window
        self._epoch = 0
        self._latest = 0  # upper end of all departures so far, since the epoch
        self._free = self._server_field.copy()  # [S] departure of the last unit, with the server field
        self._blocks: list[tuple[int, int, Int64Array]] = []  # heap of (first key, number, keys in order)
        self._num_blocks = 0
        self._trains = _Trains(self._time_shift)
        self._index = np.arange(1 << 14)
        self._flow_last = np.full(program.num_flows, NEVER, np.int64)
        self._line_hops = 0
        self._num_windows = 0

    def _lay_out_keys(self) -> None:
        """Choose the widths of the fields and tabulate, by flow-hop and last-flag, what a unit needs on its way."""
        program = self._program
        shift = max(program.num_hops, 1).bit_length() + 1
        time_bits = KEY_BITS - shift - program.num_servers.bit_length()
        if time_bits < 1:
            raise KeyWidthError
        self._time_shift, self._low_mask, self._time_limit = shift, (1 << shift) - 1, 1 << time_bits
        self._server_field = np.arange(program.num_servers) << time_bits  # [S] above a time
        self._server_edges = np.arange(program.num_servers + 1) << (time_bits + shift)  # [S + 1] in a key
        self._server_bits = np.repeat(self._server_field[program.hop_server] << shift, 2)  # [2H] in a key

        # A departure before service, with its server field, plus this is the arrival at the next hop, without one.
        ticks = program.service_ticks + program.latency_ticks - self._server_field
        hops = np.arange(program.num_hops)
        ends = program.hop_next == NONE
        onward = np.repeat(ticks[program.hop_server] << shift, 2).reshape(-1, 2)  # [H, is last unit]
        onward[:, 0] += program.hop_next << 1
        onward[:, 1] += np.where(ends, (hops << 1) + _SIGN, program.hop_next << 1) + 1
        heard_of = np.ones(onward.shape, np.bool_)  # [H, is last unit] whether anything follows from the departure
        heard_of[ends, 0] = False
        self._onward, self._heard_of = onward.ravel(), heard_of.ravel()

    def run(self, watch: WatchFn) -> tuple[Control, Served]:
        """Window after window, until nothing is left to come."""
        control, cancelled = self._control, False
        look_at_window, look_at_line_hops = 0, 0
        while True:
            start = min(control.next_time, self._next_unit())
            if start == IDLE:
                break
            if self._num_windows >= look_at_window or self._line_hops >= look_at_line_hops:
                look_at_window = self._num_windows + _WINDOWS_A_LOOK
                look_at_line_hops = self._line_hops + _LINE_HOPS_A_LOOK
                if watch(self._line_hops):
                    cancelled = True
                    break
            self._start, self._end = start, start + self._window_ticks
            control.advance(self._end)
            self._begin_flows()
            keys = self._arrivals()
            if len(keys):
                self._serve(keys)
            self._num_windows += 1
        free = self._free - self._server_field + self._epoch
        return control, Served(self._flow_last, free, self._line_hops, self._num_windows, cancelled)

    def _next_unit(self) -> int:
        """Earliest arrival not yet served, or IDLE."""
        in_blocks = self._epoch + (self._blocks[0][0] >> self._time_shift) if self._blocks else IDLE
        return min(in_blocks, self._trains.next_time)

    def _begin_flows(self) -> None:
        program, shift = self._program, self._time_shift
        for flow, time in self._begun:
            low, units = int(program.flow_first_hop[flow]) << 1, int(program.flow_units[flow])
            gap = int(program.flow_gap_ticks[flow])
            if gap and units > 1:
                self._trains.add(low, time, units, gap)
            else:  # all at once: a block as it is
                self._make_room(time, 0)
                block = np.full(units, (time - self._epoch) << shift | low, np.int64)
                block[-1] += 1
                self._put(block)
        self._begun.clear()

    def _arrivals(self) -> Int64Array:
        """Keys, in no order, of all units that arrive before the window's end."""
        horizon = self._end + _WINDOWS_AHEAD * self._window_ticks
        self._make_room(horizon, 0)
        if self._trains.next_time < self._end:
            injected = self._trains.take(horizon, self._epoch)
            injected.sort(kind="stable")
            self._put(injected)
        limit = (self._end - self._epoch) << self._time_shift
        fronts = []
        while self._blocks and self._blocks[0][0] < limit:
            block = heapq.heappop(self._blocks)[2]
            cut = int(block.searchsorted(limit))
            fronts.append(block[:cut])
            if cut < len(block):
                self._put(block[cut:])
        if not fronts:
            return _NOTHING
        keys = np.concatenate(fronts)
        keys += self._server_bits[keys & self._low_mask]
        return keys

    def _put(self, block: Int64Array) -> None:
        heapq.heappush(self._blocks, (int(block[0]), self._num_blocks, block))
        self._num_blocks += 1

    def _serve(self, keys: Int64Array) -> None:
        """Pass the window's units through their servers, and on."""
        count, shift = len(keys), self._time_shift
        keys -= self._make_room(self._end, count) << shift
        keys.sort(kind="stable")
        bounds = keys.searchsorted(self._server_edges)
        used = (bounds[1:] - bounds[:-1]).nonzero()[0]
        first, last = bounds[used], bounds[used + 1] - 1
        service = self._program.service_ticks[used]
        # Counting i over all servers, not from the first unit of each, shifts a server's terms by a constant.
        ramp = service.repeat(last - first + 1)
        ramp *= self._counting(count)
        level = keys >> shift
        level[first] = np.maximum(level[first], self._free[used])
        level -= ramp
        np.maximum.accumulate(level, out=level)
        self._free[used] = level[last] + ramp[last] + service
        self._latest = max(self._latest, int((self._free[used] - self._server_field[used]).max()))
        self._line_hops += count

        low = keys
        low &= self._low_mask
        going = self._heard_of[low].nonzero()[0]
        if len(going) == count:
            self._send_on(level + ramp, low)
        elif len(going):
            self._send_on(level[going] + ramp[going], low[going])

    def _send_on(self, departures: Int64Array, low: Int64Array) -> None:
        """Put units into a block for their next hops, and tell the ops of flows that are delivered.

        ``departures`` are before service and have the server field; ``low`` is the flow-hop with the last-flag.
        """
        keys = departures << self._time_shift
        keys += self._onward[low]
        keys.sort(kind="stable")
        deliveries = int(keys.searchsorted(0))
        for key in keys[:deliveries].tolist():
            flow = int(self._program.hop_flow[(key & self._low_mask) >> 1])
            time = self._epoch + ((key - _SIGN) >> self._time_shift)
            self._flow_last[flow] = time
            self._control.delivered(flow, time)
        if deliveries < len(keys):
            self._put(keys[deliveries:])

    def _counting(self, count: int) -> Int64Array:
        """0, 1, ... count - 1."""
        if count > len(self._index):
            self._index = np.arange(2 * count)
        return self._index[:count]

    def _make_room(self, time: int, count: int) -> int:
        """Move the epoch up if ``time``, or the departures of ``count`` more units, could outgrow their field.

        Returns by how many ticks. Raises KeyWidthError if that is not enough.
        """
        reserve = count * self._max_service + self._max_latency
        if max(time - self._epoch, self._latest) + reserve < self._time_limit:
            return 0
        moved = self._start - self._epoch
        self._epoch += moved
        self._latest = max(self._latest - moved, 0)
        self._free -= moved
        ticks = moved << self._time_shift
        self._blocks = [(first - ticks, number, block - ticks) for first, number, block in self._blocks]
        if max(time - self._epoch, self._latest) + reserve >= self._time_limit:
            raise KeyWidthError
        return moved


class _Trains:
    """Flows that inject units at a fixed gap, in columns; a stretch of all trains becomes keys at once."""

    def __init__(self, time_shift: int) -> None:
        self._time_shift = time_shift
        self._columns = np.zeros((4, 64), np.int64)  # [column, train] flow-hop field, time of next unit, units, gap
        self._count = 0
        self._index = np.arange(1 << 14)
        self.next_time = IDLE  # of the next unit of any train

    def add(self, low: int, time: int, units: int, gap: int) -> None:
        """Begin a train of ``units`` units, the first at ``time``; ``low`` is its flow-hop field."""
        if self._count == self._columns.shape[1]:
            self._columns = np.concatenate((self._columns, np.zeros_like(self._columns)), axis=1)
        self._columns[:, self._count] = (low, time, units, gap)
        self._count += 1
        self.next_time = min(self.next_time, time)

    def take(self, end: int, epoch: int) -> Int64Array:
        """Keys, without the server, of all units injected before ``end``, train by train."""
        low, time, units, gap = self._columns[:, : self._count]
        counts = -((time - end) // gap)  # the quotient rounded up
        np.maximum(counts, 0, out=counts)
        np.minimum(counts, units, out=counts)
        ends = counts.cumsum()
        # Unit i of all is unit i - (ends - counts) of its train. Products may wrap round; the sums are back in range.
        step = gap << self._time_shift
        offset = low + ((time - epoch) << self._time_shift) - (ends - counts) * step
        keys: Int64Array = step.repeat(counts)
        keys *= self._counting(len(keys))
        keys += offset.repeat(counts)
        time += counts * gap
        units -= counts
        left = units.nonzero()[0]
        if len(left) < self._count:
            keys[ends[units == 0] - 1] += 1  # the last-flag: a train goes when it is emptied
            self._count = len(left)
            self._columns[:, : self._count] = self._columns[:, left]
        self.next_time = int(self._columns[1, : self._count].min(initial=IDLE))
        return keys

    def _counting(self, count: int) -> Int64Array:
        """0, 1, ... count - 1."""
        if count > len(self._index):
            self._index = np.arange(2 * count)
        return self._index[:count]


_NOTHING: Int64Array = np.zeros(0, np.int64)
