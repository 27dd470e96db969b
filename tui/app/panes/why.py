"""The pane Why: reasons, losses, bound."""

from textual.app import ComposeResult

from ..session.job import Job
from ..widgets.reasons import ReasonsPane
from . import WHY
from .base import JobPane
from .timeline import RUNNING

TITLE = WHY.title
NO_WATERFALL = "no waterfall: its what-if runs did not finish"


class WhyPane(JobPane):
    """The proof of the verdict, with the losses of the picked candidate."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._text = ReasonsPane(id="proof")

    def compose(self) -> ComposeResult:
        """One text."""
        self.border_title = TITLE
        yield self._text

    @property
    def target(self) -> ReasonsPane:
        """The text."""
        return self._text

    def show(self, job: Job) -> None:
        """Show reasons and losses as far as they are known."""
        if job.found is None:
            self._text.show(None, None)
            return
        running = job.simulating or (job.advising and job.run is None)
        problem = f"{job.problem.kind.value}: {job.problem.text}" if job.problem is not None else NO_WATERFALL
        self._text.show(job.found, job.run, RUNNING if running else problem, job.warnings)
