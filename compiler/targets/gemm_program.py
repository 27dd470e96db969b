"""A plan beside one persistent GEMM kernel: groups of tiles, copies and sums of each rank, in absolute places.

Buffers of a rank, by the names that copies use:

- a GEMM after a collective: ``a``, what it multiplies, with the rank's own block in it from the start; after an
  all_to_all ``x``, what the rank sends; ``c``, the output
- a GEMM before a collective: ``c``, the rank's own result; ``parts``, what peers send to be summed; ``y``, sums and
  what arrives as it stays
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir import Direction, OpCase, OpPlan, Rect, Reduction, TileGroup, Transfer
from .host_steps import Copy, Sum
from .rank_view import RankView, rank_views
from .tile_tables import Group


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
    """Groups of one kernel need no order among each other, but what they read has arrived."""
    waits = rank.flags(name for name in step.after if name not in rank.groups)
    if rank.pattern.consumes:
        places = map(rank.place, step.regions)
        reads = [Rect(place.top, place.bottom, step.k.start, step.k.stop) for place in places]
        arrived = (index for signal in rank.before[step.name] for index in rank.signals.get(signal, ()))
        read = {index for index in arrived if any(map(rank.landings[index].clip, reads))}
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
