"""The terminal UI: its keys and its screens. ``lifecycle.py`` begins and ends it, ``open_file.py`` keeps the file,
``work.py`` works on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.widgets import DataTable

from .commands import MagusCommands
from .first_frame import PROGRAM
from .keys import ANSWER_ACTIONS, BENCH_ACTIONS, BINDINGS, SCREEN_ACTIONS, everywhere, keys_of
from .lifecycle import Lifecycle
from .messages import Answered, CandidatePicked, ChangesMade, Progressed
from .panes import PANES
from .themes import THEMES
from .widgets.help import HelpScreen

if TYPE_CHECKING:
    from .panes.editor import EditorPane
    from .panes.what_if import WhatIfPane


class MagusApp(Lifecycle):
    """``magus tui [FILE|FOLDER]``; it remembers files, theme and pane in ``state_folder``, None for nowhere.

    With ``at_once`` a first frame is drawn before most of Magus is imported.
    """

    CSS_PATH = "magus.tcss"
    TITLE = PROGRAM
    COMMANDS = App.COMMANDS | {MagusCommands}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (145, "-wide")]  # noqa: RUF012 - Textual declares it so
    VERTICAL_BREAKPOINTS = [(0, "-short"), (40, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = BINDINGS

    # The editor.

    def on_editor_pane_saved(self, message: EditorPane.Saved) -> None:
        """Answer anew."""
        self.file.saved(message.compiles)

    def on_editor_pane_disk_taken(self) -> None:
        """Read what the editor has taken from disk."""
        self.work.read()

    def on_editor_pane_left(self) -> None:
        """Go back to the first pane."""
        self.bench.show_pane(0)

    # Work.

    def on_progressed(self, message: Progressed) -> None:
        """Show the progress of the advice."""
        self.work.show_progress(message)

    def on_answered(self, message: Answered) -> None:
        """Show what would be answered now."""
        self.work.take_answer(message)

    def on_candidate_picked(self, message: CandidatePicked) -> None:
        """Show the candidate under the cursor."""
        self.work.pick(message)

    def on_changes_made(self, message: ChangesMade) -> None:
        """Ask the question with other values."""
        self.session.changes = message.changes
        self.work.read()

    def on_what_if_pane_sweep_asked(self, message: WhatIfPane.SweepAsked) -> None:
        """Show a sweep over a value."""
        self.bench.show_view(self.bench.sweep)
        self.bench.sweep.show_axis(message.name)

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has an effect now; others are not offered."""
        if len(self.screen_stack) > 1 and action in SCREEN_ACTIONS:
            return False
        if not self._is_loaded:
            return action not in BENCH_ACTIONS
        job = self.session.job
        if self.bench.keeps(action):
            return False
        if action == "workload":
            return len(self.session.jobs) > 1
        if action == "stop":
            return self.work.can_stop
        if action == "details":
            return job is not None and job.found is not None and "-short" in self.screen.classes
        if action in ANSWER_ACTIONS:
            return job is not None and job.found is not None
        return True

    def action_reload(self) -> None:
        """Read the file again and compute everything again."""
        self.file.read_again()

    def action_workload(self) -> None:
        """Show the next workload of the file."""
        self.work.show_workload((self.session.job_idx + 1) % max(1, len(self.session.jobs)))

    def action_stop(self) -> None:
        """Stop what runs and keep what was found."""
        self.work.stop()

    def action_details(self) -> None:
        """Show or hide figures, confidence and marks, for which a small screen has no room."""
        self.bench.toggle_details()

    def action_report(self) -> None:
        """Ask for a name, and write the answer on screen as a page."""
        self.work.report()

    def use_theme(self, name: str) -> None:
        """Take the colours of a theme."""
        self.theme = name

    def action_next_theme(self) -> None:
        """Take the colours of the next of Magus's themes."""
        names = [theme.name for theme in THEMES]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]

    def action_help(self) -> None:
        """Show the keys of the pane in front, of the others, and those of everywhere."""
        if not self._is_loaded:
            self.push_screen(HelpScreen([everywhere()]))
            return
        panes = [(pane.title, keys_of((view, view.target))) for pane, view in zip(PANES, self.bench.views, strict=True)]
        front = self.bench.pane_idx
        self.push_screen(HelpScreen([panes[front], everywhere(), *panes[:front], *panes[front + 1 :]]))

    def action_pane(self, pane_idx: int) -> None:
        """Bring a pane to the front."""
        self._front.show_pane(pane_idx)

    def action_next_pane(self) -> None:
        """Bring the next pane to the front."""
        self._front.show_pane(self._front.pane_idx + 1)

    def action_step(self, rows: int) -> None:
        """Move the cursor down by ``rows``."""
        self.bench.candidates.step(rows)

    def action_sort(self) -> None:
        """Sort the candidates by the next column."""
        self.bench.candidates.sort()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort the candidates by the clicked column."""
        if event.column_key.value is not None:
            self.bench.candidates.sort_by(event.column_key.value)

    def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        """Show the timeline of the candidate."""
        self.bench.show_view(self.bench.timeline)
        self.bench.timeline.target.focus()
