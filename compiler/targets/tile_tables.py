"""Tables of a persistent GEMM kernel: which program computes which tile, what it waits for, which flag it counts up.

``triton.py`` copies what stands below the imports into the files that it writes.
"""

from collections.abc import Sequence
from typing import NamedTuple

# Copied into files.

TILE = 10
"""Numbers of a tile: rows from, to, columns from, to, k from, to, waits from, to, flag, and how its parts add up."""
ADDS, LEAVES = 1, 2
"""A tile adds to what an earlier slice of k left, or leaves its sum for a later one."""


class Group(NamedTuple):
    """Tiles that may be computed once the flags ``waits`` are set.

    ``regions`` are (row, end row, column, end column) of the output, ``k`` is the slice of the inner dimension. Each
    tile counts ``flag`` up by one; -1: no flag.
    """

    name: str
    regions: tuple[tuple[int, int, int, int], ...]
    k: tuple[int, int]
    waits: tuple[int, ...]
    flag: int


class Tables(NamedTuple):
    """Lists for the kernel, int32: program p takes the tiles ``starts[p]`` to ``starts[p + 1]``, in that order."""

    tiles: list[int]
    starts: list[int]
    waits: list[int]


ROWS_TOGETHER = 16
"""Rows of tiles that programs go through together; with tiles of 128 x 256 an H100 reads least so, or nearly."""


def tables_of(
    groups: Sequence[Group], block_m: int, block_n: int, programs: int, rows_together: int = ROWS_TOGETHER
) -> Tables:
    """Deal the tiles of all groups to the programs in turn, in the order of the groups.

    Within a group ``rows_together`` rows of tiles go together, column after column, so that tiles at the same time read
    few rows of a and few columns of b: row by row a GEMM took up to a third longer as measured on an H100. Slices of k
    of one tile go to one program, which so computes them one after the other. A program looks at each flag once, before
    the first tile that needs it.
    """
    ordered = [tiles_of(group.regions, block_m, block_n, rows_together) for group in groups]
    last = {(tile[0], tile[2]): index for index, tiles in enumerate(ordered) for tile in tiles}
    owners: dict[tuple[int, int], int] = {}
    dealt: list[list[int]] = [[] for _ in range(programs)]
    waited: list[set[int]] = [set() for _ in range(programs)]
    waits: list[int] = []
    for index, (group, tiles) in enumerate(zip(groups, ordered, strict=True)):
        for row, row_end, col, col_end in tiles:
            adds = ADDS if (row, col) in owners else 0
            program = owners.setdefault((row, col), len(owners) % programs)
            start = len(waits)
            waits += [flag for flag in group.waits if flag not in waited[program]]
            waited[program].update(group.waits)
            parts = adds + (LEAVES if last[row, col] > index else 0)
            dealt[program] += row, row_end, col, col_end, *group.k, start, len(waits), group.flag, parts
    starts = [0]
    for numbers in dealt:
        starts.append(starts[-1] + len(numbers) // TILE)
    return Tables([number for numbers in dealt for number in numbers], starts, waits)


def tiles_of(
    regions: Sequence[tuple[int, int, int, int]], block_m: int, block_n: int, rows_together: int = ROWS_TOGETHER
) -> list[tuple[int, int, int, int]]:
    """Return the tiles of regions, ``rows_together`` rows of them at a time; those at their ends may be smaller."""
    rows = [
        (row, min(row + block_m, bottom), left, right)
        for top, bottom, left, right in regions
        for row in range(top, bottom, block_m)
    ]
    most = max((right - left for _, _, left, right in regions), default=0)
    return [
        (row, row_end, left + across, min(left + across + block_n, right))
        for first in range(0, len(rows), rows_together)
        for across in range(0, most, block_n)
        for row, row_end, left, right in rows[first : first + rows_together]
        if left + across < right
    ]


def counts_of(groups: Sequence[Group], num_flags: int, block_m: int, block_n: int) -> list[int]:
    """Return for each flag by how much a call raises it: the tiles of its group, and 1 for a copy or a sum."""
    counts = [1] * num_flags
    for group in groups:
        if group.flag >= 0:
            counts[group.flag] = len(tiles_of(group.regions, block_m, block_n))
    return counts


def check_whole_tiles(groups: Sequence[Group], block_m: int, block_n: int, rows: int, cols: int) -> None:
    """Refuse blocks that do not divide regions, for kernels that mask the end of the matrix alone.

    Raises
    ------
    ValueError
        If a region begins or ends inside a tile.
    """
    for group in groups:
        for top, bottom, left, right in group.regions:
            whole = top % block_m == 0 and left % block_n == 0
            if not (whole and (bottom % block_m == 0 or bottom == rows) and (right % block_n == 0 or right == cols)):
                region = f"rows {top}:{bottom}, columns {left}:{right}"
                raise ValueError(f"tiles of {block_m} x {block_n} do not divide {region} of {group.name}")
