"""Everything between the title and the keys: headline, panes, problems, and two status lines."""

from collections.abc import Iterator
from typing import Any, TypeVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from ...compiler.text.diagnostics import printable
from .panes import PANES, SWEEP, TIMELINE
from .panes.candidates import CandidatesPane, JobPane, RankedPane
from .panes.compare import ComparePane
from .panes.editor import EditorPane
from .panes.fabric import FabricPane
from .panes.how import HowPane
from .panes.sweep import SweepPane
from .panes.timeline import TimelinePane
from .panes.what_if import WhatIfPane
from .panes.why import WhyPane
from .session.job import AnyJob, JobProblem, StepJob
from .session.view import progress_text
from .widgets.headline import Headline, ProblemPane, renew
from .widgets.start import PaneTabs

AnyPane = JobPane[Any]
VIEWS: tuple[type[AnyPane], ...] = (
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

P = TypeVar("P", bound=AnyPane)


class Workbench(Container):
    """Show one job. Small screens show one pane at a time, large ones those together that belong together."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._views = tuple(view(id=pane.name) for pane, view in zip(PANES, VIEWS, strict=True))
        self._pane_idx = 0
        self._is_maximised = False
        self._idle = ""
        self._job: AnyJob | None = None
        self._of_ops = self._views
        self._of_steps: tuple[AnyPane, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out the panes, side by side or behind each other, see ``magus.tcss``."""
        yield Headline(id="headline")
        yield PaneTabs(id="tabs")
        self._lay_out()
        with Container(id="panes"):
            yield from self._at_once()
        yield ProblemPane(id="problem")
        yield Static(id="selected", markup=False)
        yield Static(id="activity", markup=False)

    def view_of(self, kind: type[P]) -> P:
        """The pane of this class."""
        return next(view for view in self._views if isinstance(view, kind))

    @property
    def candidates(self) -> RankedPane[Any, Any]:
        """The pane of what was compared."""
        return next(view for view in self._views if isinstance(view, RankedPane))

    @property
    def timeline(self) -> AnyPane:
        """The pane of the timeline."""
        return self._views[PANES.index(TIMELINE)]

    def put_on_axis(self, name: str) -> None:
        """Show a sweep over a value, of what can be swept on screen."""
        view = self._views[PANES.index(SWEEP)]
        self.show_view(view)
        if isinstance(view, SweepPane):
            view.show_axis(name)

    def _take_views(self, job: AnyJob) -> None:
        """Let the panes be those of what ``job`` is about; those of a step are made when the first one comes."""
        views = self._of_steps if isinstance(job, StepJob) else self._of_ops
        if not views:
            from .panes.steps import STEP_VIEWS  # few files have a step

            kinds = zip(PANES, STEP_VIEWS, self._of_ops, strict=True)
            views = self._of_steps = tuple(
                same if of is None else of(id=f"step-{pane.name}") for pane, of, same in kinds
            )
        if views is self._views:
            return
        for view in self._views:
            view.remove_class("together", "current")
        self._views = views
        self._lay_out()
        self.query_one("#panes").mount_all(view for view in self._at_once() if not view.is_attached)

    def _lay_out(self) -> None:
        for pane, view in zip(PANES, self._views, strict=True):
            view.set_class(pane.together, "together")
            view.set_class(pane.whole_width, "whole-width")

    def _at_once(self) -> Iterator[AnyPane]:
        """The panes that are mounted before they come to the front, those of whole width last."""
        pairs = sorted(zip(PANES, self._views, strict=True), key=lambda pair: pair[0].whole_width)
        yield from (view for pane, view in pairs if pane.together or pane.alone)

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
    def views(self) -> tuple[AnyPane, ...]:
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
            activity.update(printable(text or self._idle), layout=False)

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
        if message.pane in self._views:
            self._show_view(message.pane)
        if message.pane is self._views[self._pane_idx]:
            self._focus_front()

    def show_view(self, view: AnyPane) -> None:
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

    def show_job(self, job: AnyJob, job_idx: int, num_jobs: int) -> None:
        """Show the headline and the panes as far as they are known."""
        self._take_views(job)
        self._job = job
        self.query_one(Headline).ask(job.title(job_idx, num_jobs), job.WAITING if job.answer is None else "")
        if isinstance(job.answer, JobProblem):
            self.show_problem(job.answer)
            self.refresh_panes()
            return
        self._say_answer(job)
        self.show_problem(None)
        self.refresh_panes()

    def show_answer(self, job: AnyJob) -> None:
        """Show an answer on the way to the final one."""
        self._say_answer(job)
        self.refresh_panes()

    def _say_answer(self, job: AnyJob) -> None:
        if job.found is not None:
            self.query_one(Headline).answer(job)

    def refresh_panes(self) -> None:
        """Show again what is visible: something of the job has changed."""
        if self._job is None:
            return
        together = PANES[self._pane_idx].together
        for idx, (pane, view) in enumerate(zip(PANES, self._views, strict=True)):
            if idx == self._pane_idx or (together and pane.together):
                self._show_view(view)
        renew(self.query_one("#selected", Static), printable(self._job.selected))

    def _show_view(self, view: AnyPane) -> None:
        if not view.target.is_mounted:
            return  # it will tell
        shown = PANES[self._views.index(view)]
        if self._job is not None and not (shown.needs_answer and isinstance(self._job.answer, JobProblem)):
            view.show(self._job)
