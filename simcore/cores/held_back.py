"""Units held back on the windowed core: by buffers with finite room (``Room``), and by windows of flows (``Gates``).

The ``r``-th unit into a buffer of ``n`` takes the slot that the ``(r - n)``-th gave back. Slots that are known to come
back are kept with their times; a unit without one holds up all behind it at its server, until a later window. Of a flow
with a window so many units are under way at most; the next enters as one is delivered.
"""

import numpy as np

from ..program.arrays import NONE, Int64Array, buffers_left, starts
from ..program.program import Program


class Room:
    """The slots of all buffers; all times absolute."""

    def __init__(self, program: Program) -> None:
        self._into = program.hop_buffer  # [H] buffer a unit goes into
        self._out_of = buffers_left(program.hop_buffer, program.hop_next)  # [H]
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
