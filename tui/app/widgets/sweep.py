"""A sweep as a picture: curves, who wins where, and the verdict."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from ....compiler.text.printable import printable
from ..charts.sweep_plot import MAX_CURVES, SweepPlot
from ..session.sweep import SweepFigure


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
