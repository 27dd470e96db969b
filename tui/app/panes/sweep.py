"""The pane Sweep: time against one value, with the winner, the crossovers and the verdict's threshold."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from ....advisor.candidates.advice import Advice
from ....compiler.changed import compile_changed_file
from ....compiler.ir import Cancelled, Scenario, ShouldStop
from ....compiler.text.diagnostics import CompileError, printable
from ..app import SweepProgressed
from ..background import in_thread
from ..charts.sweep_plot import MAX_CURVES, SweepPlot
from ..session.job import Job
from ..session.sweep import CHUNKS, Point, SweepFigure, SweepPlan, over_chunks, run, words_of
from ..session.values import ValueRow
from . import SWEEP
from .candidates import JobPane


class SweepView(Widget, can_focus=True):
    """Show a figure, or a sentence in its place."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"sweep--curve-{number}" for number in range(MAX_CURVES)),
        *("sweep--axis", "sweep--head"),
    }

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._figure: SweepFigure | None = None
        self._message = ""
        self._lines: tuple[tuple[tuple[str, str], ...], ...] = ()

    def show(self, figure: SweepFigure | None, message: str = "") -> None:
        """Show a figure, or ``message`` as long as it has no points."""
        self._figure, self._message = figure, message
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw again for the new size."""
        self._draw()

    def _draw(self) -> None:
        has_points = self._figure is not None and self._figure.points
        if self._figure is not None and has_points and self.size.area:
            self._lines = SweepPlot(self._figure, self.size.width, self.size.height).lines()
        else:
            self._lines = ((("", "head"),), ((f" {printable(self._message)}", "head"),))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return line ``y``."""
        pieces = self._lines[y] if y < len(self._lines) else ()
        segments = [Segment(text, self._style(name)) for text, name in pieces]
        return Strip(segments).simplify().adjust_cell_length(self.size.width).apply_style(self.rich_style)

    def _style(self, name: str) -> Style:
        kind, _, number = name.partition("-")
        component = f"sweep--curve-{number}" if number else f"sweep--{name}"
        style = self.get_component_rich_style(component, partial=True)
        return style + Style(bold=True) if kind == "point" else style


TITLE = SWEEP.title
WAITING = "Points appear as they are known."
ASK_FOR_GRAPH = "Enter simulates the declared schedules at each value."
NOTHING = "No value of the file can be swept, and no candidate has chunks."


@dataclass(slots=True)
class _Sweep:
    """What is known on one axis; ``failed`` are values without an answer, with the reasons."""

    figure: SweepFigure
    plan: SweepPlan | None = None
    failed: tuple[str, ...] = ()
    begun: bool = False


class SweepPane(JobPane[Job]):
    """A plot over two lines of words; each axis keeps what was found on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l,a", "axis(1)", "Axis", key_display="◂ ▸"),
        Binding("left,h,A", "axis(-1)", "Axis before", show=False),
        Binding("enter", "simulate", "Simulate"),
        Binding("p", "relative", "% of serial"),
        Binding("escape", "stop_sweep", "Stop", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._view = SweepView(id="sweep-plot")
        self._line = Static(id="sweep-words", markup=False)
        self._job: Job | None = None
        self._axes: tuple[str, ...] = ()
        self._axis = ""
        self._sweeps: dict[str, _Sweep] = {}
        self._relative = False
        self._doing = ""

    def compose(self) -> ComposeResult:
        """A plot over words."""
        self.border_title = TITLE
        yield self._view
        yield self._line

    @property
    def target(self) -> Widget:
        """The plot."""
        return self._view

    def show(self, job: Job) -> None:
        """Show the axis on screen; another scenario begins anew."""
        if self._job is None or self._job.scenario is not job.scenario:
            self._stop()
            self._sweeps = {}
        self._job = job
        rows = {row.name: row for row in job.what_if.rows(job.scenario.system)}
        params = [row.name for row in rows.values() if row.is_param and len(SweepPlan.of(row).values) > 1]
        extra = [self._axis] if self._axis in rows and self._axis not in params else []
        self._axes = (*params, *extra, *([CHUNKS] if _has_chunks(job) else []))
        if self._axis not in self._axes:
            self._axis = self._axes[0] if self._axes else ""
        self._show_axis()

    def show_axis(self, name: str) -> None:
        """Put a value of the file on the axis."""
        self._axis = name
        if self._job is not None:
            self.show(self._job)

    def _row(self, name: str) -> ValueRow | None:
        rows = () if self._job is None else self._job.what_if.rows(self._job.scenario.system)
        return next((row for row in rows if row.name == name), None)

    def _show_axis(self) -> None:
        """Show what is known on the axis, and begin to predict what is not."""
        job, row = self._job, self._row(self._axis)
        if job is None:
            return
        if self._axis == CHUNKS and job.advice is not None:
            self._sweeps[CHUNKS] = _Sweep(over_chunks(job.advice), begun=True)
        elif row is not None and self._axis not in self._sweeps:
            plan = SweepPlan.of(row)
            self._sweeps[self._axis] = _Sweep(plan.figure(), plan)
        sweep = self._sweeps.get(self._axis)
        predicts = not job.has_several_ops  # several ops are simulated: not unasked
        if sweep is not None and sweep.plan is not None and not sweep.begun and job.is_answered and predicts:
            sweep.begun = True  # after the answer: the sweep would only slow it down
            self._visit(job, self._axis, sweep.plan, False)
        self._draw()

    def _draw(self) -> None:
        sweep = self._sweeps.get(self._axis)
        self._view.show(
            None if sweep is None else sweep.figure.relative() if self._relative else sweep.figure,
            self._waiting(),
        )
        words = "" if sweep is None else "; ".join(self._words(sweep))
        self._line.update(printable(words))
        at = f" against {self._axis}" if self._axis else ""
        self.border_title = f"{TITLE}: time{at}" + (f" ({self._doing})" if self._doing else "")

    def _waiting(self) -> str:
        """What stands where there is no point yet."""
        if not self._axes:
            return NOTHING
        workload = self._job is not None and self._job.has_several_ops
        return ASK_FOR_GRAPH if workload and not self._doing else WAITING

    def _words(self, sweep: _Sweep) -> Iterator[str]:
        """What goes on and what is missing first: a small screen shows one line."""
        figure = sweep.figure
        known = [] if self._axis == CHUNKS else list(words_of(figure))
        if self._doing and figure.is_partial:
            yield f"{self._doing}, {'; '.join(known)}; Esc stops"
        elif self._doing:
            yield f"{self._doing}, {figure.num_simulated} of {figure.planned}; Esc stops"
        elif figure.is_partial:
            yield f"{'; '.join(known)}; Enter goes on"
        if sweep.failed:
            yield f"{len(sweep.failed)} without an answer, such as {sweep.failed[0]}"
        if 0 < figure.num_simulated < len(figure.points):
            yield f"{figure.num_simulated} of {len(figure.points)} points simulated, the others predicted"
        if not figure.is_partial:
            yield from known
        crossed = [f"{each.low.text} and {each.high.text}" for each in figure.crossovers]
        if crossed:
            yield f"the winner changes between {', '.join(crossed)}"

    # Work.

    @work(exclusive=True, group="sweep")
    async def _visit(self, job: Job, axis: str, plan: SweepPlan, simulate: bool) -> None:
        """Visit the values; each point is told as soon as it is known, and holds if this is stopped."""
        self._doing = "simulating" if simulate else "predicting"
        self._draw()

        def visit(should_stop: ShouldStop) -> None:
            def scenario_at(text: str) -> Scenario:
                changes = plan.changes(job.what_if.changes, text)
                return compile_changed_file(job.path, changes).scenario(job.scenario.name)

            def reported(point: Point) -> None:
                self.post_message(SweepProgressed(id(job), axis, point))

            def failed(text: str, error: Exception) -> None:
                self.post_message(SweepProgressed(id(job), axis, f"{axis} = {text}: {_reason(error)}"))

            def advise(scenario: Scenario) -> Advice:
                return job.sweep_advice(scenario, simulate, should_stop)

            with suppress(Cancelled):
                run(plan, scenario_at, advise, reported, failed)

        try:
            await in_thread(visit)
        finally:
            self._doing = ""
            if self.is_attached:
                self._draw()

    def on_sweep_progressed(self, message: SweepProgressed) -> None:
        """Take a point, or why there is none."""
        message.stop()
        sweep = self._sweeps.get(message.axis)
        if sweep is None or self._job is None or id(self._job) != message.job_id:
            return
        if isinstance(message.found, str):
            sweep.failed = (*sweep.failed, message.found)
            sweep.figure = replace(sweep.figure, unanswered=len(sweep.failed))
        else:
            sweep.figure = sweep.figure.with_point(message.found)
        self._draw()

    def _stop(self) -> None:
        self.workers.cancel_group(self, "sweep")

    # Keys.

    def action_axis(self, steps: int) -> None:
        """Show the next axis; what runs on this one stops."""
        if len(self._axes) > 1:
            self._stop()
            at = self._axes.index(self._axis) if self._axis in self._axes else 0
            self._axis = self._axes[(at + steps) % len(self._axes)]
            self._show_axis()

    def action_simulate(self) -> None:
        """Simulate the points, the coarse ones first."""
        sweep = self._sweeps.get(self._axis)
        if self._job is not None and sweep is not None and sweep.plan is not None:
            sweep.begun, sweep.failed = True, ()
            sweep.figure = replace(sweep.figure, unanswered=0)
            self._visit(self._job, self._axis, sweep.plan, True)

    def action_relative(self) -> None:
        """Show times as shares of the fastest serial one, or as they are."""
        self._relative = not self._relative
        self._draw()

    def action_stop_sweep(self) -> None:
        """Stop, and keep the points that are known; without a sweep stop what runs, as everywhere."""
        if self._doing:
            self._stop()
        else:
            self.app.action_stop()  # type: ignore[attr-defined]


def _has_chunks(job: Job) -> bool:
    return job.advice is not None and len(over_chunks(job.advice).points) > 1


def _reason(error: Exception) -> str:
    if isinstance(error, CompileError):
        first = error.first
        return f"{first.code.name}: {first.message}"
    return str(error)
