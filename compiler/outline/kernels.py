"""Group the tiles of an outline into kernels: rectangles of shards by pieces."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..collectives.base import Names
from ..ir import IndexRange, Region
from ..templates.base import TemplateInput
from .outline import Axis, By, KernelGroup, Outline, Turn

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
        case Axis.ROWS:
            return tuple(Region(block.owner, _rows(outline, kernel, block), block.cols) for block in whole)
        case Axis.COLS if problem.pattern.produces:
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
        by_cell[0, piece] = tuple(name for name, span in spans.items() if _overlap(span, rows))
    return by_cell


def _overlap(one: IndexRange, other: IndexRange) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def inner_slice(outline: Outline, problem: TemplateInput, kernel: Kernel) -> IndexRange:
    """Return the slice of the inner dimension that a kernel computes with."""
    if outline.split.axis is Axis.COLS and not problem.pattern.produces:
        return _joined(outline, kernel, problem.inner)
    return problem.all_inner


def _joined(outline: Outline, kernel: Kernel, size: int) -> IndexRange:
    return IndexRange(outline.split.span(kernel.first, size).start, outline.split.span(kernel.last, size).stop)
