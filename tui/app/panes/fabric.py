"""The pane Fabric: the fabric, and how busy its links are."""

from collections.abc import Sequence
from math import atan2, pi
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from ....compiler.ir import TICKS_PER_US
from ....compiler.text.diagnostics import printable
from ....compiler.text.units import us_text
from ....simcore.program.arrays import FloatArray
from ..charts.heat import RAMP, HeatModel, level_of, shrunk
from ..charts.rows import bars_text
from ..charts.sweep_plot import DOTS_X, DOTS_Y, Canvas, line_dots
from ..session.job import Job
from ..session.view import fabric_text
from ..widgets.rows_view import PaintedView, fitted
from . import FABRIC
from .candidates import ViewPane
from .timeline import RUNNING, TimelineView

# Of the dots of a link every so many are drawn, by level: a busy link is a solid line, the busiest ones a thick one.
DASHES = (8, 4, 3, 2, 1, 1)
THICK_LEVEL = 5
STUB = 0.05
"""Length of the stubs of a link that closes a grid, as a share of the map."""
ARROWS = "→↘↓↙←↖↑↗"
"""By eighths of a turn, clockwise."""
CUT = "✕"
"""The sign on a link that the narrowest cut crosses."""
BOUNDS = "a bound on every schedule"
HEAD_ROWS = 1
FOOT_ROWS = 2
MIN_MAP_HEIGHT = 8
MOST_FRAMED = 32
"""Of more nodes than this the numbers alone are shown."""
NODE_MARGIN = 3
"""Columns kept free at both sides of the map for the names of nodes."""


class FabricView(PaintedView):
    """Show the loads of a Result; left and right scrub through time."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"fabric--heat-{level}" for level in range(len(RAMP))),
        *("fabric--head", "fabric--axis", "fabric--node", "fabric--switch", "fabric--empty", "fabric--cut"),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "scrub(-1)", "Scrub time", key_display="← →"),
        Binding("right,l", "scrub(1)", "Later", show=False),
        Binding("0", "whole", "Whole run", key_display="0"),
        Binding("t", "cursor_time", "Time of the timeline's cursor"),
        Binding("m", "matrix", "Map or matrix"),
    ]

    class TimeWanted(Message):
        """The window of the timeline's cursor is wanted."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.model: HeatModel | None = None
        self._as_matrix = False
        self._lines: list[list[Segment]] | None = None
        """What is drawn, None until it is asked for: the styles of a new theme are there only when it is painted."""

    def show(self, model: HeatModel) -> None:
        """Show the loads of a Result; the window stays if it is as long."""
        before = self.model
        if before is not None and before.loads.span_ticks == model.loads.span_ticks:
            model.window = before.window
        self.model, self._message = model, ""
        self._lay_out()

    def say(self, message: str) -> None:
        """Show a sentence in place of the fabric."""
        self.model, self._message = None, message
        self._lay_out()

    def notify_style_update(self) -> None:
        """Draw again in the styles of the theme."""
        super().notify_style_update()
        self._lay_out()

    # Keys and the mouse.

    def action_scrub(self, windows: int) -> None:
        """Look at a later or earlier part of the run."""
        if self.model is not None:
            self.model.scrub(windows)
            self._lay_out()

    def action_whole(self) -> None:
        """Look at the whole run."""
        if self.model is not None:
            self.model.window = self.model.whole
            self._lay_out()

    def action_cursor_time(self) -> None:
        """Look at the time of the interval under the timeline's cursor."""
        self.post_message(self.TimeWanted())

    def look_at(self, start_ticks: int, end_ticks: int) -> None:
        """Look at a part of the run."""
        if self.model is not None:
            self.model.look_at(start_ticks, end_ticks)
            self._lay_out()

    def action_matrix(self) -> None:
        """Switch between the map and the matrix of pairs."""
        self._as_matrix = not self._as_matrix
        self._lay_out()

    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        event.stop()
        event.prevent_default()
        self.action_scrub(-steps)

    # Drawing.

    def _lay_out(self) -> None:
        self._lines = None
        self.virtual_size = Size(0, 0)
        self.refresh()

    def _drawn(self, model: HeatModel, width: int, height: int) -> list[list[Segment]]:
        shares = model.shares()
        cut = f" {CUT} narrowest cut: {model.cut_text}, {BOUNDS}" if model.cut_text else ""
        room = max(1, height - HEAD_ROWS - FOOT_ROWS - bool(cut))
        maps = model.map is not None and not self._as_matrix and room >= MIN_MAP_HEIGHT
        body = self._map_lines(model, shares, width, room) if maps else self._matrix_lines(model, shares, width, room)
        what = "links" if maps else _matrix_words(model)
        head = [Segment(f" {_window_text(model)}  {what}", self._style("head"))]
        busiest = _in_room(model.busiest(shares, 3), width - len(" busiest: ")) or "no link is in use"
        foot = [[Segment(cut, self._style("cut"))]] if cut else []
        foot += [[Segment(f" busiest: {busiest}", self._style("head"))], self._legend(model, shares)]
        return [head, *body, *foot]

    def _legend(self, model: HeatModel, shares: FloatArray) -> list[Segment]:
        parts = [Segment(" busy ", self._style("axis"))]
        for level, sign in enumerate(RAMP):
            parts.append(Segment(sign * 2, self._style(f"heat-{level}")))
            parts.append(Segment(f"{level * 100 // (len(RAMP) - 1)}% ", self._style("axis")))
        ranks = range(min(model.loads.period, model.scenario.num_ranks))
        memory = max((model.memory_share(shares, rank) for rank in ranks), default=0.0)
        return [*parts, Segment(f"  HBM at most {memory:.0%}, bars behind ranks", self._style("axis"))]

    def _map_lines(self, model: HeatModel, shares: FloatArray, width: int, height: int) -> list[list[Segment]]:
        assert model.map is not None, "asked only where there is a map"
        canvas = Canvas(width, height)
        spots = {
            place.node: (
                NODE_MARGIN * DOTS_X + place.x * (width - 2 * NODE_MARGIN - 1) * DOTS_X,
                DOTS_Y / 2 + place.y * (height - 1) * DOTS_Y,
            )
            for place in model.map.places
        }
        levels = [max((level_of(float(shares[row])) for row in rows), default=0) for rows in model.wire_rows]
        for idx in np.argsort(levels, kind="stable").tolist():  # busy links over idle ones
            wire, dash = model.map.wires[idx], DASHES[levels[idx]]
            for x0, y0, x1, y1 in _strokes(spots[wire.a], spots[wire.b], wraps=wire.wraps, size=(width, height)):
                xs, ys = line_dots(x0, y0, x1, y1)
                canvas.draw(xs[::dash], ys[::dash], levels[idx])
                if levels[idx] >= THICK_LEVEL:
                    canvas.draw(xs + 1, ys, levels[idx])
        cells = self._canvas_cells(canvas)
        for idx, wire in enumerate(model.map.wires):
            for x0, y0, x1, y1 in _strokes(spots[wire.a], spots[wire.b], wraps=wire.wraps, size=(width, height)):
                if wire.one_way:
                    x, y = int((x0 + 2 * x1) / 3 / DOTS_X), int((y0 + 2 * y1) / 3 / DOTS_Y)
                    arrow = ARROWS[round(atan2(y1 - y0, x1 - x0) / (pi / 4)) % 8]
                    cells[min(max(y, 0), height - 1)][min(max(x, 0), width - 1)] = Segment(arrow, self._style("node"))
                if idx in model.cut_wires:
                    x, y = int((x0 + x1) / 2 / DOTS_X), int((y0 + y1) / 2 / DOTS_Y)
                    cells[min(max(y, 0), height - 1)][min(max(x, 0), width - 1)] = Segment(CUT, self._style("cut"))
        for place in model.map.places:
            x, y = round(spots[place.node][0] / DOTS_X), round((spots[place.node][1] - DOTS_Y / 2) / DOTS_Y)
            is_rank = place.node < model.scenario.num_ranks
            style = self._style("node" if is_rank else "switch")
            text = f"[{place.label}]"
            if is_rank:
                memory = bars_text(np.array([model.memory_share(shares, place.node)]))
                text = f"({place.label}{memory.strip()})" if len(model.map.places) <= MOST_FRAMED else place.label
            first = max(0, min(width - len(text), x - len(text) // 2))
            for offset, letter in enumerate(text):
                cells[y][first + offset] = Segment(letter, style)
        return cells

    def _canvas_cells(self, canvas: Canvas) -> list[list[Segment]]:
        blank = Segment(" ")
        styles = [self._style(f"heat-{level}") for level in range(len(RAMP))]
        rows = [[blank] * canvas.width for _ in range(canvas.height)]
        for y, x in np.argwhere(canvas.dots).tolist():
            rows[y][x] = Segment(canvas.character(x, y), styles[int(canvas.levels[y, x])])
        return rows

    def _matrix_lines(self, model: HeatModel, shares: FloatArray, width: int, height: int) -> list[list[Segment]]:
        labels = max(len(str(model.scenario.num_ranks)) + 2, 4)
        most = max(1, min(height - 1, width - labels))
        matrix, block = shrunk(model.matrix(shares), most)
        step = block * (model.shown_ranks[1] - model.shown_ranks[0] if len(model.shown_ranks) > 1 else 1)
        columns = max(1, min(4, (width - labels) // len(matrix)))
        styles = [self._style(f"heat-{level}") for level in range(len(RAMP))]
        head = "".join(f"{idx * step:<{8 * columns}}" for idx in range(0, len(matrix), 8))
        lines = [[Segment(" " * labels + head[: len(matrix) * columns], self._style("axis"))]]
        for idx, row in enumerate(matrix.tolist()):
            cells = [Segment(f"{idx * step:>{labels - 1}} ", self._style("axis"))]
            for target, share in enumerate(row):
                level = level_of(share)
                own = idx == target and block == 1
                cells.append(
                    Segment(("\\" if own else RAMP[level]) * columns, self._style("axis") if own else styles[level])
                )
            lines.append(cells)
        lines += [[] for _ in range(height - len(lines))]
        return lines[:height]

    def render_line(self, y: int) -> Strip:
        """Return line ``y`` of what was drawn."""
        width = self.size.width
        if self.model is None:
            lines = self._sentence()
            segments = [Segment(f" {lines[y]}" if y < len(lines) else "", self._style("empty"))]
        else:
            if self._lines is None:
                self._lines = self._drawn(self.model, width, self.size.height) if width > 1 else []
            segments = self._lines[y] if y < len(self._lines) else []
        return fitted(segments, width).simplify().apply_style(self.rich_style)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"fabric--{name}")


def _strokes(
    a: tuple[float, float], b: tuple[float, float], *, wraps: bool, size: tuple[int, int]
) -> list[tuple[float, float, float, float]]:
    """The lines of a link: one between its ends, or a stub at each, away from the other."""
    if not wraps:
        return [(*a, *b)]
    across, down = (b[0] - a[0]) / (size[0] * DOTS_X), (b[1] - a[1]) / (size[1] * DOTS_Y)
    length = STUB / max(1e-9, (across**2 + down**2) ** 0.5)
    x, y = (b[0] - a[0]) * length, (b[1] - a[1]) * length
    return [(*a, a[0] - x, a[1] - y), (*b, b[0] + x, b[1] + y)]


def _in_room(parts: Sequence[str], columns: int) -> str:
    """As many ``parts`` as are whole in so many columns, at least the first."""
    counts = range(len(parts), 1, -1)
    count = next((each for each in counts if len(", ".join(parts[:each])) <= columns), 1)
    return ", ".join(parts[:count])


def _window_text(model: HeatModel) -> str:
    start, end = (ticks / TICKS_PER_US for ticks in (model.window.start_ticks, model.window.end_ticks))
    if model.is_whole:
        return f"whole run, {us_text(end)}"
    return f"{start:.1f} to {us_text(end)} of {us_text(model.loads.span_ticks / TICKS_PER_US)}"


def _matrix_words(model: HeatModel) -> str:
    step = model.shown_ranks[1] - model.shown_ranks[0] if len(model.shown_ranks) > 1 else 1
    every = f", every {step}th rank" if step > 1 else ""
    return f"from row to column: busiest link on the way{every}"


TITLE = FABRIC.title
NO_LOADS = "This run has no loads of links and memories: simulate it again to see them."


class FabricPane(ViewPane[Job, FabricView]):
    """The links of the fabric under the picked schedule."""

    def __init__(self, *, id: str) -> None:
        super().__init__(FabricView(id="map"), id=id)

    def show(self, job: Job) -> None:
        """Show the loads of the picked candidate."""
        self.border_title = Content(f"{TITLE}: {printable(fabric_text(job.scenario.system.fabric))}")  # no markup
        run, problem = job.run, job.problem
        case = None if job.advice is None else job.advice.case
        if job.found is None:
            self._view.say("")
        elif run is None:
            self._view.say(RUNNING if problem is None else f"{problem.kind.value}: {problem.text}")
        elif not run.result.loads.each:
            self._view.say(NO_LOADS)
        elif self._view.model is None or self._view.model.loads is not run.result.loads:
            self._view.show(HeatModel(run, run.result.loads, case))

    def on_fabric_view_time_wanted(self, message: FabricView.TimeWanted) -> None:
        """Look at the interval under the cursor of the timeline."""
        message.stop()
        for timeline in self.app.query(TimelineView):
            interval = timeline.model.interval if timeline.model is not None else None
            if interval is not None:
                self._view.look_at(interval.start_ticks, interval.end_ticks)
