"""Reads and writes of each cell of the moved tensor at each rank, and which of them have no order.

Cells are the largest rectangles that each step of a plan takes whole or not at all.

Data and result are two tensors: kernels write the data, additions and copies write the result, which begins as the
data. A transfer reads the result where a step that it waits for has written it, else the data.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product

from ..codes import Code
from ..ir import (
    Direction,
    OpCase,
    OpPlan,
    Pattern,
    PlanFault,
    Reach,
    Rect,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    regions_of,
    rows_of_block,
)
from .happens_before import Event, HappensBefore, Waits

Cell = tuple[int, int]
"""(row, column) in the grid."""


class Grid:
    """Cells of a row block, the same for all blocks, of which some may end before ``rows``; ``regions`` lie inside."""

    def __init__(self, rows: int, cols: int, regions: Iterable[Region]) -> None:
        row_edges, col_edges = {0, rows}, {0, cols}
        for region in regions:
            row_edges |= {region.rows.start, region.rows.stop}
            col_edges |= {region.cols.start, region.cols.stop}
        self._rows, self._cols = sorted(row_edges), sorted(col_edges)

    def cells(self, region: Region) -> Iterator[Cell]:
        """Return the cells of ``region``."""
        rows, cols = region.rows, region.cols
        top, bottom = bisect_left(self._rows, rows.start), bisect_left(self._rows, rows.stop)
        left, right = bisect_left(self._cols, cols.start), bisect_left(self._cols, cols.stop)
        return product(range(top, bottom), range(left, right))

    def all_cells(self) -> Iterator[Cell]:
        """Return the cells of a whole block."""
        return product(range(len(self._rows) - 1), range(len(self._cols) - 1))

    def rect(self, cell: Cell) -> Rect:
        """Return the rectangle of ``cell`` in its block."""
        row, col = cell
        return Rect(self._rows[row], self._rows[row + 1], self._cols[col], self._cols[col + 1])


Place = tuple[int, int, Cell]
"""A cell of a block at a rank: (rank, block relative to the rank, cell)."""


class AccessKind(Enum):
    """The effect of a step on a cell: PART stores a part for a later reduction, REDUCE sums the stored parts."""

    READ = auto()
    COMPUTE = auto()
    ADD = auto()
    STORE = auto()
    PART = auto()
    REDUCE = auto()


@dataclass(frozen=True, slots=True)
class Access:
    """Access by ``step`` of the rank that is ``issuer`` places after the rank of the cell."""

    issuer: int
    step: str
    kind: AccessKind


class AccessMap:
    """The accesses of each cell of the moved tensor, at the ranks that ``waits`` keeps."""

    def __init__(self, scenario: OpCase, schedule: OpPlan, waits: Waits) -> None:
        shape, self.num_ranks, self.period = scenario.shape, waits.num_ranks, waits.period
        self.sums = shape.pattern.sums
        self.computes = shape.pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR)
        self.order = HappensBefore(waits)
        self.steps = {(rank, step.name): step for rank, steps in waits.steps.items() for step in steps}
        self.block_rows = tuple(rows_of_block(shape, self.num_ranks, block) for block in range(self.num_ranks))
        regions = (region for step in self.steps.values() for region in regions_of(step))
        self.grid = Grid(max(self.block_rows), shape.moved_tensor.cols, regions)
        self.accesses: dict[Place, list[Access]] = {}
        self._note_kernels()
        self._note_transfers()

    def cells(self, step: Step) -> Iterator[tuple[Region, Cell]]:
        """Return the cells of each region of a step."""
        return ((region, cell) for region in regions_of(step) for cell in self.grid.cells(region))

    def place(self, rank: int, step_rank: int, region: Region, cell: Cell) -> Place:
        """Return the place at ``rank`` of ``cell`` of a ``region`` that is relative to ``step_rank``."""
        return rank % self.period, (step_rank + region.owner - rank) % self.num_ranks, cell

    def ends(self, rank: int, step: Transfer) -> tuple[list[int], list[int]]:
        """Return the ranks that a transfer reads from and those that it writes to."""
        puts, everyone = step.direction is Direction.PUT, step.reach is Reach.ALL
        peer = (rank + step.peer) % self.num_ranks
        if everyone and puts:
            return [rank], [other for other in range(self.num_ranks) if other != rank]
        if everyone:
            return list(range(self.num_ranks)), [rank]
        return ([rank], [peer]) if puts else ([peer], [rank])

    def landing(self, place: Place, rank: int, step: Transfer, at: int) -> AccessKind:
        """Return what a transfer of ``rank`` does at ``place``, where it arrives at rank ``at``."""
        if step.reach is Reach.PEER and step.reduce:
            return AccessKind.ADD
        event = ((rank - at) % self.num_ranks, step.name)
        for access in self.accesses.get(place, ()):
            if access.kind is AccessKind.REDUCE and not self.happened(place, (access.issuer, access.step), event):
                return AccessKind.PART
        return AccessKind.STORE

    def happened(self, place: Place, first: Event, then: Event) -> bool:
        """Whether ``first`` is done before ``then`` starts; their ranks are relative to the rank of ``place``."""
        rank = place[0]
        return self.order.happened((first[0] + rank, first[1]), (then[0] + rank, then[1]))

    def exists(self, place: Place) -> bool:
        """Whether the block of ``place``, of those that differ in size, has its cell."""
        rect, block, _ = self.where(place)
        return rect.top < self.block_rows[block]

    def where(self, place: Place) -> tuple[Rect, int, int]:
        """Return rectangle, absolute block and rank of a place, for messages."""
        rank, block, cell = place
        return self.grid.rect(cell), (rank + block) % self.num_ranks, rank

    def _note(self, place: Place, access: Access) -> None:
        self.accesses.setdefault(place, []).append(access)

    def _note_kernels(self) -> None:
        for (rank, name), step in self.steps.items():
            if isinstance(step, Transfer) or (isinstance(step, TileGroup) and not self.computes):
                continue
            kind = AccessKind.REDUCE if isinstance(step, Reduction) else AccessKind.COMPUTE
            for region, cell in self.cells(step):
                self._note(self.place(rank, rank, region, cell), Access(0, name, kind))

    def _note_transfers(self) -> None:
        for (rank, name), step in self.steps.items():
            if not isinstance(step, Transfer):
                continue
            sources, destinations = self.ends(rank, step)
            for region, cell in self.cells(step):
                for source in sources:
                    place = self.place(source, rank, region, cell)
                    self._note(place, Access((rank - source) % self.num_ranks, name, AccessKind.READ))
                for at in destinations:
                    place = self.place(at, rank, region, cell)
                    kind = self.landing(place, rank, step, at)
                    self._note(place, Access((rank - at) % self.num_ranks, name, kind))


def races(access_map: AccessMap) -> list[PlanFault]:
    """Return faults for reads during a write and for writes without an order.

    A missing wait leaves all later steps without an order. A step issued before the one that it should wait for is only
    reported if there is nothing else. Faults come in the order of the steps.
    """
    faults: list[tuple[bool, int, PlanFault]] = []
    indices = {name: index for index, (_, name) in enumerate(access_map.steps)}
    for place, accesses in access_map.accesses.items():
        writes = [access for access in accesses if access.kind not in (AccessKind.READ, AccessKind.PART)]
        for access in accesses:
            racing = [
                write
                for write in writes
                if _conflict(access, write)
                and not _ordered(access_map, place, access, write)
                and not _reads_before_sums(access_map, place, access, write)
            ]
            for other in racing:
                index, hint = indices[access.step], _wait_for_last(access_map, place, access, racing)
                faults.append((index < indices[other.step], index, _race(access_map, place, access, other, hint)))
    faults.sort(key=lambda each: each[:2])
    return [fault for backwards, _, fault in faults if backwards is faults[0][0]]


def unsummed_reads(access_map: AccessMap) -> Iterator[PlanFault]:
    """Return faults for transfers that read cells which the rank also sums, in no order.

    This is right where both the parts and the sum are sent.
    """
    for place, accesses in access_map.accesses.items():
        for access in accesses:
            for other in accesses:
                reads = access.kind is AccessKind.READ and other.kind is AccessKind.REDUCE
                if reads and not _ordered(access_map, place, access, other):
                    yield _race(access_map, place, access, other)


def reads_result(access_map: AccessMap, place: Place, event: Event) -> bool:
    """Whether the transfer ``event``, its rank relative to that of ``place``, reads the result and not the data."""
    return any(
        access.kind in (AccessKind.ADD, AccessKind.STORE, AccessKind.REDUCE)
        and access_map.happened(place, (access.issuer, access.step), event)
        for access in access_map.accesses[place]
    )


def _conflict(access: Access, other: Access) -> bool:
    """Whether ``access`` and the write ``other`` need an order."""
    if access == other or access.kind is AccessKind.PART or (access.issuer, access.step) == (other.issuer, other.step):
        return False
    match access.kind:
        case AccessKind.READ | AccessKind.STORE:
            return True
        case AccessKind.REDUCE:
            return other.kind in (AccessKind.COMPUTE, AccessKind.REDUCE)
        case AccessKind.ADD:
            return other.kind is AccessKind.COMPUTE
        case _:
            return False


def _reads_before_sums(access_map: AccessMap, place: Place, access: Access, other: Access) -> bool:
    """Whether ``access`` reads the data, which the sum ``other`` leaves as they are: it writes the result."""
    summed = access.kind is AccessKind.READ and other.kind is AccessKind.REDUCE
    return summed and not reads_result(access_map, place, (access.issuer, access.step))


def _ordered(access_map: AccessMap, place: Place, one: Access, other: Access) -> bool:
    first, second = (one.issuer, one.step), (other.issuer, other.step)
    return access_map.happened(place, first, second) or access_map.happened(place, second, first)


def _wait_for_last(access_map: AccessMap, place: Place, access: Access, writes: list[Access]) -> str:
    """Return the hint that orders ``access`` after all ``writes``; empty where no wait of its rank can."""
    events = [(each.issuer, each.step) for each in writes]
    last = [
        each
        for each, event in zip(writes, events, strict=True)
        if not any(access_map.happened(place, event, then) for then in events if then != event)
    ]
    other = last[-1] if last else writes[-1]
    step = access_map.steps[(place[0] + other.issuer) % access_map.period, other.step]
    if (other.issuer - access.issuer) % access_map.num_ranks == 0:
        return f"add: after {other.step}"
    arrives = isinstance(step, Transfer) and access.issuer % access_map.num_ranks == 0
    return f"add: after {step.signal}, which brings them" if arrives and isinstance(step, Transfer) else ""


def _race(access_map: AccessMap, place: Place, access: Access, other: Access, hint: str = "") -> PlanFault:
    rect, block, rank = access_map.where(place)
    cells = f"{rect} of block {block} at rank {rank}"
    if other.kind is AccessKind.COMPUTE and access.kind is not AccessKind.ADD:
        message = f"{access.step} takes {cells} before they are computed"
    elif access.kind is AccessKind.READ:
        message = f"{access.step} takes {cells} while {other.step} may still be writing them"
    else:
        message = f"{access.step} and {other.step} write {cells} in no order"
    return PlanFault(Code.MGS508, access.step, message, hint)
