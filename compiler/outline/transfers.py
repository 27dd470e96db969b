"""The transfers and sums of an outline.

A collective algorithm is given one row for each piece of a shard; its steps are then put on the pieces themselves,
whatever their sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from ..collectives.base import Fragment, Names
from ..ir import Direction, IndexRange, PeerOrder, Reduction, Region, TileGroup, Transfer
from ..templates.base import TemplateInput
from ..templates.collective import emit, varies
from ..templates.waves import Hops
from ..text.vocabulary import MAX_STREAMS
from .issue_order import Move
from .kernels import Cell
from .outline import ANY_ORDER, Axis, By, Outline, Sums


@dataclass(frozen=True, slots=True)
class Moves:
    """Transfers and sums of one rank in the order of their issue, and when which block moves.

    Where kernels come first a step waits for ``token(cell)`` in place of the kernel that makes the block. ``landed``
    says what a kernel waits for that reads a block, ``moved`` the index of the step that brings it or takes it away.
    ``hops`` counts the transfers that follow each other until then, or from then on; none where nobody asks.
    """

    steps: tuple[Move, ...]
    landed: Mapping[Cell, Names]
    moved: Mapping[Cell, int]
    hops: Mapping[Cell, int]


def token(cell: Cell) -> str:
    """Stands for the kernel that computes a block; no name of a step has a question mark."""
    return f"?{cell[0]}_{cell[1]}"


def row_per_piece(outline: Outline, problem: TemplateInput) -> TemplateInput:
    """The problem as an algorithm is given it."""
    parts = outline.split.parts
    split = tuple(parts if rows else 0 for rows in problem.split)
    return replace(problem, shard_rows=parts, cols=1, pieces=parts, split=split)


def num_different(outline: Outline, problem: TemplateInput) -> int:
    """Ranks that have different parts: one of them where all are alike."""
    absolute = outline.ordering.order is PeerOrder.ABSOLUTE
    return problem.num_ranks if absolute or varies(problem) else 1


def moves(outline: Outline, problem: TemplateInput, rank: int) -> Moves:
    """What one rank moves and sums."""
    n, order, produces = problem.num_ranks, outline.piece_order, problem.pattern.produces
    fragment = _emitted(outline, problem, rank)
    steps = _in_order(outline, replace(problem, rank=rank), fragment)
    steps = _in_lanes(outline, steps) if outline.one_at_a_time or outline.lanes else steps
    landed = {(block % n, order[piece]): names for (block, piece), names in fragment.done.items()}
    moved = _taken(outline, n, steps) if produces else _brought(landed, steps)
    placed = tuple(_placed(outline, problem, order, step) for step in steps)
    return Moves(placed, landed, moved, _hops_of_cells(outline, problem, rank, landed))


def _emitted(outline: Outline, problem: TemplateInput, rank: int) -> Fragment:
    """What the algorithm does at one rank, on one row for each piece in the order in which they move."""
    order, produces = outline.piece_order, problem.pattern.produces

    def ready(block: int, piece: int) -> Names:
        return (token((block % problem.num_ranks, order[piece])),) if produces else ()

    return emit(row_per_piece(outline, problem), rank, ready)


def _hops_of_cells(
    outline: Outline, problem: TemplateInput, rank: int, landed: Mapping[Cell, Names]
) -> dict[Cell, int]:
    if not any(batch.by is By.HOP for batch in outline.batches):
        return {}
    hops = _hops(outline, problem)
    if problem.pattern.produces:
        cells = product(range(problem.num_ranks), range(outline.split.parts))
        return {cell: hops.behind(rank, token(cell)) for cell in cells}
    return {cell: max((hops.before(rank, name) for name in names), default=0) for cell, names in landed.items()}


@lru_cache(maxsize=16)
def _hops(outline: Outline, problem: TemplateInput) -> Hops:
    ranks = range(problem.num_ranks if varies(problem) else 1)
    return Hops([_emitted(outline, problem, rank).steps for rank in ranks], problem.num_ranks, problem.node)


def _in_order(outline: Outline, problem: TemplateInput, fragment: Fragment) -> list[Move]:
    """The steps of an algorithm as the outline orders peers; sums are in the way of nobody and keep their place.

    Where several hops follow a kernel, what travels furthest goes first: no queue holds up what is needed early.
    """
    steps = [step for step in fragment.steps if not isinstance(step, TileGroup)]
    if problem.pattern.produces and outline.algorithm not in ANY_ORDER:
        hops = _hops(outline, replace(problem, rank=0))
        return sorted(steps, key=lambda step: -hops.behind(problem.rank, step.name))
    if not outline.ordering.of_peers:
        return steps
    place = {peer: index for index, peer in enumerate(outline.ordering.peers or problem.served)}
    summed = {step.name for step in steps if isinstance(step, Reduction)}

    def turn(step: Transfer) -> tuple[bool, int, int]:
        piece, peer = step.region.rows.start, place[step.peer]
        inner = (peer, piece) if outline.ordering.peers_outermost else (piece, peer)
        return not summed.isdisjoint(step.after), *inner

    transfers = iter(sorted((step for step in steps if isinstance(step, Transfer)), key=turn))
    return [step if isinstance(step, Reduction) else next(transfers) for step in steps]


def _in_lanes(outline: Outline, steps: list[Move]) -> list[Move]:
    """Transfers dealt to lanes in turn, or each behind the one before in one; those of sums are in no such order."""
    summed = {step.name for step in steps if isinstance(step, Reduction)}
    dealt, found = list[str](), list[Move]()
    for step in steps:
        if isinstance(step, Transfer) and summed.isdisjoint(step.after):
            before = (*dealt[-1:],) if outline.one_at_a_time else ()
            lane = len(dealt) % outline.lanes if outline.lanes else 0
            dealt.append(step.name)
            step = replace(step, lane=lane, after=(*step.after, *before))
        elif isinstance(step, Transfer) and outline.one_at_a_time:
            step = replace(step, lane=0)
        found.append(step)
    return found


def _brought(landed: Mapping[Cell, Names], steps: list[Move]) -> dict[Cell, int]:
    """When the transfer is issued that brings a block: all ranks are at the same one. The own blocks come first."""
    sent = {step.signal: index for index, step in enumerate(steps) if isinstance(step, Transfer)}
    return {cell: max((sent.get(name, 0) for name in names), default=-1) for cell, names in landed.items()}


def _taken(outline: Outline, num_ranks: int, steps: list[Move]) -> dict[Cell, int]:
    """When the first step is issued that takes a block."""
    first: dict[str, int] = {}
    for index, step in enumerate(steps):
        for name in step.after:
            first.setdefault(name, index)
    cells = [(owner, piece) for owner in range(num_ranks) for piece in range(outline.split.parts)]
    return {cell: first.get(token(cell), len(steps)) for cell in cells}


def _placed(outline: Outline, problem: TemplateInput, order: tuple[int, ...], step: Move) -> Move:
    """A step on the pieces themselves, sums in their stream."""
    assert step.region.rows.size == 1, "algorithms move one piece at a time"
    piece = order[step.region.rows.start]
    source = step.peer if isinstance(step, Transfer) and step.direction is Direction.GET else 0
    rows = problem.split[(step.region.owner - source) % problem.num_ranks] if problem.split else problem.shard_rows
    whole, cut = Region(step.region.owner, IndexRange(0, rows), IndexRange(0, problem.cols)), outline.split
    match cut.axis:
        case Axis.ROWS:
            region = replace(whole, rows=cut.span(piece, rows))
        case Axis.COLS:
            region = replace(whole, cols=cut.span(piece, problem.cols))
        case _:
            region = whole
    if isinstance(step, Transfer):
        return replace(step, region=region)
    apart = outline.streams if problem.pattern.produces and outline.sums is Sums.APART else 0
    return replace(step, region=region, stream=(apart + step.stream) % MAX_STREAMS)
