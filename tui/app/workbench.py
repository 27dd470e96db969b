"""Everything between the title and the keys: headline, panes, problems, and two status lines."""

from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from ...compiler.text.diagnostics import printable
from .panes import PANES
from .panes.base import JobPane
from .panes.candidates import CandidatesPane
from .panes.compare import ComparePane
from .panes.editor import EditorPane
from .panes.fabric import FabricPane
from .panes.how import HowPane
from .panes.sweep import SweepPane
from .panes.timeline import TimelinePane
from .panes.what_if import WhatIfPane
from .panes.why import WhyPane
from .session.job import Job, JobProblem
from .session.view import progress_text, row_of, selected_text, title_of
from .widgets.headline import Headline, ProblemPane
from .widgets.tabs import PaneTabs

WAITING = "Does overlap pay? Schedules are being enumerated, ranked and simulated."

VIEWS: tuple[type[JobPane], ...] = (
    CandidatesPane,
    TimelinePane,
    WhyPane,
    HowPane,
    ComparePane,
    FabricPane,
    WhatIfPane,
    SweepPane,
    EditorPane,
)
"""What the panes are, in the order of ``PANES``."""

P = TypeVar("P", bound=JobPane)


class Workbench(Container):
    """Show one job. Small screens show one pane at a time, large ones those together that belong together."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._views = tuple(view(id=pane.name) for pane, view in zip(PANES, VIEWS, strict=True))
        self._pane_idx = 0
        self._is_maximised = False
        self._idle = ""
        self._job: Job | None = None

    def compose(self) -> ComposeResult:
        """Lay out the panes, side by side or behind each other, see ``magus.tcss``."""
        yield Headline(id="headline")
        yield PaneTabs(id="tabs")
        at_once = [(pane, view) for pane, view in zip(PANES, self._views, strict=True) if pane.together or pane.alone]
        with Container(id="panes"):
            for pane, view in sorted(at_once, key=lambda pair: pair[0].whole_width):
                view.set_class(pane.together, "together")
                view.set_class(pane.whole_width, "whole-width")
                yield view
        yield ProblemPane(id="problem")
        yield Static(id="selected", markup=False)
        yield Static(id="activity", markup=False)

    def view_of(self, kind: type[P]) -> P:
        """The pane of this class."""
        return next(view for view in self._views if isinstance(view, kind))

    @property
    def candidates(self) -> CandidatesPane:
        """The pane of the candidates."""
        return self.view_of(CandidatesPane)

    @property
    def timeline(self) -> TimelinePane:
        """The pane of the timeline."""
        return self.view_of(TimelinePane)

    @property
    def sweep(self) -> SweepPane:
        """The pane of sweeps."""
        return self.view_of(SweepPane)

    @property
    def editor(self) -> EditorPane:
        """The pane of the editor."""
        return self.view_of(EditorPane)

    def keeps(self, action: str) -> bool:
        """Whether the key of an action is that of the pane in front."""
        return self._views[self._pane_idx].keeps(action)

    def is_free(self, pane_idx: int) -> bool:
        """Whether a pane shows something without an answer."""
        return pane_idx < len(PANES) and not PANES[pane_idx].needs_answer

    @property
    def views(self) -> tuple[JobPane, ...]:
        """All panes, in the order of their keys."""
        return self._views

    @property
    def pane_idx(self) -> int:
        """The pane in front."""
        return self._pane_idx

    def say(self, text: str, *, idle: str | None = None) -> None:
        """Show the current activity; without one the last ``idle`` text that was given."""
        self._idle = self._idle if idle is None else idle
        for activity in self.query("#activity").results(Static):  # none while the screen closes
            activity.update(printable(text or self._idle))

    def say_progress(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage of the advice is."""
        self.say(progress_text(stage, done, total))

    def ask(self, title: str, waiting: str) -> None:
        """Show what is asked before it is read."""
        self.query_one(Headline).ask(title, waiting)

    def toggle_details(self) -> None:
        """Show all of the head on a small screen, or hide it again."""
        self.query_one(Headline).toggle_details()

    def maximise(self) -> None:
        """Give the pane in front all of a large screen, or let it share that again."""
        self._is_maximised = not self._is_maximised
        self.show_pane(self._pane_idx)

    def show_pane(self, pane_idx: int) -> None:
        """Bring a pane to the front, up to date, and focus it."""
        self._pane_idx = pane_idx % len(PANES)
        for index, view in enumerate(self._views):
            view.set_class(index == self._pane_idx, "current")
        together = PANES[self._pane_idx].together and not self._is_maximised
        self.query_one("#panes").set_class(together, "together")
        self.query_one(PaneTabs).show(self._pane_idx)
        view = self._views[self._pane_idx]
        if not view.is_attached:
            self.query_one("#panes").mount(view)
        self._show_view(view)
        self._focus_front()

    def _focus_front(self) -> None:
        free = self.is_free(self._pane_idx)
        self.set_class(free, "free")
        self.set_class(PANES[self._pane_idx].alone, "alone")
        target = self._views[self._pane_idx].target
        if not target.is_mounted:
            return  # it will tell
        if free or not self.has_class("problem"):
            target.focus()
        else:
            self.query_one(ProblemPane).focus()

    def on_job_pane_stands(self, message: JobPane.Stands) -> None:
        """Show the job in a pane that has come to the front for the first time."""
        message.stop()
        if message.pane is self._views[self._pane_idx]:
            self._show_view(message.pane)
            self._focus_front()

    def show_view(self, view: JobPane) -> None:
        """Bring a pane to the front unless it is visible."""
        if not view.region.area:
            self.show_pane(self._views.index(view))

    def show_problem(self, problem: JobProblem | None, title: str = "") -> None:
        """Show a problem in place of the panes; None brings the panes back."""
        self.set_class(problem is not None, "problem")
        if problem is None:
            self.show_pane(self._pane_idx)
            return
        if title:
            self.query_one(Headline).ask(title)
        self.say("", idle="")
        self.query_one("#selected", Static).update("")
        self.query_one(ProblemPane).show(problem)
        if not self.is_free(self._pane_idx):
            self.query_one(ProblemPane).focus()

    def show_job(self, job: Job, job_idx: int, num_jobs: int) -> None:
        """Show the headline and the panes as far as they are known."""
        self._job = job
        headline = self.query_one(Headline)
        headline.ask(title_of(job.scenario, job_idx, num_jobs), WAITING if job.answer is None else "")
        if isinstance(job.answer, JobProblem):
            self.show_problem(job.answer)
            self.refresh_panes()
            return
        if job.found is not None:
            headline.answer(job.found, advising=job.advising)
        self.show_problem(None)
        self.refresh_panes()

    def show_answer(self, job: Job) -> None:
        """Show an answer on the way to the final one."""
        if job.found is not None:
            self.query_one(Headline).answer(job.found, advising=True)
        self.refresh_panes()

    def refresh_panes(self) -> None:
        """Show again what is visible: something of the job has changed."""
        if self._job is None:
            return
        together = PANES[self._pane_idx].together
        for idx, (pane, view) in enumerate(zip(PANES, self._views, strict=True)):
            if idx == self._pane_idx or (together and pane.together):
                self._show_view(view)
        row = row_of(self._job.found, self._job.runs, self._job.picked) if self._job.found is not None else None
        self.query_one("#selected", Static).update(printable(selected_text(row)) if row is not None else "")

    def _show_view(self, view: JobPane) -> None:
        if not view.target.is_mounted:
            return  # it will tell
        shown = PANES[self._views.index(view)]
        if self._job is not None and not (shown.needs_answer and isinstance(self._job.answer, JobProblem)):
            view.show(self._job)
