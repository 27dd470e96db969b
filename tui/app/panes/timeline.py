"""The pane Timeline: when what happens under the picked schedule."""

from textual.app import ComposeResult
from textual.content import Content

from ....compiler.text.printable import printable
from ..session import WorkloadSession
from ..widgets.timeline import TimelineView
from .base import JobPane

TITLE = "Timeline"
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

    def show(self, job: WorkloadSession) -> None:
        """Show the Result of the picked candidate."""
        if job.advice is None:
            self.border_title = TITLE
            self._view.say("")
            return
        self.border_title = Content(f"{TITLE}: {printable(job.picked or '')}")  # no markup
        result, problem = job.result, job.problem
        if result is not None:
            self._view.show(job.scenario, result)
        else:
            self._view.say(RUNNING if problem is None else f"{problem.kind.value}: {problem.text}")
