"""A table of what was compared, of which one row is shown by the other panes, and the order of its rows."""

from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Generic, Protocol, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import DataTable

from ..messages import CandidatePicked
from ..session.view import Mark
from .base import J, JobPane

MARK_STYLES = {
    Mark.RECOMMENDED: ("bold", "success"),
    Mark.TIE: ("", "warning"),
    Mark.TOO_LARGE: ("", "error"),
    Mark.NONE: ("", ""),
}
"""Of each mark how its row stands out, and in which colour of the theme."""
Column = tuple[Enum | None, str, int]
"""What a column is sorted by, its heading and width; the one without a width takes the rest."""


class Pickable(Protocol):
    """A row, with what names it for good."""

    @property
    def expression(self) -> str:
        """The name."""


R = TypeVar("R", bound=Pickable)


class PickTable(DataTable[Text], Generic[R]):
    """Rows, one of them under the cursor; ``LEFT`` are those of words in ``COLUMNS``."""

    COLUMNS: ClassVar[tuple[Column, ...]]
    LEFT: ClassVar[tuple[Enum | None, ...]]
    LEAST: ClassVar[int] = 24
    """Columns that the one which takes the rest has at least."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, header_height=1)
        self._rows: tuple[R, ...] = ()
        self._key: Enum | None = None
        self._filled_width = 0

    def on_mount(self) -> None:
        """Fill again when the theme changes: cells have its colours."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._fill_again())

    def show(self, rows: Sequence[R], key: Enum, picked: str | None) -> None:
        """Fill the table; the cursor goes to ``picked``, or to the top."""
        self._rows, self._key = tuple(rows), key
        self._fill(picked)

    def shows(self, rows: Sequence[R], key: Enum, picked: str | None) -> bool:
        """Whether ``show`` would change nothing."""
        at = self.picked.expression if self.picked is not None else None
        return (self._rows, self._key, at) == (tuple(rows), key, picked)

    @property
    def picked(self) -> R | None:
        """The row under the cursor."""
        return self._rows[self.cursor_row] if 0 <= self.cursor_row < len(self._rows) else None

    def on_resize(self) -> None:
        """Fill again at another width: one column gets the rest."""
        if self.size.width != self._filled_width:
            self._fill_again()

    def _fill_again(self) -> None:
        if self._rows:
            self._fill(self.picked.expression if self.picked is not None else None)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Post the picked row; ignore events of rows from before a refill."""
        event.stop()
        row = self.picked
        if row is not None and event.row_key.value == row.expression:
            self.post_message(CandidatePicked(row.expression))

    @abstractmethod
    def cells(self, row: R, width: int) -> tuple[Text, ...]:
        """The cells of a row; ``width`` is that of the column that takes the rest."""

    def _fill(self, picked: str | None) -> None:
        width, self._filled_width = self._rest(), self.size.width
        with self.app.batch_update(), self.prevent(DataTable.RowHighlighted):
            self.clear(columns=True)
            for key, heading, columns in self.COLUMNS:
                sorted_by = key is self._key and key is not self.COLUMNS[0][0]
                shown = Text("▾" + heading if sorted_by else heading)
                shown.justify = "left" if key in self.LEFT else "right"
                self.add_column(shown, width=columns or width, key=key.name if key is not None else None)
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
        taken = sum(columns for _, _, columns in self.COLUMNS) + self.scrollbar_size_vertical
        return max(self.LEAST, self.size.width - taken)


T = TypeVar("T", bound=PickTable)  # type: ignore[type-arg]  # of any rows


class RankedPane(JobPane[J], Generic[J, T]):
    """A table, whose rows may be sorted by each of ``KEYS``."""

    KEYS: ClassVar[type[Enum]]

    def __init__(self, table: T, *, id: str) -> None:
        super().__init__(id=id)
        self._table = table
        self._sort_key: Enum = next(iter(self.KEYS))
        self._job: J | None = None

    def compose(self) -> ComposeResult:
        """One table."""
        yield self._table

    @property
    def target(self) -> T:
        """The table."""
        return self._table

    def sort(self, key: Enum | None = None) -> None:
        """Sort by ``key``, or by the column after the current one."""
        keys = tuple(self.KEYS)
        self._sort_key = key or keys[(keys.index(self._sort_key) + 1) % len(keys)]
        if self._job is not None:
            self.show(self._job)

    def sort_by(self, column: str) -> None:
        """Sort by the column of this name."""
        self.sort(self.KEYS[column])

    def step(self, rows: int) -> None:
        """Move the cursor down by ``rows``."""
        self._table.move_cursor(row=max(0, min(self._table.row_count - 1, self._table.cursor_row + rows)))
