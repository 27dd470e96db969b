"""The loss waterfall as an SVG: from the lower bound over each loss up to the makespan."""

from collections.abc import Iterator

from ...compiler.text.quantities import ticks_text
from ...simcore.figures.result import Waterfall
from .svg import TimeScale, document, number, painted, rect_at, text_at

WIDTH, LEFT, RIGHT, ROW, TOP = 900.0, 210.0, 90.0, 26.0, 12.0


def waterfall_svg(waterfall: Waterfall) -> str:
    """Return the drawing: a bar for each row of the waterfall, where the one before it ends; gains go back."""
    rows = waterfall.rows
    reached = [0]
    for _, ticks in rows[:-1]:
        reached.append(reached[-1] + ticks)
    scale = TimeScale(max(1, *reached, waterfall.makespan_ticks), LEFT, WIDTH - LEFT - RIGHT)
    return document(WIDTH, 2 * TOP + ROW * len(rows), "Loss waterfall", list(_bars(waterfall, reached, scale)))


def _bars(waterfall: Waterfall, reached: list[int], scale: TimeScale) -> Iterator[str]:
    last = len(waterfall.rows) - 1
    for place, (name, ticks) in enumerate(waterfall.rows):
        begin = 0 if place in (0, last) else reached[place]
        low, high = sorted((begin, begin + ticks))
        y = TOP + ROW * place
        kind = "bound" if place == 0 else "compute" if place == last else "reduce" if ticks < 0 else "exposed"
        yield text_at(LEFT - 10, y + 15, name, anchor="end")
        yield rect_at(scale.x(low), y + 3, max(1, scale.x(high) - scale.x(low)), ROW - 8, kind, ticks_text(ticks))
        yield text_at(scale.x(high) + 6, y + 15, ticks_text(ticks), "faint")
        if place < last:
            x = number(scale.x(reached[place + 1]))
            yield f'<path {painted("grid")} d="M{x} {number(y + 3)}V{number(y + ROW + 6)}"/>'
