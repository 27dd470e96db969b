"""A row in columns: which interval each half of a column shows, and where names fit."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....compiler.text.printable import columns_of, printable
from .rows import NONE, Int64Array, Row
from .viewport import Viewport


@dataclass(frozen=True, slots=True)
class Span:
    """An interval in a row of columns, from half column ``start`` to before ``stop``.

    ``text`` is its name if it fits, from the whole column ``text_at`` on.
    """

    interval_idx: int
    start: int
    stop: int
    text: str = ""
    text_at: int = 0


def halves_of(row: Row, viewport: Viewport, width: int) -> Int64Array:
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


def spans_of(row: Row, viewport: Viewport, width: int) -> Iterator[Span]:
    """Yield the intervals of the row that are drawn in ``width`` columns, from left to right, with names that fit."""
    halves = halves_of(row, viewport, width)
    edges = np.flatnonzero(np.diff(halves, prepend=-2, append=-2))
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        number = int(halves[start])
        if number == NONE:
            continue
        first, room = -(-start // 2), stop // 2 - -(-start // 2)
        text = printable(row.intervals[number].name) if room > 2 else ""
        # Only text of one column a letter can be written letter by letter.
        fits = len(text) + 2 <= room and columns_of(text) == len(text)
        yield Span(number, start, stop, text if fits else "", first + 1)
