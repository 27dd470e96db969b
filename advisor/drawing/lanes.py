"""The rows of a rank in a picture: streams first, then engines, each in the order of its number.

Groups of a persistent kernel run side by side in one stream: those that overlap have further rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...simcore import Timeline
from ...simcore.figures.result import Interval


@dataclass(frozen=True, slots=True)
class Row:
    """Intervals of one ``lane``, such as ``stream 0`` or ``dma 3``, in the order of time; none overlaps another."""

    lane: str
    number: int
    intervals: tuple[Interval, ...]

    @property
    def name(self) -> str:
        """The lane, with a number where it has several rows."""
        return self.lane if self.number == 0 else f"{self.lane} ({self.number + 1})"


def rows_of(timeline: Timeline, rank: int) -> tuple[Row, ...]:
    """Return the rows of ``rank`` in the order to show them."""
    by_lane: dict[str, list[Interval]] = {}
    for interval in timeline.of_rank(rank):
        by_lane.setdefault(interval.lane, []).append(interval)
    return tuple(row for lane in sorted(by_lane, key=_order) for row in _rows(lane, by_lane[lane]))


def _order(lane: str) -> tuple[bool, str, list[int]]:
    kind, _, number = lane.rpartition(" ")
    return kind != "stream", kind, [int(part) for part in number.split(".")]


def _rows(lane: str, intervals: Iterable[Interval]) -> Iterator[Row]:
    """Deal intervals to rows, each to the first that is free when it begins."""
    rows: list[list[Interval]] = []
    for interval in sorted(intervals, key=lambda each: (each.start_ticks, each.end_ticks)):
        free = (row for row in rows if row[-1].end_ticks <= interval.start_ticks)
        row = next(free, None)
        if row is None:
            rows.append([interval])
        else:
            row.append(interval)
    for index, dealt in enumerate(rows):
        yield Row(lane, index, tuple(dealt))
