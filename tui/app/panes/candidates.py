"""The pane Candidates: the ranked schedules, and which of them the other panes show."""

from collections.abc import Mapping
from typing import ClassVar, cast

from rich.text import Text
from textual.binding import Binding, BindingType

from ....compiler.text.diagnostics import printable
from ..charts.comparison import LETTERS
from ..session.job import Job
from ..session.view import CandidateRow, SortKey, rows_of, shortened
from . import CANDIDATES
from .ranked import Column, PickTable, RankedPane


class CandidateTable(PickTable[CandidateRow]):
    """Schedules with predicted and simulated times, speedup and marks; ``letters`` are those of marked schedules."""

    COLUMNS: ClassVar[tuple[Column, ...]] = (
        (SortKey.RANK, " ", 3),
        (SortKey.SCHEDULE, "schedule (times in us)", 0),
        (SortKey.PREDICTED, "predicted", 10),
        (SortKey.SIMULATED, "simulated", 10),
        (None, " unit", 7),
        (SortKey.SPEEDUP, "speedup", 8),
    )
    LEFT = (SortKey.RANK, SortKey.SCHEDULE, None)

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.letters: Mapping[str, str] = {}

    def cells(self, row: CandidateRow, width: int) -> tuple[Text, ...]:
        """Letter and mark, the name, times, their unit, the speedup."""
        letter, style = self.letters.get(row.expression, " "), self.style_of(row.mark)
        predicted = "-" if row.predicted_us is None else f"{row.predicted_us:.1f}"
        speedup = Text(row.speedup_text, style=style or ("dim" if row.simulated_us is None else ""), justify="right")
        return (
            Text.assemble((letter, "bold reverse" if letter.strip() else ""), (f"{row.mark.value} ", style)),
            Text(shortened(printable(row.name), width), style=style, no_wrap=True),
            Text(predicted, style="dim", justify="right"),
            Text(row.simulated_text, style=style, justify="right"),
            Text(f" {row.granularity}", style="dim"),
            speedup,
        )


TITLE = CANDIDATES.title


class CandidatesPane(RankedPane[Job, CandidateTable]):
    """The table of candidates, and which of them are marked."""

    KEYS = SortKey
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space,m", "mark", "Mark", key_display="space")]

    def __init__(self, *, id: str) -> None:
        super().__init__(CandidateTable(id="table"), id=id)

    def show(self, job: Job) -> None:
        """Fill the table with the times known so far, unless it holds them already."""
        self._job = job
        if job.picked is None and job.found is not None:
            job.picked = job.found.recommended.expression
        rows = rows_of(job.found, job.runs, cast("SortKey", self._sort_key)) if job.found is not None else ()
        letters = dict(zip(job.marked, LETTERS, strict=False))
        if not self._table.shows(rows, self._sort_key, job.picked) or self._table.letters != letters:
            self._table.letters = letters
            self._table.show(rows, self._sort_key, job.picked)
        simulated = sum(row.simulated_us is not None for row in rows)
        self.border_title = f"{TITLE}: {simulated} of {len(rows)} simulated" if rows else TITLE

    def action_mark(self) -> None:
        """Mark the candidate under the cursor for comparison, or take its mark away."""
        row = self._table.picked
        if self._job is not None and row is not None:
            self._job.toggle_mark(row.expression)
            self.show(self._job)
