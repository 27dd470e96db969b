"""The pane Compare: marked schedules side by side."""

import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Protocol, cast

from rich.segment import Segment
from rich.style import Style
from textual import events, work
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.strip import Strip

from ....compiler.text.diagnostics import columns_of, printable
from ..app import AllWanted
from ..background import in_thread
from ..charts.comparison import Band, ComparisonModel
from ..charts.differences import Compared
from ..charts.sweep_plot import ALL_KEY, StyledLine, systems_lines
from ..charts.viewport import PAN_STEP, ZOOM_STEP, Tick, Viewport, axis_lines, axis_of
from ..session.job import CANCELLED, MOST_MARKED, Job
from ..session.session import Session
from ..session.view import shortened
from ..widgets.gantt import RowLook
from ..widgets.rows_view import PaintedView
from . import COMPARE
from .candidates import ViewPane

AXIS_ROWS = 2
LABEL_COLUMNS = 18
MIN_VALUE_COLUMNS = 10
DIFFERS, LEAST = "≠", "▾"
RUNNING = "being simulated ..."
LEGEND = f"{DIFFERS} differs   {LEAST} least"


class ComparisonView(PaintedView):
    """Show a comparison; all timelines zoom and pan together.

    The wheel zooms with ctrl, pans with shift, else it scrolls.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(1)", "Zoom", key_display="+ -"),
        Binding("minus", "zoom(-1)", "Zoom out", show=False),
        Binding("0", "zoom(0)", "Fit", key_display="0"),
        Binding("left,h", "pan(-1)", "Pan", key_display="← →"),
        Binding("right,l", "pan(1)", "Later", show=False),
        Binding("d", "lanes", "Lanes"),
        Binding("g", "parting", "To the parting"),
        Binding(ALL_KEY, "all", "Answer all workloads"),
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.model: ComparisonModel | None = None
        self._jobs: Sequence[Job] = ()
        self._lines: list[StyledLine | tuple[Band, int]] = []

    def show(self, model: ComparisonModel) -> None:
        """Show marked schedules; the same ones again keep their zoom."""
        before = self.model
        if before is not None and [one.name for one in before.marked] == [one.name for one in model.marked]:
            model.taking_over(before)
        self.model, self._message, self._jobs = model, "", ()
        self._lay_out()

    def say(self, message: str, jobs: Sequence[Job] = ()) -> None:
        """Show a sentence in place of the comparison; of several ``jobs`` what was found for each stands above it."""
        self.model, self._message, self._jobs = None, message, jobs if len(jobs) > 1 else ()
        self._lay_out()

    def _lay_out(self) -> None:
        model, width = self.model, max(20, self._room.width)
        self._lines = list(self._words(width) if model is None else _lines(model, width))
        self.virtual_size = Size(0, len(self._lines) + (0 if model is None else AXIS_ROWS))
        self.refresh()

    def _words(self, width: int) -> Iterator[StyledLine]:
        """Yield the lines where nothing is compared."""
        if self._jobs:
            yield from systems_lines(self._jobs, width)
        yield from ([(f" {line}", "empty")] if line else [] for line in self._sentence())

    # Keys and the mouse.

    def action_zoom(self, steps: int) -> None:
        """Zoom in (positive) or out about the middle; zero shows everything."""
        if self.model is not None:
            view = self.model.viewport
            self.model.viewport = Viewport.whole(view.total_ticks) if steps == 0 else view.zoomed(ZOOM_STEP**steps)
            self.refresh()

    def action_pan(self, steps: int) -> None:
        """Move the time in view later (positive) or earlier."""
        if self.model is not None:
            self.model.viewport = self.model.viewport.moved(steps * PAN_STEP)
            self.refresh()

    def action_lanes(self) -> None:
        """Show all streams and engines, or two rows for each schedule."""
        if self.model is not None:
            self.model.toggle_lanes()
            self._lay_out()

    def action_all(self) -> None:
        """Ask for the answers of all workloads of the file."""
        if self._jobs:
            self.post_message(AllWanted())

    def action_parting(self) -> None:
        """Zoom to the place where the schedules part."""
        if self.model is not None and self.model.parting is not None:
            view = Viewport.whole(self.model.viewport.total_ticks).zoomed(8, self.model.parting.ticks)
            self.model.viewport = view.showing(self.model.parting.ticks, self.model.parting.ticks + 1)
            self.refresh()

    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        if self.model is None or not (event.shift or event.ctrl):
            return
        event.stop()
        event.prevent_default()
        if event.ctrl:
            about = self.model.viewport.ticks_at(event.x - LABEL_COLUMNS, self._plot_columns)
            self.model.viewport = self.model.viewport.zoomed(ZOOM_STEP**steps, about)
        else:
            self.model.viewport = self.model.viewport.moved(-steps * PAN_STEP)
        self.refresh()

    # Drawing.

    @property
    def _plot_columns(self) -> int:
        return max(1, self._room.width - LABEL_COLUMNS)

    def render_line(self, y: int) -> Strip:
        """Return line ``y``: the axis of a comparison stays, the rest scrolls."""
        model = self.model
        if model is None:
            return self._line(y + round(self.scroll_offset.y), [])
        ticks = axis_of(model.viewport, self._plot_columns)
        if y < AXIS_ROWS:
            text = axis_lines(ticks, self._plot_columns)[y]
            return self._strip(
                [Segment(f"{' us' if not y else '':<{LABEL_COLUMNS}}{text}", self.painter.style("axis"))]
            )
        return self._line(y - AXIS_ROWS + round(self.scroll_offset.y), ticks)

    def _line(self, line_idx: int, ticks: Sequence[Tick]) -> Strip:
        model = self.model
        if line_idx >= len(self._lines):
            return Strip.blank(self._room.width, self.rich_style)
        line = self._lines[line_idx]
        if isinstance(line, list) or model is None:
            texts = line if isinstance(line, list) else []
            return self._strip([Segment(text, self._text_style(name)) for text, name in texts])
        row = line[0].rows[line[1]]
        marks = {tick.column for tick in ticks}
        look = RowLook(line[1] % 2)
        drawn = self.painter.row(row, model.viewport, self._plot_columns, marks=marks, look=look)
        label = shortened(printable(row.lane), LABEL_COLUMNS - 4)
        return self._strip([Segment(f"   {label}".ljust(LABEL_COLUMNS), self.painter.style("name")), *drawn])

    def _text_style(self, name: str) -> Style:
        return self.painter.style(name.removeprefix("bold ")) + Style(bold=True if name.startswith("bold ") else None)


def _lines(model: ComparisonModel, width: int) -> Iterator[StyledLine | tuple[Band, int]]:
    """Yield the lines below the axis: bands, the sentence, the table."""
    for band in model.bands:
        yield [(_title(band, width), "bold head")]
        if not band.rows:
            yield [(f"   {printable(band.compared.problem or RUNNING)}", "empty")]
        yield from ((band, idx) for idx in range(len(band.rows)))
    yield []
    for line in textwrap.wrap(printable(_parting(model)), width - 2):
        yield [(f" {line}", "head")]
    yield []
    yield from _table(model, width)


def _title(band: Band, width: int) -> str:
    run = band.compared.run
    times = "" if run is None else f"  {run.makespan_text} {run.result.granularity}"
    return f" {band.letter} {shortened(printable(band.compared.name), width - 4 - len(times))}{times}"


def _parting(model: ComparisonModel) -> str:
    if model.parting is not None:
        return model.parting.sentence
    return "Rank 0 does the same at the same times in all of them." if model.is_whole else ""


def _table(model: ComparisonModel, width: int) -> Iterator[StyledLine]:
    columns = [
        max([MIN_VALUE_COLUMNS, *(columns_of(row.values[idx]) + 2 for row in model.differences)])
        for idx in range(len(model.marked))
    ]
    label = max(LABEL_COLUMNS - 3, *(columns_of(row.label) for row in model.differences))
    heads = "".join(f"{band.letter:>{column}} " for band, column in zip(model.bands, columns, strict=True))
    yield [(f"   {'':<{label}}{heads}", "bold head"), (f" {LEGEND}", "axis")]
    for row in model.differences:
        sign = DIFFERS if row.differs else " "
        parts: StyledLine = [(f" {sign} {row.label:<{label}}", "name" if row.differs else "axis")]
        for idx, (value, column) in enumerate(zip(row.values, columns, strict=True)):
            least = LEAST if idx == row.best_idx else " "
            style = "bold load" if idx == row.best_idx else "head" if row.differs else "axis"
            parts.append((f"{value:>{column}}{least}", style))
        yield parts


TITLE = COMPARE.title
NOTHING_MARKED = (
    f"Nothing is marked yet. In the pane Candidates, space marks the schedule under the cursor. Mark two to "
    f"{MOST_MARKED}: they are drawn here under each other on one axis, with a table of what tells them apart."
)
ONE_MARKED = "One schedule is marked. Mark another one in the pane Candidates with space."


class _HasSession(Protocol):
    session: Session


class ComparePane(ViewPane[Job, ComparisonView]):
    """Timelines of the marked schedules, and their differences; those not simulated yet are simulated."""

    def __init__(self, *, id: str) -> None:
        super().__init__(ComparisonView(id="comparison"), id=id)
        self.border_title = TITLE
        self._shown: object = None

    def show(self, job: Job) -> None:
        """Show the marked schedules as far as they are simulated, and simulate the others."""
        marked = [one for one in map(job.candidate, job.marked) if one is not None]
        if len(marked) < 2:
            self._shown = None
            jobs = [job for job in cast("_HasSession", self.app).session.jobs if isinstance(job, Job)]
            self._view.say(ONE_MARKED if marked else NOTHING_MARKED, jobs)
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
            Compared(one.expression, one.plan, job.runs.get(one.expression), problems.get(one.expression))
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
        outcome = await in_thread(partial(session.simulate, job, expression, explain=False))
        if outcome is not CANCELLED and job is session.job:
            self.show(job)
