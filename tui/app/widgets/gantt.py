"""Draw rows of a timeline as segments: colours by kind, shapes for what must be told without colour."""

from collections.abc import Collection
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.widget import Widget

from ....simcore.figures.result import IntervalKind
from ..charts.cells import halves_of, spans_of
from ..charts.emphasis import Standout
from ..charts.rows import NONE, Row
from ..charts.viewport import Viewport

FULL, LEFT_HALF, RIGHT_HALF, THIN = "█", "▌", "▐", "─"
# Textures tell the kinds apart where there are no colours.
TEXTURES = {IntervalKind.COMPUTE: "█", IntervalKind.COMM: "▒", IntervalKind.REDUCE: "░"}
CURSOR_ENDS, CURSOR_ONE = "[]", "◈"
FOLLOWED_ENDS, FOLLOWED_ONE = "◆◆", "◆"

COMPONENTS = frozenset(
    {
        *(f"timeline--{kind.value}-{shade}" for kind in IntervalKind for shade in (0, 1)),
        *(f"timeline--{name}" for name in ("name", "axis", "head", "empty", "cursor", "followed", "load", "exposed")),
    }
)


@dataclass(frozen=True, slots=True)
class RowLook:
    """What is special about intervals of a row: ``cursor_idx`` is under the cursor, ``followed`` are on a chunk's way.

    ``shade`` is that of the first interval; it alternates, so that neighbours stay apart.
    """

    shade: int = 0
    cursor_idx: int = NONE
    followed: frozenset[int] = frozenset()


PLAIN = RowLook()


class GanttPainter:
    """Draws rows in the component styles of a widget."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[str, Style] = {}
        self._no_color = widget.app.no_color

    def style(self, name: str) -> Style:
        """A component style, looked up once."""
        if name not in self._styles:
            self._styles[name] = self._widget.get_component_rich_style(f"timeline--{name}")
        return self._styles[name]

    def fill(self, kind: IntervalKind) -> str:
        """The character that fills an interval of a kind."""
        return TEXTURES[kind] if self._no_color else FULL

    def row(
        self,
        row: Row,
        viewport: Viewport,
        width: int,
        *,
        marks: Collection[int] = (),
        look: RowLook = PLAIN,
        standout: Standout | None = None,
    ) -> list[Segment]:
        """Return the row in ``width`` columns; ``marks`` are the columns of the axis's marks."""
        halves = halves_of(row, viewport, width)
        full = None if standout is None else standout.halves(row, halves, viewport, width)
        cells: list[tuple[str, Style]] = [("┊" if x in marks else " ", self.style("axis")) for x in range(width)]
        seen = halves.tolist()
        shown = [number != NONE for number in seen] if full is None else full.tolist()
        for x in range(width):
            left, right = seen[2 * x], seen[2 * x + 1]
            if left != NONE or right != NONE:
                cells[x] = self._cell(row, look.shade, (left, shown[2 * x]), (right, shown[2 * x + 1]))
        self._write_names(row, viewport, width, look, cells, shown)
        return _joined(cells)

    def _cell(self, row: Row, shade: int, left: tuple[int, bool], right: tuple[int, bool]) -> tuple[str, Style]:
        """One column of two halves, each the number of an interval and whether it stands out."""
        if left[0] != NONE and right[0] != NONE:
            if left[1] != right[1]:  # a thin half gives way
                number = left[0] if left[1] else right[0]
                return (LEFT_HALF if left[1] else RIGHT_HALF), self._paint(row, number, shade)
            style = self._paint(row, left[0], shade)
            if not left[1]:
                return THIN, style
            if left[0] == right[0]:
                return self.fill(row.intervals[left[0]].kind), style
            return LEFT_HALF, style + Style(bgcolor=self._paint(row, right[0], shade).color)
        number, stands_out = left if left[0] != NONE else right
        glyph = THIN if not stands_out else LEFT_HALF if left[0] != NONE else RIGHT_HALF
        return glyph, self._paint(row, number, shade)

    def _paint(self, row: Row, number: int, shade: int) -> Style:
        return self.style(f"{row.intervals[number].kind.value}-{(number + shade) % 2}")

    def _write_names(
        self,
        row: Row,
        viewport: Viewport,
        width: int,
        look: RowLook,
        cells: list[tuple[str, Style]],
        shown: list[bool],
    ) -> None:
        """Write names over intervals wide enough, and the signs of the cursor and of what is followed."""
        ground = self._widget.rich_style.bgcolor
        for span in spans_of(row, viewport, width):
            number, paint = span.interval_idx, self._paint(row, span.interval_idx, look.shade)
            name = Style(color=ground, bgcolor=paint.color, bold=True)
            for offset, letter in enumerate(span.text):
                x = span.text_at + offset
                if x < width:
                    cells[x] = letter, name if shown[2 * x] else paint + Style(bold=True)
            ends, one, style = "", "", Style()
            if number in look.followed:
                ends, one, style = FOLLOWED_ENDS, FOLLOWED_ONE, self.style("followed")
            if number == look.cursor_idx:
                ends, one, style = CURSOR_ENDS, CURSOR_ONE, self.style("cursor")
            if ends:
                first, last = span.start // 2, (span.stop - 1) // 2
                for x in range(first, last + 1):
                    glyph = cells[x][0]
                    if style.bgcolor is not None:
                        cells[x] = (" " if glyph in (FULL, THIN) and not self._no_color else glyph), style
                cells[first] = (ends[0] if last > first else one), style
                if last > first:
                    cells[last] = ends[1], style


def _joined(cells: list[tuple[str, Style]]) -> list[Segment]:
    """Neighbouring cells of one style as one segment."""
    segments: list[Segment] = []
    text, style = "", Style()
    for letter, own in cells:
        if own is style or own == style:
            text += letter
            continue
        if text:
            segments.append(Segment(text, style))
        text, style = letter, own
    if text:
        segments.append(Segment(text, style))
    return segments
