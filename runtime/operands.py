"""What a part takes from others: where each number of an operand lies at the part that makes it.

A Sheet is a tensor as a rank has it after a part: row blocks one below the other. A Slot is an operand of a part, as
its steps see it. Both keep a few rows and columns of each interval between their own cuts; a Slot has the cuts of the
Sheets that it takes from, so that nothing that is made is left out.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..compiler.ir import ColumnPart
from .axes import CutAxis
from .memory import Array, Fault, Place
from .tasks import Task

LARGEST = 4
"""Numbers that are drawn lie between this and its negative."""
MODULUS = 8191
"""What a part takes from others is taken modulo this prime, so that numbers stay exact over any number of layers."""
Blocks = tuple[tuple[int, int], ...]
"""(index of a block, its rows in the tensor), one below the other."""
Indices = NDArray[np.int64]
Key = tuple[int, int]
"""An operand of a kernel by the numbers of the kernel and of the operand, or one of these."""
MOVED_IN: Key = (-1, 0)
"""The operand that a collective moves."""
ADDED: Key = (-2, 0)
"""What a kernel adds to: what it has made of other batches."""
Given = Mapping[str, Sequence[Array]]
"""Numbers in place of drawn ones, by the name of a tensor: [row, column] of what each rank has of it."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A tensor that a part leaves at each rank.

    ``wanted`` is what there must be in a block, ``read`` takes a place of it for a task, once all of it is there.
    """

    name: str
    rows: CutAxis
    cols: CutAxis
    blocks: Callable[[int], Blocks]
    wanted: Callable[[int, int], Array]
    read: Callable[[int, Place, Task], Array]

    @property
    def row_cuts(self) -> set[int]:
        """Cuts of the rows of all blocks, one below the other, at rank 0."""
        cuts, offset = {0}, 0
        for _, height in self.blocks(0):
            cuts |= {offset + cut for cut in self.rows.cuts if cut <= height} | {offset + height}
            offset += height
        return cuts


@dataclass(frozen=True, eq=False)
class SheetLink:
    """A Sheet that an operand takes its numbers from, or the columns of it that are a part.

    ``side_by_side``: whether its blocks lie side by side in the operand, and not below each other.
    """

    sheet: Sheet
    transposed: bool = False
    part: ColumnPart | None = None
    side_by_side: bool = False

    @property
    def first(self) -> int:
        """The column of the Sheet that is the first of the operand."""
        return 0 if self.part is None else self.part.first_of(self.sheet.cols.cuts[-1])

    @property
    def cuts(self) -> tuple[set[int], set[int]]:
        """Cuts of the rows and columns that an operand sees."""
        if self.side_by_side:
            width, count = self.sheet.cols.cuts[-1], len(self.sheet.blocks(0))
            return set(self.sheet.rows.cuts), {k * width + cut for k in range(count) for cut in self.sheet.cols.cuts}
        rows, cols = self.sheet.row_cuts, {cut - self.first for cut in self.sheet.cols.cuts if cut >= self.first}
        return (cols, rows) if self.transposed else (rows, cols)


@dataclass(eq=False)
class Slot:
    """An operand of a part; ``tensor`` is its name, ``blocks`` those that a rank has, of ``num_blocks``.

    Without ``links`` its numbers are ``given``, where those of its tensor are, those of its ``part`` of columns; the
    others are drawn by the names of tensor and rank, or of the tensor alone if it is ``alike``.
    """

    tensor: str
    links: tuple[SheetLink, ...]
    num_blocks: int
    blocks: Callable[[int], Blocks]
    rows: CutAxis
    cols: CutAxis
    seed: int
    alike: bool = False
    transposed: bool = False
    part: ColumnPart | None = None
    given: Given = field(default_factory=dict)
    _wanted: dict[int, Array] = field(default_factory=dict)

    def wanted(self, rank: int) -> Array:
        """Return [block, row, column] of what there must be at ``rank``, NaN in blocks that it has not."""
        if rank not in self._wanted:
            values = np.full((self.num_blocks, self.rows.size, self.cols.size), np.nan)
            whole = slice(0, self.rows.size), slice(0, self.cols.size)
            for block, _ in self.blocks(rank):
                values[block] = self._numbers(
                    rank, (block, *whole), lambda sheet, place: sheet.wanted(rank, place[0])[place[1:]]
                )
            self._wanted[rank] = values
        return self._wanted[rank]

    def give(self, rank: int, values: Array) -> None:
        """Let ``values`` [block, row, column] be what ``rank`` has, in place of numbers that are drawn."""
        self._wanted[rank] = values

    def take(self, rank: int, place: Place, task: Task) -> Array:
        """Read ``place`` for ``task`` where it is made.

        Raises
        ------
        Fault
            If it is not there, in no order, or not what it must be.
        """
        if place[0] not in dict(self.blocks(rank)):
            raise Fault(f"{task} reads block {place[0]} of {self.tensor}, which rank {rank} does not have")
        wanted = self.wanted(rank)[place]
        if not self.links:
            return wanted.copy()
        values = self._numbers(rank, place, lambda sheet, there: sheet.read(rank, there, task))
        wrong = values != wanted
        if wrong.any():
            row, col = (int(index) for index in np.argwhere(wrong)[0])
            rows, cols = self.rows.around(place[1].start + row), self.cols.around(place[2].start + col)
            where = f"rows {rows}, columns {cols} of {self.tensor}"
            raise Fault(f"{task} takes {where}, and finds {values[row, col]:g} in place of {wanted[row, col]:g}")
        return values

    def _numbers(self, rank: int, place: Place, found: Callable[[Sheet, Place], Array]) -> Array:
        rows, cols = self._rows(rank, place[0])[place[1]], positions(self.cols)[place[2]]
        if not self.links:
            where = (cols, rows) if self.transposed else (rows, cols)
            if self.tensor in self.given:
                own = self.given[self.tensor][rank]
                first = 0 if self.part is None else self.part.first_of(own.shape[1])
                values = own[np.ix_(where[0] % len(own), first + where[1])]  # rows of several experts begin again
            else:
                values = drawn(self.seed, self.tensor if self.alike else f"{self.tensor} of {rank}", *where)
            return values.T if self.transposed else values
        total: Array = np.zeros((len(rows), len(cols)))
        for link in self.links:
            down, across = (cols, rows) if link.transposed else (rows, cols)
            looked_up = _side_by_side if link.side_by_side else _looked_up
            values = looked_up(link.sheet, rank, down, across + link.first, found)
            total += values.T if link.transposed else values
        return np.asarray(total % MODULUS)

    def _rows(self, rank: int, block: int) -> Indices:
        """Return where the rows of a block are among those of all blocks of a rank."""
        offset = 0
        for each, height in self.blocks(rank):
            if each == block:
                return offset + np.minimum(positions(self.rows), max(0, height - 1))
            offset += height
        raise KeyError(block)


def positions(axis: CutAxis) -> Indices:
    """Return the index in the tensor of each index in memory; ``indices`` is the inverse."""
    sizes = np.diff(axis.starts)
    inside = np.arange(axis.size) - np.repeat(np.asarray(axis.starts[:-1]), sizes)
    return np.asarray(np.repeat(np.asarray(axis.cuts[:-1]), sizes) + inside, dtype=np.int64)


def indices(axis: CutAxis, where: Indices) -> Indices:
    """Return the index in memory that stands for each index in the tensor; ``positions`` is the inverse.

    >>> [int(index) for index in indices(CutAxis.of((0, 4, 8), detail=2), np.array([0, 1, 3, 4, 7]))]
    [0, 1, 1, 2, 3]
    """
    cuts, starts = np.asarray(axis.cuts), np.asarray(axis.starts)
    interval = np.searchsorted(cuts, where, side="right") - 1
    inside = np.minimum(where - cuts[interval], starts[interval + 1] - starts[interval] - 1)
    return np.asarray(starts[interval] + inside, dtype=np.int64)


def drawn(seed: int, name: str, rows: Indices, cols: Indices) -> Array:
    """Return small whole numbers for rows and columns of a tensor: the same wherever they are asked for."""
    mixed = rows.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    mixed = mixed + cols.astype(np.uint64)[None, :] * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = mixed + np.uint64(crc32(f"{seed} {name}".encode()))
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed ^ (mixed >> np.uint64(32))
    return np.asarray(mixed % np.uint64(2 * LARGEST + 1), dtype=np.float64) - LARGEST


Found = Callable[[Sheet, Place], Array]
"""What is at a place of a Sheet."""


def _looked_up(sheet: Sheet, rank: int, rows: Indices, cols: Indices, found: Found) -> Array:
    """Return rows and columns of a sheet; where it ends it begins again, and is 0 if a rank has nothing of it."""
    blocks = sheet.blocks(rank)
    heights = np.array([height for _, height in blocks], dtype=np.int64)
    if not heights.sum():
        return np.zeros((len(rows), len(cols)))
    ends = np.cumsum(heights)
    rows = rows % ends[-1]
    which = np.searchsorted(ends, rows, side="right")
    values = np.empty((len(rows), len(cols)))
    for place in np.unique(which):
        here = which == place
        inside = rows[here] - (ends[place] - heights[place])
        values[here] = _of_block(sheet, blocks[place][0], inside, cols % sheet.cols.cuts[-1], found)
    return values


def _side_by_side(sheet: Sheet, rank: int, rows: Indices, cols: Indices, found: Found) -> Array:
    """Return rows and columns of a sheet whose blocks lie side by side."""
    blocks, width = sheet.blocks(rank), sheet.cols.cuts[-1]
    values = np.empty((len(rows), len(cols)))
    for place in np.unique(cols // width):
        here = cols // width == place
        values[:, here] = _of_block(sheet, blocks[place][0], rows, cols[here] - place * width, found)
    return values


def _of_block(sheet: Sheet, block: int, rows: Indices, cols: Indices, found: Found) -> Array:
    """Return rows and columns of one block of a sheet."""
    down, across = indices(sheet.rows, rows), indices(sheet.cols, cols)
    low, left = int(down.min()), int(across.min())
    there = found(sheet, (block, slice(low, int(down.max()) + 1), slice(left, int(across.max()) + 1)))
    return there[np.ix_(down - low, across - left)]


def cuts_of(links: Sequence[SheetLink]) -> tuple[set[int], set[int]]:
    """Return the cuts of rows and of columns of all ``links``."""
    rows, cols = set[int](), set[int]()
    for link in links:
        rows, cols = rows | link.cuts[0], cols | link.cuts[1]
    return rows, cols


def in_blocks(cuts: Iterable[int], heights: Sequence[int]) -> set[int]:
    """Return ``cuts`` of blocks of so many rows that lie one below the other, as cuts of each.

    >>> sorted(in_blocks((0, 2, 5, 7), (5, 4)))
    [0, 2]
    """
    edges = tuple(accumulate(heights, initial=0))
    inside = {cut % edges[-1] for cut in cuts} if edges[-1] else ()
    return {cut - edges[bisect_right(edges, cut) - 1] for cut in inside}
