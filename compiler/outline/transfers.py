"""The transfers and sums of an outline.

A collective algorithm runs on a tensor with one row per piece of a shard; its steps are then mapped to the pieces,
which may differ in size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from ..collectives.base import Fragment, Names
from ..ir import Direction, IndexRange, PeerOrder, Reduction, Region, TileGroup, Transfer
from ..templates.base import TemplateInput
from ..templates.collective import emit, period
from ..templates.waves import Hops
from ..text.vocabulary import MAX_STREAMS
from .issue_order import Move
from .kernels import Cell
from .outline import ANY_ORDER, Axis, By, Outline, Sums


@dataclass(frozen=True, slots=True)
class Moves:
    """Transfers and sums of one rank in the order of their issue, and when each block moves.

    Where kernels come first, a step waits for ``token(cell)`` in place of the kernel that computes the block.
    ``landed`` are the names that a reader of a block waits for, ``moved`` is the index of the step that brings or sends
    it. ``hops`` counts the transfers before its arrival, or from its first send on; empty where no kernel is grouped by
    hop.
    """

    steps: tuple[Move, ...]
    landed: Mapping[Cell, Names]
    moved: Mapping[Cell, int]
    hops: Mapping[Cell, int]


def token(cell: Cell) -> str:
    """Return a placeholder for the kernel that computes a block; no name of a step has a question mark."""
    return f"?{cell[0]}_{cell[1]}"


def row_per_piece(outline: Outline, problem: TemplateInput) -> TemplateInput:
    """Return the problem that an algorithm solves: one row per piece."""
    parts = outline.split.parts
    split = tuple(parts if rows else 0 for rows in problem.split)
    return replace(problem, shard_rows=parts, cols=1, pieces=parts, split=split)


def num_different(outline: Outline, problem: TemplateInput) -> int:
    """Return the number of ranks with different steps, after which they repeat: 1 where all are alike."""
    return problem.num_ranks if outline.ordering.order is PeerOrder.ABSOLUTE else period(problem)


def moves(outline: Outline, problem: TemplateInput, rank: int) -> Moves:
    """Return the transfers and sums of one rank."""
    n, order, produces = problem.num_ranks, outline.piece_order, problem.pattern.produces
    fragment = _emitted(outline, problem, rank)
    steps = _in_order(outline, replace(problem, rank=rank), fragment)
    steps = _in_lanes(outline, steps) if outline.one_at_a_time or outline.lanes else steps
    landed = {(block % n, order[piece]): names for (block, piece), names in fragment.done.items()}
    moved = _taken(outline, n, steps) if produces else _brought(landed, steps)
    placed = tuple(_placed(outline, problem, order, step) for step in steps)
    return Moves(placed, landed, moved, _hops_of_cells(outline, problem, rank, landed))


def _emitted(outline: Outline, problem: TemplateInput, rank: int) -> Fragment:
    """Run the algorithm for one rank, on one row per piece in the order in which they move."""
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
    ranks = range(period(problem))
    return Hops([_emitted(outline, problem, rank).steps for rank in ranks], problem.num_ranks, problem.node)


def _in_order(outline: Outline, problem: TemplateInput, fragment: Fragment) -> list[Move]:
    """Return the steps of an algorithm with peers in the order of the outline; sums keep their place.

    Where several hops follow a kernel, blocks with the longest way go first, so that no queue delays them.
    """
    steps = [step for step in fragment.steps if not isinstance(step, TileGroup)]
    if problem.pattern.produces and outline.algorithm not in ANY_ORDER:
        hops = _hops(outline, replace(problem, rank=0))
        return sorted(steps, key=lambda step: -hops.behind(problem.rank, step.name))
    if not outline.ordering.of_peers:
        return steps
    place = {peer: index for index, peer in enumerate(outline.ordering.peers or problem.served)}
    summed = {step.name for step in steps if isinstance(step, Reduction)}

    def sort_key(step: Transfer) -> tuple[bool, int, int]:
        piece, peer = step.region.rows.start, place[step.peer]
        inner = (peer, piece) if outline.ordering.peers_outermost else (piece, peer)
        return not summed.isdisjoint(step.after), *inner

    transfers = iter(sorted((step for step in steps if isinstance(step, Transfer)), key=sort_key))
    return [step if isinstance(step, Reduction) else next(transfers) for step in steps]


def _in_lanes(outline: Outline, steps: list[Move]) -> list[Move]:
    """Assign transfers to lanes in turn, or chain them in one lane; transfers of sums are not chained."""
    summed = {step.name for step in steps if isinstance(step, Reduction)}
    in_turn, in_lanes = list[str](), list[Move]()
    for step in steps:
        if isinstance(step, Transfer) and summed.isdisjoint(step.after):
            before = (*in_turn[-1:],) if outline.one_at_a_time else ()
            lane = len(in_turn) % outline.lanes if outline.lanes else 0
            in_turn.append(step.name)
            step = replace(step, lane=lane, after=(*step.after, *before))
        elif isinstance(step, Transfer) and outline.one_at_a_time:
            step = replace(step, lane=0)
        in_lanes.append(step)
    return in_lanes


def _brought(landed: Mapping[Cell, Names], steps: list[Move]) -> dict[Cell, int]:
    """Return the index of the transfer that brings each block, the same at all ranks; own blocks have -1."""
    sent = {step.signal: index for index, step in enumerate(steps) if isinstance(step, Transfer)}
    return {cell: max((sent.get(name, 0) for name in names), default=-1) for cell, names in landed.items()}


def _taken(outline: Outline, num_ranks: int, steps: list[Move]) -> dict[Cell, int]:
    """Return the index of the first step that sends each block."""
    first: dict[str, int] = {}
    for index, step in enumerate(steps):
        for name in step.after:
            first.setdefault(name, index)
    cells = [(owner, piece) for owner in range(num_ranks) for piece in range(outline.split.parts)]
    return {cell: first.get(token(cell), len(steps)) for cell in cells}


def _placed(outline: Outline, problem: TemplateInput, order: tuple[int, ...], step: Move) -> Move:
    """Map a step from rows to pieces, and put sums into their stream."""
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
