"""A plan beside one persistent GEMM kernel: groups of tiles, copies and sums of each rank, in absolute places.

Buffers of a rank, by the names that copies use:

- a GEMM after a collective: ``a``, what it multiplies, with the rank's own block in it from the start; after an
  all_to_all ``x``, what the rank sends; ``c``, the output
- a GEMM before a collective: ``c``, the rank's own result; ``parts``, what peers send to be summed; ``y``, sums and
  what arrives as it stays
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..ir import Direction, OpCase, OpPlan, Rect, Reduction, TileGroup, Transfer
from .rank_view import Copy, RankView, Sum, rank_views

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


def tables_of(groups: Sequence[Group], block_m: int, block_n: int, programs: int) -> Tables:
    """Deal the tiles of all groups to the programs in turn, in the order of the groups.

    Slices of k of one tile go to one program, which so computes them one after the other. A program looks at each flag
    once, before the first tile that needs it.
    """
    last = {region: index for index, group in enumerate(groups) for region in group.regions}
    owners: dict[tuple[int, int], int] = {}
    dealt: list[list[int]] = [[] for _ in range(programs)]
    waited: list[set[int]] = [set() for _ in range(programs)]
    waits: list[int] = []
    for index, group in enumerate(groups):
        for region in group.regions:
            for row, row_end, col, col_end in tiles_of(region, block_m, block_n):
                adds = ADDS if (row, col) in owners else 0
                program = owners.setdefault((row, col), len(owners) % programs)
                start = len(waits)
                waits += [flag for flag in group.waits if flag not in waited[program]]
                waited[program].update(group.waits)
                parts = adds + (LEAVES if last[region] > index else 0)
                dealt[program] += row, row_end, col, col_end, *group.k, start, len(waits), group.flag, parts
    starts = [0]
    for tiles in dealt:
        starts.append(starts[-1] + len(tiles) // TILE)
    return Tables([number for tiles in dealt for number in tiles], starts, waits)


def tiles_of(region: tuple[int, int, int, int], block_m: int, block_n: int) -> list[tuple[int, int, int, int]]:
    """Return the tiles of a region, row by row; those at its end may be smaller."""
    top, bottom, left, right = region
    return [
        (row, min(row + block_m, bottom), col, min(col + block_n, right))
        for row in range(top, bottom, block_m)
        for col in range(left, right, block_n)
    ]


def counts_of(groups: Sequence[Group], num_flags: int, block_m: int, block_n: int) -> list[int]:
    """Return for each flag by how much a call raises it: the tiles of its group, and 1 for a copy or a sum."""
    counts = [1] * num_flags
    for group in groups:
        if group.flag >= 0:
            counts[group.flag] = sum(len(tiles_of(region, block_m, block_n)) for region in group.regions)
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


@dataclass(frozen=True, slots=True)
class GemmProgram:
    """What one rank does: ``flags`` by what they say, groups in the order of the kernel, copies and sums in theirs.

    ``part_rows`` are the rows that it needs of the buffer ``parts``.
    """

    flags: tuple[str, ...]
    groups: tuple[Group, ...]
    steps: tuple[Copy | Sum, ...]
    part_rows: int


class NotExpressed(Exception):
    """What a program of copies and sums cannot say, as a sentence."""


def gemm_programs(scenario: OpCase, schedule: OpPlan) -> tuple[GemmProgram, ...]:
    """Return the program of each rank.

    Raises
    ------
    NotExpressed
        If a sum takes other pieces than those that arrive.
    """
    ranks = rank_views(scenario, schedule)
    return tuple(
        GemmProgram(
            tuple(rank.flag_names),
            tuple(_group(rank, step) for step in rank.groups.values()),
            tuple(_host_steps(rank, ranks)),
            (max(rank.planes.values(), default=-1) + 1) * rank.block,
        )
        for rank in ranks
    )


def _group(rank: RankView, step: TileGroup) -> Group:
    """Groups of one kernel need no order among each other, but what they read has landed."""
    waits = rank.flags(name for name in step.after if name not in rank.groups)
    if rank.pattern.consumes:
        places = map(rank.place, step.regions)
        reads = [Rect(place.top, place.bottom, step.k.start, step.k.stop) for place in places]
        landed = (index for signal in rank.before[step.name] for index in rank.signals.get(signal, ()))
        read = {index for index in landed if any(map(rank.landings[index].clip, reads))}
        waits = (*waits, *sorted(read - set(waits)))
    regions = tuple((tile.top, tile.bottom, tile.left, tile.right) for tile in map(rank.place, step.regions))
    return Group(step.name, regions, (step.k.start, step.k.stop), waits, rank.own_flags.get(step.name, -1))


def _host_steps(rank: RankView, ranks: Sequence[RankView]) -> Iterator[Copy | Sum]:
    for step in rank.steps.values():
        if isinstance(step, Transfer):
            yield _copy(rank, step, ranks)
        elif isinstance(step, Reduction):
            yield _sum(rank, step)


def _copy(rank: RankView, step: Transfer, ranks: Sequence[RankView]) -> Copy:
    peer = ranks[(rank.rank + step.peer) % len(ranks)]
    source, target = (rank, peer) if step.direction is Direction.PUT else (peer, rank)
    index = target.arrival_of[rank.rank, step.name]
    piece, landing, plane = rank.place(step.region), target.landings[index], target.planes.get(index)
    top = landing.top if plane is None else landing.top % rank.block + plane * rank.block
    return Copy(
        name=step.name,
        source=source.rank,
        source_buffer=_source_buffer(rank, step, piece),
        source_at=(piece.top, piece.left),
        target=target.rank,
        target_buffer="a" if rank.pattern.consumes else "y" if plane is None else "parts",
        target_at=(top, landing.left),
        size=(piece.bottom - piece.top, piece.right - piece.left),
        waits=rank.flags(step.after),
        lane=-1 if step.lane is None else step.lane,
        flag=index,
        done=rank.own_flags.get(step.name, -1),
    )


def _source_buffer(rank: RankView, step: Transfer, piece: Rect) -> str:
    """The buffer that a transfer reads; a get reads what its peer has from the start, and follows no kernel."""
    if rank.pattern.consumes:
        return "x" if rank.pattern.exchanges else "a"
    return _newest(rank, step.name, piece)


def _newest(rank: RankView, name: str, piece: Rect) -> str:
    """``y`` where something has made ``piece`` before the step ``name``, else ``c``."""
    known, made = rank.before[name], rank.made.get(piece.top // rank.block, ())
    found = [part for other, rect in made if other in known and (part := piece.clip(rect)) is not None]
    if found and piece not in found:
        raise NotExpressed(f"{name} takes {piece}, which several steps have made")
    return "y" if found else "c"


def _sum(rank: RankView, step: Reduction) -> Sum:
    place, parts = rank.place(step.region), []
    for index in rank.flags(name for name in step.after if name in rank.signals):
        here = place.clip(rank.landings[index])
        if here is not None:
            if here != place:
                name = rank.arrivals[index].transfer.name
                raise NotExpressed(f"{step.name} sums {place}, and {name} brings {here}")
            parts.append((place.top % rank.block + rank.planes[index] * rank.block, place.left))
    if len(parts) != step.num_parts - 1:
        raise NotExpressed(f"{step.name} sums {step.num_parts} parts, and waits for {len(parts)} that arrive")
    return Sum(
        name=step.name,
        at=(place.top, place.left),
        size=(place.bottom - place.top, place.right - place.left),
        own=_newest(rank, step.name, place),
        parts=tuple(parts),
        waits=rank.flags(step.after),
        done=rank.own_flags.get(step.name, -1),
    )
