"""Two to four schedules under each other on one axis, and what tells them apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....compiler.ir import GraphScenario
from ....compiler.planning.graph_layers import own_name
from ....simcore.figures.result import Interval, IntervalKind
from ....simcore.figures.spans import union_of
from .differences import Compared, Difference, differences_of
from .parting import Parting, parting_of
from .rows import TimelineRow, lanes_of_run, op_lane
from .viewport import Viewport

LETTERS = "ABCD"
"""What marked schedules are called, in the order in which they were marked."""


@dataclass(frozen=True, eq=False)
class Band:
    """The rows of one schedule: ``letter`` stands for its name."""

    letter: str
    compared: Compared
    rows: tuple[TimelineRow, ...]


class ComparisonModel:
    """The marked schedules of a scenario; those without a Result have no rows yet."""

    def __init__(self, scenario: GraphScenario, marked: Sequence[Compared], bound_ticks: int | None) -> None:
        self.marked = tuple(marked)
        self.in_lanes = False
        self.differences: tuple[Difference, ...] = differences_of(scenario, self.marked, bound_ticks)
        runs = [one.run for one in self.marked if one.run is not None]
        self.is_whole = len(runs) == len(self.marked) > 1
        self.parting: Parting | None = parting_of(LETTERS[: len(runs)], runs) if self.is_whole else None
        total = max((end - start for start, end in (run.shown_span for run in runs)), default=1)
        self.viewport = Viewport.whole(total)
        self.bands: tuple[Band, ...] = ()
        self._lay_out()

    def taking_over(self, before: "ComparisonModel") -> "ComparisonModel":
        """Show the same part of time in the same detail as before."""
        if before.viewport.zoom > 1:
            self.viewport = before.viewport.with_total(self.viewport.total_ticks)
        if before.in_lanes:
            self.toggle_lanes()
        return self

    def toggle_lanes(self) -> None:
        """Show all streams and engines of rank 0, or all kernels in one row and all transfers in another.

        Of a graph these two are the rows of its ops, and the shown layer begins with the axis.
        """
        self.in_lanes = not self.in_lanes
        self._lay_out()

    def _lay_out(self) -> None:
        self.bands = tuple(
            Band(letter, one, self._rows(one)) for letter, one in zip(LETTERS, self.marked, strict=False)
        )

    def _rows(self, one: Compared) -> tuple[TimelineRow, ...]:
        run = one.run
        if run is None:
            return ()
        rows = lanes_of_run(run).of_rank(0)
        if not run.ops:
            return rows if self.in_lanes else _merged(rows)
        ops = {op_lane(own_name(op.name), kind) for op in run.ops for kind in IntervalKind}
        shown = [row for row in rows if (row.lane in ops) is not self.in_lanes]
        return tuple(_from(row, run.shown_span[0]) for row in shown)


def _from(row: TimelineRow, start_ticks: int) -> TimelineRow:
    """A row with times from ``start_ticks`` on, without what ends before."""
    later = [each for each in row.intervals if each.end_ticks > start_ticks]
    moved = (
        replace(each, start_ticks=max(0, each.start_ticks - start_ticks), end_ticks=each.end_ticks - start_ticks)
        for each in later
    )
    return TimelineRow(row.rank, row.lane, tuple(moved))


def _merged(rows: Sequence[TimelineRow]) -> tuple[TimelineRow, ...]:
    """All kernels in one row, all transfers in another; what runs at once becomes one interval."""
    intervals = [interval for row in rows for interval in row.intervals]
    kernels = [each for each in intervals if each.kind is not IntervalKind.COMM]
    copies = [each for each in intervals if each.kind is IntervalKind.COMM]
    return tuple(
        TimelineRow(0, label, _together(label, group))
        for label, group in (("kernels", kernels), ("copies", copies))
        if group
    )


def _together(label: str, group: Sequence[Interval]) -> tuple[Interval, ...]:
    """One interval for each span in which some run, with the kind of the first."""
    in_time = sorted(group, key=lambda one: (one.start_ticks, one.end_ticks))
    found, place = [], 0
    for start, end in union_of(in_time):
        first = place
        while place < len(in_time) and in_time[place].start_ticks < end:
            place += 1
        inside = in_time[first:place]
        name = inside[0].name if len(inside) == 1 else f"{inside[0].name} to {inside[-1].name}"
        found.append(Interval(0, label, name, inside[0].kind, start, end))
    return tuple(found)
