"""Group the tiles of an outline into kernels: rectangles of shards by pieces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import product
from types import MappingProxyType

from ..collectives.base import Fragment, Names
from ..ir import Direction, IndexRange, PeerOrder, Reduction, Region, Step, TileGroup, Transfer
from ..templates.base import TemplateInput
from ..templates.collective import emit, period
from ..templates.pipelined import Hops
from ..text.vocabulary import MAX_STREAMS
from .outline import ANY_ORDER, By, KernelGroup, Outline, SplitAxis, Sums, Turn

Cell = tuple[int, int]
"""A block: (owner, relative to the rank; piece)."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Pieces ``first`` to ``last`` of the shards of ``owners``."""

    owners: tuple[int, ...]
    first: int
    last: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all blocks, pieces in the outer loop."""
        return tuple((owner, piece) for piece in range(self.first, self.last + 1) for owner in self.owners)


def kernels(outline: Outline, problem: TemplateInput, hops: Mapping[Cell, int] = MappingProxyType({})) -> list[Kernel]:
    """Return all kernels of a rank, own tiles first; the own shard alone where the outline says so.

    ``hops`` are the hops of each block, for kernels grouped by hop; without them each block is a kernel.
    """
    owners = [owner for owner in range(problem.num_ranks) if problem.gathered(owner).rows.size]
    alone = outline.grouping.own_alone
    own = [Kernel((0,), 0, outline.split.parts - 1)] if alone and 0 in owners else []
    rest = tuple(owner for owner in owners if owner or not alone)
    all_kernels = [*own, *(kernel for batch in outline.batches if rest for kernel in _of_batch(batch, rest, hops))]
    return [kernel for kernel in all_kernels if kernel.owners != (0,) or _own_rows(outline, kernel)]


def _own_rows(outline: Outline, kernel: Kernel) -> bool:
    return not outline.own or outline.own_span(kernel.first, kernel.last).size > 0


def _of_batch(batch: KernelGroup, owners: tuple[int, ...], hops: Mapping[Cell, int]) -> Iterator[Kernel]:
    pieces = range(batch.first, batch.last + 1)
    match batch.by:
        case By.TOGETHER:
            yield Kernel(owners, batch.first, batch.last)
        case By.PIECE:
            yield from (Kernel(owners, piece, piece) for piece in pieces)
        case By.PEER:
            yield from (Kernel((owner,), batch.first, batch.last) for owner in owners)
        case By.BLOCK:
            yield from (Kernel((owner,), piece, piece) for piece in pieces for owner in owners)
        case By.HOP:
            for piece in pieces:
                # Without hops each owner counts as a distance of its own.
                away = {owner: hops.get((owner, piece), owner) for owner in owners}
                for distance in sorted(set(away.values())):
                    yield Kernel(tuple(owner for owner in owners if away[owner] == distance), piece, piece)


def in_order(
    outline: Outline, unordered: Iterable[Kernel], moved: Mapping[Cell, int], *, produces: bool
) -> list[Kernel]:
    """Sort kernels into the order in which they run.

    ``moved`` is the index of the transfer of each block. A kernel that ``produces`` the moved blocks is ordered by the
    first of them, one that consumes them by the last. By default the own shard, where it is a kernel of its own, runs
    before gathered data and after sent data.
    """
    alone, usual = outline.grouping.own_alone, Turn.LAST if produces else Turn.FIRST
    turn = {Turn.FIRST: -1, Turn.LAST: 1}[outline.ordering.own or usual]

    def sort_key(kernel: Kernel) -> tuple[int, int]:
        times = [moved[cell] for cell in kernel.cells]
        return turn if alone and kernel.owners == (0,) else 0, min(times) if produces else max(times)

    return sorted(unordered, key=sort_key)


def regions(outline: Outline, problem: TemplateInput, kernel: Kernel, moved: Mapping[Cell, int]) -> tuple[Region, ...]:
    """Return the tiles of a kernel in the order in which their data moves; whole blocks if gathered columns are cut."""
    owners = sorted(kernel.owners, key=lambda owner: moved[owner, kernel.first])
    owners = [owner for owner in owners if owner or _own_rows(outline, kernel)]
    whole = [problem.gathered(owner) for owner in owners]
    match outline.split.axis:
        case SplitAxis.ROWS:
            return tuple(Region(block.owner, _rows(outline, kernel, block), block.cols) for block in whole)
        case SplitAxis.COLS if problem.pattern.produces:
            return tuple(Region(block.owner, block.rows, _joined(outline, kernel, block.cols.size)) for block in whole)
        case _:
            return tuple(whole)


def _rows(outline: Outline, kernel: Kernel, block: Region) -> IndexRange:
    if outline.own and not block.owner:
        return outline.own_span(kernel.first, kernel.last)
    return _joined(outline, kernel, block.rows.size)


def makers(outline: Outline, problem: TemplateInput, names: Mapping[str, Kernel]) -> dict[Cell, Names]:
    """Return the kernels that compute each block: one, or several for an own shard with cuts of its own."""
    by_cell: dict[Cell, Names] = {cell: (name,) for name, kernel in names.items() for cell in kernel.cells}
    if not outline.own:
        return by_cell
    spans = {name: outline.own_span(each.first, each.last) for name, each in names.items() if 0 in each.owners}
    for piece in range(outline.split.parts):
        rows = outline.split.span(piece, problem.gathered(0).rows.size)
        by_cell[0, piece] = tuple(name for name, span in spans.items() if span.meets(rows))
    return by_cell


def inner_slice(outline: Outline, problem: TemplateInput, kernel: Kernel) -> IndexRange:
    """Return the slice of the inner dimension that a kernel computes with."""
    if outline.split.axis is SplitAxis.COLS and not problem.pattern.produces:
        return _joined(outline, kernel, problem.inner)
    return problem.all_inner


def _joined(outline: Outline, kernel: Kernel, size: int) -> IndexRange:
    return IndexRange(outline.split.span(kernel.first, size).start, outline.split.span(kernel.last, size).stop)


Move = Transfer | Reduction


def before_kernels(groups: Sequence[TileGroup], moving: Sequence[Move]) -> tuple[Step, ...]:
    """Issue each kernel after the transfers that bring its input."""
    issued: list[Step] = []
    rest = iter(moving)
    known, sent = {step.signal for step in moving if isinstance(step, Transfer)}, set[str]()
    for group in groups:
        while not known.intersection(group.after) <= sent:
            step = next(rest)
            issued.append(step)
            sent.update(_sets(step))
        issued.append(group)
    return (*issued, *rest)


def after_kernels(groups: Sequence[TileGroup], moving: Sequence[Move], *, sums_behind: bool) -> tuple[Step, ...]:
    """Issue each transfer and sum as soon as all its waits are issued, those that may go at once in their order.

    With ``sums_behind`` sums follow all kernels. What waits for itself comes last; the check of the plan reports it.
    """
    # All ranks issue alike: a signal stands for the own transfer that sets it.
    setters: dict[str, str] = {name: step.name for step in moving for name in _sets(step)}
    setters |= {group.name: group.name for group in groups}
    sorter = TopologicalSorter[str]({group.name: () for group in groups})
    places = {step.name: index for index, step in enumerate(moving)}
    for index, step in enumerate(moving):
        behind = {groups[-1].name} if sums_behind and isinstance(step, Reduction) else set[str]()
        awaited = behind | {setters[name] for name in step.after if name in setters}
        # What waits for other ranks only keeps the order of the algorithm.
        sorter.add(step.name, *(awaited or {moving[index - 1].name if index else groups[0].name}))
    with suppress(CycleError):
        sorter.prepare()
    sorter.get_ready()  # the kernels
    issued: list[Step] = []
    ready: list[int] = []
    for group in groups:
        issued.append(group)
        sorter.done(group.name)
        while ready := _pushed(ready, sorter, places):
            step = moving[heappop(ready)]
            issued.append(step)
            sorter.done(step.name)
    done = {step.name for step in issued}
    return (*issued, *(step for step in moving if step.name not in done))


def _pushed(ready: list[int], sorter: TopologicalSorter[str], places: Mapping[str, int]) -> list[int]:
    """The heap ``ready`` with the steps that may be issued now."""
    for name in sorter.get_ready():
        heappush(ready, places[name])
    return ready


def _sets(step: Move) -> tuple[str, ...]:
    """Return the names that other steps may wait for: of the step, and of its signal."""
    return (step.name, step.signal) if isinstance(step, Transfer) else (step.name,)


@dataclass(frozen=True, slots=True)
class Moves:
    """Transfers and sums of one rank in the order of their issue, and when each block moves.

    Where kernels come first, a step waits for ``token(cell)`` in place of the kernel that computes the block.
    ``arrived`` are the names that a reader of a block waits for, ``moved`` is the index of the step that brings or
    sends it. ``hops`` counts the transfers before its arrival, or from its first send on; empty where no kernel is
    grouped by hop.
    """

    steps: tuple[Move, ...]
    arrived: Mapping[Cell, Names]
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
    arrived = {(block % n, order[piece]): names for (block, piece), names in fragment.done.items()}
    moved = _taken(outline, n, steps) if produces else _delivered(arrived, steps)
    placed = tuple(_placed(outline, problem, order, step) for step in steps)
    return Moves(placed, arrived, moved, _hops_of_cells(outline, problem, rank, arrived))


def _emitted(outline: Outline, problem: TemplateInput, rank: int) -> Fragment:
    """Run the algorithm for one rank, on one row per piece in the order in which they move."""
    order, produces = outline.piece_order, problem.pattern.produces

    def ready(block: int, piece: int) -> Names:
        return (token((block % problem.num_ranks, order[piece])),) if produces else ()

    return emit(replace(row_per_piece(outline, problem), rank=rank), ready)


def _hops_of_cells(
    outline: Outline, problem: TemplateInput, rank: int, arrived: Mapping[Cell, Names]
) -> dict[Cell, int]:
    if not any(batch.by is By.HOP for batch in outline.batches):
        return {}
    hops = _hops(outline, problem)
    if problem.pattern.produces:
        cells = product(range(problem.num_ranks), range(outline.split.parts))
        return {cell: hops.behind(rank, token(cell)) for cell in cells}
    return {cell: max((hops.before(rank, name) for name in names), default=0) for cell, names in arrived.items()}


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


def _delivered(arrived: Mapping[Cell, Names], steps: list[Move]) -> dict[Cell, int]:
    """Return the index of the transfer that brings each block, the same at all ranks; own blocks have -1."""
    sent = {step.signal: index for index, step in enumerate(steps) if isinstance(step, Transfer)}
    return {cell: max((sent.get(name, 0) for name in names), default=-1) for cell, names in arrived.items()}


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
    whole, cut = replace(step.region, rows=IndexRange(0, rows), cols=IndexRange(0, problem.cols)), outline.split
    match cut.axis:
        case SplitAxis.ROWS:
            region = replace(whole, rows=cut.span(piece, rows))
        case SplitAxis.COLS:
            region = replace(whole, cols=cut.span(piece, problem.cols))
        case _:
            region = whole
    if isinstance(step, Transfer):
        return replace(step, region=region)
    own = outline.streams if problem.pattern.produces and outline.sums is Sums.PARALLEL else 0
    return replace(step, region=region, stream=(own + step.stream) % MAX_STREAMS)
