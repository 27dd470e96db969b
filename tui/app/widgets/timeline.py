"""The timeline (Gantt chart) of one candidate: a row for each stream and engine, time from left to right."""

import textwrap
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ....compiler.text.printable import printable
from ....compiler.text.quantities import ticks_text, us_text
from ....simcore.figures.result import IntervalKind, Result
from ..timeline_rows import Cell, Paint, TimelineRow, Viewport, axis_lines, axis_of, cells_of, timeline_rows

HEAD_ROWS = 3
LEGEND_ROWS = 1
ZOOM = 1.6
STEP = 0.2

FULL, LEFT_HALF, RIGHT_HALF = "█", "▌", "▐"
# Textures tell the kinds apart where there are no colours.
TEXTURES = {IntervalKind.COMPUTE: "█", IntervalKind.COMM: "▒", IntervalKind.REDUCE: "░"}


class TimelineView(ScrollView, can_focus=True):
    """Show a Result; zoom and pan in time, scroll through rows."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"timeline--{kind.value}-{shade}" for kind in IntervalKind for shade in (0, 1)),
        *("timeline--name", "timeline--axis", "timeline--head", "timeline--empty"),
    }

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._result: Result | None = None
        self._message = ""
        self._all_ranks = False
        self._rows: tuple[TimelineRow, ...] = ()
        self._viewport = Viewport.whole(1)

    def show(self, result: Result) -> None:
        """Show a whole Result; the same schedule again keeps its zoom."""
        before = self._result
        self._result, self._message = result, ""
        if before is None or before.schedule.expression != result.schedule.expression:
            self._viewport = Viewport.whole(result.makespan_ticks)
        self._lay_out()

    def say(self, message: str) -> None:
        """Show a sentence in place of the timeline."""
        self._result, self._message = None, message
        self._lay_out()

    def toggle_ranks(self) -> None:
        """Switch between one rank and all ranks."""
        self._all_ranks = not self._all_ranks
        self._lay_out()

    def zoom(self, steps: int) -> None:
        """Zoom in (positive) or out; zero shows everything."""
        self._viewport = (
            Viewport.whole(self._viewport.total_ticks) if steps == 0 else self._viewport.zoomed(ZOOM**steps)
        )
        self.refresh()

    def pan(self, steps: int) -> None:
        """Move the viewport later (positive) or earlier."""
        self._viewport = self._viewport.moved(steps * STEP)
        self.refresh()

    def _lay_out(self) -> None:
        timeline = self._result.timeline if self._result is not None else None
        self._rows = () if timeline is None else timeline_rows(timeline, all_ranks=self._all_ranks)
        self.virtual_size = Size(0, len(self._rows) + HEAD_ROWS + LEGEND_ROWS)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Draw again: cells depend on the width."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return line ``y``: head and legend stay, the rows between them scroll."""
        width, height = self.size
        if self._result is None:
            lines = ["", *textwrap.wrap(printable(self._message, block=True), max(20, width - 2))]
            return self._strip([Segment(f" {lines[y]}" if y < len(lines) else "", self._style("empty"))], width)
        if y == height - 1:
            return self._strip(self._legend(self._result), width)
        if y < HEAD_ROWS:
            return self._strip(self._head(y, width, self._result), width)
        row_idx = y - HEAD_ROWS + round(self.scroll_offset.y)
        if row_idx >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        return self._strip(self._row(row_idx, width), width)

    def _strip(self, segments: list[Segment], width: int) -> Strip:
        return Strip(segments).simplify().adjust_cell_length(width).apply_style(self.rich_style)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"timeline--{name}", partial=True)

    @property
    def _name_columns(self) -> int:
        return max((len(self._label(row)) for row in self._rows), default=0)

    def _label(self, row: TimelineRow) -> str:
        name = printable(row.name)
        return f" r{row.rank} {name} " if self._all_ranks else f" {name} "

    def _head(self, y: int, width: int, result: Result) -> list[Segment]:
        if y == 0:
            ranks = "all ranks" if self._all_ranks else "rank 0"
            folded = f", one stands for all {result.num_ranks}" if result.ranks_simulated < result.num_ranks else ""
            text = f" {us_text(result.makespan_us)}  {result.granularity}  {ranks}{folded}"
            zoom = self._viewport.total_ticks / self._viewport.span_ticks
            text += f"  zoom {zoom:.1f}x" if zoom > 1 else ""
            return [Segment(text, self._style("head"))]
        plot = width - self._name_columns
        labels, ruler = axis_lines(axis_of(self._viewport, plot), plot)
        name = "us" if y == 1 else ""
        return [Segment(f" {name}".ljust(self._name_columns) + (labels, ruler)[y - 1], self._style("axis"))]

    def _row(self, row_idx: int, width: int) -> list[Segment]:
        row, columns = self._rows[row_idx], self._name_columns
        cells = cells_of(row, self._viewport, max(1, width - columns), shade=row_idx % 2)
        marks = {tick.column for tick in axis_of(self._viewport, width - columns)}
        drawn = [self._cell(cell, column in marks) for column, cell in enumerate(cells)]
        return [Segment(self._label(row).ljust(columns), self._style("name")), *drawn]

    def _cell(self, cell: Cell, on_mark: bool) -> Segment:
        left, right = cell.left, cell.right
        if left is None and right is None:
            return Segment("┊" if on_mark else " ", self._style("axis"))
        if left is not None and left == right:
            style = self._paint(left)
            if cell.letter:
                return Segment(cell.letter, Style(color=self.rich_style.bgcolor, bgcolor=style.color, bold=True))
            return Segment(self._fill(left.kind), style)
        if right is None:
            return Segment(LEFT_HALF, self._paint(left))
        if left is None:
            return Segment(RIGHT_HALF, self._paint(right))
        return Segment(LEFT_HALF, self._paint(left) + Style(bgcolor=self._paint(right).color))

    def _fill(self, kind: IntervalKind) -> str:
        return TEXTURES[kind] if self.app.no_color else FULL

    def _paint(self, paint: Paint | None) -> Style:
        return Style() if paint is None else self._style(f"{paint.kind.value}-{paint.shade}")

    def _legend(self, result: Result) -> list[Segment]:
        times = {IntervalKind.COMPUTE: result.compute_ticks, IntervalKind.COMM: result.comm_ticks}
        used = {interval.kind for row in self._rows for interval in row.intervals}
        segments = []
        for kind in (kind for kind in IntervalKind if kind in used):
            segments.append(Segment(f" {self._fill(kind) * 2}", self._style(f"{kind.value}-0")))
            busy = f" {ticks_text(times[kind])}" if kind in times else ""
            segments.append(Segment(f" {kind.value}{busy} ", self._style("head")))
        share = result.exposed_ticks / max(1, result.makespan_ticks)
        segments.append(Segment(f"  exposed {ticks_text(result.exposed_ticks)} ({share:.0%})", self._style("head")))
        return segments
