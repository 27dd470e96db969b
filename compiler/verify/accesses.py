"""Who reads and who writes each cell of the moved tensor at each rank, and which of them may do so at the same time.

What a rank has and what becomes of it are two tensors: kernels write the data, additions and copies write the result,
which begins as the data. A transfer reads the result where a step that it waits for has written it, else the data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from ..codes import Code
from ..ir import (
    Direction,
    Pattern,
    PlanFault,
    Reach,
    Rect,
    Reduction,
    Region,
    Scenario,
    Schedule,
    Step,
    TileGroup,
    Transfer,
    moved_rows,
)
from .grid import Cell, Grid
from .happens_before import Event, HappensBefore, Waits

Place = tuple[int, int, Cell]
"""A cell of a block at a rank; the block is counted from that rank."""


class How(Enum):
    """What a step does with a cell: PART puts it aside for a reduction, REDUCE sums what lies there."""

    READ = auto()
    COMPUTE = auto()
    ADD = auto()
    STORE = auto()
    PART = auto()
    REDUCE = auto()


@dataclass(frozen=True, slots=True)
class Touch:
    """``step`` of the rank ``issuer`` places further than the one that holds the cell."""

    issuer: int
    step: str
    how: How


class AccessMap:
    """All cells of the moved tensor at the ranks that are looked at, with who touches them."""

    def __init__(self, scenario: Scenario, schedule: Schedule, waits: Waits) -> None:
        workload, self.num_ranks, self.period = scenario.workload, waits.num_ranks, waits.period
        assert workload.moved is not None, "only plans that move a tensor have contributions"
        self.sums = workload.pattern.sums
        self.computes = workload.pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR)
        self.order, self.steps = (
            HappensBefore(waits),
            {(r, s.name): s for r, steps in waits.steps.items() for s in steps},
        )
        rows = moved_rows(workload, self.num_ranks)
        self.grid = Grid(rows, workload.moved.cols, (each for step in self.steps.values() for each in _regions(step)))
        self.touches: dict[Place, list[Touch]] = {}
        self._note_kernels()
        self._note_transfers()

    def place(self, rank: int, step_rank: int, region: Region, cell: Cell) -> Place:
        """Where ``cell`` of a region that a step of ``step_rank`` names lies at ``rank``."""
        return rank % self.period, (step_rank + region.owner - rank) % self.num_ranks, cell

    def ends(self, rank: int, step: Transfer) -> tuple[list[int], list[int]]:
        """The ranks that a transfer reads from and writes to."""
        puts, everyone = step.direction is Direction.PUT, step.reach is Reach.ALL
        peer = (rank + step.peer) % self.num_ranks
        if everyone and puts:
            return [rank], [other for other in range(self.num_ranks) if other != rank]
        if everyone:
            return list(range(self.num_ranks)), [rank]
        return ([rank], [peer]) if puts else ([peer], [rank])

    def landing(self, place: Place, rank: int, step: Transfer, at: int) -> How:
        """What a transfer of ``rank`` does where it lands, at ``place`` of rank ``at``."""
        if step.reach is Reach.PEER and step.reduce:
            return How.ADD
        event = ((rank - at) % self.num_ranks, step.name)
        for touch in self.touches.get(place, ()):
            if touch.how is How.REDUCE and not self.happened(place, (touch.issuer, touch.step), event):
                return How.PART
        return How.STORE

    def happened(self, place: Place, first: Event, then: Event) -> bool:
        """Whether ``first`` is done before ``then``, issuers counted from the rank of ``place``."""
        rank = place[0]
        return self.order.happened((first[0] + rank, first[1]), (then[0] + rank, then[1]))

    def where(self, place: Place) -> tuple[Rect, int, int]:
        """Rectangle, block and rank of a place, for messages."""
        rank, block, cell = place
        return self.grid.rect(cell), (rank + block) % self.num_ranks, rank

    def _note(self, place: Place, touch: Touch) -> None:
        self.touches.setdefault(place, []).append(touch)

    def _note_kernels(self) -> None:
        for (rank, name), step in self.steps.items():
            if isinstance(step, Transfer) or (isinstance(step, TileGroup) and not self.computes):
                continue
            how = How.REDUCE if isinstance(step, Reduction) else How.COMPUTE
            for region in _regions(step):
                for cell in self.grid.cells(region):
                    self._note(self.place(rank, rank, region, cell), Touch(0, name, how))

    def _note_transfers(self) -> None:
        for (rank, name), step in self.steps.items():
            if not isinstance(step, Transfer):
                continue
            sources, destinations = self.ends(rank, step)
            for cell in self.grid.cells(step.region):
                for source in sources:
                    place = self.place(source, rank, step.region, cell)
                    self._note(place, Touch((rank - source) % self.num_ranks, name, How.READ))
                for at in destinations:
                    place = self.place(at, rank, step.region, cell)
                    how = self.landing(place, rank, step, at)
                    self._note(place, Touch((rank - at) % self.num_ranks, name, how))


def races(board: AccessMap) -> list[PlanFault]:
    """Reads of what another step may still be writing, and writes in no order.

    A missing wait leaves everything behind it without an order. What stands before the step that it should wait for is
    only said where nothing else is, and the first step of the plan comes first.
    """
    found: list[tuple[bool, int, PlanFault]] = []
    numbers = {name: number for number, (_, name) in enumerate(board.steps)}
    for place, touches in board.touches.items():
        writes = [touch for touch in touches if touch.how not in (How.READ, How.PART)]
        for touch in touches:
            racing = [w for w in writes if _clash(touch, w) and not _ordered(board, place, touch, w)]
            for other in racing:
                number, hint = numbers[touch.step], _wait_for_last(board, place, touch, racing)
                found.append((number < numbers[other.step], number, _race(board, place, touch, other, hint)))
    found.sort(key=lambda each: each[:2])
    return [fault for backwards, _, fault in found if backwards is found[0][0]]


def unsummed_reads(board: AccessMap) -> Iterator[PlanFault]:
    """Transfers that send on what a rank has although it also sums there, in no order; right where both are wanted."""
    for place, touches in board.touches.items():
        for touch in touches:
            for other in touches:
                reads = touch.how is How.READ and other.how is How.REDUCE
                if reads and not _ordered(board, place, touch, other):
                    yield _race(board, place, touch, other)


def reads_result(board: AccessMap, place: Place, event: Event) -> bool:
    """Whether a transfer of ``event``, its rank counted from that of ``place``, reads what was written there before."""
    return any(
        touch.how in (How.ADD, How.STORE, How.REDUCE) and board.happened(place, (touch.issuer, touch.step), event)
        for touch in board.touches[place]
    )


def _clash(touch: Touch, other: Touch) -> bool:
    """Whether ``touch`` and the write ``other`` need an order."""
    if touch == other or touch.how is How.PART or (touch.issuer, touch.step) == (other.issuer, other.step):
        return False
    match touch.how:
        case How.READ:
            return other.how is not How.REDUCE
        case How.STORE:
            return True
        case How.REDUCE | How.ADD:
            return other.how is How.COMPUTE
        case _:
            return False


def _ordered(board: AccessMap, place: Place, one: Touch, other: Touch) -> bool:
    first, second = (one.issuer, one.step), (other.issuer, other.step)
    return board.happened(place, first, second) or board.happened(place, second, first)


def _wait_for_last(board: AccessMap, place: Place, touch: Touch, writes: list[Touch]) -> str:
    """What ``touch`` would wait for, so that it comes after all ``writes``; empty where no wait of its rank says so."""
    events = [(each.issuer, each.step) for each in writes]
    last = [
        each
        for each, event in zip(writes, events, strict=True)
        if not any(board.happened(place, event, then) for then in events if then != event)
    ]
    other = last[-1] if last else writes[-1]
    step = board.steps[(place[0] + other.issuer) % board.period, other.step]
    here = (other.issuer - touch.issuer) % board.num_ranks == 0
    if here:
        return f"add: after {other.step}"
    lands = isinstance(step, Transfer) and touch.issuer % board.num_ranks == 0
    return f"add: after {step.signal}, which brings them" if lands and isinstance(step, Transfer) else ""


def _race(board: AccessMap, place: Place, touch: Touch, other: Touch, hint: str = "") -> PlanFault:
    rect, block, rank = board.where(place)
    what = f"{rect} of block {block} at rank {rank}"
    if other.how is How.COMPUTE and touch.how is not How.ADD:
        message = f"{touch.step} takes {what} before they are computed"
    elif touch.how is How.READ:
        message = f"{touch.step} takes {what} while {other.step} may still be writing them"
    else:
        message = f"{touch.step} and {other.step} write {what} in no order"
    return PlanFault(Code.MGS508, touch.step, message, hint)


def _regions(step: Step) -> tuple[Region, ...]:
    return step.regions if isinstance(step, TileGroup) else (step.region,)
