"""Tables of a persistent GEMM kernel: which program computes which tile, what it waits for, which flag it counts up.

And copies and sums beside the kernel, as data, with a plain loop that carries them out. ``triton.py`` copies what
stands below the imports into the files that it writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


class Copy(NamedTuple):
    """Rank ``source`` has ``size`` (rows, columns) of a buffer at ``source_at``; ``target`` gets it at ``target_at``.

    The rank that issues the copy waits for its flags ``waits`` first. Copies of one ``lane`` run one after the other;
    -1: any lane. ``flag`` of ``target`` is set when all has arrived, and ``done`` of the issuer; -1: no flag.
    """

    name: str
    source: int
    source_buffer: str
    source_at: tuple[int, int]
    target: int
    target_buffer: str
    target_at: tuple[int, int]
    size: tuple[int, int]
    waits: tuple[int, ...]
    lane: int
    flag: int
    done: int


class Sum(NamedTuple):
    """``size`` of buffer ``y`` at ``at`` becomes the sum of what buffer ``own`` has there and of ``parts``.

    These are places in the buffer ``parts``. ``waits`` and ``done`` are as for copies.
    """

    name: str
    at: tuple[int, int]
    size: tuple[int, int]
    own: str
    parts: tuple[tuple[int, int], ...]
    waits: tuple[int, ...]
    done: int


class Host(NamedTuple):
    """What the host of a rank acts on: buffers and flags of all ranks, and by how much a call raises its own flags."""

    rank: int
    buffers: Sequence[Mapping[str, Any]]
    flags: Sequence[Any]
    counts: Sequence[int]


def carry_out_ready(steps: Sequence[Copy | Sum], host: Host, epoch: int) -> list[Copy | Sum]:
    """Carry out the steps whose flags are set in the call number ``epoch``; return the others, to be tried again.

    This is the reference. On GPUs a copy is, on the stream of its lane: waits for its flags (cuStreamWaitValue32, at
    least ``epoch`` times their count), the copy, and a write of ``epoch`` to its own flags (cuStreamWriteValue32).
    """
    mine, left, busy = host.flags[host.rank], list[Copy | Sum](), set[int]()
    for step in steps:
        lane = step.lane if isinstance(step, Copy) else -1
        if lane in busy or not all(is_set(mine[flag], host.counts[flag], epoch) for flag in step.waits):
            left.append(step)
            busy |= {lane} - {-1}
        elif isinstance(step, Copy):
            copy(step, host.buffers)
            set_flag(host.flags[step.target], step.flag, epoch)
            set_flag(mine, step.done, epoch)
        else:
            add_up(step, host.buffers[host.rank])
            set_flag(mine, step.done, epoch)
    return left


def is_set(flag: Any, count: int, epoch: int) -> bool:
    """Whether a flag has reached its value of this call; flags are int32 and may wrap around."""
    return (int(flag) - epoch * count) % 2**32 < 2**31


def set_flag(flags: Any, flag: int, epoch: int) -> None:
    """Set a flag, if there is one."""
    if flag >= 0:
        flags[flag] = epoch


def copy(step: Copy, buffers: Sequence[Mapping[str, Any]]) -> None:
    """Copy one piece."""
    (row, col), (to_row, to_col), (rows, cols) = step.source_at, step.target_at, step.size
    piece = buffers[step.source][step.source_buffer][row : row + rows, col : col + cols]
    buffers[step.target][step.target_buffer][to_row : to_row + rows, to_col : to_col + cols] = piece


def add_up(step: Sum, buffers: Mapping[str, Any]) -> None:
    """Add the parts of one piece."""
    (row, col), (rows, cols) = step.at, step.size
    total = buffers[step.own][row : row + rows, col : col + cols]
    for top, left in step.parts:
        total = total + buffers["parts"][top : top + rows, left : left + cols]
    buffers["y"][row : row + rows, col : col + cols] = total
