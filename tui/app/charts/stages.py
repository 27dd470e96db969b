"""Stages of a pipeline over time as rows: passes with the numbers of their microbatches, and what follows them."""

from collections.abc import Iterator

from ....advisor.steps.outcome import StepOutcome
from ....compiler.ir import TICKS_PER_SECOND
from ....simcore.figures.result import Interval, IntervalKind
from ...drawing.step_svg import StageSpan, spans_of
from ...text.step import seconds_text
from .rows import RowsModel, TimelineCursor
from .viewport import TimelineRow, Viewport

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

    unit, unit_ticks = "s", TICKS_PER_SECOND

    def __init__(self, outcome: StepOutcome) -> None:
        self.outcome = outcome
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
        start, end = span.start_ticks / TICKS_PER_SECOND, span.end_ticks / TICKS_PER_SECOND
        busy = self.outcome.run.pipeline.busy[span.stage] / self.outcome.run.pipeline.makespan_ticks
        times = f"{start:.4f} to {end:.4f} s ({end - start:.4f} s)"
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
