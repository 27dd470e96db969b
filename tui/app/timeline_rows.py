"""The geometry of the timeline: its rows, the part of time in view, the content of each cell. No Textual."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import TICKS_PER_US
from ...compiler.text.printable import printable
from ...simcore.figures.result import Interval, IntervalKind, Timeline

# Largest zoom: this many ticks (0.1 us) over the whole width, or the whole run if it is shorter.
MIN_SPAN_TICKS = TICKS_PER_US // 10
# Columns of a time label, with the space to its neighbour.
LABEL_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One stream or engine of one rank, its intervals in the order of time."""

    rank: int
    name: str
    intervals: tuple[Interval, ...]


def timeline_rows(timeline: Timeline, *, all_ranks: bool) -> tuple[TimelineRow, ...]:
    """Lanes of rank 0, or of all ranks; streams first, then engines."""
    found = []
    for rank in range(timeline.num_ranks if all_ranks else 1):
        by_name: dict[str, list[Interval]] = {}
        for interval in timeline.of_rank(rank):
            by_name.setdefault(interval.lane, []).append(interval)
        for name in sorted(by_name, key=_row_order):
            found.append(TimelineRow(rank, name, tuple(sorted(by_name[name], key=lambda one: one.start_ticks))))
    return tuple(found)


def _row_order(name: str) -> tuple[bool, list[str | tuple[int, str]]]:
    words: list[str | tuple[int, str]] = [
        (int(word), word) if word.isdigit() else word for word in re.split(r"(\d+)", name)
    ]
    return not name.startswith("stream"), words


@dataclass(frozen=True, slots=True)
class Viewport:
    """The part of ``[0, total_ticks)`` in view."""

    start_ticks: int
    span_ticks: int
    total_ticks: int

    @classmethod
    def whole(cls, total_ticks: int) -> "Viewport":
        """The whole time."""
        return cls(0, max(1, total_ticks), max(1, total_ticks))

    def zoomed(self, factor: float) -> "Viewport":
        """Zoom in by ``factor`` about the middle."""
        span = max(min(MIN_SPAN_TICKS, self.total_ticks), min(self.total_ticks, round(self.span_ticks / factor)))
        middle = self.start_ticks + self.span_ticks // 2
        return replace(self, span_ticks=span)._from(middle - span // 2)

    def moved(self, share: float) -> "Viewport":
        """Move by a share of the viewport, never past the ends."""
        return self._from(self.start_ticks + round(share * self.span_ticks))

    def _from(self, start_ticks: int) -> "Viewport":
        return replace(self, start_ticks=max(0, min(start_ticks, self.total_ticks - self.span_ticks)))


@dataclass(frozen=True, slots=True)
class Paint:
    """Colour of half a cell; neighbours in a row take turns in ``shade`` so that their border shows."""

    kind: IntervalKind
    shade: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of a row: its left and right half, and a letter of a name instead if there is one."""

    left: Paint | None
    right: Paint | None
    letter: str = ""


def cells_of(row: TimelineRow, viewport: Viewport, width: int, *, shade: int = 0) -> tuple[Cell, ...]:
    """Return the row in ``width`` columns, in steps of half a column; names are shown where they fit.

    ``shade`` is that of the first interval; it alternates from row to row, so that neighbours stay apart.
    """
    halves: list[Paint | None] = [None] * (2 * width)
    letters = [""] * width
    end_ticks = viewport.start_ticks + viewport.span_ticks
    for index, interval in enumerate(row.intervals):
        if interval.end_ticks <= viewport.start_ticks or interval.start_ticks >= end_ticks:
            continue
        start = min(2 * width - 1, max(0, _half(interval.start_ticks, viewport, width)))
        # An interval shows at least half a column.
        stop = min(2 * width, max(start + 1, _half(interval.end_ticks, viewport, width)))
        halves[start:stop] = [Paint(interval.kind, (index + shade) % 2)] * (stop - start)
        first, last = -(-start // 2), stop // 2
        name = printable(interval.name)
        if last - first >= len(name) + 2:
            letters[first + 1 : first + 1 + len(name)] = name
    return tuple(Cell(halves[2 * i], halves[2 * i + 1], letters[i]) for i in range(width))


def _half(ticks: int, viewport: Viewport, width: int) -> int:
    return round((ticks - viewport.start_ticks) * 2 * width / viewport.span_ticks)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the time axis."""

    column: int
    label: str


def axis_of(viewport: Viewport, width: int) -> tuple[Tick, ...]:
    """Return the marks at round times in the viewport, 1, 2 or 5 times a power of ten apart."""
    if width < 1:
        return ()
    step = _step(viewport.span_ticks * LABEL_COLUMNS / width)
    decimals = next(places for places in range(4) if step * 10**places % TICKS_PER_US == 0)
    first = -(-viewport.start_ticks // step)
    ticks = []
    for at in range(first * step, viewport.start_ticks + viewport.span_ticks + 1, step):
        column = _half(at, viewport, width) // 2
        if column < width:
            ticks.append(Tick(column, f"{at / TICKS_PER_US:.{decimals}f}"))
    return tuple(ticks)


def _step(least_ticks: float) -> int:
    """Return the smallest round step of at least ``least_ticks``."""
    power = TICKS_PER_US // 1000
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least_ticks:
                return factor * power
        power *= 10


def axis_lines(ticks: Sequence[Tick], width: int) -> tuple[str, str]:
    """Return (labels, ruler) of the axis; a label starts at its tick and is left out where it would be cut."""
    labels, ruler = [" "] * width, ["─"] * width
    for tick in ticks:
        ruler[tick.column] = "┬"
        if tick.column + len(tick.label) <= width:
            labels[tick.column : tick.column + len(tick.label)] = tick.label
    return "".join(labels), "".join(ruler)
