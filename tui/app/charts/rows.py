"""The rows of a timeline as arrays: fast to search, however many intervals there are."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ....simcore.figures.result import Interval, IntervalKind, Timeline
from ....simcore.op_spans import OpRow, op_rows
from ....simcore.shown_run import ShownRun

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
    """The rows of a run: those of a graph begin with its ops by name, kernels and copies of each."""
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
