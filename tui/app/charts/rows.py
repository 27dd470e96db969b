"""Rows of intervals on screen: which part of time is in view, and where the cursor is. No drawing and no keys."""

from collections.abc import Iterator
from dataclasses import dataclass

from ....compiler.ir import TICKS_PER_US
from ....simcore.figures.result import Interval, IntervalKind
from .strips import Strip
from .viewport import NONE, PAN_STEP, ZOOM_STEP, Standout, TimelineRow, Viewport


@dataclass(frozen=True, slots=True)
class TimelineCursor:
    """An interval of a row; NONE in an empty one."""

    row_idx: int = 0
    number: int = NONE


class RowsModel:
    """Rows under an axis of time, with a cursor on one of their intervals; ``strips`` are drawn below them."""

    unit, unit_ticks = "us", TICKS_PER_US
    """The unit of the axis."""

    def __init__(self, viewport: Viewport) -> None:
        self.viewport = viewport
        self.cursor = TimelineCursor()
        self.rows: tuple[TimelineRow, ...] = ()

    # What a kind of timeline says of itself.

    @property
    def strips(self) -> tuple[Strip, ...]:
        """Loads over time."""
        return ()

    standout: Standout | None = None
    """What stands out, None if all does."""

    def label(self, row: TimelineRow) -> str:
        """What a row is called."""
        return row.lane

    def followed_in(self, row: TimelineRow) -> frozenset[int]:
        """The intervals of a row that are followed."""
        return frozenset()

    def headline(self) -> str:
        """What is shown, in a line."""
        return ""

    def story(self) -> str:
        """A line about the interval under the cursor."""
        return ""

    def legend(self) -> Iterator[tuple[IntervalKind | None, str]]:
        """Yield words about each kind of interval, and with None words about the run as a whole."""
        yield from ()

    # The cursor.

    @property
    def interval(self) -> Interval | None:
        """The interval under the cursor."""
        return self.rows[self.cursor.row_idx].intervals[self.cursor.number] if self._holds(self.cursor) else None

    @property
    def cursor_ticks(self) -> int:
        """The time at which the cursor is: the part of its interval in view, in the middle."""
        interval = self.interval
        if interval is None:
            return self.viewport.start_ticks + self.viewport.span_ticks // 2
        start = max(interval.start_ticks, self.viewport.start_ticks)
        return max(start, (start + min(interval.end_ticks, self.viewport.end_ticks)) // 2)

    # Time.

    def zoom(self, steps: int) -> None:
        """Zoom in (positive) or out about the cursor; zero shows everything."""
        self.zoom_about(steps, self.cursor_ticks)

    def zoom_about(self, steps: int, ticks: int) -> None:
        """Zoom in or out; the time ``ticks`` stays where it is."""
        total = self.viewport.total_ticks
        self.viewport = Viewport.whole(total) if steps == 0 else self.viewport.zoomed(ZOOM_STEP**steps, ticks)

    def pan(self, steps: int) -> None:
        """Move the time in view later (positive) or earlier."""
        self.viewport = self.viewport.moved(steps * PAN_STEP)

    def frame(self) -> None:
        """Zoom to the interval under the cursor."""
        interval = self.interval
        if interval is not None:
            factor = self.viewport.span_ticks / max(1, 2 * interval.ticks)
            middle = (interval.start_ticks + interval.end_ticks) // 2
            self.viewport = self.viewport.zoomed(factor, middle).showing(interval.start_ticks, interval.end_ticks)

    def step(self, intervals: int) -> None:
        """Move the cursor along its row, and the time in view with it."""
        if self._holds(self.cursor):
            last = len(self.rows[self.cursor.row_idx].intervals) - 1
            self._go(self.cursor.row_idx, max(0, min(last, self.cursor.number + intervals)))

    def step_row(self, rows: int) -> None:
        """Move the cursor to another row, to what is nearest in time there."""
        if self.rows:
            row_idx = max(0, min(len(self.rows) - 1, self.cursor.row_idx + rows))
            self.cursor = TimelineCursor(row_idx, self.rows[row_idx].at(self.cursor_ticks))

    def select(self, row_idx: int, ticks: int) -> None:
        """Put the cursor on the interval of a row that is nearest to a time."""
        if 0 <= row_idx < len(self.rows):
            self.cursor = TimelineCursor(row_idx, self.rows[row_idx].at(ticks))

    def _go(self, row_idx: int, number: int) -> None:
        self.cursor = TimelineCursor(row_idx, number)
        interval = self.rows[row_idx].intervals[number]
        self.viewport = self.viewport.showing(interval.start_ticks, interval.end_ticks)

    def _holds(self, cursor: TimelineCursor) -> bool:
        return cursor.row_idx < len(self.rows) and 0 <= cursor.number < len(self.rows[cursor.row_idx].intervals)
