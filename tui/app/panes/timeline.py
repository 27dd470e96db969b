"""The pane Timeline: when what happens under the picked schedule."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from ....compiler.text.diagnostics import printable
from ....simcore.shown_run import ShownRun
from ..charts.model import TimelineModel
from ..charts.viewport import Emphasis
from ..session.job import Job
from ..widgets.rows_view import RowsView
from . import TIMELINE
from .candidates import ViewPane

NOTHING_TO_FOLLOW = "Nothing to follow: no step waits for this one, and it waits for no transfer."


class TimelineView(RowsView[TimelineModel]):
    """Show a run: what a chunk passes is followed, and something may stand out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow chunk"),
        Binding("escape", "unfollow", "Unfollow", show=False),
        Binding("c", "emphasise('CRITICAL')", "Critical"),
        Binding("u", "emphasise('EXPOSED')", "Exposed"),
        Binding("r", "ranks", "Ranks"),
        Binding("left_square_bracket", "other_rank(-1)", "Rank before", show=False),
        Binding("right_square_bracket", "other_rank(1)", "Next rank", show=False),
    ]

    # What is shown.

    def show(self, run: ShownRun) -> None:
        """Show a whole run; the same schedule again keeps its zoom."""
        before, self._message = self.model, ""
        if before is not None and before.result is run.result:
            return
        self.model = TimelineModel(run)
        if before is not None and before.run.expression == run.expression:
            self.model.taking_over(before)
        self._lay_out()

    # Keys and the mouse.

    def action_follow(self) -> None:
        """Follow the chunk under the cursor, stop by stop."""
        if self.model is not None:
            if not self.model.follow():
                self.notify(NOTHING_TO_FOLLOW, markup=False)
            self._lay_out()
            self._see_cursor()

    def action_unfollow(self) -> None:
        """Follow nothing any more."""
        self._act(lambda model: model.unfollow(), self._lay_out, self._see_cursor)

    def action_emphasise(self, name: str) -> None:
        """Let the critical path or exposed communication stand out, or everything again."""
        self._act(lambda model: model.emphasise(Emphasis[name]), self._changed)

    def action_ranks(self) -> None:
        """Show one rank, those that differ, or all."""
        self._act(lambda model: model.next_ranks(), self._lay_out, self._see_cursor)

    def action_other_rank(self, ranks: int) -> None:
        """Show another rank."""
        self._act(lambda model: model.other_rank(ranks), self._lay_out, self._see_cursor)


TITLE = TIMELINE.title
RUNNING = "being simulated ..."


class TimelinePane(ViewPane[Job, TimelineView]):
    """The timeline of the picked candidate, or why there is none."""

    def __init__(self, *, id: str) -> None:
        super().__init__(TimelineView(id="lanes"), id=id)

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
