"""The moved tensor cut into cells: the largest rectangles that each step of a plan takes whole or not at all."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import product

from ..ir import Rect, Region, Step, TileGroup

Cell = tuple[int, int]
"""(row, column) in the grid."""


def regions_of(step: Step) -> tuple[Region, ...]:
    """Return the regions that a step names."""
    return step.regions if isinstance(step, TileGroup) else (step.region,)


class Grid:
    """Cells of a row block, the same for all blocks, of which some may end before ``rows``; ``regions`` lie inside."""

    def __init__(self, rows: int, cols: int, regions: Iterable[Region]) -> None:
        row_edges, col_edges = {0, rows}, {0, cols}
        for region in regions:
            row_edges |= {region.rows.start, region.rows.stop}
            col_edges |= {region.cols.start, region.cols.stop}
        self._rows, self._cols = sorted(row_edges), sorted(col_edges)

    def cells(self, region: Region) -> Iterator[Cell]:
        """Return the cells of ``region``."""
        rows, cols = region.rows, region.cols
        top, bottom = bisect_left(self._rows, rows.start), bisect_left(self._rows, rows.stop)
        left, right = bisect_left(self._cols, cols.start), bisect_left(self._cols, cols.stop)
        return product(range(top, bottom), range(left, right))

    def all_cells(self) -> Iterator[Cell]:
        """Return the cells of a whole block."""
        return product(range(len(self._rows) - 1), range(len(self._cols) - 1))

    def rect(self, cell: Cell) -> Rect:
        """Return the rectangle of ``cell`` in its block."""
        row, col = cell
        return Rect(self._rows[row], self._rows[row + 1], self._cols[col], self._cols[col + 1])
