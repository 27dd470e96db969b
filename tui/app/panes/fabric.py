"""The pane Fabric: the fabric, and how busy its links are."""

from textual.app import ComposeResult
from textual.content import Content

from ....compiler.text.printable import printable
from ..charts.heat import HeatModel
from ..session.job import Job
from ..session.view import fabric_text
from ..widgets.fabric import FabricView
from ..widgets.timeline import TimelineView
from . import FABRIC
from .base import JobPane
from .timeline import RUNNING

TITLE = FABRIC.title
NO_LOADS = "This run has no loads of links and memories: simulate it again to see them."


class FabricPane(JobPane):
    """The links of the fabric under the picked schedule."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._view = FabricView(id="map")

    def compose(self) -> ComposeResult:
        """One picture."""
        yield self._view

    @property
    def target(self) -> FabricView:
        """The picture."""
        return self._view

    def show(self, job: Job) -> None:
        """Show the loads of the picked candidate."""
        self.border_title = Content(f"{TITLE}: {printable(fabric_text(job.scenario.system.fabric))}")  # no markup
        run, problem = job.run, job.problem
        if job.found is None:
            self._view.say("")
        elif run is None:
            self._view.say(RUNNING if problem is None else f"{problem.kind.value}: {problem.text}")
        elif not run.result.loads.each:
            self._view.say(NO_LOADS)
        elif self._view.model is None or self._view.model.loads is not run.result.loads:
            self._view.show(HeatModel(run, run.result.loads))

    def on_fabric_view_time_wanted(self, message: FabricView.TimeWanted) -> None:
        """Look at the interval under the cursor of the timeline."""
        message.stop()
        for timeline in self.app.query(TimelineView):
            interval = timeline.model.interval if timeline.model is not None else None
            if interval is not None:
                self._view.look_at(interval.start_ticks, interval.end_ticks)
