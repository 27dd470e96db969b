"""The terminal UI: shows a Session, runs its blocking work in threads, turns keys into actions."""

import asyncio
import signal
from contextlib import suppress
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
from .messages import Answered, CandidatePicked, ChangesMade, Progressed
from .panes import PANES
from .panes.candidates import CandidatesPane
from .panes.timeline import TimelinePane
from .session import CANCELLED, Backend, Session, SessionProblem, WorkloadSession, default_backend
from .view import SortKey, progress_text
from .widgets.help import HelpScreen
from .widgets.timeline import TimelineView
from .workbench import Workbench

DEFAULT_WORKERS = 2
# Actions that need an answer on screen.
ANSWER_ACTIONS = ("pane", "next_pane", "sort", "step")
# Signals that end the program, with the exit code of shells: 128 plus the number.
END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))
# The cursor rests this long on a candidate before it is simulated.
SETTLE_S = 0.12


class MagusApp(App[None]):
    """``magus tui FILE``."""

    CSS_PATH = "magus.tcss"
    TITLE = "magus"
    ENABLE_COMMAND_PALETTE = False
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
        Binding("x,escape", "stop", "Stop", key_display="Esc"),
    ]

    def __init__(
        self,
        path: Path,
        settings: Settings = (),
        workload: str | None = None,
        *,
        workers: int = DEFAULT_WORKERS,
        backend: Backend | None = None,
    ) -> None:
        super().__init__()
        self.session = Session(Path(path), settings, workload, backend or default_backend(workers))
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
        """Read the file."""
        self.bench.show_pane(0)
        self.action_reload()

    def on_unmount(self) -> None:
        """Tell all work to stop, so that the program can end."""
        self.workers.cancel_all()
        for number in END_SIGNALS:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(number)

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
        """Show what would be answered now; the cursor stays with the recommended schedule unless it was moved."""
        job = self.session.job
        if not self.bench.is_attached or job is None or id(job) != message.job_id or not job.advising:
            return
        before, job.answer = job.advice, message.advice
        if before is None or job.picked == before.recommended.expression:
            job.picked = message.advice.recommended.expression
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
        """End now; work is told to stop, and not waited for."""
        self.workers.cancel_all()
        self.exit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has an effect now; others are not offered."""
        job = self.session.job
        if action == "workload":
            return len(self.session.jobs) > 1
        if action == "stop":
            return job is not None and not job.is_answered
        if action in ANSWER_ACTIONS:
            return job is not None and job.advice is not None
        return True

    def action_reload(self) -> None:
        """Read the file again and compute everything again."""
        self._stop_all()
        self._read()

    def on_changes_made(self, message: ChangesMade) -> None:
        """Ask the question with other values."""
        self.session.changes = message.changes
        self.action_reload()

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

    def action_help(self) -> None:
        """Show the help screen."""
        self.push_screen(HelpScreen())

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
