"""The plan of one rank: steps, arrivals, what is before each step; rows, tiles, and gaps in regions."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from graphlib import TopologicalSorter
from operator import itemgetter

from ..codes import Code
from .op_shape import OpShape
from .operations.kernel_shape import Cutting
from .options import Direction, Kernels
from .region import Region
from .scenario import OpCase
from .schedule import EngineChoice, EngineMode, OpPlan, Reach, Reduction, Step, TileGroup, Transfer
from .tensors import Pattern


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One fault of a plan: diagnostic code, the step at fault (empty if none), a sentence, and a hint.

    ``part`` is the part whose steps are at fault, empty where it is what holds between parts, or there is one plan.
    """

    code: Code
    step: str
    message: str
    hint: str = field(default="", compare=False)
    part: str = ""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A transfer at its destination; ``region`` and ``source`` are relative to the destination.

    ``source`` is the rank that it reads, of a block that was passed on in an all_to_all the one whose it is.
    """

    transfer: Transfer
    issuer: int
    source: int
    region: Region


def arrivals_at(scenario: OpCase, schedule: OpPlan, rank: int) -> tuple[Arrival, ...]:
    """Return every transfer that arrives at ``rank``, of any issuer; a put to all arrives at every rank and at its own.

    They are in the order of their issuers, and of the steps of each. Time goes by the steps of one period of the plan.
    """
    n, period = scenario.num_ranks, schedule.period(scenario.num_ranks)
    found: list[tuple[int, int, Transfer]] = []
    for first in range(period):
        for place, step in enumerate(schedule.steps_of(first)):
            if isinstance(step, Transfer):
                found += [(issuer, place, step) for issuer in _issuers(step, rank, n) if issuer % period == first]
    return tuple(_arrival(step, issuer, rank, n) for issuer, _, step in sorted(found, key=lambda one: one[:2]))


def all_arrivals(scenario: OpCase, schedule: OpPlan) -> tuple[tuple[Arrival, ...], ...]:
    """Return ``arrivals_at`` of every rank, in one pass over the plan."""
    n = scenario.num_ranks
    by_rank: list[list[Arrival]] = [[] for _ in range(n)]
    for issuer in range(n):
        for step in schedule.steps_of(issuer):
            if isinstance(step, Transfer):
                for rank in _landing(step, issuer, n):
                    by_rank[rank].append(_arrival(step, issuer, rank, n))
    return tuple(map(tuple, by_rank))


def _landing(step: Transfer, issuer: int, num_ranks: int) -> Collection[int]:
    """Return the absolute ranks at which a transfer arrives."""
    puts = step.direction is Direction.PUT
    if puts and step.reach is Reach.ALL:
        return range(num_ranks)
    return ((issuer + step.peer if puts else issuer) % num_ranks,)


def _issuers(step: Transfer, rank: int, num_ranks: int) -> Collection[int]:
    """Return the absolute ranks whose transfers, if they are like ``step``, arrive at ``rank``."""
    if step.direction is Direction.GET:
        return (rank,)
    return range(num_ranks) if step.reach is Reach.ALL else ((rank - step.peer) % num_ranks,)


def _arrival(step: Transfer, issuer: int, rank: int, num_ranks: int) -> Arrival:
    source = issuer + (step.origin if step.direction is Direction.PUT else step.peer)
    return Arrival(step, issuer, (source - rank) % num_ranks, seen_from(step.region, rank - issuer, num_ranks))


@dataclass(frozen=True)
class RankPlan:
    """The plan of absolute rank ``rank``: ``steps`` by name, all ``arrivals``; ``others`` has plans of other ranks."""

    scenario: OpCase
    schedule: OpPlan
    rank: int
    steps: Mapping[str, Step]
    arrivals: tuple[Arrival, ...]
    others: dict[int, "RankPlan"] = field(compare=False, repr=False)

    @classmethod
    def of(
        cls, scenario: OpCase, schedule: OpPlan, rank: int, others: dict[int, "RankPlan"] | None = None
    ) -> "RankPlan":
        """Return the plan of ``rank`` in ``schedule``, which is made once and kept in ``others``."""
        known = {} if others is None else others
        if rank not in known:
            steps = {step.name: step for step in schedule.steps_of(rank)}
            known[rank] = cls(scenario.at(rank), schedule, rank, steps, arrivals_at(scenario, schedule, rank), known)
        return known[rank]

    def of_peer(self, step: Transfer) -> "RankPlan":
        """The plan of the rank that a get of this rank reads, or that a put writes to."""
        peer = (self.rank + step.peer) % self.scenario.num_ranks
        return RankPlan.of(self.scenario, self.schedule, peer, self.others)

    @cached_property
    def signals(self) -> frozenset[str]:
        """All signals that are set at this rank."""
        return frozenset(arrival.transfer.signal for arrival in self.arrivals)

    @cached_property
    def _by_owner(self) -> Mapping[int, Sequence[Arrival]]:
        found = defaultdict[int, list[Arrival]](list)
        for arrival in self.arrivals:
            for owner in arrival.region.owners:
                found[owner].append(arrival)
        return found

    def arrivals_of(self, owner: int) -> Sequence[Arrival]:
        """What arrives of the row block of rank r + ``owner``."""
        return self._by_owner.get(owner % self.scenario.num_ranks, ())

    @cached_property
    def before(self) -> dict[str, frozenset[str]]:
        """Return for each step the steps and signals that always happen at this rank before it."""
        return before_each(self.steps.values(), persistent=self.schedule.tactics.kernel is Kernels.PERSISTENT)


def before_each(steps: Collection[Step], *, persistent: bool = False) -> dict[str, frozenset[str]]:
    """Return for each step of a rank, and each signal it waits for, what always happens there before.

    Raises
    ------
    graphlib.CycleError
        If steps wait for each other.
    """
    waits = {step.name: set(step.after) for step in steps}
    for name, earlier in queued_behind(steps, persistent=persistent):
        waits[name].add(earlier)
    known: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(waits).static_order():
        direct = waits.get(name, set())
        known[name] = frozenset(direct).union(*(known[other] for other in direct)) if direct else frozenset()
    return known


def queued_behind(steps: Collection[Step], *, persistent: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (step, the one before it in its queue): kernels of a stream and transfers of a lane run in issue order.

    Each SM goes through the groups of a ``persistent`` kernel in order, but a group may begin and end before an earlier
    one is done. The kernel holds all SMs until its last group ends; a sum is a kernel too and comes after it.
    """
    groups = [step.name for step in steps if isinstance(step, TileGroup)] if persistent else []
    last: dict[tuple[bool, int], str] = {}
    for step in steps:
        if isinstance(step, Reduction):
            yield from ((step.name, group) for group in groups)
        moves = isinstance(step, Transfer)
        number = step.lane if isinstance(step, Transfer) else step.stream
        if number is None or step.name in groups:
            continue
        if (moves, number) in last:
            yield step.name, last[moves, number]
        last[moves, number] = step.name


def num_sharing(steps: Iterable[Step], engine: EngineChoice) -> int:
    """Return among how many the SMs that copy are shared: channels, else peers of transfers without a lane, or 1."""
    copies = [step for step in steps if isinstance(step, Transfer)]
    if engine.mode is EngineMode.CHANNELS and any(copy.lane is not None for copy in copies):
        return len({copy.lane for copy in copies})
    return max(1, len({copy.peer for copy in copies if copy.lane is None} - {0}))


_WHOLE = Cutting()


def cutting_of(shape: OpShape) -> Cutting:
    """How the kernel of ``shape`` may be cut; see ``KernelShape.cutting``."""
    compute, moved = shape.compute, shape.moved
    return _WHOLE if compute is None or moved is None else compute.cutting(shape.pattern, moved)


def moved_rows(shape: OpShape, num_ranks: int, owner: int = 0, holder: int = 0) -> int:
    """Rows of the moved tensor's block of rank r + ``owner`` that rank r + ``holder`` has; 0 where nothing moves.

    Where ranks differ, r is ``workload.rank``.
    """
    if shape.loads:
        rank = shape.rank
        return shape.loads[(rank + holder) % num_ranks][(rank + owner) % num_ranks]
    if shape.split:
        return shape.split[(owner - holder) % num_ranks]
    return shape.moved.rows // num_ranks if shape.moved is not None else 0


def rows_of_block(shape: OpShape, num_ranks: int, block: int) -> int:
    """Rows of the moved tensor's block of the absolute rank ``block``, which all ranks hold alike."""
    return moved_rows(shape, num_ranks, block - shape.rank)


def num_tile_blocks(shape: OpShape, num_ranks: int) -> int:
    """Row blocks that the rows of the output of one rank's kernels are counted in."""
    return num_ranks if shape.moved is not None and shape.pattern.overlaps else 1


def tile_rows(shape: OpShape, num_ranks: int, owner: int = 0) -> int:
    """Rows of the tiles in block ``owner``: those that came from rank r + ``owner``, or are computed for it."""
    if shape.moved is not None and shape.pattern.overlaps:
        consumes = shape.pattern.consumes
        return moved_rows(shape, num_ranks, 0 if consumes else owner, owner if consumes else 0)
    return shape.gemm.m if shape.gemm is not None else inner_size(shape)


def tile_cols(shape: OpShape) -> int:
    """Columns of the output of one rank's kernels, rows where that is transposed (``OpShape.by_columns``)."""
    return shape.gemm.m if shape.by_columns and shape.gemm is not None else _cols_and_inner(shape)[0]


def inner_size(shape: OpShape) -> int:
    """The inner dimension that tiles may be sliced along, 0 where nothing computes."""
    return _cols_and_inner(shape)[1]


def _cols_and_inner(shape: OpShape) -> tuple[int, int]:
    if shape.compute is None:
        return 0, 0
    if shape.pattern is Pattern.KERNEL:
        return 1, 1
    return shape.compute.tile_extent(shape.pattern, shape.moved)


Span = tuple[Fraction, Fraction]
"""A part of the units of a kernel, in their order, from 0 to 1."""


def kernels_that_store(steps: Collection[Step]) -> dict[str, TileGroup | Reduction]:
    """Return for each transfer of a rank the kernel whose units store all it moves; transfers without one are left out.

    It is the last of those that the transfer waits for and that compute the region: of several kernels that add to one
    output the last one has the result. A step that waits for a transfer as well passes something on, and has not all of
    it from a kernel.
    """
    kernels = {step.name: (place, step) for place, step in enumerate(steps) if not isinstance(step, Transfer)}
    found: dict[str, TileGroup | Reduction] = {}
    for step in steps:
        if not isinstance(step, Transfer) or step.direction is not Direction.PUT or step.reach is not Reach.PEER:
            continue
        awaited = sorted((kernels[name] for name in step.after if name in kernels), key=itemgetter(0))
        holding = [kernel for _, kernel in awaited if any(_holds(each, step.region) for each in regions_of(kernel))]
        if holding and len(awaited) == len(step.after):
            found[step.name] = holding[-1]
    return found


def kernels_that_pull(steps: Collection[Step]) -> dict[str, TileGroup]:
    """Return for each get of a rank the first kernel that waits for it and computes its rows, and so may pull it.

    A get that waits for a step of the rank or of its peer is left out: a kernel pulls what is there from the beginning.
    """
    groups = [step for step in steps if isinstance(step, TileGroup)]
    transfers = [step for step in steps if isinstance(step, Transfer)]
    own = {step.name for step in steps} | {step.signal for step in transfers}
    found: dict[str, TileGroup] = {}
    for step in transfers:
        if step.direction is not Direction.GET or step.reach is not Reach.PEER or step.peer_after:
            continue
        if own.isdisjoint(step.after):
            waiting = (group for group in groups if step.signal in group.after)
            pulling = [group for group in waiting if kernels_of(rows_of(step, group), (group,))]
            if pulling:
                found[step.name] = pulling[0]
    return found


def rows_of(step: Transfer, group: TileGroup) -> Region:
    """Return the rows that the get ``step`` brings as a region of what ``group`` computes, all columns of that.

    The own block of a peer becomes the rows that came from the peer.
    """
    return replace(step.region, owner=step.region.owner or step.peer, cols=group.regions[0].cols)


def kernels_of(part: Region, steps: Collection[Step]) -> tuple[TileGroup, ...]:
    """Return the groups of ``steps`` that compute ``part``."""
    groups = (step for step in steps if isinstance(step, TileGroup))
    return tuple(group for group in groups if any(_holds(region, part) for region in group.regions))


def sums_of_all(steps: Collection[Step]) -> Iterator[Transfer]:
    """Yield the transfers that ask a switch for the sum of what all ranks have computed."""
    for step in steps:
        if isinstance(step, Transfer) and step.reach is Reach.ALL and step.direction is Direction.GET:
            yield step


def seen_from(region: Region, offset: int, num_ranks: int) -> Region:
    """Return ``region`` as the rank ``offset`` further names it."""
    also = tuple([(owner - offset) % num_ranks for owner in region.also]) if region.also else ()
    return Region((region.owner - offset) % num_ranks, region.rows, region.cols, also)


def span_of(part: Region, kernel: TileGroup | Reduction) -> Span:
    """Return the share of the tiles of ``kernel`` that hold ``part``; all of them if it computes only some of it.

    Tiles go through the regions in order, and through the rows of each; a band of columns is in all tiles of its rows.
    """
    regions = regions_of(kernel)
    rows, before = sum(region.rows.size for region in regions), 0
    for region in regions:
        if _holds(region, part):
            first = before + part.rows.start - region.rows.start
            return Fraction(first, rows), Fraction(first + part.rows.size, rows)
        before += region.rows.size
    return Fraction(0), Fraction(1)


def regions_of(step: Step) -> tuple[Region, ...]:
    """Return the regions that a step names, each of one owner."""
    return step.regions if isinstance(step, TileGroup) else step.region.each


def _holds(region: Region, part: Region) -> bool:
    """Whether ``part`` lies in ``region``, and is not empty."""
    return (
        region.owner == part.owner
        and region.rows.start <= part.rows.start < part.rows.stop <= region.rows.stop
        and region.cols.start <= part.cols.start < part.cols.stop <= region.cols.stop
    )
