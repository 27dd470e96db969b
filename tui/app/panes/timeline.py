"""The pane Timeline: when what happens under the picked schedule."""

from textual.app import ComposeResult
from textual.content import Content

from ....compiler.text.printable import printable
from ..session.job import Job
from ..widgets.timeline import TimelineView
from . import TIMELINE
from .base import JobPane

TITLE = TIMELINE.title
RUNNING = "being simulated ..."


class TimelinePane(JobPane):
    """The timeline of the picked candidate, or why there is none."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._view = TimelineView(id="lanes")

    def compose(self) -> ComposeResult:
        """One chart."""
        yield self._view

    @property
    def target(self) -> TimelineView:
        """The chart."""
        return self._view

    def show(self, job: Job) -> None:
        """Show the Result of the picked candidate."""
        if job.found is None:
            self.border_title = TITLE
            self._view.say("")
            return
        self.border_title = Content(f"{TITLE}: {printable(job.picked or '')}")  # no markup
        run, problem = job.run, job.problem
        if run is not None:
            self._view.show(run)
        else:
            self._view.say(RUNNING if problem is None else f"{problem.kind.value}: {problem.text}")
