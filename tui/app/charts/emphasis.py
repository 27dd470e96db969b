"""What of a timeline stands out: the critical path, exposed communication, a chunk that is followed."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from ....compiler.planning.graph_layers import own_name
from ....simcore.figures.result import IntervalKind
from ....simcore.figures.spans import Span, exposed_spans
from ....simcore.shown_run import ShownRun
from .rows import TimelineRow, op_lane
from .viewport import Viewport

BoolArray = npt.NDArray[np.bool_]
NAMED_CAUSES = 3


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
