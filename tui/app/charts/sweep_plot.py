"""Time against one value as lines of text: a curve for each kind of schedule, and below who wins where."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ....advisor.candidates.advice import Advice
from ....compiler.ir import TICKS_PER_US
from ....compiler.resolve.expect.expectation import ON_ALGORITHM, Verdict
from ....compiler.text.diagnostics import printable
from ....compiler.text.units import us_text
from ..session.job import Job, JobProblem
from ..session.sweep import SweepFigure
from ..session.view import shortened

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


Line = tuple[tuple[str, str], ...]
"""Pieces of text with the names of their styles; a name of a curve is ``curve-0``, ``curve-1`` and so on."""

MAX_CURVES = 6
LETTERS = "ABCDEF"
LABEL_COLUMNS = 9
MIN_ROWS, MIN_COLUMNS = 4, 16
FULL_ROWS = 16
"""Rows from which on the signs are explained below the plot."""
VERDICT_SIGNS = {
    Verdict.OVERLAP: "+",
    Verdict.WORTH_TRYING: "?",
    Verdict.SERIAL: "-",
    Verdict.USE: "+",
    Verdict.LIBRARY: "-",
}
VERDICT_WORDS = "+ overlap pays  ? worth trying  - serial"
ALGORITHM_WORDS = "+ use the winner  - the library's choice is as good"


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from ``low`` to ``high`` on ``dots`` dots, by their logarithms."""

    low: float
    high: float
    dots: int

    def at(self, value: float) -> float:
        """Return the place of a value, in dots."""
        if self.high <= self.low:
            return (self.dots - 1) / 2
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return share * (self.dots - 1)


@dataclass(frozen=True, slots=True)
class SweepPlot:
    """A figure in ``width`` columns and ``height`` rows."""

    figure: SweepFigure
    width: int
    height: int

    def lines(self) -> tuple[Line, ...]:
        """Return all lines: the curves over their axis, the winner and the verdict by value, and what is what."""
        legend = self._legend()
        rows = self.height - len(legend) - 4
        if not self.figure.points or rows < MIN_ROWS or self._columns < MIN_COLUMNS:
            return tuple(legend)[: self.height]
        x, y = self._scales(rows)
        return (
            *self._curves(x, y, rows),
            self._ruler(x),
            self._numbers(x),
            self._band("winner", [self._letter(point.winner) for point in self.figure.points], x),
            self._band("verdict", [VERDICT_SIGNS[point.verdict] for point in self.figure.points], x),
            *legend,
        )

    @property
    def _kinds(self) -> tuple[str, ...]:
        return self.figure.kinds[:MAX_CURVES]

    @property
    def _columns(self) -> int:
        return self.width - LABEL_COLUMNS - 1

    def _letter(self, kind: str) -> str:
        return LETTERS[self._kinds.index(kind)] if kind in self._kinds else "*"

    def _scales(self, rows: int) -> tuple[Scale, Scale]:
        xs = [point.x for point in self.figure.points]
        times = [point.us[kind] for point in self.figure.points for kind in self._kinds if kind in point.us]
        x = Scale(min(xs), max(xs), self._columns * DOTS_X)
        return x, Scale(min(times), max(times) * 1.0001, rows * DOTS_Y)

    def _curves(self, x: Scale, y: Scale, rows: int) -> Iterator[Line]:
        canvas = Canvas(self._columns, rows)
        letters: dict[tuple[int, int], tuple[str, int]] = {}
        for number, kind in reversed(list(enumerate(self._kinds))):  # the first over the others
            places = [
                (x.at(point.x), y.dots - 1 - y.at(point.us[kind]), kind in point.simulated)
                for point in self.figure.points
                if kind in point.us
            ]
            for (x0, y0, _), (x1, y1, _) in pairwise(places):
                canvas.draw(*line_dots(x0, y0, x1, y1), MAX_CURVES - number)
            for px, py, simulated in places:
                letter = LETTERS[number] if simulated else LETTERS[number].lower()
                letters[int(px) // DOTS_X, int(py) // DOTS_Y] = (letter, number)
        now = None if self.figure.now is None else int(x.at(self.figure.now)) // DOTS_X
        for row in range(rows):
            label = self._time_label(row, rows, y)
            yield ((label, "axis"), ("│", "axis"), *self._cells(canvas, letters, row, now))

    def _cells(
        self, canvas: Canvas, letters: dict[tuple[int, int], tuple[str, int]], row: int, now: int | None
    ) -> Iterator[tuple[str, str]]:
        for column in range(canvas.width):
            if (column, row) in letters:
                letter, number = letters[column, row]
                yield letter, f"point-{number}"
            elif canvas.dots[row, column]:
                yield canvas.character(column, row), f"curve-{MAX_CURVES - int(canvas.levels[row, column])}"
            else:
                yield ("┊" if column == now else " "), "axis"

    def _time_label(self, row: int, rows: int, y: Scale) -> str:
        """Return the time of a row, of every third one."""
        if row % 3 and row != rows - 1:
            return " " * LABEL_COLUMNS
        share = 1 - (row + 0.5) / rows
        value = y.low * (y.high / y.low) ** share
        return f"{_short(value)} {self.figure.measure}".rjust(LABEL_COLUMNS)

    def _ruler(self, x: Scale) -> Line:
        marks = {int(x.at(point.x)) // DOTS_X for point in self.figure.points}
        ruler = "".join("┴" if column in marks else "─" for column in range(self._columns))
        return ((" " * LABEL_COLUMNS + "└" + ruler, "axis"),)

    def _numbers(self, x: Scale) -> Line:
        """Return the line of values, as many as have room."""
        line = [" "] * self._columns
        free = 0
        for point in self.figure.points:
            text = point.text
            start = min(max(0, int(x.at(point.x)) // DOTS_X - len(text) // 2), self._columns - len(text))
            if start >= free:
                line[start : start + len(text)] = text
                free = start + len(text) + 1
        name = self.figure.axis[: LABEL_COLUMNS - 1].rjust(LABEL_COLUMNS)
        return ((f"{name} ", "head"), ("".join(line), "axis"))

    def _band(self, name: str, letters: Sequence[str], x: Scale) -> Line:
        """Return a line in which each column has the letter of the nearest point, once all points are known."""
        columns = [int(x.at(point.x)) // DOTS_X for point in self.figure.points]
        pieces: list[tuple[str, str]] = [(f"{name.rjust(LABEL_COLUMNS)} ", "head")]
        for column in range(self._columns):
            nearest = min(range(len(columns)), key=lambda idx: abs(columns[idx] - column))
            letter = "·" if self.figure.is_partial and columns[nearest] != column else letters[nearest]
            known = letter in LETTERS
            pieces.append((letter, f"point-{LETTERS.index(letter)}" if known else "head"))
        return tuple(pieces)

    def _legend(self) -> list[Line]:
        """Return the letters with their kinds, and what the signs mean."""
        lines: list[list[tuple[str, str]]] = [[(" ", "head")]]
        room = self.width - 1
        for number, kind in enumerate(self._kinds):
            text = f"{LETTERS[number]} {kind}  "
            if len(text) > room and len(lines[-1]) > 1:
                lines.append([(" ", "head")])
                room = self.width - 1
            room -= len(text)
            lines[-1] += [(LETTERS[number], f"point-{number}"), (text[1:], "head")]
        if self.height < FULL_ROWS:
            return [*map(tuple, lines)]
        alone = any(point.verdict in ON_ALGORITHM for point in self.figure.points)
        signs = f" capital: simulated, small: predicted   {ALGORITHM_WORDS if alone else VERDICT_WORDS}"
        return [*map(tuple, lines), ((signs[: self.width], "axis"),)]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# The workloads of a file side by side, such as one on several systems: baseline, answer and bound of each as bars.

BASELINE, ANSWER, BOUND = "▒", "█", "┃"
INDENT = 3
MIN_NAME = 12
"""Columns below which the name of a schedule is left out."""
ALL_KEY = "a"
HEAD = f" All workloads: {BASELINE} baseline  {ANSWER} recommended  {BOUND} no schedule can be faster"
WAITING = f"not answered yet; {ALL_KEY} answers all workloads of the file"
LOOKING = "looking for schedules ..."

StyledLine = list[tuple[str, str]]
"""A line of text: parts with the name of a component style each."""


def systems_lines(jobs: Sequence[Job], width: int) -> Iterator[StyledLine]:
    """Yield lines of at most ``width`` columns: a heading, and for each job its name, its system and its bars.

    Bars of all jobs have one scale. Of a job without an answer the line says why.
    """
    found = [job.found for job in jobs if job.found is not None]
    longest = max((advice.serial.best_us for advice in found), default=1.0)
    yield [(shortened(HEAD, width), "head")]
    for job in jobs:
        system = job.scenario.system
        where = f"{job.name}: {system.title}, {system.fabric.topology.name}"
        yield [(f" {shortened(printable(where), width - 2)}", "bold head")]
        if job.found is None:
            yield [(f"{'':{INDENT}}{shortened(_why_not(job), width - INDENT)}", "empty")]
        else:
            yield from _bars(job.found, longest, width)


def _why_not(job: Job) -> str:
    if isinstance(job.answer, JobProblem):
        return printable(f"{job.answer.kind.value}: {job.answer.text.splitlines()[0]}")
    return LOOKING if job.advising else WAITING


def _bars(advice: Advice, longest_us: float, width: int) -> Iterator[StyledLine]:
    """The baseline with its time, and below it the answer with the bound in its bar, time, gain and name."""
    room = max(8, (width - INDENT) // 2)

    def columns(us: float) -> int:
        return max(1, min(room, round(room * us / longest_us)))

    best, later = advice.recommended, ", not final" if advice.interrupted else ""
    said = f" {us_text(best.best_us)}, {advice.speedup:.2f}x{later}"
    name, left = f": {printable(advice.name_of(best.expression))}", width - INDENT - columns(best.best_us) - len(said)
    bar = columns(best.best_us)
    before = bar if advice.bound is None else min(bar, columns(advice.bound.ticks / TICKS_PER_US)) - 1
    yield [
        (f"{'':{INDENT}}{BASELINE * columns(advice.serial.best_us)}", "comm-0"),
        (f" {us_text(advice.serial.best_us)}", "axis"),
    ]
    yield [
        (f"{'':{INDENT}}{ANSWER * before}", "compute-0"),
        (BOUND if before < bar else "", "exposed"),
        (ANSWER * (bar - before - 1), "compute-0"),
        (said + (shortened(name, left) if left > MIN_NAME else ""), "head"),
    ]
