"""The pane What if: params and hardware numbers, changed in place; advice follows."""

from collections.abc import Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import DataTable, Input, Static

from ....compiler.changed import Changes, changed_file, compile_changed_file
from ....compiler.text.diagnostics import CompileError, printable
from ....compiler.text.load import real_path
from ....compiler.text.writing import write_whole
from ..app import ChangesMade
from ..background import in_thread
from ..session.job import AnyJob
from ..session.listed_files import exists, typed_path
from ..session.values import ValueRow, with_value
from . import WHAT_IF
from .candidates import JobPane, RowsTable

# Heading and width of each column; the last one takes the rest.
COLUMNS = (("", 2), ("value of", 28), ("now", 15), ("in the file", 15), ("origin", 9), ("", 0))
CHANGED = "●"


class WhatIfTable(RowsTable[ValueRow]):
    """A row for each value; those that differ from the file have a sign."""

    def show(self, rows: Sequence[ValueRow]) -> None:
        """Fill the table unless it holds these rows; the cursor stays on its value."""
        if self._rows != tuple(rows):
            self.fill(rows)

    def fill(self, rows: Sequence[ValueRow]) -> None:
        """Fill the table, whatever values that were being compiled it shows."""
        self._rows = tuple(rows)
        self.fill_again()

    def show_value(self, name: str, text: str) -> None:
        """Show the text of a value that is being compiled."""
        for index, row in enumerate(self._rows):
            if row.name == name:
                self.update_cell_at((index, 2), Text(printable(text), style="bold italic"))  # type: ignore[arg-type]

    def fill_again(self) -> None:
        """Fill the table with the rows that it has; the cursor stays where it is."""
        at, top, self._filled_width = self.cursor_row, self.scroll_y, self.size.width
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


TITLE = WHAT_IF.title
KEYS = "◂ ▸ step  < > half, double  Enter type  r reset  R all  S save"


class Asking(Enum):
    """What the line under the table asks for."""

    VALUE = "value"
    NAME = "save as"
    OVERWRITE = "overwrite"


class WhatIfPane(JobPane[AnyJob]):
    """A table of values; what is changed compiles before the app hears of it, and an error is said in place."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l,plus,equals_sign", "step(1)", "Step", key_display="◂ ▸"),
        Binding("left,h,minus", "step(-1)", "Step back", show=False),
        Binding("greater_than_sign", "step(1, True)", "Double", key_display="< >"),
        Binding("less_than_sign", "step(-1, True)", "Halve", show=False),
        Binding("enter", "type", "Type"),
        Binding("r", "reset", "Reset"),
        Binding("R", "reset_all", "Reset all"),
        Binding("S,ctrl+s", "save", "Save", key_display="S"),
        Binding("g", "sweep", "Sweep"),
        Binding("escape", "leave_line", "Back", show=False),
    ]

    class SweepRequested(Message):
        """The user wants the value ``name`` on an axis."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._table = WhatIfTable(id="values")
        self._line = Static(KEYS, id="what-if-line", markup=False)
        self._input = Input(id="what-if-input", compact=True)
        self._input.display = False
        self._job: AnyJob | None = None
        self._wanted = Changes()
        self._asking = Asking.VALUE
        self._target = Path()

    def compose(self) -> ComposeResult:
        """A table over a line that asks and answers."""
        self.border_title = TITLE
        yield self._table
        yield self._line
        yield self._input

    @property
    def target(self) -> Widget:
        """The table."""
        return self._table

    def show(self, job: AnyJob) -> None:
        """Show the values from which the scenario was made."""
        if self._job is None or self._job.what_if is not job.what_if:
            self._wanted = job.what_if.changes
            self.say("")
        self._job = job
        self._table.show(job.what_if.rows(job.scenario.system))

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Say something under the table; without a text what differs from the file, and the keys."""
        count = len(self._wanted.params) + len(self._wanted.numbers)
        idle = f"{count} changed {CHANGED}   {KEYS}" if count else KEYS
        self._line.update(printable(text) if text else idle)
        self._line.set_class(is_error, "error")

    # Changing.

    def _change(self, changes: Changes, row: ValueRow | None = None, text: str = "") -> None:
        if changes == self._wanted or self._job is None:
            return
        self._wanted = changes
        if row is not None:
            self._table.show_value(row.name, text)
        self._compile(self._job, changes)

    @work(exclusive=True, group="what if")
    async def _compile(self, job: AnyJob, changes: Changes) -> None:
        """Compile with the changes: an error is said here, and what compiles is everybody's."""
        try:
            await in_thread(partial(_check, job, changes))
        except (CompileError, OSError) as error:
            self._wanted = job.what_if.changes
            self._table.fill(job.what_if.rows(job.scenario.system))
            self.say(_sentence(error), is_error=True)
        else:
            self.say("")
            self.post_message(ChangesMade(changes))

    def action_step(self, steps: int, doubling: bool = False) -> None:
        """Step the value under the cursor; steps taken quickly add up."""
        row = self._table.picked
        if row is not None:
            text = row.stepped(steps, doubling=doubling)
            self._change(with_value(self._wanted, row, text), row, text)

    def action_reset(self) -> None:
        """Take the value of the file."""
        row = self._table.picked
        if row is not None:
            self._change(with_value(self._wanted, row, row.before), row, row.before)

    def action_reset_all(self) -> None:
        """Take all values of the file."""
        self._change(Changes())

    def action_sweep(self) -> None:
        """Put the value on the axis of a sweep."""
        row = self._table.picked
        if row is not None:
            self.post_message(self.SweepRequested(row.name))

    # The line that asks.

    def _ask(self, asking: Asking, text: str, said: str) -> None:
        self._asking = asking
        self._input.value, self._input.display = text, True
        self._input.cursor_position = len(text)
        self._input.focus()
        self.say(said)

    def action_type(self) -> None:
        """Ask for a value."""
        row = self._table.picked
        if row is not None:
            self._ask(Asking.VALUE, row.value, f"{row.name}: {row.domain}. Enter takes it, Esc leaves it.")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Ask for a value: Enter, or a click on the row under the cursor."""
        event.stop()
        self.action_type()

    def action_save(self) -> None:
        """Ask for the name of a file to save as."""
        if self._job is not None:
            path = self._job.path
            name = path.with_name(f"{path.stem}_what_if.mgs")
            self._ask(Asking.NAME, str(name), "Save as a new file. Enter writes it, Esc leaves it.")

    def action_leave_line(self) -> None:
        """Ask for nothing more; without a question stop what runs, as everywhere."""
        if not self._input.display:
            self.app.action_stop()  # type: ignore[attr-defined]
            return
        self._input.display = False
        self.say("")
        self._table.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take what was typed."""
        event.stop()
        text, row = event.value.strip(), self._table.picked
        if self._asking is Asking.VALUE:
            self.action_leave_line()
            if row is not None and text:
                self._change(with_value(self._wanted, row, text), row, text)
        elif text:
            target = typed_path(text)
            if self._asking is Asking.NAME and exists(target):
                self._target = target
                self._ask(Asking.OVERWRITE, text, f"{target} exists. Enter overwrites it, Esc leaves it.")
            elif self._asking is Asking.NAME or target == self._target:
                self._save(target)
            else:
                self._asking = Asking.NAME
                self.on_input_submitted(event)

    @work(exclusive=True, group="save")
    async def _save(self, target: Path) -> None:
        """Write the file with the changes; an error leaves the line open."""
        job = self._job
        if job is None:
            return
        try:
            await in_thread(partial(_write, job.path, self._wanted, target))
        except (CompileError, OSError) as error:
            self.say(f"not saved: {_sentence(error)}", is_error=True)
            return
        self.action_leave_line()
        if real_path(target) == real_path(job.path):
            self._change(Changes())  # the file says it now: nothing differs from it
        self.say(f"written: {target}")


def _check(job: AnyJob, changes: Changes, _: object) -> None:
    compiled = compile_changed_file(job.path, changes)
    if compiled.step(job.name) is None:
        compiled.scenario(job.name)  # which says why there is none


def _write(path: Path, changes: Changes, target: Path, _: object) -> None:
    write_whole(target, changed_file(path, changes, target))


def _sentence(error: CompileError | OSError) -> str:
    """Say an error in one line."""
    if isinstance(error, OSError):
        return f"{error.filename or 'the file'}: {error.strerror or error}"
    first = error.first
    return f"{first.code.name}: {first.message}{f'; {first.hint}' if first.hint else ''}"
