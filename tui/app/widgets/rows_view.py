"""Rows of intervals under an axis of time: a cursor in rows and time, zoom and pan."""

import textwrap
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ....compiler.text.diagnostics import columns_of, printable
from ..charts.rows import RowsModel, bars_text
from ..charts.viewport import NONE, Tick, TimelineRow, axis_lines, axis_of
from .gantt import COMPONENTS, GanttPainter, RowLook

HEAD_ROWS = 3
MIN_PLOT_COLUMNS = 10
MIN_FOOT_HEIGHT, MIN_STRIPS_HEIGHT = 9, 13
"""Below these heights rows get the lines of the legend, and of the strips."""
MIN_STORY_HEIGHT = 5

M = TypeVar("M", bound=RowsModel)


@dataclass(frozen=True, slots=True)
class Foot:
    """Which lines stand below the rows."""

    strips: int = 0
    story: bool = False
    legend: bool = False

    @property
    def num_lines(self) -> int:
        """How many lines that are."""
        return self.strips + self.story + self.legend


def fitted(segments: Sequence[Segment], width: int, style: Style | None = None) -> Strip:
    """A line of ``width`` columns; ``…`` ends one that is cut."""
    strip = Strip(segments)
    if width > 1 and strip.cell_length > width:
        (last,) = {segment.style for segment in strip.crop(width - 1, width)}
        strip = Strip.join([strip.crop(0, width - 1), Strip([Segment("…", last)])])
    return strip.adjust_cell_length(width, style)


class PaintedView(ScrollView, can_focus=True):
    """Rows of intervals in the styles of the theme, or a sentence in their place; laid out anew at another size."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(COMPONENTS)

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._message = ""
        self._painter: GanttPainter | None = None

    @abstractmethod
    def _lay_out(self) -> None:
        """Take the size, and draw."""

    @abstractmethod
    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        """What the wheel does, up (positive) or down."""

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Turn the wheel up."""
        self._wheel(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Turn the wheel down."""
        self._wheel(event, -1)

    def notify_style_update(self) -> None:
        """Forget the styles of the theme before."""
        super().notify_style_update()
        self._painter = None

    def on_resize(self, event: events.Resize) -> None:
        """Draw again: cells depend on the width."""
        self._lay_out()

    @property
    def _room(self) -> Size:
        """The size without the scrollbar."""
        return self.scrollable_content_region.size

    @property
    def painter(self) -> GanttPainter:
        """What draws the rows in the styles of the theme."""
        if self._painter is None:
            self._painter = GanttPainter(self)
        return self._painter

    def _style(self, name: str) -> Style:
        return self.painter.style(name)

    def _strip(self, segments: list[Segment]) -> Strip:
        return fitted(segments, self._room.width, self._style("head"))

    def _sentence(self) -> list[str]:
        """The lines of the text that stands in place of rows."""
        return ["", *textwrap.wrap(printable(self._message, block=True), max(20, self._room.width - 2))]


class RowsView(PaintedView, Generic[M]):
    """Show the rows of a model, or a sentence in their place.

    The wheel zooms; with shift or ctrl it pans; over the names it scrolls the rows.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Interval", key_display="← →"),
        Binding("right", "step(1)", "Next interval", show=False),
        Binding("up,k", "row(-1)", "Row above", show=False),
        Binding("down,j", "row(1)", "Row below", show=False),
        Binding("plus,equals_sign", "zoom(1)", "Zoom", key_display="+ -"),
        Binding("minus", "zoom(-1)", "Zoom out", show=False),
        Binding("0", "zoom(0)", "Fit", key_display="0"),
        Binding("z", "frame", "Zoom to the interval", show=False),
        Binding("h,shift+left", "pan(-1)", "Pan", key_display="h l"),
        Binding("l,shift+right", "pan(1)", "Later", show=False),
    ]

    class Moved(Message):
        """The time in view or the cursor has moved."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.model: M | None = None
        self._name_columns = 0

    def say(self, message: str) -> None:
        """Show a sentence in place of the timeline."""
        self.model, self._message = None, message
        self._lay_out()

    def _lay_out(self) -> None:
        num_rows = len(self.model.rows) if self.model is not None else 0
        self._name_columns = self._widest_name()
        self.virtual_size = Size(0, num_rows + HEAD_ROWS + self._foot.num_lines)
        self._changed()

    def _widest_name(self) -> int:
        if self.model is None:
            return 0
        lanes = {_label(self.model, row) for row in self.model.rows} | {
            f" {strip.label} " for strip in self.model.strips
        }
        return max(map(columns_of, lanes), default=0)

    def _changed(self) -> None:
        self.post_message(self.Moved())
        self.refresh()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.refresh()

    # Keys and the mouse.

    def _act(self, change: Callable[[M], object], *then: Callable[[], None]) -> None:
        """Change what is shown if there is anything, and ``then`` show it."""
        if self.model is not None:
            change(self.model)
            for show in then:
                show()

    def action_zoom(self, steps: int) -> None:
        """Zoom in (positive) or out about the cursor; zero shows everything."""
        self._act(lambda model: model.zoom(steps), self._changed)

    def action_frame(self) -> None:
        """Zoom to the interval under the cursor."""
        self._act(lambda model: model.frame(), self._changed)

    def action_pan(self, steps: int) -> None:
        """Move the time in view later (positive) or earlier."""
        self._act(lambda model: model.pan(steps), self._changed)

    def action_step(self, intervals: int) -> None:
        """Move the cursor along its row."""
        self._act(lambda model: model.step(intervals), self._see_cursor)

    def action_row(self, rows: int) -> None:
        """Move the cursor to another row."""
        self._act(lambda model: model.step_row(rows), self._see_cursor)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is."""
        row_idx = self._row_at(event.y)
        if self.model is not None and row_idx is not None:
            self.model.select(row_idx, self._ticks_at(event.x))
            self._changed()

    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        if self.model is None or event.x < self._name_columns:
            return
        event.stop()
        event.prevent_default()
        if event.shift or event.ctrl:
            self.model.pan(-steps)
        else:
            self.model.zoom_about(steps, self._ticks_at(event.x))
        self._changed()

    def _see_cursor(self) -> None:
        """Scroll so that the row of the cursor is visible."""
        if self.model is not None:
            height = max(1, self._room.height - HEAD_ROWS - self._foot.num_lines)
            top, row_idx = round(self.scroll_offset.y), self.model.cursor.row_idx
            if row_idx < top:
                self.scroll_to(y=row_idx, animate=False)
            elif row_idx >= top + height:
                self.scroll_to(y=row_idx - height + 1, animate=False)
        self._changed()

    def _row_at(self, y: int) -> int | None:
        """The row at a line of the widget, None where there is none."""
        last = self._room.height - self._foot.num_lines
        return y - HEAD_ROWS + round(self.scroll_offset.y) if HEAD_ROWS <= y < last else None

    def _ticks_at(self, x: int) -> int:
        assert self.model is not None, "asked only while there is a timeline"
        return self.model.viewport.ticks_at(x - self._name_columns, self._plot_columns)

    # Drawing.

    @property
    def _foot(self) -> Foot:
        height, strips = self._room.height, len(self.model.strips) if self.model is not None else 0
        if height < MIN_FOOT_HEIGHT:
            return Foot(story=height >= MIN_STORY_HEIGHT)
        return Foot(strips if height >= MIN_STRIPS_HEIGHT else 0, story=True, legend=True)

    @property
    def _plot_columns(self) -> int:
        return max(MIN_PLOT_COLUMNS, self._room.width - self._name_columns)

    def render_line(self, y: int) -> Strip:
        """Return line ``y``: head and foot stay, the rows between them scroll."""
        width, height = self._room
        model = self.model
        if model is None:
            lines = self._sentence()
            return self._strip([Segment(f" {lines[y]}" if y < len(lines) else "", self._style("empty"))])
        foot, from_end = self._foot, height - 1 - y
        if from_end < foot.num_lines:
            return self._strip(self._foot_line(model, foot, from_end))
        if y < HEAD_ROWS:
            return self._strip(self._head(y, model))
        row_idx = y - HEAD_ROWS + round(self.scroll_offset.y)
        if row_idx >= len(model.rows):
            return Strip.blank(width, self.rich_style)
        return self._strip(self._row(row_idx, model))

    def _axis(self, model: M) -> tuple[Tick, ...]:
        return axis_of(model.viewport, self._plot_columns, model.unit_ticks)

    def _head(self, y: int, model: M) -> list[Segment]:
        if y == 0:
            return [Segment(f" {model.headline()}", self._style("head"))]
        plot = self._plot_columns
        labels, ruler = axis_lines(self._axis(model), plot)
        name = model.unit if y == 1 else ""
        return [Segment(f" {name}".ljust(self._name_columns) + (labels, ruler)[y - 1], self._style("axis"))]

    def _row(self, row_idx: int, model: M) -> list[Segment]:
        row, plot = model.rows[row_idx], self._plot_columns
        here = self.has_focus and row_idx == model.cursor.row_idx
        look = RowLook(row_idx % 2, model.cursor.number if here else NONE, model.followed_in(row))
        marks = {tick.column for tick in self._axis(model)}
        drawn = self.painter.row(row, model.viewport, plot, marks=marks, look=look, standout=model.standout)
        label = _label(model, row)
        if here:
            label = f"▸{label[1:]}"
        return [Segment(label.ljust(self._name_columns), self._style("name")), *drawn]

    def _foot_line(self, model: M, foot: Foot, from_end: int) -> list[Segment]:
        if foot.legend and from_end == 0:
            return list(self._legend(model))
        if foot.story and from_end == int(foot.legend):
            return [Segment(f" {printable(model.story())}", self._style("head"))]
        strip = model.strips[foot.num_lines - 1 - from_end]
        bars = bars_text(strip.in_columns(model.viewport, self._plot_columns))
        label = f" {strip.label} ".ljust(self._name_columns)
        return [Segment(label, self._style("name")), Segment(bars, self._style("load"))]

    def _legend(self, model: M) -> Iterator[Segment]:
        for kind, words in model.legend():
            if kind is not None:
                yield Segment(f" {self.painter.fill(kind) * 2}", self._style(f"{kind.value}-0"))
            yield Segment(f" {words} ", self._style("head"))


def _label(model: RowsModel, row: TimelineRow) -> str:
    return f" {printable(model.label(row))} "
