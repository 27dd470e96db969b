"""What of a timeline stands out: the critical path, exposed communication, a chunk that is followed."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from ....simcore.figures.result import IntervalKind, Result
from ....simcore.figures.spans import Span, exposed_spans
from .rows import Row
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
    """Where intervals stand out in each row: those of names, or all transfers within spans."""

    emphasis: Emphasis
    period: int
    names: frozenset[tuple[int, str]] = frozenset()
    spans: tuple[tuple[Span, ...], ...] = ()

    def halves(self, row: Row, halves: npt.NDArray[np.int64], viewport: Viewport, width: int) -> BoolArray | None:
        """[2 * width] whether each half column stands out; None if all do."""
        rank = row.rank % max(1, self.period)
        match self.emphasis:
            case Emphasis.NONE:
                return None
            case Emphasis.CRITICAL:
                chosen = np.array([(rank, row.intervals[number].name) in self.names for number in np.unique(halves)])
                return chosen[np.searchsorted(np.unique(halves), halves)] & (halves >= 0)
            case Emphasis.EXPOSED:
                comm = row.intervals[0].kind is IntervalKind.COMM if row.intervals else False
                return (halves >= 0) & comm & covered(self.spans[rank], viewport, 2 * width)


def critical_names(result: Result) -> frozenset[tuple[int, str]]:
    """Rank and name of each step on the critical path."""
    return frozenset((op.rank, op.label) for op in result.critical_path)


def standout_of(result: Result, emphasis: Emphasis) -> Standout:
    """What ``emphasis`` means for a Result."""
    period = result.timeline.period
    match emphasis:
        case Emphasis.NONE:
            return Standout(emphasis, period)
        case Emphasis.CRITICAL:
            return Standout(emphasis, period, names=critical_names(result))
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
