"""The loss waterfall as bars of text. No Textual."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....simcore.figures.result import Waterfall


@dataclass(frozen=True, slots=True)
class Bar:
    """A step of the waterfall from ``start_ticks`` on; negative ``ticks`` are time won back."""

    label: str
    start_ticks: int
    ticks: int
    is_total: bool


def bars_of(waterfall: Waterfall) -> tuple[Bar, ...]:
    """Return the bars from the lower bound up to the makespan, one per loss."""
    (bound_label, bound_ticks), *losses, (label, ticks) = waterfall.rows
    bars, reached = [Bar(bound_label, 0, bound_ticks, True)], bound_ticks
    for loss, loss_ticks in losses:
        bars.append(Bar(loss, reached, loss_ticks, False))
        reached += loss_ticks
    return (*bars, Bar(label, 0, ticks, True))


def drawn_bars(bars: Sequence[Bar], width: int) -> tuple[str, ...]:
    """Draw each bar in ``width`` columns, all to one scale; a loss other than zero shows at least a sliver."""
    scale = width / max(1, max(max(bar.start_ticks, bar.start_ticks + bar.ticks) for bar in bars))
    return tuple(_drawn(bar, scale, width) for bar in bars)


def _drawn(bar: Bar, scale: float, width: int) -> str:
    low, high = sorted((bar.start_ticks, bar.start_ticks + bar.ticks))
    start, stop = round(low * scale), round(high * scale)
    if bar.ticks and start == stop:
        start = min(start, width - 1)
        return " " * start + "▏" + " " * (width - start - 1)
    return " " * start + ("░" if bar.ticks < 0 else "█") * (stop - start) + " " * (width - stop)
