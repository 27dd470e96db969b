"""The part of time in view, and its axis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ....compiler.ir import TICKS_PER_US

# Largest zoom: this many ticks (0.1 us) over the whole width, or the whole run if it is shorter.
MIN_SPAN_TICKS = TICKS_PER_US // 10
# Columns of a time label, with the space to its neighbour.
LABEL_COLUMNS = 12
# What is brought into view is kept so far from the edges, as a share of what is in view.
MARGIN = 0.1
# Factor of a step of zooming, and share of what is in view of a step of panning.
ZOOM_STEP = 1.6
PAN_STEP = 0.2


@dataclass(frozen=True, slots=True)
class Viewport:
    """The part of ``[0, total_ticks)`` in view."""

    start_ticks: int
    span_ticks: int
    total_ticks: int

    @classmethod
    def whole(cls, total_ticks: int) -> "Viewport":
        """The whole time."""
        return cls(0, max(1, total_ticks), max(1, total_ticks))

    @property
    def end_ticks(self) -> int:
        """The first tick after the part in view."""
        return self.start_ticks + self.span_ticks

    @property
    def zoom(self) -> float:
        """How many times as wide as everything is drawn."""
        return self.total_ticks / self.span_ticks

    def zoomed(self, factor: float, about_ticks: int | None = None) -> "Viewport":
        """Zoom in by ``factor``; the time ``about_ticks`` stays where it is, by default the middle."""
        about = self.start_ticks + self.span_ticks // 2 if about_ticks is None else about_ticks
        span = max(min(MIN_SPAN_TICKS, self.total_ticks), min(self.total_ticks, round(self.span_ticks / factor)))
        share = (about - self.start_ticks) / self.span_ticks
        return replace(self, span_ticks=span)._from(about - round(share * span))

    def moved(self, share: float) -> "Viewport":
        """Move by a share of the viewport, never past the ends."""
        return self._from(self.start_ticks + round(share * self.span_ticks))

    def showing(self, start_ticks: int, end_ticks: int) -> "Viewport":
        """Move as little as possible so that the time from start to end is in view; its start if it is too long."""
        margin = round(MARGIN * self.span_ticks)
        if self.start_ticks <= start_ticks and end_ticks <= self.end_ticks:
            return self
        if start_ticks < self.start_ticks or end_ticks - start_ticks > self.span_ticks - 2 * margin:
            return self._from(start_ticks - margin)
        return self._from(end_ticks + margin - self.span_ticks)

    def with_total(self, total_ticks: int) -> "Viewport":
        """The same part of another total time."""
        total = max(1, total_ticks)
        return Viewport(0, min(self.span_ticks, total), total)._from(self.start_ticks)

    def column_of(self, ticks: int, width: int) -> int:
        """The column of a time in ``width`` columns; it may lie outside."""
        return (ticks - self.start_ticks) * width // self.span_ticks

    def ticks_at(self, column: int, width: int) -> int:
        """The time in the middle of a column."""
        return self.start_ticks + (2 * column + 1) * self.span_ticks // (2 * max(1, width))

    def _from(self, start_ticks: int) -> "Viewport":
        return replace(self, start_ticks=max(0, min(start_ticks, self.total_ticks - self.span_ticks)))


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the time axis."""

    column: int
    label: str


@lru_cache(maxsize=16)
def axis_of(viewport: Viewport, width: int) -> tuple[Tick, ...]:
    """Return the marks at round times in the viewport, 1, 2 or 5 times a power of ten apart."""
    if width < 1:
        return ()
    step = _step(viewport.span_ticks * LABEL_COLUMNS / width)
    decimals = next(places for places in range(4) if step * 10**places % TICKS_PER_US == 0)
    first = -(-viewport.start_ticks // step)
    ticks = []
    for at in range(first * step, viewport.end_ticks + 1, step):
        column = round((at - viewport.start_ticks) * 2 * width / viewport.span_ticks) // 2
        if column < width:
            ticks.append(Tick(column, f"{at / TICKS_PER_US:.{decimals}f}"))
    return tuple(ticks)


def _step(least_ticks: float) -> int:
    """Return the smallest round step of at least ``least_ticks``."""
    power = TICKS_PER_US // 1000
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least_ticks:
                return factor * power
        power *= 10


def axis_lines(ticks: Sequence[Tick], width: int) -> tuple[str, str]:
    """Return (labels, ruler) of the axis; a label starts at its tick and is left out where it would be cut."""
    labels, ruler = [" "] * width, ["─"] * width
    for tick in ticks:
        ruler[tick.column] = "┬"
        if tick.column + len(tick.label) <= width:
            labels[tick.column : tick.column + len(tick.label)] = tick.label
    return "".join(labels), "".join(ruler)
