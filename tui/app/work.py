"""Blocking work on the session, in threads: read the file, ask for advice, simulate. What comes of it is shown at once.

A group has one run; a new run tells the one before to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...compiler.text.diagnostics import printable
from ...compiler.text.writing import write_whole
from .app import Answered, CandidatePicked, Progressed
from .background import in_thread
from .lifecycle import title_of_path
from .session.files import Watched, files_of
from .session.job import NO_RUN, Job, StepJob
from .widgets.dialogs import Answer, AskScreen, NameScreen

if TYPE_CHECKING:
    from textual.app import App

    from .session.job import AnyAdvice, AnyJob
    from .session.session import Session
    from .workbench import Workbench


class OpenFile:
    """What becomes of the file that ``work`` is about; there may be none yet."""

    def __init__(self, app: App[None], bench: Workbench, work: Work) -> None:
        self._app, self._bench, self._work = app, bench, work
        self.is_open = False

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._work.session.path

    def open(self, path: Path, opened: Callable[[Path], None], *, keep: bool = False) -> None:
        """Open another file once this one is saved, and tell; ``keep`` the settings and the workload."""
        self.when_saved("Save and open the other", partial(self._open, path, opened, keep))

    def _open(self, path: Path, opened: Callable[[Path], None], keep: bool) -> None:
        if not keep:
            self._work.stop_all()
            self._work.session = self._work.session.of_other(path)
        self.is_open = True
        self._work.watched = Watched((path,))
        self._bench.editor.open(path)
        opened(path)
        self._work.read()

    def when_saved(self, words: str, then: Callable[[], None]) -> None:
        """Do ``then`` at once, or when the user has said what becomes of changes that are not saved."""
        editor = self._bench.editor

        def answered(answer: str | None) -> None:
            if answer == "d":
                editor.drop()
            if answer == "d" or (answer == "s" and editor.save()):
                then()

        if isinstance(self._app.screen, AskScreen):
            return  # one question at a time; ctrl+q reaches here from any screen
        if editor.holds_changes:
            answers = (Answer("s", words), Answer("d", "Drop the changes"))
            also = " It has changed on disk too: saving overwrites that." if editor.is_stale else ""
            question = f"{self.path.name} has changes that are not saved.{also}"
            self._app.push_screen(AskScreen(question, answers), answered)
        else:
            then()

    def read_again(self) -> None:
        """Read the file again, whether it has changed or not."""
        if not self.look():
            self._work.read()

    def look(self) -> bool:
        """Read the file again if it, or one that it names, has changed on disk; return whether it is read again.

        What has vanished stays on screen, as it was.
        """
        if not self.is_open or len(self._app.screen_stack) > 1:
            return False
        changed = self._work.watched.changed()
        others = [path for path in changed if path != self.path]
        if others:
            self._bench.editor.check_again()
        differs = self.path in changed and self._bench.editor.look_at_disk()
        gone = [path for path, is_there in changed.items() if not is_there]
        if gone:
            self._bench.say(f"{gone[0]} has vanished; this is what it was")
        elif differs and any(view.holds_changes for view in self._bench.views):
            self._bench.say("the file has changed on disk; changes made here are not saved")
        elif differs or others:
            self._work.read()
            return True
        elif changed:
            self._bench.say("")  # it is as it was, or the editor has saved it
        return False

    def saved(self, compiles: bool) -> None:
        """Answer anew for what the editor has saved if it has no errors; otherwise the last answer stays."""
        if compiles or self._work.session.shown is None:
            self._work.read()


READ, ADVISE, SIMULATE, REPORT = "file", "advice", "candidate", "report"
SETTLE_S = 0.12
"""The cursor rests this long on a candidate before it is simulated."""


class Work:
    """The work on ``session``, shown on a workbench; ``watched`` are the files that it was read from."""

    def __init__(self, app: App[None], bench: Workbench, session: Session) -> None:
        self._app, self._bench = app, bench
        self.session = session
        self.watched = Watched()

    # The file.

    def read(self) -> None:
        """Read the file again and compute everything again."""
        self.stop_all()
        self._app.run_worker(self._read(), group=READ, exclusive=True)

    async def _read(self) -> None:
        session = self.session
        self._bench.say(f"reading {session.path} ...")
        # Stamps first: what changes while it is read is noticed.
        found, outcome = await in_thread(lambda _: (Watched(files_of(session.path)), session.read()))
        self.watched.follow(found)
        session.show(outcome)
        self.show_job()

    # The workload on screen.

    def show_job(self) -> None:
        """Show the current workload as far as it is known, and start the missing work."""
        session, job = self.session, self.session.shown
        if job is None:
            self._bench.show_problem(session.problem, title_of_path(session.path))
        else:
            self._bench.say("", idle=session.summary)
            self._bench.show_job(job, session.job_idx, len(session.jobs))
            if not job.is_answered:
                self._app.run_worker(self._advise(job), group=ADVISE, exclusive=True)
            elif job.found is not None and isinstance(job, Job):
                self._simulate_picked(job)
        self._app.refresh_bindings()

    def show_workload(self, job_idx: int) -> None:
        """Show another workload of the file."""
        self.stop_all()
        self.session.job_idx = job_idx
        self.show_job()

    @property
    def can_stop(self) -> bool:
        """Whether something runs that ``stop`` would stop."""
        job = self.session.shown
        others = any(each.advising for each in self.session.jobs)
        return job is not None and (others or not job.is_answered or job.simulating)

    def stop(self) -> None:
        """Stop the running advice and keep what was found, or the simulation of the candidate that was picked."""
        job = self.session.shown
        if job is not None and not job.is_answered:
            self.stop_all()
            job.stop()
            self.show_job()
        elif job is not None and self.can_stop:
            self.stop_all()
            for each in self.session.jobs:
                each.advising = False
            if job.simulating:
                job.give_up()
            self._bench.say("")
            self._bench.refresh_panes()
            self._app.refresh_bindings()

    def stop_all(self) -> None:
        """Tell all work to stop, simulating processes included."""
        for group in (ADVISE, SIMULATE):
            self._app.workers.cancel_group(self._app, group)

    # Advice.

    def answer_all(self) -> None:
        """Answer the workloads of the file that have no answer yet, that on screen first."""
        first = self.session.job_idx
        jobs = (*self.session.jobs[first:], *self.session.jobs[:first])
        missing = [job for job in jobs if isinstance(job, Job) and not job.is_answered]
        self._app.run_worker(self._advise_each(missing), group=ADVISE, exclusive=True)

    async def _advise_each(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            await self._advise(job)
            self._bench.refresh_panes()
        self._bench.say("")

    async def _advise(self, job: AnyJob) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            self._app.post_message(Progressed(id(job), stage, done, total))

        def answered(advice: AnyAdvice) -> None:
            self._app.post_message(Answered(id(job), advice))

        self._bench.say(f"{printable(job.name)}: looking for {job.LOOKED_FOR} ...")
        job.advising = True
        if job is not self.session.job:
            self._bench.refresh_panes()
        try:
            await in_thread(lambda should_stop: self.session.advise(job, progress, should_stop, answered))
        finally:
            job.advising = False
        if job is self.session.shown:
            self.show_job()

    def show_progress(self, message: Progressed) -> None:
        """Show the progress of the advice, unless its workload is no longer on screen."""
        job = self.session.shown
        if self._bench.is_attached and job is not None and id(job) == message.job_id and job.advising:
            self._bench.say_progress(message.stage, message.done, message.total)

    def take_answer(self, message: Answered) -> None:
        """Show what would be answered now, unless the final answer has overtaken it."""
        job = self.session.shown
        if not self._bench.is_attached or job is None or id(job) != message.job_id or not job.advising:
            return
        if job.found is None or job.found.interrupted:
            job.take(message.advice)  # type: ignore[arg-type]  # its own, by its id
            self._bench.show_answer(job)

    # The page.

    def report(self) -> None:
        """Ask for a name, and write the answer on screen as a page."""
        job = self.session.shown
        if job is not None and job.found is not None:
            name = f"{job.path.stem}_report.html"
            self._app.push_screen(NameScreen("Write a report", name), partial(self._named, job))

    def _named(self, job: AnyJob, path: Path | None) -> None:
        if path is not None:
            self._app.run_worker(self._write_report(job, path), group=REPORT)

    async def _write_report(self, job: AnyJob, path: Path) -> None:
        said, severity = await in_thread(lambda _: _written(job, path))
        self._app.notify(printable(said), severity=severity, markup=False)

    # The picked candidate.

    def pick(self, message: CandidatePicked) -> None:
        """Show the candidate under the cursor and simulate what is missing."""
        shown, job = self.session.shown, self.session.job
        if isinstance(shown, StepJob) and self._bench.is_attached and message.expression != shown.picked:
            shown.picked = message.expression  # all of it is known
            self._bench.refresh_panes()
        if not self._bench.is_attached or job is None or job.candidate(message.expression) is None:
            return
        if message.expression != job.picked:  # else the table was only refilled
            job.picked = message.expression
            self._simulate_picked(job)

    def _simulate_picked(self, job: Job) -> None:
        waiting = job.advising and job.has_several_ops  # each schedule is being simulated
        job.simulating = job.picked is not None and not job.is_explained and not waiting
        job.try_again()
        self._bench.refresh_panes()
        self._app.refresh_bindings()
        if job.simulating and job.picked is not None:
            self._app.run_worker(self._simulate(job, job.picked), group=SIMULATE, exclusive=True)
        else:
            self._app.workers.cancel_group(self._app, SIMULATE)
            self._bench.say("")

    async def _simulate(self, job: Job, expression: str) -> None:
        """Simulate the timeline first, then the what-if runs of its waterfall."""
        await asyncio.sleep(SETTLE_S)
        for explain in (False, True):
            self._bench.say(f"{'what-if runs of' if explain else 'simulating'} {expression} ...")
            await in_thread(partial(self.session.simulate, job, expression, explain=explain))
            job.simulating = not explain and expression in job.runs
            self._bench.refresh_panes()
            if not job.simulating:
                break
        self._bench.say("")
        self._app.refresh_bindings()


def _written(job: AnyJob, path: Path) -> tuple[str, Literal["information", "warning", "error"]]:
    """Write the page; return what is to be said, and how bad it is."""
    text = job.page()
    if text is None:
        return NO_RUN, "warning"
    try:
        write_whole(path, text)
    except OSError as error:
        return f"{error.filename or path}: {error.strerror or error}", "error"
    return f"Wrote {path}: one page, which needs nothing else", "information"
