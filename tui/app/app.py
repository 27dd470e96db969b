"""The terminal UI: shows a Session, runs its blocking work in threads, turns keys into actions."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer

from ...advisor.candidates.advice import Advice
from ...compiler.ir import Settings, ShouldStop
from ...simcore.figures.result import Result
from .background import in_thread, start_resource_tracker
from .commands import MagusCommands
from .messages import Answered, CandidatePicked, ChangesMade, Progressed
from .panes import PANES, JobPane
from .panes.candidates import CandidatesPane
from .panes.editor import EditorPane
from .panes.sweep import SweepPane
from .panes.timeline import TimelinePane
from .panes.what_if import WhatIfPane
from .paths import is_file
from .session import CANCELLED, Backend, Session, SessionProblem, WorkloadSession, default_backend
from .start import stamp
from .state import load as load_state
from .state import save as save_state
from .themes import DARK, THEMES
from .view import SortKey, progress_text
from .widgets.ask import Answer, AskScreen
from .widgets.headline import Headline
from .widgets.help import HelpScreen
from .widgets.start import StartScreen
from .widgets.timeline import TimelineView
from .workbench import Workbench

DEFAULT_WORKERS = 2
# Actions that need an answer on screen.
ANSWER_ACTIONS = ("sort", "step")
# Actions that another screen over the workbench has no use for.
SCREEN_ACTIONS = (*ANSWER_ACTIONS, "pane", "next_pane", "reload", "workload", "details", "stop", "browse")
PACKAGE = __name__.rpartition(".")[0]
# Seconds between two looks whether the file has changed on disk.
LOOK_S = 1.0
# Signals that end the program, with the exit code of shells: 128 plus the number.
END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))
# The cursor rests this long on a candidate before it is simulated.
SETTLE_S = 0.12


class MagusApp(App[None]):
    """``magus tui [FILE|FOLDER]``; it remembers files, theme and pane in ``state_folder``, None for nowhere."""

    CSS_PATH = "magus.tcss"
    TITLE = "magus"
    COMMANDS = App.COMMANDS | {MagusCommands}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (145, "-wide")]  # noqa: RUF012 - Textual declares it so
    VERTICAL_BREAKPOINTS = [(0, "-short"), (40, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("1", "pane(0)", "Pane", key_display=f"1-{len(PANES)}"),
        *(Binding(str(idx + 1), f"pane({idx})", pane.title, show=False) for idx, pane in enumerate(PANES) if idx),
        Binding("tab", "next_pane", "Next pane", show=False, priority=True),
        Binding("j", "step(1)", "Next", show=False),
        Binding("k", "step(-1)", "Previous", show=False),
        Binding("s", "sort", "Sort"),
        Binding("e,ctrl+r", "reload", "Reload", key_display="e"),
        Binding("w", "workload", "Workload"),
        Binding("d", "details", "Details"),
        Binding("o", "browse", "Open"),
        Binding("t", "next_theme", "Theme", show=False),
        Binding("ctrl+p", "command_palette", "Commands", show=False),
        Binding("x,escape", "stop", "Stop", key_display="Esc"),
    ]

    def __init__(
        self,
        path: Path | None,
        settings: Settings = (),
        workload: str | None = None,
        *,
        workers: int = DEFAULT_WORKERS,
        backend: Backend | None = None,
        state_folder: Path | None = None,
    ) -> None:
        super().__init__()
        self._state_folder, self.state = state_folder, load_state(state_folder)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.state.theme if self.state.theme in self.available_themes else DARK.name
        self._backend = backend or default_backend(workers)
        self._folder = path if path is not None and path.is_dir() else None
        self._has_file = path is not None and self._folder is None
        self.session = Session(path or Path(), settings, workload, self._backend)
        self._stamp: tuple[int, int] | None = None
        self._read_stamp: tuple[int, int] | None = None
        self.bench = Workbench(id="workbench")
        start_resource_tracker()

    def compose(self) -> ComposeResult:
        """The workbench over the keys."""
        yield self.bench
        footer = Footer(show_command_palette=False)
        footer.compact = True
        yield footer

    def on_load(self) -> None:
        """Install handlers of signals, so that the terminal is restored at the end."""
        for number in END_SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, nor in a thread
                asyncio.get_running_loop().add_signal_handler(number, self._end_by, number)

    def _end_by(self, number: int) -> None:
        """End as after ``q`` and restore the terminal; a second signal ends the program at once."""
        asyncio.get_running_loop().remove_signal_handler(number)
        self.workers.cancel_all()
        self.exit(return_code=128 + number)

    def on_mount(self) -> None:
        """Read the file, or ask which."""
        names = [pane.name for pane in PANES]
        self.bench.show_pane(names.index(self.state.pane) if self.state.pane in names else 0)
        if self._has_file:
            self.open_file(self.session.path, keep=True)
        else:
            self.action_browse()
        self.set_interval(LOOK_S, self._look)

    def on_unmount(self) -> None:
        """Tell all work to stop, so that the program can end, and remember how the screen was."""
        self.workers.cancel_all()
        pane = PANES[self.bench.pane_idx].name
        save_state(self._state_folder, replace(self.state, theme=self.theme, pane=pane))
        for number in END_SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(number)

    # The file.

    def open_file(self, path: Path | None, *, keep: bool = False) -> None:
        """Open another file; ``keep`` the settings and the workload of this one."""
        if path is not None:
            self._when_saved("Save and open the other", partial(self._open, path, keep))

    def _open(self, path: Path, keep: bool) -> None:
        if not keep:
            self._stop_all()
            self.session = Session(path, (), None, self._backend)
        self._has_file = True
        self.bench.view_of(EditorPane).open(path)
        if is_file(path):
            self.state = self.state.opened(path)
            save_state(self._state_folder, replace(self.state, theme=self.theme))
        self.action_reload()

    def _look(self) -> None:
        """Read the file again if it has changed on disk; one that has vanished stays on screen, as it was."""
        now = stamp(self.session.path) if self._has_file else self._stamp
        if now == self._stamp:
            return
        self._stamp = now
        if now is None:
            self.bench.say(f"{self.session.path} has vanished; this is what it was")
        elif any(view.holds_changes for view in self.bench.views):
            self.bench.say("the file has changed on disk; changes made here are not saved")
        elif not self.bench.view_of(EditorPane).has_what_is_on_disk:  # else its message says what to do
            self.action_reload()

    # Work in threads. A group has one run; a new run tells the previous one to stop.

    @work(exclusive=True, group="file")
    async def _read(self) -> None:
        self.bench.say(f"reading {self.session.path} ...")
        self.session.show(await in_thread(lambda _: self.session.read()))
        self._show_job()

    @work(exclusive=True, group="advice")
    async def _advise(self, job: WorkloadSession) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            self.post_message(Progressed(id(job), stage, done, total))

        def answered(advice: Advice) -> None:
            self.post_message(Answered(id(job), advice))

        self.bench.say("looking for schedules ...")
        job.advising = True
        try:
            await in_thread(lambda should_stop: self.session.advise(job, progress, should_stop, answered))
        finally:
            job.advising = False
        if job is self.session.job:
            self._show_job()

    @work(exclusive=True, group="candidate")
    async def _simulate(self, job: WorkloadSession, expression: str) -> None:
        """Simulate the timeline first, then the what-if runs of its waterfall."""
        await asyncio.sleep(SETTLE_S)
        for explain in (False, True):
            self.bench.say(f"{'what-if runs of' if explain else 'simulating'} {expression} ...")
            outcome = await in_thread(partial(self._simulate_here, job, expression, explain))
            job.simulating = not explain and isinstance(outcome, Result)
            self.bench.refresh_panes()
            if not job.simulating:
                break
        self.bench.say("")

    def _simulate_here(
        self, job: WorkloadSession, expression: str, explain: bool, should_stop: ShouldStop
    ) -> Result | SessionProblem:
        return self.session.simulate(job, expression, should_stop, explain=explain)

    def on_progressed(self, message: Progressed) -> None:
        """Show the progress of the advice, unless its workload is no longer on screen."""
        job = self.session.job
        if self.bench.is_attached and job is not None and id(job) == message.job_id and job.advising:
            self.bench.say(progress_text(message.stage, message.done, message.total))

    def on_answered(self, message: Answered) -> None:
        """Show what would be answered now, unless the final answer has overtaken it."""
        job = self.session.job
        if not self.bench.is_attached or job is None or id(job) != message.job_id or not job.advising:
            return
        if job.advice is None or job.advice.interrupted:
            job.take(message.advice)
            self.bench.show_answer(job)

    def on_candidate_picked(self, message: CandidatePicked) -> None:
        """Show the candidate under the cursor and simulate what is missing."""
        job = self.session.job
        if not self.bench.is_attached or job is None:
            return
        if job.candidate(message.expression) is None:
            return
        if message.expression == job.picked:
            return  # the table was only refilled
        job.picked = message.expression
        self._simulate_picked(job)

    def _simulate_picked(self, job: WorkloadSession) -> None:
        known = job.result
        job.simulating = job.picked is not None and (known is None or known.waterfall is None)
        self.bench.refresh_panes()
        if job.simulating and job.picked is not None:
            self._simulate(job, job.picked)
        else:
            self.workers.cancel_group(self, "candidate")
            self.bench.say("")

    def _show_job(self) -> None:
        """Show the current workload as far as it is known, and start the missing work."""
        session, job = self.session, self.session.job
        if job is None:
            self.bench.show_problem(session.problem, str(session.path))
        else:
            self.bench.say("", idle=session.summary)
            self.bench.show_job(job, session.job_idx, len(session.jobs))
            if not job.is_answered:
                self._advise(job)
            elif job.advice is not None:
                self._simulate_picked(job)
        self.refresh_bindings()

    def _stop_all(self) -> None:
        """Tell all work to stop, simulating processes included."""
        for group in ("advice", "candidate"):
            self.workers.cancel_group(self, group)

    # Keys.

    async def action_quit(self) -> None:
        """End now, unless something is not saved; work is told to stop, and not waited for."""
        self._when_saved("Save and quit", self._end)

    def _when_saved(self, words: str, then: Callable[[], None]) -> None:
        """Do ``then`` at once, or when the user has said what becomes of changes that are not saved."""
        editor = self.bench.view_of(EditorPane)

        def answered(answer: str | None) -> None:
            if answer == "d":
                editor.drop()
            if answer == "d" or (answer == "s" and editor.save()):
                then()

        if isinstance(self.screen, AskScreen):
            return  # one question at a time; ctrl+q reaches here from any screen
        if editor.holds_changes:
            answers = (Answer("s", words), Answer("d", "Drop the changes"))
            also = " It has changed on disk too: saving overwrites that." if editor.is_stale else ""
            question = f"{self.session.path.name} has changes that are not saved.{also}"
            self.push_screen(AskScreen(question, answers), answered)
        else:
            then()

    def _end(self) -> None:
        self.workers.cancel_all()
        self.exit()

    def on_editor_pane_saved(self, message: EditorPane.Saved) -> None:
        """Answer anew, for a text without errors; otherwise the last answer stays."""
        self._stamp = stamp(self.session.path)
        if message.compiles or self.session.job is None:
            self._read_what_changed()

    def on_editor_pane_disk_taken(self) -> None:
        """Read what the editor has taken from disk."""
        self._read_what_changed()

    def _read_what_changed(self) -> None:
        """Read the file again, unless it is being read as it stands."""
        if self._read_stamp != stamp(self.session.path):
            self.action_reload()

    def on_editor_pane_left(self) -> None:
        """Go back to the first pane."""
        self.bench.show_pane(0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has an effect now; others are not offered."""
        job = self.session.job
        if len(self.screen_stack) > 1 and action in SCREEN_ACTIONS:
            return False
        if self.bench.keeps(action):
            return False
        if action == "workload":
            return len(self.session.jobs) > 1
        if action == "stop":
            return job is not None and not job.is_answered
        if action == "details":
            return job is not None and job.advice is not None and "-short" in self.screen.classes
        if action in ANSWER_ACTIONS:
            return job is not None and job.advice is not None
        return True

    def action_reload(self) -> None:
        """Read the file again and compute everything again."""
        self._stop_all()
        self._stamp = self._read_stamp = stamp(self.session.path)
        self._read()

    def on_changes_made(self, message: ChangesMade) -> None:
        """Ask the question with other values."""
        self.session.changes = message.changes
        self.action_reload()

    def on_what_if_pane_sweep_asked(self, message: WhatIfPane.SweepAsked) -> None:
        """Show a sweep over a value."""
        self.bench.show_view(SweepPane)
        self.bench.view_of(SweepPane).show_axis(message.name)

    def action_workload(self) -> None:
        """Show the next workload of the file."""
        self._stop_all()
        self.session.next_workload()
        self._show_job()

    def action_stop(self) -> None:
        """Stop the running advice and keep what was found."""
        job = self.session.job
        if job is not None and not job.is_answered:
            self._stop_all()
            job.stopped, job.advising, job.answer = True, False, job.answer or CANCELLED
            self._show_job()

    def action_details(self) -> None:
        """Show or hide figures, confidence and marks, for which a small screen has no room."""
        self.query_one(Headline).toggle_details()

    def show_workload(self, job_idx: int) -> None:
        """Show a workload of the file."""
        self._stop_all()
        self.session.job_idx = job_idx
        self._show_job()

    def action_browse(self) -> None:
        """Ask which file to open."""
        self.push_screen(StartScreen(self._folder, self.state.recent, can_leave=self._has_file), self.open_file)

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
        views = self.bench.views
        panes = [(pane.title, _keys_of(view)) for pane, view in zip(PANES, views, strict=True)]
        front = self.bench.pane_idx
        self.push_screen(HelpScreen([panes[front], ("Everywhere", self.BINDINGS), *panes[:front], *panes[front + 1 :]]))

    def action_pane(self, pane_idx: int) -> None:
        """Bring a pane to the front."""
        self.bench.show_pane(pane_idx)

    def action_next_pane(self) -> None:
        """Bring the next pane to the front."""
        self.bench.show_pane(self.bench.pane_idx + 1)

    def action_step(self, rows: int) -> None:
        """Move the cursor down by ``rows``."""
        self.bench.view_of(CandidatesPane).step(rows)

    def action_sort(self) -> None:
        """Sort the candidates by the next column."""
        self.bench.view_of(CandidatesPane).sort()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort the candidates by the clicked column."""
        if event.column_key.value is not None:
            self.bench.view_of(CandidatesPane).sort(SortKey[event.column_key.value])

    def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        """Show the timeline of the candidate."""
        self._timeline.focus()

    @property
    def _timeline(self) -> TimelineView:
        """The timeline, brought to the front if it is hidden."""
        self.bench.show_view(TimelinePane)
        return self.bench.view_of(TimelinePane).target


def _keys_of(view: JobPane) -> list[BindingType]:
    """The keys that a pane and its widget declare themselves, not those that Textual gives them."""
    own = (kind for part in (view, view.target) for kind in type(part).__mro__ if kind.__module__.startswith(PACKAGE))
    return [binding for kind in dict.fromkeys(own) for binding in vars(kind).get("BINDINGS", ())]
