"""How to carry out a schedule: the steps of each group of ranks that do the same, folded."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm

from ...compiler.ir import (
    Arrival,
    Direction,
    IndexRange,
    Kernels,
    OpCase,
    OpPlan,
    OpShape,
    Pattern,
    Reach,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    all_arrivals,
    before_each,
    inner_size,
    moved_rows,
    tile_cols,
    tile_rows,
)
from .facts import Affine, Arrived, Block, Frame, Naming, Role, StepAction, StepFacts, StepKind, shared_frames
from .folding import FoldedStep, Folder, LocalWaits, Node, Unsayable

MOST_PARTS = 64
"""Most equal parts of blocks of different sizes by which rows are flagged."""


@dataclass(frozen=True)
class PlanFacts:
    """The facts of a plan."""

    scenario: OpCase
    schedule: OpPlan

    @cached_property
    def _arrivals(self) -> tuple[dict[str, list[Arrival]], ...]:
        """What arrives at each rank, by the signal that it sets."""
        by_rank: list[dict[str, list[Arrival]]] = []
        for arrivals in all_arrivals(self.scenario, self.schedule):
            found: dict[str, list[Arrival]] = {}
            for arrival in arrivals:
                found.setdefault(arrival.transfer.signal, []).append(arrival)
            by_rank.append(found)
        return tuple(by_rank)

    @cached_property
    def parts_of_block(self) -> int:
        """Equal parts into which the plan cuts blocks of different sizes; 0 where rows are counted."""
        if not self.scenario.shape.uneven:
            return 0
        cuts = [
            Fraction(row, rows).denominator
            for rank in range(self.scenario.num_ranks)
            for region, rows in self._sized_regions(rank)
            for row in (region.rows.start, region.rows.stop)
            if rows
        ]
        parts = lcm(*cuts)
        return parts if parts <= MOST_PARTS else 0

    def steps_of(self, rank: int, frame: Frame) -> tuple[StepFacts[int], ...]:
        """Return the facts of the steps of ``rank``, in issue order."""
        return _RankFacts(self, rank, frame).steps()

    def _sized_regions(self, rank: int) -> Iterator[tuple[Region, int]]:
        for step in self.schedule.steps_of(rank):
            if isinstance(step, TileGroup):
                stage = self.scenario.at(rank).shape.stage(step.kernel)
                yield from ((each, tile_rows(stage, self.scenario.num_ranks, each.owner)) for each in step.regions)
            else:
                yield from ((each, block_rows(self.scenario, rank, step, each.owner)) for each in step.region.each)


def block_rows(scenario: OpCase, rank: int, step: Transfer | Reduction, owner: int) -> int:
    """Return the rows of the block of ``owner`` that a step of ``rank`` moves or sums."""
    holder = (step.peer if step.direction is Direction.GET else step.origin) if isinstance(step, Transfer) else 0
    return moved_rows(scenario.shape.at(rank), scenario.num_ranks, owner, holder)


@dataclass(frozen=True)
class _RankFacts:
    """The facts of one rank."""

    plan: PlanFacts
    rank: int
    frame: Frame

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        return self.plan.schedule.steps_of(self.rank)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {step.name: place for place, step in enumerate(self._steps)}

    @cached_property
    def _before(self) -> dict[str, frozenset[str]]:
        return before_each(self._steps)

    @property
    def _workload(self) -> OpShape:
        return self.plan.scenario.shape.at(self.rank)

    def steps(self) -> tuple[StepFacts[int], ...]:
        return tuple(self._with_waits(step, self._alone(step)) for step in self._steps)

    def _alone(self, step: Step) -> StepFacts[int]:
        match step:
            case Transfer():
                return self._transfer(step)
            case TileGroup():
                return self._kernel(step)
            case Reduction():
                action = StepAction(StepKind.SUM, parts=step.num_parts)
                return StepFacts(action, blocks=self._blocks(step, step.region.each), queue=(step.stream,))

    def _transfer(self, step: Transfer) -> StepFacts[int]:
        kind = StepKind.PUT if step.direction is Direction.PUT else StepKind.GET
        to_all = step.reach is Reach.ALL
        adds, flagged = step.reduce and not to_all, bool(step.peer_after)
        made = self._made_before(step)
        summed = [each for each in step.region.each if any(each.meets(other) for other in made)]
        action = StepAction(kind, to_all, adds, len(summed), flagged)
        blocks = self._blocks(step, (*summed, *(each for each in step.region.each if each not in summed)))
        peer = () if to_all else self._code(step.peer)
        return StepFacts(action, peer, blocks, queue=() if step.lane is None else (step.lane,))

    def _blocks(self, step: Transfer | Reduction, regions: Iterable[Region]) -> tuple[Block[int], ...]:
        role = Role.TO if self._workload.pattern.exchanges and isinstance(step, Transfer) else Role.OF
        origin, scenario = step.origin if isinstance(step, Transfer) else 0, self.plan.scenario
        sized = ((each, block_rows(scenario, self.rank, step, each.owner)) for each in regions)
        return tuple(self._block(each, role, rows, other=origin) for each, rows in sized)

    def _kernel(self, step: TileGroup) -> StepFacts[int]:
        n, stage = self.plan.scenario.num_ranks, self._workload.stage(step.kernel)
        role, cols = _role_of_tiles(stage.pattern), tile_cols(stage)
        blocks = [self._block(each, role, tile_rows(stage, n, each.owner), cols) for each in step.regions]
        if not self._in_order:
            blocks.sort(key=lambda block: (block.cols, block.rows, block.owner))
        slices = () if step.k == IndexRange(0, inner_size(stage)) else step.slices
        inner = tuple(edge for each in slices for edge in (each.start, each.stop))
        action = StepAction(StepKind.KERNEL, adds=step.accumulate, kernel=step.kernel)
        return StepFacts(action, blocks=tuple(blocks), inner=inner, queue=(step.stream,))

    def _with_waits(self, step: Step, alone: StepFacts[int]) -> StepFacts[int]:
        names = sorted(set(step.after))
        steps = sorted(self._places[name] for name in names if name in self._places and not self._queued(step, name))
        arrived = [
            each
            for name in names
            if name not in self._places
            for arrival in self.plan._arrivals[self.rank].get(name, ())
            for each in self._arrived(arrival)
        ]
        ordered = sorted(
            arrived, key=lambda each: (each.adds, each.block.cols, each.block.rows, each.source, each.block.owner)
        )
        return StepFacts(alone.action, alone.peer, alone.blocks, alone.inner, alone.queue, tuple(steps), tuple(ordered))

    @property
    def _in_order(self) -> bool:
        """Whether the order of the blocks of a kernel matters beyond the kernel."""
        schedule = self.plan.schedule
        return schedule.engine.by_tiles or schedule.tactics.kernel is Kernels.PERSISTENT

    def _queued(self, step: Step, name: str) -> bool:
        """Whether ``step`` comes after the step ``name`` anyway, being behind it in its lane or stream."""
        other = self._steps[self._places[name]]
        if isinstance(step, Transfer) != isinstance(other, Transfer) or self._places[step.name] < self._places[name]:
            return False
        if isinstance(step, Transfer) and isinstance(other, Transfer):
            return step.lane is not None and step.lane == other.lane
        assert not isinstance(step, Transfer) and not isinstance(other, Transfer)
        return step.stream == other.stream and self.plan.schedule.tactics.kernel is not Kernels.PERSISTENT

    def _arrived(self, arrival: Arrival) -> Iterator[Arrived[int]]:
        exchanged = self._workload.pattern.exchanges
        adds = arrival.transfer.reduce and arrival.transfer.reach is Reach.PEER
        for region in arrival.region.each:
            rows = moved_rows(self._workload, self.plan.scenario.num_ranks, region.owner, arrival.source)
            owner, other = (arrival.source, region.owner) if exchanged else (region.owner, 0)
            here = Region(owner, region.rows, region.cols)
            block = self._block(here, Role.FROM if exchanged else Role.OF, rows, other=other)
            yield Arrived(block, self._code(arrival.source), adds)

    def _block(self, region: Region, role: Role, rows: int, cols: int | None = None, other: int = 0) -> Block[int]:
        moved = self._workload.moved
        width = cols if cols is not None else moved.cols if moved is not None else region.cols.stop
        owner = () if role is Role.ALL else self._code(region.owner)
        whole_rows, whole_cols = region.rows == IndexRange(0, rows), region.cols == IndexRange(0, width)
        return Block(
            role,
            owner,
            () if whole_rows else self._rows(region.rows, rows),
            () if whole_cols else (region.cols.start, region.cols.stop),
            self._code(other) if other else (),
        )

    def _rows(self, rows: IndexRange, size: int) -> tuple[int, int]:
        parts = self.plan.parts_of_block
        return (rows.start * parts // size, rows.stop * parts // size) if parts and size else (rows.start, rows.stop)

    def _code(self, relative: int) -> tuple[int, ...]:
        n = self.plan.scenario.num_ranks
        return self.frame.code(self.rank, (self.rank + relative) % n)

    def _made_before(self, step: Transfer) -> list[Region]:
        """What has come here and was summed before a transfer, which it takes in place of the rank's own part."""
        if not self._workload.pattern.sums or (step.reach is Reach.ALL and step.direction is Direction.GET):
            return []
        before = self._before[step.name]
        sums = [each.region for each in self._steps if isinstance(each, Reduction) and each.name in before]
        arrivals = self.plan._arrivals[self.rank]
        return sums + [each.region for name in before - self._places.keys() for each in arrivals.get(name, ())]


def _role_of_tiles(pattern: Pattern) -> Role:
    """Return what the rows of kernels are counted in."""
    if not pattern.overlaps:
        return Role.ALL
    if not pattern.exchanges:
        return Role.OF
    return Role.FROM if pattern.consumes else Role.TO


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Ranks that do the same in ``frame``, and what they do in issue order."""

    ranks: tuple[int, ...]
    frame: Frame
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class How:
    """A plan flagged step by step; ``parts_of_block`` is as in ``PlanFacts``."""

    scenario: OpCase
    schedule: OpPlan
    groups: tuple[RankSteps, ...]
    parts_of_block: int = 0


def how_of(scenario: OpCase, schedule: OpPlan) -> How:
    """Return how to carry out ``schedule``. Every step of every rank is flagged exactly once."""
    facts, n = PlanFacts(scenario, schedule), scenario.num_ranks
    alike = schedule.symmetric and not scenario.shape.loads
    ranks, frames = tuple(range(n)), shared_frames(n, scenario.system.fabric.node_size)
    if schedule.engine.by_library:
        steps = facts.steps_of(0, frames[0])
        nodes = _by_library(steps)
        return How(scenario, schedule, (RankSteps(ranks, frames[0], nodes),))
    for frame in frames:
        first = facts.steps_of(0, frame)
        if alike or all(facts.steps_of(rank, frame) == first for rank in ranks[1:]):
            return How(scenario, schedule, (RankSteps(ranks, frame, _folded(first, frame)),), facts.parts_of_block)
    return How(scenario, schedule, tuple(_groups(facts, n)), facts.parts_of_block)


def _groups(facts: PlanFacts, num_ranks: int) -> list[RankSteps]:
    """Return the ranks that do the same, relative to each; if no two do, each rank by absolute ranks."""
    shifted = Frame(Naming.SHIFT, num_ranks)
    ranks: dict[tuple[StepFacts[int], ...], list[int]] = {}
    for rank in range(num_ranks):
        ranks.setdefault(facts.steps_of(rank, shifted), []).append(rank)
    if len(ranks) < num_ranks:
        return [RankSteps(tuple(same), shifted, _folded(steps, shifted)) for steps, same in ranks.items()]
    absolute = Frame(Naming.ABSOLUTE, num_ranks)
    return [
        RankSteps((rank,), absolute, _folded(facts.steps_of(rank, absolute), absolute)) for rank in range(num_ranks)
    ]


def _folded(steps: Sequence[StepFacts[int]], frame: Frame) -> tuple[Node, ...]:
    """Fold the steps of a rank so that it can be said of each what it waits for."""
    unfit: frozenset[int] = frozenset()
    while True:
        nodes = Folder(steps, frame, unfit).nodes()
        try:
            waits = LocalWaits(nodes)
            for entry in waits.entries:
                waits.of(entry)
        except Unsayable as error:
            unfit |= {error.place}
        else:
            return nodes


def _by_library(steps: Sequence[StepFacts[int]]) -> tuple[Node, ...]:
    """Return the kernels and one call for all that moves and all that sums what moved."""
    kernels = [place for place, step in enumerate(steps) if step.action.kind is StepKind.KERNEL]
    in_call = [place for place in range(len(steps)) if place not in kernels]
    needed = {each for place in in_call for each in steps[place].steps} & set(kernels)
    behind = [place for place in kernels if steps[place].arrived or set(steps[place].steps) & set(in_call)]
    call = _after(StepFacts(StepAction(StepKind.LIBRARY)), needed, tuple(in_call))
    before = [_after(steps[place], set(steps[place].steps), (place,)) for place in kernels if place not in behind]
    first = in_call[0]
    then = [_after(steps[place], {first} | set(steps[place].steps) & set(kernels), (place,)) for place in behind]
    return *before, call, *then


def _after(step: StepFacts[int], places: Collection[int], own: tuple[int, ...]) -> FoldedStep:
    """Return a step that waits for the steps at ``places`` and for nothing else."""
    facts = replace(step, steps=tuple(sorted(places)), arrived=())
    return FoldedStep(facts.with_numbers(Affine(number) for _, _, number in facts.numbers()), own, ())
