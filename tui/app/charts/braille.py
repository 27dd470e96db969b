"""A canvas of dots, eight in each character."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

DOTS_X, DOTS_Y = 2, 4
BLANK = 0x2800
# Value of the dot in each row and column of a character, as Unicode numbers the patterns.
DOT_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.int64)


@dataclass(eq=False)
class Canvas:
    """Characters of dots, and the highest level that was drawn in each, -1 in an empty one."""

    width: int
    height: int
    dots: IntArray = field(init=False)
    levels: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no dots."""
        self.dots = np.zeros((self.height, self.width), np.int64)
        self.levels = np.full((self.height, self.width), -1, np.int64)

    def draw(self, xs: IntArray, ys: IntArray, level: int) -> None:
        """Set dots at positions counted in dots; those outside are left out."""
        kept = (xs >= 0) & (ys >= 0) & (xs < self.width * DOTS_X) & (ys < self.height * DOTS_Y)
        xs, ys = xs[kept], ys[kept]
        columns, rows = xs // DOTS_X, ys // DOTS_Y
        np.bitwise_or.at(self.dots, (rows, columns), DOT_BITS[ys % DOTS_Y, xs % DOTS_X])
        np.maximum.at(self.levels, (rows, columns), level)

    def character(self, column: int, row: int) -> str:
        """The character of a cell."""
        dots = int(self.dots[row, column])
        return chr(BLANK + dots) if dots else " "


def line_dots(x0: float, y0: float, x1: float, y1: float) -> tuple[IntArray, IntArray]:
    """Positions of the dots of a straight line, one in each step along its longer side."""
    steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
    return (
        np.rint(np.linspace(x0, x1, steps + 1)).astype(np.int64),
        np.rint(np.linspace(y0, y1, steps + 1)).astype(np.int64),
    )
