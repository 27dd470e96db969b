"""The pane Compare: marked schedules side by side."""

from functools import partial
from typing import Protocol, cast

from textual import work
from textual.app import ComposeResult

from ....advisor.candidates.candidate import Candidate
from ....compiler.ir import Schedule, ShouldStop
from ....simcore.shown_run import ShownRun
from ..background import in_thread
from ..charts.comparison import ComparisonModel
from ..charts.differences import Compared
from ..session.job import CANCELLED, MOST_MARKED, Job, JobProblem
from ..session.session import Session
from ..widgets.comparison import ComparisonView
from . import COMPARE
from .base import JobPane

TITLE = COMPARE.title
NOTHING_MARKED = (
    f"Nothing is marked yet. In the pane Candidates, space marks the schedule under the cursor. Mark two to "
    f"{MOST_MARKED}: they are drawn here under each other on one axis, with a table of what tells them apart."
)
ONE_MARKED = "One schedule is marked. Mark another one in the pane Candidates with space."


class _HasSession(Protocol):
    session: Session


class ComparePane(JobPane):
    """Timelines of the marked schedules, and their differences; those not simulated yet are simulated."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._view = ComparisonView(id="comparison")
        self._shown: object = None

    def compose(self) -> ComposeResult:
        """One view."""
        self.border_title = TITLE
        yield self._view

    @property
    def target(self) -> ComparisonView:
        """The view."""
        return self._view

    def show(self, job: Job) -> None:
        """Show the marked schedules as far as they are simulated, and simulate the others."""
        marked = [one for one in map(job.candidate, job.marked) if one is not None]
        if len(marked) < 2:
            self._shown = None
            self._view.say(ONE_MARKED if marked else NOTHING_MARKED)
            return
        shown = tuple(
            (one.expression, id(job.runs.get(one.expression)), one.expression in job.problems) for one in marked
        )
        if shown == self._shown:
            return
        self._shown = shown
        problems = {name: f"{problem.kind.value}: {problem.text}" for name, problem in job.problems.items()}
        bound = job.found.bound if job.found is not None else None
        compared = [
            Compared(one.expression, _plan(one), job.runs.get(one.expression), problems.get(one.expression))
            for one in marked
        ]
        self._view.show(ComparisonModel(job.scenario, compared, None if bound is None else bound.ticks))
        missing = [one.name for one in compared if one.run is None and one.problem is None]
        if missing:
            self._simulate(job, missing[0])

    @work(exclusive=True, group="compare")
    async def _simulate(self, job: Job, expression: str) -> None:
        """Simulate one marked schedule; what comes of it is shown, and the next one simulated."""
        session = cast("_HasSession", self.app).session
        outcome = await in_thread(partial(_simulated, session, job, expression))
        if outcome is not CANCELLED and job is session.job:
            self.show(job)


def _plan(candidate: Candidate) -> Schedule | None:
    """The plan of a pair."""
    return candidate.plan


def _simulated(session: Session, job: Job, expression: str, should_stop: ShouldStop) -> ShownRun | JobProblem:
    return session.simulate(job, expression, should_stop, explain=False)
