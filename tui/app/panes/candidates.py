"""The pane Candidates: the ranked schedules, and which of them the other panes show."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from ....compiler.text.diagnostics import printable
from ..charts.comparison import LETTERS
from ..messages import CandidatePicked
from ..session.job import Job
from ..session.view import CandidateRow, Mark, SortKey, rows_of, shortened
from . import CANDIDATES
from .base import JobPane

# Heading and width of each column; the schedule takes the rest. Times are in us.
COLUMNS = (
    (SortKey.RANK, " ", 3),
    (SortKey.SCHEDULE, "schedule (times in us)", 0),
    (SortKey.PREDICTED, "predicted", 10),
    (SortKey.SIMULATED, "simulated", 10),
    (None, " unit", 7),
    (SortKey.SPEEDUP, "speedup", 8),
)
LEFT_ALIGNED = (SortKey.RANK, SortKey.SCHEDULE, None)
MIN_SCHEDULE_COLUMNS = 24
MARK_STYLES = {Mark.RECOMMENDED: ("bold", "success"), Mark.TIE: ("", "warning"), Mark.NONE: ("", "")}
"""Of each mark how its row stands out, and in which colour of the theme."""


class CandidateTable(DataTable[Text]):
    """Schedules with predicted and simulated times, speedup and marks."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, header_height=1)
        self._rows: tuple[CandidateRow, ...] = ()
        self._key = SortKey.RANK
        self._letters: Mapping[str, str] = {}

    def on_mount(self) -> None:
        """Fill again when the theme changes: cells have its colours."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self.on_resize())

    def show(self, rows: Sequence[CandidateRow], key: SortKey, picked: str | None, letters: Mapping[str, str]) -> None:
        """Fill the table; the cursor goes to ``picked``, or to the top. ``letters`` are those of marked schedules."""
        self._rows, self._key, self._letters = tuple(rows), key, letters
        self._fill(picked)

    def shows(self, rows: Sequence[CandidateRow], key: SortKey, picked: str | None, letters: Mapping[str, str]) -> bool:
        """Whether ``show`` would change nothing."""
        at = self.picked.expression if self.picked is not None else None
        return (self._rows, self._key, self._letters, at) == (tuple(rows), key, letters, picked)

    @property
    def picked(self) -> CandidateRow | None:
        """The row under the cursor."""
        return self._rows[self.cursor_row] if 0 <= self.cursor_row < len(self._rows) else None

    def on_resize(self) -> None:
        """Fill again: the column of schedules gets the rest of the width."""
        if self._rows:
            self._fill(self.picked.expression if self.picked is not None else None)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Post the picked candidate; ignore events of rows from before a refill."""
        event.stop()
        row = self.picked
        if row is not None and event.row_key.value == row.expression:
            self.post_message(CandidatePicked(row.expression))

    def _fill(self, picked: str | None) -> None:
        width = self._schedule_columns()
        with self.app.batch_update(), self.prevent(DataTable.RowHighlighted):
            self.clear(columns=True)
            for key, heading, columns in COLUMNS:
                sorted_by = key is self._key and key is not SortKey.RANK
                shown = Text("▾" + heading if sorted_by else heading)
                shown.justify = "left" if key in LEFT_ALIGNED else "right"
                self.add_column(shown, width=columns or width, key=key.name if key is not None else None)
            for row in self._rows:
                cells = _cells(row, width, self._letters.get(row.expression, " "), self._style(row.mark))
                self.add_row(*cells, key=row.expression)
            found = (index for index, row in enumerate(self._rows) if row.expression == picked)
            self.move_cursor(row=next(found, 0), animate=False)
        if self._rows and self._rows[self.cursor_row].expression != picked:
            self.post_message(CandidatePicked(self._rows[self.cursor_row].expression))

    def _style(self, mark: Mark) -> str:
        weight, colour = MARK_STYLES[mark]
        return f"{weight} {self.app.theme_variables.get(colour, '')}".strip()

    def _schedule_columns(self) -> int:
        taken = sum(columns for _, _, columns in COLUMNS) + self.scrollbar_size_vertical
        return max(MIN_SCHEDULE_COLUMNS, self.size.width - taken)


def _cells(row: CandidateRow, width: int, letter: str, style: str) -> tuple[Text, ...]:
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


class CandidatesPane(JobPane):
    """The table of candidates, and the order of its rows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space,m", "mark", "Mark", key_display="space")]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._table = CandidateTable(id="table")
        self._sort_key = SortKey.RANK
        self._job: Job | None = None

    def compose(self) -> ComposeResult:
        """One table."""
        yield self._table

    @property
    def target(self) -> CandidateTable:
        """The table."""
        return self._table

    def show(self, job: Job) -> None:
        """Fill the table with the times known so far, unless it holds them already."""
        self._job = job
        if job.picked is None and job.found is not None:
            job.picked = job.found.recommended.expression
        rows = rows_of(job.found, job.runs, self._sort_key) if job.found is not None else ()
        letters = dict(zip(job.marked, LETTERS, strict=False))
        if not self._table.shows(rows, self._sort_key, job.picked, letters):
            self._table.show(rows, self._sort_key, job.picked, letters)
        simulated = sum(row.simulated_us is not None for row in rows)
        self.border_title = f"{TITLE}: {simulated} of {len(rows)} simulated" if rows else TITLE

    def sort(self, key: SortKey | None = None) -> None:
        """Sort by ``key``, or by the column after the current one."""
        keys = tuple(SortKey)
        self._sort_key = key or keys[(keys.index(self._sort_key) + 1) % len(keys)]
        if self._job is not None:
            self.show(self._job)

    def sort_by(self, column: str) -> None:
        """Sort by the column of this name."""
        self.sort(SortKey[column])

    def action_mark(self) -> None:
        """Mark the candidate under the cursor for comparison, or take its mark away."""
        row = self._table.picked
        if self._job is not None and row is not None:
            self._job.toggle_mark(row.expression)
            self.show(self._job)

    def step(self, rows: int) -> None:
        """Move the cursor down by ``rows``."""
        self._table.move_cursor(row=max(0, min(self._table.row_count - 1, self._table.cursor_row + rows)))
