"""The terminal UI: shows a Session, runs its blocking work in threads, turns keys into actions.

What is not needed for the first frame is imported behind it, in ``_load``; here it is named in annotations alone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer

from .background import in_thread, start_resource_tracker
from .commands import MagusCommands
from .first_frame import PROGRAM, READING, FirstFrame, import_rest, title_of_path
from .messages import Answered, CandidatePicked, ChangesMade, Progressed
from .panes import PANES
from .paths import is_file
from .start import stamp
from .state import load as load_state
from .state import save as save_state
from .themes import DARK, THEMES
from .widgets.ask import Answer, AskScreen
from .widgets.help import HelpScreen
from .widgets.start import StartScreen

if TYPE_CHECKING:
    from ...compiler.ir import Settings, ShouldStop
    from ...simcore.shown_run import ShownRun
    from .backend import Backend
    from .finding import Finding
    from .job import Job, JobProblem
    from .panes.base import JobPane
    from .panes.editor import EditorPane
    from .panes.what_if import WhatIfPane
    from .session import Session
    from .widgets.timeline import TimelineView
    from .workbench import Workbench

DEFAULT_WORKERS = 2
# Actions that need an answer on screen.
ANSWER_ACTIONS = ("sort", "step")
# Actions that need the workbench.
BENCH_ACTIONS = (*ANSWER_ACTIONS, "reload", "workload", "details", "stop", "command_palette")
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
    """``magus tui [FILE|FOLDER]``; it remembers files, theme and pane in ``state_folder``, None for nowhere.

    With ``at_once`` a first frame is drawn before most of Magus is imported; ``session`` and ``bench`` come behind it.
    """

    session: Session
    bench: Workbench

    CSS_PATH = "magus.tcss"
    TITLE = PROGRAM
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
        at_once: bool = False,
    ) -> None:
        super().__init__()
        self._state_folder, self.state = state_folder, load_state(state_folder)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.state.theme if self.state.theme in self.available_themes else DARK.name
        self._folder = path if path is not None and path.is_dir() else None
        self._has_file = path is not None and self._folder is None
        self._asked = (path if self._has_file and path is not None else Path(), settings, workload)
        self._backend, self._num_workers = backend, workers
        self._stamp: tuple[int, int] | None = None
        self._read_stamp: tuple[int, int] | None = None
        names = [pane.name for pane in PANES]
        pane_idx = names.index(self.state.pane) if self.state.pane in names else 0
        self._frame = FirstFrame(path, pane_idx)
        self._is_loaded = False
        if not at_once:
            self._load()
            self._is_loaded = True
        start_resource_tracker()

    def _load(self) -> None:
        """Import what the first frame does without."""
        from .backend import default_backend
        from .session import Session
        from .workbench import Workbench

        self.session = Session(*self._asked, self._backend or default_backend(self._num_workers))
        self.bench = Workbench(id="workbench")

    def compose(self) -> ComposeResult:
        """The workbench over the keys."""
        yield self.bench if self._is_loaded else self._frame
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
        if self._is_loaded:
            self._begin()
        else:
            self.call_after_refresh(self._load_behind)
        if not self._has_file:
            self.action_browse()

    @work(group="load")
    async def _load_behind(self) -> None:
        """Put the workbench in the place of the first frame once it is imported."""
        await in_thread(import_rest)
        if not self._frame.is_attached:
            return  # the program has ended meanwhile
        self._load()
        screen = self._frame.screen
        with self.batch_update():
            await screen.mount(self.bench, before=self._frame)
            await self._frame.remove()
            self._is_loaded = True
            self._begin()

    def _begin(self) -> None:
        self.bench.show_pane(self._frame.pane_idx)
        if self._has_file:
            self.bench.ask(title_of_path(self.session.path), READING)
            self.open_file(self.session.path, keep=True)
        self.set_interval(LOOK_S, self._look)

    def on_unmount(self) -> None:
        """Tell all work to stop, so that the program can end, and remember how the screen was."""
        self.workers.cancel_all()
        pane = PANES[self._front.pane_idx].name
        save_state(self._state_folder, replace(self.state, theme=self.theme, pane=pane))
        for number in END_SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(number)

    # The file.

    def open_file(self, path: Path | None, *, keep: bool = False) -> None:
        """Open another file; ``keep`` the settings and the workload of this one."""
        if path is not None and not self._is_loaded:
            self._asked, self._has_file = (path, (), None), True
            self._frame.ask(path)
        elif path is not None:
            self._when_saved("Save and open the other", partial(self._open, path, keep))

    @property
    def _front(self) -> FirstFrame | Workbench:
        return self.bench if self._is_loaded else self._frame

    def _open(self, path: Path, keep: bool) -> None:
        if not keep:
            self._stop_all()
            self.session = self.session.of_other(path)
        self._has_file = True
        self.bench.editor.open(path)
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
        elif not self.bench.editor.has_what_is_on_disk:  # else its message says what to do
            self.action_reload()

    # Work in threads. A group has one run; a new run tells the previous one to stop.

    @work(exclusive=True, group="file")
    async def _read(self) -> None:
        self.bench.say(f"reading {self.session.path} ...")
        self.session.show(await in_thread(lambda _: self.session.read()))
        self._show_job()

    @work(exclusive=True, group="advice")
    async def _advise(self, job: Job) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            self.post_message(Progressed(id(job), stage, done, total))

        def answered(advice: Finding) -> None:
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
    async def _simulate(self, job: Job, expression: str) -> None:
        """Simulate the timeline first, then the what-if runs of its waterfall."""
        await asyncio.sleep(SETTLE_S)
        for explain in (False, True):
            self.bench.say(f"{'what-if runs of' if explain else 'simulating'} {expression} ...")
            await in_thread(partial(self._simulate_here, job, expression, explain))
            job.simulating = not explain and expression in job.runs
            self.bench.refresh_panes()
            if not job.simulating:
                break
        self.bench.say("")
        self.refresh_bindings()

    def _simulate_here(
        self, job: Job, expression: str, explain: bool, should_stop: ShouldStop
    ) -> ShownRun | JobProblem:
        return self.session.simulate(job, expression, should_stop, explain=explain)

    def on_progressed(self, message: Progressed) -> None:
        """Show the progress of the advice, unless its workload is no longer on screen."""
        job = self.session.job
        if self.bench.is_attached and job is not None and id(job) == message.job_id and job.advising:
            self.bench.say_progress(message.stage, message.done, message.total)

    def on_answered(self, message: Answered) -> None:
        """Show what would be answered now, unless the final answer has overtaken it."""
        job = self.session.job
        if not self.bench.is_attached or job is None or id(job) != message.job_id or not job.advising:
            return
        if job.found is None or job.found.interrupted:
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

    def _simulate_picked(self, job: Job) -> None:
        waiting = job.advising and job.is_graph  # each schedule is being simulated
        job.simulating = job.picked is not None and not job.is_explained and not waiting
        job.try_again()
        self.bench.refresh_panes()
        self.refresh_bindings()
        if job.simulating and job.picked is not None:
            self._simulate(job, job.picked)
        else:
            self.workers.cancel_group(self, "candidate")
            self.bench.say("")

    def _show_job(self) -> None:
        """Show the current workload as far as it is known, and start the missing work."""
        session, job = self.session, self.session.job
        if job is None:
            self.bench.show_problem(session.problem, title_of_path(session.path))
        else:
            self.bench.say("", idle=session.summary)
            self.bench.show_job(job, session.job_idx, len(session.jobs))
            if not job.is_answered:
                self._advise(job)
            elif job.found is not None:
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
        if not self._is_loaded:
            then()
            return
        editor = self.bench.editor

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
            return job is not None and (job.simulating or not job.is_answered)
        if action == "details":
            return job is not None and job.found is not None and "-short" in self.screen.classes
        if action in ANSWER_ACTIONS:
            return job is not None and job.found is not None
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
        self.bench.show_view(self.bench.sweep)
        self.bench.sweep.show_axis(message.name)

    def action_workload(self) -> None:
        """Show the next workload of the file."""
        self._stop_all()
        self.session.next_workload()
        self._show_job()

    def action_stop(self) -> None:
        """Stop the running advice and keep what was found, or the simulation of the candidate that was picked."""
        job = self.session.job
        if job is not None and not job.is_answered:
            self._stop_all()
            job.stop()
            self._show_job()
        elif job is not None and job.simulating:
            self.workers.cancel_group(self, "candidate")
            job.give_up()
            self.bench.say("")
            self.bench.refresh_panes()
            self.refresh_bindings()

    def action_details(self) -> None:
        """Show or hide figures, confidence and marks, for which a small screen has no room."""
        self.bench.toggle_details()

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
        if not self._is_loaded:
            self.push_screen(HelpScreen([("Everywhere", self.BINDINGS)]))
            return
        views = self.bench.views
        panes = [(pane.title, _keys_of(view)) for pane, view in zip(PANES, views, strict=True)]
        front = self.bench.pane_idx
        self.push_screen(HelpScreen([panes[front], ("Everywhere", self.BINDINGS), *panes[:front], *panes[front + 1 :]]))

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
        self._timeline.focus()

    @property
    def _timeline(self) -> TimelineView:
        """The timeline, brought to the front if it is hidden."""
        self.bench.show_view(self.bench.timeline)
        return self.bench.timeline.target


def _keys_of(view: JobPane) -> list[BindingType]:
    """The keys that a pane and its widget declare themselves, not those that Textual gives them."""
    own = (kind for part in (view, view.target) for kind in type(part).__mro__ if kind.__module__.startswith(PACKAGE))
    return [binding for kind in dict.fromkeys(own) for binding in vars(kind).get("BINDINGS", ())]
