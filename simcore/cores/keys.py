"""Units on the windowed core: each one int64, so that sorting the integers gives the order in which they are served.

Fields of a key from the top: server, time since an epoch, flow-hop, and whether it is the last unit of its flow (of
flows with a window every unit has that mark, since all their deliveries matter). The sign marks a departure that is a
delivery. Between windows units lie in blocks of keys sorted by time (``Pending``). Flows that inject units at a fixed
gap are kept in columns (``Trains``), so that keys are made for all of them at once.
"""

import heapq

import numpy as np

from ..program.arrays import NONE, Int64Array, buffers_left, previous_hops, starts
from ..program.limits import RunTooLarge
from ..program.program import Program
from .op_scheduler import IDLE

KEY_BITS = 63
"""Bits of a key without the sign."""

SIGN = -(1 << 63)
"""Marks deliveries; such keys sort before all others."""


class KeyWidthError(RunTooLarge):
    """Server, time and flow-hop do not fit into one int64."""

    @classmethod
    def of(cls, program: Program) -> "KeyWidthError":
        """The error for ``program``, with what it has too much of."""
        return cls(
            f"the core windows sorts units by keys of {KEY_BITS} bits, which do not hold {program.num_servers} "
            f"servers, {program.num_hops:.1e} flow-hops and the ticks for which units queue: simulate in packets, "
            "fold symmetric ranks, or use the core compiled"
        )


class Keys:
    """Field widths for a program, and tables by flow-hop and last-flag for moving units on."""

    def __init__(self, program: Program, offsets: Int64Array) -> None:
        """Arrivals at a server are in the time of the ops less its ``offsets`` [S], deliveries in that of the ops."""
        shift = max(program.num_hops, 1).bit_length() + 1  # of the flow-hop and the last-flag
        width = KEY_BITS - shift - program.num_servers.bit_length()
        if width < 1:
            raise KeyWidthError.of(program)
        self.time_shift, self.low_mask, self.time_limit = shift, (1 << shift) - 1, 1 << width
        self.server_field: Int64Array = np.arange(program.num_servers) << width  # [S] above a time
        self.server_edges = np.arange(program.num_servers + 1) << (width + shift)  # [S + 1] in a key
        self.server_bits = np.repeat(self.server_field[program.hop_server] << shift, 2)  # [2H] in a key

        # A departure before service, with its server field, plus this is the arrival at the next hop, without one.
        clock = np.append(offsets[program.hop_server], 0)  # [H + 1]; NONE is -1, the last
        ticks = (program.service_ticks + program.latency_ticks - self.server_field)[program.hop_server]
        ticks += clock[:-1] - clock[program.hop_next]
        hops = np.arange(program.num_hops)
        ends = program.hop_next == NONE
        onward = np.repeat(ticks << shift, 2).reshape(-1, 2)  # [H, is last unit]
        onward[:, 0] += program.hop_next << 1
        onward[:, 1] += np.where(ends, (hops << 1) + SIGN, program.hop_next << 1) + 1
        heard_of = np.ones(onward.shape, np.bool_)  # [H, is last unit] whether anything follows from the departure
        heard_of[ends, 0] = False
        self.onward, self.heard_of = onward.ravel(), heard_of.ravel()


class Pending:
    """Blocks of keys without the server field."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, int, Int64Array]] = []  # heap of (first key, number, keys in order)
        self._num_blocks = 0

    def __len__(self) -> int:
        """Units in all blocks."""
        return sum(len(block) for _, _, block in self._blocks)

    @property
    def first_key(self) -> int | None:
        """The least of all keys, None if there is none."""
        return self._blocks[0][0] if self._blocks else None

    def put(self, block: Int64Array) -> None:
        """Add keys in ascending order."""
        heapq.heappush(self._blocks, (int(block[0]), self._num_blocks, block))
        self._num_blocks += 1

    def take(self, limit: int) -> list[Int64Array]:
        """Take all keys below ``limit``, block by block."""
        fronts = []
        while self._blocks and self._blocks[0][0] < limit:
            block = heapq.heappop(self._blocks)[2]
            cut = int(block.searchsorted(limit))
            fronts.append(block[:cut])
            if cut < len(block):
                self.put(block[cut:])
        return fronts

    def subtract(self, ticks: int) -> None:
        """Subtract ``ticks``, shifted to the time field of a key, from all keys."""
        self._blocks = [(first - ticks, number, block - ticks) for first, number, block in self._blocks]


class Trains:
    """Flows that are being injected. Rows put into ``new`` begin a train; units of all others lie past the horizon."""

    def __init__(self, time_shift: int) -> None:
        self._time_shift = time_shift
        self._columns = np.zeros((4, 64), np.int64)  # [column, train] time of next unit, flow-hop field, units, gap
        self._count = 0
        self._next_taken = IDLE  # time of the next unit of those in the columns
        self.new: list[tuple[int, int, int, int]] = []  # rows to come into the columns
        self._index = np.arange(1 << 14)

    @property
    def next_time(self) -> int:
        """Time of the next unit of any train, or IDLE."""
        return min(self._next_taken, min(self.new)[0]) if self.new else self._next_taken

    def take(self, end: int, horizon: int, epoch: int) -> Int64Array:
        """Keys, without the server, of units injected before ``horizon``, train by train: all that are due by ``end``.

        Going through all trains is not cheap: it is left out where none but new ones have a unit that early.
        """
        first = self._count
        self._append_new()
        if self._next_taken < end:
            first, self._next_taken = 0, IDLE
        part = self._columns[:, first : self._count]
        time, low, units, gap = part
        counts = -((time - horizon) // gap)  # the quotient rounded up
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
        if len(left) < len(units):
            keys[ends[units == 0] - 1] |= 1  # the last-flag: a train goes when it is emptied
            self._count = first + len(left)
            part = part[:, left]
            self._columns[:, first : self._count] = part
        self._next_taken = min(self._next_taken, int(part[0].min(initial=IDLE)))
        return keys

    def _append_new(self) -> None:
        count = self._count + len(self.new)
        while count > self._columns.shape[1]:
            self._columns = np.concatenate((self._columns, np.zeros_like(self._columns)), axis=1)
        if self.new:
            self._columns[:, self._count : count] = np.array(self.new, np.int64).T
            self._count = count
            self.new.clear()

    def _counting(self, count: int) -> Int64Array:
        """0, 1, ... count - 1."""
        if count > len(self._index):
            self._index = np.arange(2 * count)
        return self._index[:count]


class Room:
    """The slots of all buffers; all times absolute."""

    def __init__(self, program: Program) -> None:
        self._into = program.hop_buffer  # [H] buffer a unit goes into
        self._out_of = buffers_left(program.hop_buffer, previous_hops(program.hop_next))  # [H]
        self._units, self._credit = program.buffer_units, program.buffer_credit_ticks
        self._begin = starts(self._units)[:-1]  # [B] where its slots begin
        self._slots = np.zeros(int(self._units.sum()), np.int64)  # time at which each is free
        self._taken = np.zeros(len(self._units), np.int64)  # [B] slots taken so far
        self._given = self._units.copy()  # [B] slots known of so far, those at the start included

    def admit(self, hops: Int64Array, first: Int64Array, counts: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Admit units to be served as far as there is room.

        ``hops`` [units] are in order, server by server; each server has ``counts`` from ``first`` on. Returns [units]
        times, 0 where no slot is needed, and [servers] how many are admitted, from the first on.
        """
        buffer = self._into[hops]
        units = np.flatnonzero(buffer != NONE)
        buffer = buffer[units]
        turn = self._taken[buffer] + _place_among_equals(buffer)
        there = turn < self._given[buffer]
        admitted = counts.copy()
        if not there.all():
            held = units[~there]
            server = np.searchsorted(first, held, side="right") - 1
            np.minimum.at(admitted, server, held - first[server])
        times = np.zeros(len(hops), np.int64)
        slot = self._begin[buffer[there]] + turn[there] % self._units[buffer[there]]
        times[units[there]] = self._slots[slot]
        server = np.searchsorted(first, units, side="right") - 1
        served = units - first[server] < admitted[server]
        np.add.at(self._taken, buffer[served], 1)
        return times, admitted

    def give_back(self, hops: Int64Array, departures: Int64Array) -> None:
        """Units [units] leave their servers at ``departures``, in order server by server."""
        buffer = self._out_of[hops]
        units = np.flatnonzero(buffer != NONE)
        buffer = buffer[units]
        turn = self._given[buffer] + _place_among_equals(buffer)
        self._slots[self._begin[buffer] + turn % self._units[buffer]] = departures[units] + self._credit[buffer]
        np.add.at(self._given, buffer, 1)


def _place_among_equals(values: Int64Array) -> Int64Array:
    """[values] number of equal values before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(values) else np.zeros(0, np.bool_)
    place = np.arange(len(values))
    places = np.empty(len(values), np.int64)
    places[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return places


class Gates:
    """Lets units of flows with a window in as others are delivered; all times absolute."""

    def __init__(self, program: Program) -> None:
        self.window = program.flow_window_units  # [F]
        self._units, self._gap = program.flow_units, program.flow_gap_ticks
        self._to_inject = np.zeros(program.num_flows, np.int64)  # [F] units that wait for others to be delivered
        self._to_deliver = np.zeros(program.num_flows, np.int64)  # [F]
        self._latest = np.zeros(program.num_flows, np.int64)  # [F] injection

    def begin(self, flow: int, time: int) -> int:
        """A flow begins at ``time``; returns how many units it injects without waiting, one a gap."""
        units = int(self._units[flow])
        at_once = min(units, int(self.window[flow]))
        self._to_deliver[flow], self._to_inject[flow] = units, units - at_once
        self._latest[flow] = time + (at_once - 1) * int(self._gap[flow])
        return at_once

    def delivered(self, flows: Int64Array, times: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Units of ``flows`` are delivered at ``times`` [units each]; those of one flow in order.

        Returns the flows that are delivered whole and when, and the flow and time of each unit that enters.
        """
        order = np.argsort(flows, kind="stable")
        flows, times = flows[order], times[order]
        pointers = np.flatnonzero(np.concatenate(([True], flows[1:] != flows[:-1], [True])))
        first, counts, flow = pointers[:-1], np.diff(pointers), flows[pointers[:-1]]
        self._to_deliver[flow] -= counts
        whole = self._to_deliver[flow] == 0
        done, done_times = flow[whole], times[pointers[1:][whole] - 1]
        enter = np.minimum(counts, self._to_inject[flow])
        self._to_inject[flow] -= enter
        some = enter > 0
        entering, when = self._enter(flow[some], enter[some], first[some], times)
        return done, done_times, entering, when

    def _enter(
        self, flow: Int64Array, counts: Int64Array, first: Int64Array, times: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Flow and time of the units that enter: each when one is delivered, and a gap after the one before."""
        begins = starts(counts)
        place = np.arange(begins[-1]) - begins[:-1].repeat(counts)  # of a unit among those of its flow
        ramp = self._gap[flow].repeat(counts) * place
        level = times[first.repeat(counts) + place] - ramp
        level[begins[:-1]] = np.maximum(level[begins[:-1]], self._latest[flow] + self._gap[flow])
        # One running maximum for all flows: each is lifted over the ones before.
        if len(level):
            lowest, height = int(level.min()), int(level.max()) - int(level.min()) + 1
            lift = (np.arange(len(flow)) * height).repeat(counts)
            level = np.maximum.accumulate(level - lowest + lift) - lift + lowest
        when = level + ramp
        self._latest[flow] = when[begins[1:] - 1]
        return flow.repeat(counts), when
