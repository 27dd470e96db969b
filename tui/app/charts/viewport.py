"""The part of time in view, and its axis."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from ....compiler.ir import TICKS_PER_US
from ....compiler.planning.plan import own_name
from ....compiler.text.units import round_step
from ....simcore.figures.load_buckets import Span, exposed_spans
from ....simcore.figures.result import Interval, IntervalKind, Timeline
from ....simcore.shown_run import OpRow, ShownRun, op_rows

# Largest zoom: this many ticks (0.1 us) over the whole width, or the whole run if it is shorter.
MIN_SPAN_TICKS = TICKS_PER_US // 10
# Columns of a time label, with the space to its neighbour.
LABEL_COLUMNS = 12
MOST_DECIMALS = 10
"""Of a label: 0.01 us in seconds, the finest step of the largest zoom, has eight."""
# What is brought into view is kept so far from the edges, as a share of what is in view.
MARGIN = 0.1
# Factor of a step of zooming, and share of what is in view of a step of panning.
ZOOM_STEP = 1.6
PAN_STEP = 0.2


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

    @property
    def end_ticks(self) -> int:
        """The first tick after the part in view."""
        return self.start_ticks + self.span_ticks

    @property
    def zoom(self) -> float:
        """How many times as wide as everything is drawn."""
        return self.total_ticks / self.span_ticks

    def zoomed(self, factor: float, about_ticks: int | None = None) -> "Viewport":
        """Zoom in by ``factor``; the time ``about_ticks`` stays where it is, by default the middle."""
        about = self.start_ticks + self.span_ticks // 2 if about_ticks is None else about_ticks
        span = max(min(MIN_SPAN_TICKS, self.total_ticks), min(self.total_ticks, round(self.span_ticks / factor)))
        share = (about - self.start_ticks) / self.span_ticks
        return replace(self, span_ticks=span)._from(about - round(share * span))

    def moved(self, share: float) -> "Viewport":
        """Move by a share of the viewport, never past the ends."""
        return self._from(self.start_ticks + round(share * self.span_ticks))

    def showing(self, start_ticks: int, end_ticks: int) -> "Viewport":
        """Move as little as possible so that the time from start to end is in view; its start if it is too long."""
        margin = round(MARGIN * self.span_ticks)
        if self.start_ticks <= start_ticks and end_ticks <= self.end_ticks:
            return self
        if start_ticks < self.start_ticks or end_ticks - start_ticks > self.span_ticks - 2 * margin:
            return self._from(start_ticks - margin)
        return self._from(end_ticks + margin - self.span_ticks)

    def with_total(self, total_ticks: int) -> "Viewport":
        """The same part of another total time."""
        total = max(1, total_ticks)
        return Viewport(0, min(self.span_ticks, total), total)._from(self.start_ticks)

    def column_of(self, ticks: int, width: int) -> int:
        """The column of a time in ``width`` columns; it may lie outside."""
        return (ticks - self.start_ticks) * width // self.span_ticks

    def ticks_at(self, column: int, width: int) -> int:
        """The time in the middle of a column."""
        return self.start_ticks + (2 * column + 1) * self.span_ticks // (2 * max(1, width))

    def _from(self, start_ticks: int) -> "Viewport":
        return replace(self, start_ticks=max(0, min(start_ticks, self.total_ticks - self.span_ticks)))


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the time axis."""

    column: int
    label: str


@lru_cache(maxsize=16)
def axis_of(viewport: Viewport, width: int, unit_ticks: int = TICKS_PER_US) -> tuple[Tick, ...]:
    """Return the marks at round times in the viewport, 1, 2 or 5 times a power of ten apart, in units of so many."""
    if width < 1:
        return ()
    step = round_step(viewport.span_ticks * LABEL_COLUMNS / width)
    decimals = next(places for places in range(MOST_DECIMALS) if step * 10**places % unit_ticks == 0)
    first = -(-viewport.start_ticks // step)
    ticks = []
    for at in range(first * step, viewport.end_ticks + 1, step):
        column = round((at - viewport.start_ticks) * 2 * width / viewport.span_ticks) // 2
        if column < width:
            ticks.append(Tick(column, f"{at / unit_ticks:.{decimals}f}"))
    return tuple(ticks)


def axis_lines(ticks: Sequence[Tick], width: int) -> tuple[str, str]:
    """Return (labels, ruler) of the axis; a label starts at its tick and is left out where it would be cut."""
    labels, ruler = [" "] * width, ["─"] * width
    for tick in ticks:
        ruler[tick.column] = "┬"
        if tick.column + len(tick.label) <= width:
            labels[tick.column : tick.column + len(tick.label)] = tick.label
    return "".join(labels), "".join(ruler)


Int64Array = npt.NDArray[np.int64]
NONE = -1
KINDS = tuple(IntervalKind)


@dataclass(frozen=True, eq=False)
class TimelineRow:
    """The intervals of one stream or engine of one rank, in the order of time.

    ``rank`` is the one that is shown, which may repeat the one whose intervals they are.
    """

    rank: int
    lane: str
    intervals: tuple[Interval, ...]

    @cached_property
    def starts(self) -> Int64Array:
        """[I] when each begins, rising."""
        return np.fromiter((each.start_ticks for each in self.intervals), np.int64, len(self.intervals))

    @cached_property
    def ends(self) -> Int64Array:
        """[I] when each ends."""
        return np.fromiter((each.end_ticks for each in self.intervals), np.int64, len(self.intervals))

    @cached_property
    def kinds(self) -> Int64Array:
        """[I] the place of the kind of each in ``KINDS``."""
        return np.fromiter((KINDS.index(each.kind) for each in self.intervals), np.int64, len(self.intervals))

    def at(self, ticks: int) -> int:
        """The interval nearest to a time, NONE in an empty row."""
        if not self.intervals:
            return NONE
        after = int(np.searchsorted(self.starts, ticks, side="right"))
        if after == 0:
            return 0
        before = after - 1
        if after == len(self.intervals) or ticks - self.ends[before] <= self.starts[after] - ticks:
            return before
        return after

    def first_after(self, ticks: int) -> int:
        """The first interval that has not ended by a time, else the last; NONE in an empty row."""
        running = np.flatnonzero(self.ends > ticks)
        return int(running[0]) if len(running) else len(self.intervals) - 1

    def number_of(self, interval: Interval) -> int:
        """The place of an interval in the row, NONE if it is not there."""
        first = int(np.searchsorted(self.starts, interval.start_ticks, side="left"))
        for number in range(first, len(self.intervals)):
            if self.intervals[number] == interval:
                return number
            if self.intervals[number].start_ticks > interval.start_ticks:
                break
        return NONE


@dataclass(frozen=True, eq=False)
class Lanes:
    """The rows of a timeline by rank; ranks beyond its period repeat earlier ones."""

    num_ranks: int
    own: tuple[tuple[TimelineRow, ...], ...]

    @property
    def period(self) -> int:
        """How many ranks have rows of their own."""
        return len(self.own)

    def of_rank(self, rank: int) -> tuple[TimelineRow, ...]:
        """Streams, then engines, of one rank."""
        rows = self.own[rank % self.period]
        return rows if rank < self.period else tuple(_shown_as(row, rank) for row in rows)

    def of_ranks(self, ranks: Iterable[int]) -> tuple[TimelineRow, ...]:
        """The rows of several ranks, rank by rank."""
        return tuple(row for rank in ranks for row in self.of_rank(rank))


def lanes_of(timeline: Timeline) -> Lanes:
    """Group the intervals of a timeline by rank and lane, in one pass."""
    found: list[dict[str, list[Interval]]] = [{} for _ in range(max(1, timeline.period))]
    for interval in timeline.intervals:
        found[interval.rank].setdefault(interval.lane, []).append(interval)
    return Lanes(
        timeline.num_ranks,
        tuple(
            tuple(TimelineRow(rank, lane, _in_time(by_lane[lane])) for lane in sorted(by_lane, key=lane_order))
            for rank, by_lane in enumerate(found)
        ),
    )


def lanes_of_run(run: ShownRun) -> Lanes:
    """The rows of a run: those of several ops begin with them by name, kernels and copies of each."""
    lanes = lanes_of(run.result.timeline)
    if not run.ops:
        return lanes
    own = (
        (*(row for op in op_rows(run, rank) for row in _of_op(rank, op)), *rows) for rank, rows in enumerate(lanes.own)
    )
    return Lanes(lanes.num_ranks, tuple(own))


def op_lane(op: str, kind: IntervalKind) -> str:
    """The row of an op in which its copies are, or its kernels."""
    return f"{op} copies" if kind is IntervalKind.COMM else op


def _of_op(rank: int, op: OpRow) -> Iterator[TimelineRow]:
    """A row for the kernels of an op, and one for its copies, as far as it has any."""
    for kind, of_spans in (
        (IntervalKind.COMPUTE, [(span.name, span.kernels) for span in op.spans]),
        (IntervalKind.COMM, [(span.name, span.copies) for span in op.spans]),
    ):
        lane = op_lane(op.name, kind)
        found = [Interval(rank, lane, name, kind, *span) for name, spans in of_spans for span in spans]
        if found:
            yield TimelineRow(rank, lane, _in_time(found))


def _in_time(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    return tuple(sorted(intervals, key=lambda one: (one.start_ticks, one.end_ticks)))


def _shown_as(row: TimelineRow, rank: int) -> TimelineRow:
    shown = replace(row, rank=rank)
    # The arrays of the row that it repeats; without this each of a thousand ranks would make its own.
    shown.__dict__.update(starts=row.starts, ends=row.ends, kinds=row.kinds)
    return shown


def lane_order(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """Sort key of lanes: streams first, then engines, numbers as numbers."""
    words = [
        (int(word), "") if word.isdecimal() and word.isascii() else (-1, word) for word in re.split(r"(\d+)", name)
    ]
    return not name.startswith("stream"), words


BoolArray = npt.NDArray[np.bool_]


class Emphasis(Enum):
    """What stands out, the rest becoming a thin line; the value is the word for it."""

    NONE = "everything"
    CRITICAL = "critical path"
    EXPOSED = "exposed communication"


@dataclass(frozen=True, eq=False)
class Standout:
    """Where intervals stand out in each row: those of names, or all transfers within spans.

    A name is that of a step, with its rank, or that of an op behind the row in which it is.
    """

    emphasis: Emphasis
    period: int
    names: frozenset[tuple[int, str] | tuple[int, str, str]] = frozenset()
    spans: tuple[tuple[Span, ...], ...] = ()

    def halves(
        self, row: TimelineRow, halves: npt.NDArray[np.int64], viewport: Viewport, width: int
    ) -> BoolArray | None:
        """[2 * width] whether each half column stands out; None if all do."""
        rank = row.rank % max(1, self.period)
        match self.emphasis:
            case Emphasis.NONE:
                return None
            case Emphasis.CRITICAL:
                names = (row.intervals[number].name for number in np.unique(halves))
                chosen = np.array([not self.names.isdisjoint({(rank, name), (rank, row.lane, name)}) for name in names])
                return chosen[np.searchsorted(np.unique(halves), halves)] & (halves >= 0)
            case Emphasis.EXPOSED:
                comm = row.intervals[0].kind is IntervalKind.COMM if row.intervals else False
                return (halves >= 0) & comm & covered(self.spans[rank], viewport, 2 * width)


def critical_names(run: ShownRun) -> frozenset[tuple[int, str] | tuple[int, str, str]]:
    """Rank and name of each step on the critical path, and of the ops that they belong to, with their rows."""
    steps = frozenset((op.rank, op.label) for op in run.result.critical_path)
    if not run.ops:
        return steps
    known = (each for each in run.result.timeline.intervals if (each.rank, each.name) in steps)
    ops = ((each.rank, each.kind, run.part_of(each.rank, each.name).op) for each in known)
    return steps | {(rank, op_lane(own_name(op), kind), op) for rank, kind, op in ops}


def standout_of(run: ShownRun, emphasis: Emphasis) -> Standout:
    """What ``emphasis`` means for a run."""
    result = run.result
    period = result.timeline.period
    match emphasis:
        case Emphasis.NONE:
            return Standout(emphasis, period)
        case Emphasis.CRITICAL:
            return Standout(emphasis, period, names=critical_names(run))
        case Emphasis.EXPOSED:
            spans = tuple(exposed_spans(result.timeline, rank) for rank in range(period))
            return Standout(emphasis, period, spans=spans)


def covered(spans: Iterable[Span], viewport: Viewport, cells: int) -> BoolArray:
    """[cells] whether a span reaches into each of so many equal cells of the viewport."""
    marks = np.zeros(cells, np.bool_)
    for start, end in spans:
        if end > viewport.start_ticks and start < viewport.end_ticks:
            first = max(0, viewport.column_of(start, cells))
            marks[first : max(first, viewport.column_of(end - 1, cells)) + 1] = True
    return marks
