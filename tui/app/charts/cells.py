"""A row in columns: which interval each half of a column shows, and where names fit."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from ....compiler.text.diagnostics import columns_of, printable
from ....simcore.figures.result import Interval
from .viewport import NONE, Int64Array, TimelineRow, Viewport

MIN_NAMED = 3
"""Least columns in which a name is shown."""


@dataclass(frozen=True, slots=True)
class CellSpan:
    """An interval in a row of columns, from half column ``start`` to before ``stop``."""

    interval_idx: int
    start: int
    stop: int

    @property
    def text_at(self) -> int:
        """The whole column at which its name begins."""
        return -(-self.start // 2) + 1

    @property
    def room(self) -> int:
        """Whole columns that it takes."""
        return self.stop // 2 - -(-self.start // 2)


def halves_of(row: TimelineRow, viewport: Viewport, width: int) -> Int64Array:
    """[2 * width] the number of the interval in each half column, NONE without one; of several the last to begin.

    An interval shows at least half a column if no other begins there. The time taken does not depend on how many
    intervals there are.
    """
    if not len(row.starts) or width < 1:
        return np.full(2 * max(0, width), NONE, np.int64)
    # An interval covers the half columns between its ends, each rounded to the nearest edge, and at least one.
    edges = viewport.start_ticks - (1 - 2 * np.arange(2 * width + 1)) * viewport.span_ticks // (4 * width)
    last = np.searchsorted(row.starts, edges[1:], side="left") - 1
    known = np.maximum(last, 0)
    shown = (last >= 0) & ((row.ends[known] >= edges[1:]) | (row.starts[known] >= edges[:-1]))
    return np.where(shown, last, NONE)


def spans_of(halves: Int64Array, always: Collection[int]) -> Iterator[CellSpan]:
    """Yield the intervals in half columns, from left to right: those with room for a name, and ``always`` some."""
    edges = np.flatnonzero(np.diff(halves, prepend=-2, append=-2))
    numbers = halves[edges[:-1]]
    chosen = (np.diff(edges) >= 2 * MIN_NAMED) | np.isin(numbers, list(always))
    for place in np.flatnonzero(chosen & (numbers != NONE)).tolist():
        yield CellSpan(int(numbers[place]), int(edges[place]), int(edges[place + 1]))


def name_in(interval: Interval, span: CellSpan) -> str:
    """The name of an interval, empty if it does not fit into its span with a column before and behind."""
    if span.room < MIN_NAMED:
        return ""
    name = printable(interval.name)
    # Only text of one column a letter can be written letter by letter.
    return name if len(name) + 2 <= span.room and columns_of(name) == len(name) else ""
