"""Two to four schedules under each other on one axis, and what tells them apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ....compiler.ir import TICKS_PER_US, Reduction, Region, Scenario, Step, TileGroup, Transfer
from ....compiler.planning.plan import own_name
from ....compiler.text.units import us_text
from ....simcore.figures.load_buckets import union_of
from ....simcore.figures.result import Interval, IntervalKind
from ....simcore.shown_run import ShownRun
from .differences import Compared, Difference, differences_of
from .viewport import TimelineRow, Viewport, lanes_of_run, op_lane

# Times are compared as they are shown.
SAME_TICKS = TICKS_PER_US // 20


@dataclass(frozen=True, slots=True)
class Act:
    """What a rank begins at a time: the step in words that do not depend on its name, and its name."""

    start_ticks: int
    doing: str
    name: str


@dataclass(frozen=True, slots=True)
class Parting:
    """Where schedules part: the time, and a sentence."""

    ticks: int
    sentence: str


def parting_of(names: Sequence[str], runs: Sequence[ShownRun]) -> Parting | None:
    """Return the first act of rank 0 in which schedules differ; None if they all do the same at the same times.

    ``names`` are what the sentence calls the schedules.
    """
    acts = [_acts(run) for run in runs]  # of layers that repeat from the shown one on
    for place in range(max(map(len, acts), default=0)):
        here = [each[place] if place < len(each) else None for each in acts]
        times = [act.start_ticks for act in here if act is not None]
        alike = len({act.doing if act is not None else "" for act in here}) == 1
        if not alike or max(times) - min(times) > SAME_TICKS:
            return Parting(min(times), _sentence(names, here, min(times)))
    return None


def _sentence(names: Sequence[str], here: Sequence[Act | None], ticks: int) -> str:
    said = [(_doing(act, ticks), name) for name, act in zip(names, here, strict=True)]
    said.sort(key=lambda pair: names.index(pair[1]))
    parts = [
        f"{' and '.join(name for _, name in group)} {'begin' if len(group) > 1 else 'begins'} {doing}"
        if doing
        else f"{' and '.join(name for _, name in group)} {'are' if len(group) > 1 else 'is'} done"
        for doing, group in ((doing, list(pairs)) for doing, pairs in groupby(said, key=lambda pair: pair[0]))
    ]
    when = "From the start" if ticks < SAME_TICKS else f"At {us_text(ticks / TICKS_PER_US)}"
    return f"{when} they differ: {'; '.join(parts)}."


def _doing(act: Act | None, ticks: int) -> str:
    """What is begun, and when if that is later than ``ticks``."""
    if act is None:
        return ""
    when = "" if act.start_ticks - ticks < SAME_TICKS else f" at {us_text(act.start_ticks / TICKS_PER_US)}"
    return f"{act.doing} ({act.name}){when}"


def _acts(run: ShownRun) -> list[Act]:
    """What rank 0 begins, in order of time; of what begins together, kernels first and near peers first."""
    first, _ = run.shown_span
    found = [
        (
            round((each.start_ticks - first) / SAME_TICKS),
            _order(run.step_of(0, each.name)),
            Act(each.start_ticks - first, _words(each, run.step_of(0, each.name)), each.name),
        )
        for each in run.result.timeline.of_rank(0)
        if each.start_ticks >= first
    ]
    return [act for _, _, act in sorted(found, key=lambda one: (one[0], one[1], one[2].name))]


def _order(step: Step | None) -> tuple[int, int]:
    match step:
        case TileGroup() | Reduction():
            return 0, 0
        case Transfer():
            return 1, step.peer
        case None:
            return 2, 0


def _words(interval: Interval, step: Step | None) -> str:
    match step:
        case Transfer():
            to = "all ranks" if not step.peer else f"rank r+{step.peer}"
            preposition = "to" if step.direction.value == "put" else "from"
            return f"a {step.direction.value} of {_size(step.region)} {preposition} {to}"
        case TileGroup():
            rows = sum(region.rows.size for region in step.regions)
            return f"a kernel of {rows} x {step.regions[0].cols.size}"
        case Reduction():
            return f"a sum of {step.num_parts} parts of {_size(step.region)}"
        case None:
            return f"{interval.kind.value} work"


def _size(region: Region) -> str:
    return f"{region.rows.size * (1 + len(region.also))} x {region.cols.size}"


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

    def __init__(self, scenario: Scenario, marked: Sequence[Compared], bound_ticks: int | None) -> None:
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

        Of several ops these two are the rows of its ops, and the shown layer begins with the axis.
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
