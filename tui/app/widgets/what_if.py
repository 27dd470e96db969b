"""The values of a file as a table: params, numbers of links, numbers of the GPU."""

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.widgets import DataTable

from ....compiler.text.printable import printable
from ..session.what_if import ValueRow

# Heading and width of each column; the last one takes the rest.
COLUMNS = (("", 2), ("value of", 28), ("now", 15), ("in the file", 15), ("origin", 9), ("", 0))
CHANGED = "●"


class WhatIfTable(DataTable[Text]):
    """A row for each value; those that differ from the file have a sign."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, header_height=1)
        self._rows: tuple[ValueRow, ...] = ()

    @property
    def picked(self) -> ValueRow | None:
        """The row under the cursor."""
        return self._rows[self.cursor_row] if 0 <= self.cursor_row < len(self._rows) else None

    def show(self, rows: Sequence[ValueRow]) -> None:
        """Fill the table unless it holds these rows; the cursor stays on its value."""
        if self._rows != tuple(rows):
            self.fill(rows)

    def fill(self, rows: Sequence[ValueRow]) -> None:
        """Fill the table, whatever values that were being compiled it shows."""
        self._rows = tuple(rows)
        self._fill()

    def show_value(self, name: str, text: str) -> None:
        """Show the text of a value that is being compiled."""
        for index, row in enumerate(self._rows):
            if row.name == name:
                self.update_cell_at((index, 2), Text(printable(text), style="bold italic"))  # type: ignore[arg-type]

    def on_resize(self, event: events.Resize) -> None:
        """Fill again: the last column gets the rest of the width."""
        if self._rows:
            self._fill()

    def _fill(self) -> None:
        at, top = self.cursor_row, self.scroll_y
        with self.app.batch_update():
            self.clear(columns=True)
            taken = sum(width for _, width in COLUMNS) + self.scrollbar_size_vertical
            for heading, width in COLUMNS:
                self.add_column(Text(heading), width=width or max(1, self.size.width - taken))
            for row in self._rows:
                self.add_row(*_cells(row))
            self.move_cursor(row=min(at, len(self._rows) - 1), animate=False)
            self.scroll_to(y=top, animate=False)


def _cells(row: ValueRow) -> tuple[Text, ...]:
    style = "bold" if row.changed else ""
    note = row.domain if row.is_param or not row.source else row.source
    before = row.before if row.changed else ""
    return (
        Text(f"{CHANGED} " if row.changed else "  ", style=style),
        Text(printable(row.name), style=style, no_wrap=True, overflow="ellipsis"),
        Text(printable(row.value), style=style, no_wrap=True, overflow="ellipsis"),
        Text(printable(before), style="dim", no_wrap=True, overflow="ellipsis"),
        Text(row.origin, style="dim"),
        Text(printable(note), style="dim", no_wrap=True, overflow="ellipsis"),
    )
