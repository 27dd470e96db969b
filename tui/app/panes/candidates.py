"""The pane Candidates: the ranked schedules, and which of them the other panes show."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ..charts.comparison import LETTERS
from ..session.job import Job
from ..session.view import SortKey, rows_of
from ..widgets.candidates import CandidateTable
from . import CANDIDATES
from .base import JobPane

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
