"""Rows of intervals on screen: which part of time is in view, and where the cursor is. No drawing and no keys."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....advisor.steps.outcome import StepOutcome
from ....compiler.ir import TICKS_PER_US
from ....compiler.text.diagnostics import columns_of, printable
from ....compiler.text.units import axis_unit, lasting_text, seconds_text, span_text
from ....simcore.figures.result import Interval, IntervalKind, LoadKind, Loads, Waterfall
from ....simcore.program.arrays import FloatArray
from ...drawing.step_svg import StageSpan, spans_of
from .viewport import NONE, PAN_STEP, ZOOM_STEP, Int64Array, Standout, TimelineRow, Viewport

# A row in columns: which interval each half of a column shows, and where names fit.

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


def cells_of(halves: Int64Array, always: Collection[int]) -> Iterator[CellSpan]:
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


# Use of links and memories over time, as one line of bars each.

BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, eq=False)
class Strip:
    """Use of the busiest link, or of the HBM of a rank, in each bucket: ``shares`` [B] from 0 to 1."""

    label: str
    edges: FloatArray
    shares: FloatArray

    def in_columns(self, viewport: Viewport, width: int) -> FloatArray:
        """[width] the mean share in each column."""
        marks = viewport.start_ticks + np.arange(width + 1) * (viewport.span_ticks / max(1, width))
        so_far = np.concatenate([[0.0], np.cumsum(self.shares * np.diff(self.edges))])
        reached = np.interp(marks, self.edges, so_far)
        found: FloatArray = np.diff(reached) / np.maximum(1e-9, np.diff(marks))
        return found


def strips_of(loads: Loads, rank: int) -> tuple[Strip, ...]:
    """Return the strips of a rank: the mean of the links that leave it or come in, and its HBM; none without loads."""
    if not loads.each:
        return ()
    own, edges, shares = rank % loads.period, loads.edges_ticks.astype(float), loads.utilization
    found = []
    links = [
        row for row, load in enumerate(loads.each) if load.kind is LoadKind.LINK and own in (load.source, load.target)
    ]
    if links:
        found.append(Strip("links", edges, shares[links].mean(axis=0)))
    found.append(Strip("HBM", edges, shares[loads.memory(own)]))
    return tuple(found)


def bars_text(shares: FloatArray) -> str:
    """Each share as a bar from nothing to full; a share above zero shows at least the lowest."""
    levels = np.ceil(np.clip(shares, 0, 1) * (len(BARS) - 1) - 0.05).astype(int)
    return "".join(BARS[level] for level in np.where(shares > 0.001, np.maximum(1, levels), 0).tolist())


@dataclass(frozen=True, slots=True)
class Bar:
    """A step of the waterfall from ``start_ticks`` on; negative ``ticks`` are time won back."""

    label: str
    start_ticks: int
    ticks: int
    is_total: bool


def bars_of(waterfall: Waterfall) -> tuple[Bar, ...]:
    """Return the bars from the lower bound up to the makespan, one per loss."""
    (bound_label, bound_ticks), *losses, (label, ticks) = waterfall.rows
    bars, reached = [Bar(bound_label, 0, bound_ticks, True)], bound_ticks
    for loss, loss_ticks in losses:
        bars.append(Bar(loss, reached, loss_ticks, False))
        reached += loss_ticks
    return (*bars, Bar(label, 0, ticks, True))


def drawn_bars(bars: Sequence[Bar], width: int) -> tuple[str, ...]:
    """Draw each bar in ``width`` columns, all to one scale; a loss other than zero shows at least a sliver."""
    scale = width / max(1, max(max(bar.start_ticks, bar.start_ticks + bar.ticks) for bar in bars))
    return tuple(_drawn(bar, scale, width) for bar in bars)


def _drawn(bar: Bar, scale: float, width: int) -> str:
    low, high = sorted((bar.start_ticks, bar.start_ticks + bar.ticks))
    start, stop = round(low * scale), round(high * scale)
    if bar.ticks and start == stop:
        start = min(start, width - 1)
        return " " * start + "▏" + " " * (width - start - 1)
    return " " * start + ("░" if bar.ticks < 0 else "█") * (stop - start) + " " * (width - stop)


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


# Stages of a pipeline over time as rows: passes with the numbers of their microbatches, and what follows them.

KINDS = {
    "compute": IntervalKind.COMPUTE,
    "reduce": IntervalKind.REDUCE,
    "gradients": IntervalKind.REDUCE,
    "comm": IntervalKind.COMM,
    "bound": IntervalKind.COMPUTE,
}
"""How each kind of what a stage does is painted; the line below the rows tells what it is."""


class StagesModel(RowsModel):
    """The stages of a step: a row for each, two where passes run beside each other."""

    def __init__(self, outcome: StepOutcome) -> None:
        self.outcome = outcome
        self.unit, self.unit_ticks = axis_unit(outcome.run.makespan_ticks)
        spans = list(spans_of(outcome))
        super().__init__(Viewport.whole(max(each.end_ticks for each in spans)))
        places = sorted({(each.stage, each.place or 0) for each in spans})
        of_row = [[each for each in spans if (each.stage, each.place or 0) == place] for place in places]
        self._spans = [sorted(each, key=lambda span: span.start_ticks) for each in of_row]
        self.rows = tuple(_row(place, own) for place, own in zip(places, self._spans, strict=True))
        self.cursor = TimelineCursor(0, 0)

    def headline(self) -> str:
        """The step in figures, and how much of it is in view."""
        run, pipeline = self.outcome.run, self.outcome.run.pipeline
        parts = [f"{seconds_text(run.makespan_ticks)} a step", f"bubble {run.bubble:.1%}", f"exposed {run.exposed:.1%}"]
        repeats = f", {pipeline.simulated} drawn, the others repeat" if pipeline.period_ticks else ""
        plural = "es" if pipeline.microbatches > 1 else ""
        parts.append(f"{pipeline.microbatches} microbatch{plural}{repeats}")
        if self.viewport.zoom > 1:
            parts.append(f"zoom {self.viewport.zoom:.1f}x")
        return "  ".join(parts)

    def story(self) -> str:
        """What the stage does under the cursor, and when."""
        if self.interval is None:
            return ""
        span = self._spans[self.cursor.row_idx][self.cursor.number]
        whole, start, end = self.outcome.run.makespan_ticks, span.start_ticks, span.end_ticks
        busy = self.outcome.run.pipeline.busy[span.stage] / self.outcome.run.pipeline.makespan_ticks
        times = f"{span_text(start, end, whole)} ({lasting_text(end - start, whole)})"
        return f"{span.name} on stage {span.stage + 1} · {times} · this stage waits {1 - busy:.1%} of the passes"

    def legend(self) -> Iterator[tuple[IntervalKind | None, str]]:
        """Forward and backward passes, and traffic among ranks with the same weights."""
        known = {KINDS[span.kind] for row in self._spans for span in row}
        words = {
            IntervalKind.COMPUTE: "forward, optimizer",
            IntervalKind.REDUCE: "backward",
            IntervalKind.COMM: "gradients and weights behind the passes",
        }
        yield from ((kind, text) for kind, text in words.items() if kind in known)


def _row(place: tuple[int, int], spans: list[StageSpan]) -> TimelineRow:
    stage, half = place
    lane = f"stage {stage + 1}" if not half else "beside it"
    intervals = (
        Interval(stage, lane, f"{each.microbatch}" if each.microbatch else each.name, KINDS[each.kind], start, end)
        for each in spans
        for start, end in [(each.start_ticks, each.end_ticks)]
    )
    return TimelineRow(stage, lane, tuple(intervals))
