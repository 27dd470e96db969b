"""The terminal UI: its keys and screens. ``lifecycle.py`` begins and ends it, ``work.py`` works on the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.message import Message
from textual.widgets import DataTable

from ...compiler.text.diagnostics import printable
from .lifecycle import PROGRAM, THEMES, Lifecycle
from .panes import PANES
from .widgets.start import HelpScreen, Section

# Messages between the widgets, the threads and the app.

if TYPE_CHECKING:
    from ...compiler.changed import Changes
    from .session.job import AnyAdvice
    from .session.sweep import Point


@dataclass
class Progressed(Message):
    """Progress of a stage of the advice for the job ``job_id``; sent from a thread."""

    job_id: int
    stage: str
    done: int
    total: int


@dataclass
class CandidatePicked(Message):
    """The cursor has moved to this candidate."""

    expression: str


@dataclass
class AllWanted(Message):
    """The answers of all workloads of the file are wanted."""


@dataclass
class Answered(Message):
    """What would be answered now for the job ``job_id``; sent from a thread."""

    job_id: int
    advice: AnyAdvice


@dataclass
class ChangesMade(Message):
    """The user has changed values of the file, which compiles with them."""

    changes: Changes


@dataclass
class SweepProgressed(Message):
    """A point on an axis of the job ``job_id``, or why there is none; sent from a thread."""

    job_id: int
    axis: str
    found: Point | str


if TYPE_CHECKING:
    from .panes.editor import EditorPane
    from .panes.what_if import WhatIfPane


Command = tuple[str, str, Callable[[], object]]
"""What is typed, what it does, and how."""


class MagusCommands(Provider):
    """Commands of the screen."""

    async def discover(self) -> Hits:
        """Offer all of them."""
        for name, what, action in self._commands():
            yield DiscoveryHit(name, action, help=what)

    async def search(self, query: str) -> Hits:
        """Offer those that match."""
        matcher = self.matcher(query)
        for name, what, action in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), action, help=what)

    def _commands(self) -> Iterator[Command]:
        app: MagusApp = self.app  # type: ignore[assignment]
        for idx, pane in enumerate(PANES):
            yield f"Pane: {pane.title}", f"Bring it to the front, key {idx + 1}", partial(app.action_pane, idx)
        for idx, job in enumerate(app.session.jobs if len(app.session.jobs) > 1 else ()):
            yield (
                f"Workload: {printable(job.scenario.name)}",
                "Show this workload of the file",
                partial(app.work.show_workload, idx),
            )
        yield "Open a file", "Recent files and the shipped examples, key o", app.action_browse
        for path in map(Path, app.state.recent):
            if path != app.session.path.absolute():
                yield f"Open: {printable(path.name)}", printable(str(path)), partial(app.open_file, path)
        for theme in THEMES:
            yield (
                f"Theme: {theme.name.removeprefix('magus-')}",
                "Colours of the screen",
                partial(app.use_theme, theme.name),
            )
        yield "Read the file again", "Key e", app.action_reload
        yield "Details", "Figures, confidence and marks on a small screen, key d", app.action_details
        if app.check_action("report", ()):
            yield "Write a report", "The answer on screen as a page to send, key W", app.action_report
        yield "Keys and signs", "Key ?", app.action_help


ANSWER_ACTIONS = ("sort", "step", "report")
"""Actions that need an answer on screen."""
BENCH_ACTIONS = (*ANSWER_ACTIONS, "reload", "workload", "details", "stop", "command_palette")
"""Actions that need the workbench."""
SCREEN_ACTIONS = (*ANSWER_ACTIONS, "pane", "next_pane", "reload", "workload", "details", "stop", "browse")
"""Actions that another screen over the workbench has no use for."""

BINDINGS: list[BindingType] = [
    Binding("q", "quit", "Quit"),
    Binding("question_mark", "help", "Help", key_display="?"),
    Binding("1", "pane(0)", "Pane", key_display=f"1-{len(PANES)}"),
    *(Binding(str(idx + 1), f"pane({idx})", pane.title, show=False) for idx, pane in enumerate(PANES) if idx),
    Binding("tab", "next_pane", "Next pane", show=False, priority=True),
    Binding("M", "maximise", "Maximise", show=False),
    Binding("j", "step(1)", "Next", show=False),
    Binding("k", "step(-1)", "Previous", show=False),
    Binding("s", "sort", "Sort"),
    Binding("e,ctrl+r", "reload", "Reload", key_display="e"),
    Binding("w", "workload", "Workload"),
    Binding("d", "details", "Details"),
    Binding("o", "browse", "Open"),
    Binding("W", "report", "Write a report", show=False),
    Binding("t", "next_theme", "Theme", show=False),
    Binding("ctrl+p", "command_palette", "Commands", show=False),
    Binding("x,escape", "stop", "Stop", key_display="Esc"),
]

PACKAGE = __name__.rpartition(".")[0]


def everywhere() -> Section:
    """Return the section of the keys of everywhere."""
    return "Everywhere", BINDINGS


def keys_of(widgets: Sequence[object]) -> list[BindingType]:
    """Return the keys that the classes of widgets declare themselves, not those that Textual gives them."""
    own = (kind for each in widgets for kind in reversed(type(each).__mro__) if kind.__module__.startswith(PACKAGE))
    return [binding for kind in dict.fromkeys(own) for binding in vars(kind).get("BINDINGS", ())]


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

    def on_all_wanted(self) -> None:
        """Answer the workloads of the file that have no answer yet."""
        self.work.answer_all()

    def on_candidate_picked(self, message: CandidatePicked) -> None:
        """Show the candidate under the cursor."""
        self.work.pick(message)

    def on_changes_made(self, message: ChangesMade) -> None:
        """Ask the question with other values."""
        self.session.changes = message.changes
        self.work.read()

    def on_what_if_pane_sweep_requested(self, message: WhatIfPane.SweepRequested) -> None:
        """Show a sweep over a value."""
        self.bench.put_on_axis(message.name)

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has an effect now; others are not offered."""
        if len(self.screen_stack) > 1 and action in SCREEN_ACTIONS:
            return False
        if not self._is_loaded:
            return action not in BENCH_ACTIONS
        job = self.session.shown
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

    def action_maximise(self) -> None:
        """Give the pane in front all of a large screen, or let it share that again."""
        self.bench.maximise()

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
