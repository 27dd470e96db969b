"""The pane Candidates: the ranked schedules, and which of them the other panes show."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable, Static

from ....compiler.text.diagnostics import printable
from ...text.door import wrapped_to
from ..app import CandidatePicked
from ..charts.comparison import LETTERS
from ..session.job import AnyJob, Job
from ..session.view import CandidateRow, Column, Mark, SortKey, rows_of, shortened
from . import CANDIDATES

# What every pane of the workbench is.

J = TypeVar("J", bound=AnyJob)
V = TypeVar("V", bound=Widget)


class JobPane(Container, Generic[J]):
    """A pane that shows one aspect of the job on screen; most are mounted when they first come to the front.

    ``show`` is called when the pane comes to the front, and while it is visible whenever something of the job changes:
    its answer, the picked candidate, or a Result. It takes everything from the job, so that it may be called at any
    time. Keys of a pane are ``BINDINGS`` of its class or of a widget in it. What blocks is a method of its own, marked
    ``@work``, that awaits ``in_thread``.
    """

    @dataclass
    class Stands(Message):
        """A pane has its widgets, and can show a job."""

        pane: "JobPane[Any]"

    def on_mount(self) -> None:
        """Tell that ``show`` may be called."""
        self.post_message(self.Stands(self))

    @abstractmethod
    def show(self, job: J) -> None:
        """Show ``job`` as far as it is known."""

    @property
    def holds_changes(self) -> bool:
        """Whether the pane holds changes of the file that are not saved: then it is not read again by itself."""
        return False

    @property
    @abstractmethod
    def target(self) -> Widget:
        """The widget that takes the keys when the pane comes to the front."""

    def keeps(self, action: str) -> bool:
        """Whether the key of an action of the app is the pane's own now, as arrows are in a text."""
        return False


class ViewPane(JobPane[J], Generic[J, V]):
    """A pane of one widget, its ``view``."""

    def __init__(self, view: V, *, id: str) -> None:
        super().__init__(id=id)
        self._view = view

    def compose(self) -> ComposeResult:
        """The widget alone."""
        yield self._view

    @property
    def target(self) -> V:
        """The widget."""
        return self._view


class ScrolledText(VerticalScroll, can_focus=True):
    """A text that scrolls."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        """One text."""
        yield self._text

    def update(self, text: str) -> None:
        """Show another text."""
        self._text.update(printable(text, block=True))


class WordsPane(ViewPane[J, ScrolledText]):
    """A pane of lines, which are wrapped to its width."""

    TITLE = ""

    def __init__(self, *, id: str) -> None:
        super().__init__(ScrolledText(id=f"{id}-words"), id=id)
        self._job: J | None = None

    def on_resize(self) -> None:
        """Wrap again, to the width that the text has once all is laid out."""
        self.call_after_refresh(self.draw)

    def show(self, job: J) -> None:
        """Show what is known of what is picked."""
        self._job, self.border_title = job, self.title(job)
        self.draw()

    def title(self, job: J) -> Content:
        """What stands above the lines."""
        return Content(self.TITLE)

    @abstractmethod
    def lines(self, job: J, width: int) -> Iterator[str]:
        """What is said in so many columns."""

    def draw(self) -> None:
        """Show the lines as they are now."""
        if self._job is not None:
            width = max(20, self._view.size.width - 3)
            with wrapped_to(width):
                self._view.update("\n".join(self.lines(self._job, width)))


# A table of what was compared, of which one row is shown by the other panes, and the order of its rows.

MARK_STYLES = {
    Mark.RECOMMENDED: ("bold", "success"),
    Mark.TIE: ("", "warning"),
    Mark.TOO_LARGE: ("", "error"),
    Mark.NONE: ("", ""),
}
"""Of each mark how its row stands out, and in which colour of the theme."""


class Pickable(Protocol):
    """A row, with what names it for good."""

    @property
    def expression(self) -> str:
        """The name."""


R = TypeVar("R", bound=Pickable)
AnyRow = TypeVar("AnyRow")


class RowsTable(DataTable[Text], Generic[AnyRow]):
    """A table of rows with one under the cursor; it is filled again at another width: one column gets the rest."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, header_height=1)
        self._rows: tuple[AnyRow, ...] = ()
        self._filled_width = 0

    @property
    def picked(self) -> AnyRow | None:
        """The row under the cursor."""
        return self._rows[self.cursor_row] if 0 <= self.cursor_row < len(self._rows) else None

    def on_resize(self) -> None:
        """Fill again at another width."""
        if self._rows and self.size.width != self._filled_width:
            self.fill_again()

    @abstractmethod
    def fill_again(self) -> None:
        """Fill the table with the rows that it has."""


class PickTable(RowsTable[R], Generic[R]):
    """Rows, one of them under the cursor; the values of ``KEYS`` are its columns."""

    KEYS: ClassVar[type[Enum]]
    LEAST: ClassVar[int] = 24
    """Columns that the one which takes the rest has at least."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._key: Enum | None = None

    def on_mount(self) -> None:
        """Fill again when the theme changes: cells have its colours."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self.fill_again())

    def show(self, rows: Sequence[R], key: Enum, picked: str | None) -> None:
        """Fill the table; the cursor goes to ``picked``, or to the top."""
        self._rows, self._key = tuple(rows), key
        self._fill(picked)

    def shows(self, rows: Sequence[R], key: Enum, picked: str | None) -> bool:
        """Whether ``show`` would change nothing."""
        at = self.picked.expression if self.picked is not None else None
        return (self._rows, self._key, at) == (tuple(rows), key, picked)

    def fill_again(self) -> None:
        """Fill the table with the rows that it has; the cursor stays on its row."""
        if self._rows:
            self._fill(self.picked.expression if self.picked is not None else None)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Post the picked row; ignore events of rows from before a refill."""
        event.stop()
        row = self.picked
        if row is not None and event.row_key.value == row.expression:
            self.post_message(CandidatePicked(row.expression))

    @abstractmethod
    def cells(self, row: R, width: int) -> Iterable[Text]:
        """The cells of a row; ``width`` is that of the column that takes the rest."""

    def cell(self, row: R, key: Enum, style: str, width: int) -> Text:
        """The cell of a column, in which words have ``width``."""
        column: Column = key.value
        text = column.text(row)
        shown = text if column.justify == "right" else shortened(printable(text), width)
        return Text(shown, style=style, no_wrap=True, justify=column.justify)

    def _fill(self, picked: str | None) -> None:
        width, self._filled_width = self._rest(), self.size.width
        with self.app.batch_update(), self.prevent(DataTable.RowHighlighted):
            self.clear(columns=True)
            for place, key in enumerate(self.KEYS):
                column: Column = key.value
                shown = Text("▾" + column.heading if place and key is self._key else column.heading)
                shown.justify = "right" if column.justify == "right" else "left"
                self.add_column(shown, width=column.width or width, key=None if column.order is None else key.name)
            for row in self._rows:
                self.add_row(*self.cells(row, width), key=row.expression)
            found = (index for index, row in enumerate(self._rows) if row.expression == picked)
            self.move_cursor(row=next(found, 0), animate=False)
        if self._rows and self._rows[self.cursor_row].expression != picked:
            self.post_message(CandidatePicked(self._rows[self.cursor_row].expression))

    def style_of(self, mark: Mark) -> str:
        """How a row with a mark looks in the theme."""
        weight, colour = MARK_STYLES[mark]
        return f"{weight} {self.app.theme_variables.get(colour, '')}".strip()

    def _rest(self) -> int:
        taken: int = sum(key.value.width for key in self.KEYS) + self.scrollbar_size_vertical
        return max(self.LEAST, self.size.width - taken)


T = TypeVar("T", bound=PickTable)  # type: ignore[type-arg]  # of any rows


class RankedPane(ViewPane[J, T]):
    """A table, whose rows may be sorted by each of its columns that has an order."""

    def __init__(self, table: T, *, id: str) -> None:
        super().__init__(table, id=id)
        self._sort_key: Enum = next(iter(table.KEYS))
        self._job: J | None = None

    def sort(self, key: Enum | None = None) -> None:
        """Sort by ``key``, or by the column after the current one."""
        keys = [each for each in self._view.KEYS if each.value.order is not None]
        self._sort_key = key or keys[(keys.index(self._sort_key) + 1) % len(keys)]
        if self._job is not None:
            self.show(self._job)

    def sort_by(self, column: str) -> None:
        """Sort by the column of this name."""
        self.sort(self._view.KEYS[column])

    def step(self, rows: int) -> None:
        """Move the cursor down by ``rows``."""
        self._view.move_cursor(row=max(0, min(self._view.row_count - 1, self._view.cursor_row + rows)))


class CandidateTable(PickTable[CandidateRow]):
    """Schedules with predicted and simulated times, speedup and marks; ``letters`` are those of marked schedules."""

    KEYS = SortKey

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.letters: Mapping[str, str] = {}

    def cells(self, row: CandidateRow, width: int) -> Iterator[Text]:
        """Letter and mark, the name, times, their unit, the speedup."""
        letter, style = self.letters.get(row.expression, " "), self.style_of(row.mark)
        yield Text.assemble((letter, "bold reverse" if letter.strip() else ""), (f"{row.mark.value} ", style))
        styles = {SortKey.PREDICTED: "dim", SortKey.UNIT: "dim"}
        styles[SortKey.SPEEDUP] = style or ("dim" if row.simulated_us is None else "")
        for key in list(SortKey)[1:]:
            yield self.cell(row, key, styles.get(key, style), width)


TITLE = CANDIDATES.title


class CandidatesPane(RankedPane[Job, CandidateTable]):
    """The table of candidates, and which of them are marked."""

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
        if not self._view.shows(rows, self._sort_key, job.picked) or self._view.letters != letters:
            self._view.letters = letters
            self._view.show(rows, self._sort_key, job.picked)
        simulated = sum(row.simulated_us is not None for row in rows)
        self.border_title = f"{TITLE}: {simulated} of {len(rows)} simulated" if rows else TITLE

    def action_mark(self) -> None:
        """Mark the candidate under the cursor for comparison, or take its mark away."""
        row = self._view.picked
        if self._job is not None and row is not None:
            self._job.toggle_mark(row.expression)
            self.show(self._job)
