"""A plan as one rank sees it: its steps, what lands there, and what has surely happened before each step."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from .codes import Code
from .scenario import Scenario
from .schedule import Direction, Reach, Region, Schedule, Step, Transfer


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One thing wrong with a plan: diagnostic code, the step to blame (empty if none) and a sentence."""

    code: Code
    step: str
    message: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A transfer as its destination sees it: ``region`` relative to the destination, ``source`` too."""

    transfer: Transfer
    issuer: int
    source: int
    region: Region


def arrivals_at(scenario: Scenario, schedule: Schedule, rank: int) -> tuple[Arrival, ...]:
    """Every transfer that lands at ``rank``, whoever issues it; a put to all lands at all ranks but its own."""
    n, found = scenario.num_ranks, []
    for issuer in range(n):
        for step in schedule.steps_of(issuer):
            if not isinstance(step, Transfer):
                continue
            puts = step.direction is Direction.PUT
            destination, source = (issuer + step.peer, issuer) if puts else (issuer, issuer + step.peer)
            everyone = puts and step.reach is Reach.ALL and issuer != rank
            if destination % n != rank and not everyone:
                continue
            owner = (issuer + step.region.owner - rank) % n
            region = Region(owner, step.region.rows, step.region.cols)
            found.append(Arrival(step, issuer, (source - rank) % n, region))
    return tuple(found)


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
        """Look at ``schedule`` from ``rank``."""
        steps = {step.name: step for step in schedule.steps_of(rank)}
        return cls(scenario, schedule, rank, steps, arrivals_at(scenario, schedule, rank))

    @property
    def signals(self) -> frozenset[str]:
        """All signals that are set at this rank."""
        return frozenset(arrival.transfer.signal for arrival in self.arrivals)

    def before(self) -> dict[str, frozenset[str]]:
        """For each step everything that has surely happened at this rank before it: steps and signals."""
        waits = {name: set(step.after) for name, step in self.steps.items()}
        for name, earlier in queued_behind(self.steps.values()):
            waits[name].add(earlier)
        known: dict[str, frozenset[str]] = {}
        for name in TopologicalSorter(waits).static_order():
            direct = waits.get(name, set())
            known[name] = frozenset(direct).union(*(known[other] for other in direct)) if direct else frozenset()
        return known


def queued_behind(steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
    """(step, the one before it in the same queue): kernels of a stream and transfers of a lane run in issue order."""
    last: dict[tuple[bool, int], str] = {}
    for step in steps:
        moves = isinstance(step, Transfer)
        number = step.lane if isinstance(step, Transfer) else step.stream
        if number is None:
            continue
        if (moves, number) in last:
            yield step.name, last[moves, number]
        last[moves, number] = step.name


def num_peers(steps: Iterable[Step]) -> int:
    """How many peers the transfers of a rank address that are in no lane; 1 if there are none."""
    return max(1, len({step.peer for step in steps if isinstance(step, Transfer) and step.lane is None} - {0}))
