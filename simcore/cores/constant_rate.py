"""Trains: flows that inject units at a fixed gap, kept in columns, so that keys are made for all of them at once."""

import numpy as np

from ..program.arrays import Int64Array
from .op_scheduler import IDLE


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
