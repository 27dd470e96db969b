"""Buffers with finite room, for the windowed core: which units may be served, and from when.

The ``r``-th unit into a buffer of ``n`` takes the slot that the ``(r - n)``-th gave back. Slots that are known to come
back are kept with their times; a unit without one holds up all behind it at its server, until a later window.
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
