"""Use of links and memories over time, as one line of bars each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....simcore.figures.result import LoadKind, Loads, Waterfall
from ....simcore.program.program import FloatArray
from .viewport import Viewport

BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, eq=False)
class Strip:
    """Use of the busiest link, or of the HBM of a rank, in each bucket: ``shares`` [B] from 0 to 1."""

    label: str
    edges: FloatArray
    shares: FloatArray

    def in_columns(self, viewport: Viewport, width: int) -> FloatArray:
        """[width] the mean share in each column."""
        marks = viewport.start_ticks + np.arange(width + 1) * (viewport.span_ticks / max(1, width))
        so_far = np.concatenate([[0.0], np.cumsum(self.shares * np.diff(self.edges))])
        reached = np.interp(marks, self.edges, so_far)
        found: FloatArray = np.diff(reached) / np.maximum(1e-9, np.diff(marks))
        return found


def strips_of(loads: Loads, rank: int) -> tuple[Strip, ...]:
    """Return the strips of a rank: the mean of the links that leave it or come in, and its HBM; none without loads."""
    if not loads.each:
        return ()
    own, edges, shares = rank % loads.period, loads.edges_ticks.astype(float), loads.utilization
    found = []
    links = [
        row for row, load in enumerate(loads.each) if load.kind is LoadKind.LINK and own in (load.source, load.target)
    ]
    if links:
        found.append(Strip("links", edges, shares[links].mean(axis=0)))
    found.append(Strip("HBM", edges, shares[loads.memory(own)]))
    return tuple(found)


def bars_text(shares: FloatArray) -> str:
    """Each share as a bar from nothing to full; a share above zero shows at least the lowest."""
    levels = np.ceil(np.clip(shares, 0, 1) * (len(BARS) - 1) - 0.05).astype(int)
    return "".join(BARS[level] for level in np.where(shares > 0.001, np.maximum(1, levels), 0).tolist())


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
