"""Draw rows of a timeline as segments: colours by kind, shapes for what must be told without colour."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from rich.segment import Segment
from rich.style import Style
from textual.widget import Widget

from ....simcore.figures.result import IntervalKind
from ..charts.rows import CellSpan, halves_of, name_in
from ..charts.rows import cells_of as spans_of
from ..charts.viewport import KINDS, NONE, BoolArray, Int64Array, Standout, TimelineRow, Viewport

FULL, LEFT_HALF, RIGHT_HALF, THIN, MARK = "█", "▌", "▐", "─", "┊"
TextArray = npt.NDArray[np.str_]

NUM_PAINTS = 2 * len(KINDS)
NUM_CODES = 1 + 2 * NUM_PAINTS
# Textures tell the kinds apart where there are no colours.
TEXTURES = {IntervalKind.COMPUTE: "█", IntervalKind.COMM: "▒", IntervalKind.REDUCE: "░"}


@dataclass(frozen=True, slots=True)
class Sign:
    """How an interval is marked: characters at its ends, or one if it has but one column."""

    style: str
    ends: str
    one: str


CURSOR, FOLLOWED = Sign("cursor", "[]", "◈"), Sign("followed", "◆◆", "◆")

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
    """Draws rows in the component styles of a widget.

    Half a column has a code: 0 where nothing runs, else one for each kind and shade, and those again for what does not
    stand out. The codes of both halves decide how a column looks, so that each look is made once.
    """

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[str, Style] = {}
        self._no_color = widget.app.no_color
        self._looks: dict[int, tuple[str, int]] = {}
        self._palette: list[Style] = []
        self._places: dict[Style, int] = {}

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
        row: TimelineRow,
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
        codes = _codes(row, halves, look.shade, full)
        keys = codes[0::2] * NUM_CODES + codes[1::2]
        found, place = np.unique(keys, return_inverse=True)
        looks = [self._look(key) for key in found.tolist()]
        glyphs = np.array([glyph for glyph, _ in looks])[place]
        styles = np.array([style for _, style in looks])[place]
        for x in marks:
            if not keys[x]:
                glyphs[x] = MARK
        for span in spans_of(halves, (look.cursor_idx, *look.followed)):
            self._write(row, span, look, codes, glyphs, styles)
        return self._joined("".join(glyphs.tolist()), styles)

    def _look(self, key: int) -> tuple[str, int]:
        """The character of a column, and its style in the palette."""
        if key not in self._looks:
            glyph, style = self._made(*divmod(key, NUM_CODES))
            self._looks[key] = glyph, self._place(style)
        return self._looks[key]

    def _place(self, style: Style) -> int:
        if style not in self._places:
            self._places[style] = len(self._palette)
            self._palette.append(style)
        return self._places[style]

    def _made(self, left: int, right: int) -> tuple[str, Style]:
        if not left and not right:
            return " ", self.style("axis")
        if _is_thin(left) and _is_thin(right):
            return THIN, self._paint(left)
        if left and right and _is_thin(left) != _is_thin(right):  # a thin half gives way
            return (RIGHT_HALF, self._paint(right)) if _is_thin(left) else (LEFT_HALF, self._paint(left))
        if not left or not right:
            code = left or right
            return THIN if _is_thin(code) else LEFT_HALF if left else RIGHT_HALF, self._paint(code)
        if left == right:
            return self.fill(KINDS[(left - 1) // 2]), self._paint(left)
        return LEFT_HALF, self._paint(left) + Style(bgcolor=self._paint(right).color)

    def _paint(self, code: int) -> Style:
        kind, shade = divmod((code - 1) % NUM_PAINTS, 2)
        return self.style(f"{KINDS[kind].value}-{shade}")

    def _write(
        self, row: TimelineRow, span: CellSpan, look: RowLook, codes: Int64Array, glyphs: TextArray, styles: Int64Array
    ) -> None:
        """Write the name of an interval over it, if it fits, and the signs of the cursor and of what is followed."""
        number, first, last = span.interval_idx, span.start // 2, (span.stop - 1) // 2
        sign = CURSOR if number == look.cursor_idx else FOLLOWED if number in look.followed else None
        thin, paint = _is_thin(int(codes[span.start])), self._paint(int(codes[span.start]))
        if sign is not None:
            styles[first : last + 1] = self._place(self.style(sign.style))
            if not self._no_color:
                glyphs[first : last + 1] = " "
        name = name_in(row.intervals[number], span)
        if name:
            ground = Style(color=self._widget.rich_style.bgcolor, bgcolor=paint.color, bold=True)
            style = self.style(sign.style) if sign else paint + Style(bold=True) if thin else ground
            at = span.text_at
            glyphs[at : at + len(name)] = list(name)
            styles[at : at + len(name)] = self._place(style)
        if sign is not None:
            glyphs[first] = sign.ends[0] if last > first else sign.one
            glyphs[last] = sign.ends[1] if last > first else sign.one

    def _joined(self, text: str, styles: Int64Array) -> list[Segment]:
        """Neighbouring columns of one style as one segment."""
        edges = np.flatnonzero(np.diff(styles, prepend=-1, append=-1)).tolist()
        return [Segment(text[start:stop], self._palette[styles[start]]) for start, stop in pairwise(edges)]


def _codes(row: TimelineRow, halves: Int64Array, shade: int, full: BoolArray | None) -> Int64Array:
    """The code of each half column."""
    if not len(row.kinds):
        return np.zeros(len(halves), np.int64)
    codes = 1 + 2 * row.kinds[halves] + (halves + shade) % 2
    if full is not None:
        codes = np.where(full, codes, codes + NUM_PAINTS)
    return np.where(halves == NONE, 0, codes)


def _is_thin(code: int) -> bool:
    return code > NUM_PAINTS
