"""The plan of one rank: its steps, its arrivals, and what always happens before each step."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from ...codes import Code
from ..scenario import Scenario
from .schedule import Direction, Kernels, Reach, Reduction, Region, Schedule, Step, TileGroup, Transfer


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
    """A transfer at its destination; ``region`` and ``source`` are relative to the destination."""

    transfer: Transfer
    issuer: int
    source: int
    region: Region


def arrivals_at(scenario: Scenario, schedule: Schedule, rank: int) -> tuple[Arrival, ...]:
    """Return every transfer that lands at ``rank``, of any issuer; a put to all lands at every rank and at its own.

    They are in the order of their issuers, and of the steps of each. Time goes by the steps of one period of the plan.
    """
    n, period = scenario.num_ranks, schedule.period(scenario.num_ranks)
    found: list[tuple[int, int, Transfer]] = []
    for first in range(period):
        for place, step in enumerate(schedule.steps_of(first)):
            if isinstance(step, Transfer):
                issuers = _issuers(step, rank, n)
                found += [(issuer, place, step) for issuer in issuers if issuer % period == first]
    return tuple(_arrival(step, issuer, rank, n) for issuer, _, step in sorted(found, key=lambda one: one[:2]))


def all_arrivals(scenario: Scenario, schedule: Schedule) -> tuple[tuple[Arrival, ...], ...]:
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
    """Return the absolute ranks at which a transfer lands."""
    puts = step.direction is Direction.PUT
    if puts and step.reach is Reach.ALL:
        return range(num_ranks)
    return ((issuer + step.peer if puts else issuer) % num_ranks,)


def _issuers(step: Transfer, rank: int, num_ranks: int) -> Collection[int]:
    """Return the absolute ranks whose transfers, if they are like ``step``, land at ``rank``."""
    if step.direction is Direction.GET:
        return (rank,)
    return range(num_ranks) if step.reach is Reach.ALL else ((rank - step.peer) % num_ranks,)


def _arrival(step: Transfer, issuer: int, rank: int, num_ranks: int) -> Arrival:
    source = issuer if step.direction is Direction.PUT else issuer + step.peer
    region = Region((issuer + step.region.owner - rank) % num_ranks, step.region.rows, step.region.cols)
    return Arrival(step, issuer, (source - rank) % num_ranks, region)


@dataclass(frozen=True, slots=True)
class RankPlan:
    """The plan of absolute rank ``rank``: ``steps`` by name, and all ``arrivals``."""

    scenario: Scenario
    schedule: Schedule
    rank: int
    steps: Mapping[str, Step]
    arrivals: tuple[Arrival, ...]

    @classmethod
    def of(cls, scenario: Scenario, schedule: Schedule, rank: int) -> "RankPlan":
        """Return the plan of ``rank`` in ``schedule``."""
        steps = {step.name: step for step in schedule.steps_of(rank)}
        return cls(scenario.at(rank), schedule, rank, steps, arrivals_at(scenario, schedule, rank))

    @property
    def signals(self) -> frozenset[str]:
        """All signals that are set at this rank."""
        return frozenset(arrival.transfer.signal for arrival in self.arrivals)

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


def num_peers(steps: Iterable[Step]) -> int:
    """Return the number of peers that transfers without a lane address; 1 if there are none."""
    return max(1, len({step.peer for step in steps if isinstance(step, Transfer) and step.lane is None} - {0}))
