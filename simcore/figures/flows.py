"""Data on its way in a timeline: each transfer with the step that waited for it.

Followed from one to the next, they lead a chunk from its put over the links to the kernel that waits for it; where data
is passed on, as in a ring, over the transfers between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...compiler.ir import Arrival, Direction, Reach, Scenario, Schedule, arrivals_at
from .metrics import shown_name
from .result import Interval, Timeline


@dataclass(frozen=True, slots=True)
class DataFlow:
    """``waiter``, a step at ``rank``, waits until the ``transfer`` that ``issuer`` made has set ``signal`` there.

    Ranks are absolute; the intervals are those of the ranks that they repeat. ``path`` are the nodes of the network
    from the rank that had the data to ``rank``, both included; empty where a switch copies or sums, or a library moves.
    """

    issuer: int
    rank: int
    signal: str
    transfer: Interval
    waiter: Interval
    path: tuple[int, ...]


def data_flows(scenario: Scenario, schedule: Schedule, timeline: Timeline, rank: int) -> tuple[DataFlow, ...]:
    """What each step of an absolute ``rank`` waits for, in the order of the plan.

    One that never ran, or that never came, is left out. ``schedule`` is that of the Result with the ``timeline``.
    """
    intervals = {(each.rank, each.name): each for each in timeline.intervals}
    return flows_of(scenario, schedule, intervals, timeline.period, rank)


def flows_of(
    scenario: Scenario,
    schedule: Schedule,
    intervals: Mapping[tuple[int, str], Interval],
    period: int,
    rank: int,
    prefix: str = "",
) -> tuple[DataFlow, ...]:
    """As ``data_flows``, for steps whose ``intervals``, by rank and name, have names that begin with ``prefix``."""
    steps = ((prefix + shown_name(scenario, schedule, step), step) for step in schedule.steps_of(rank))
    waiting = ((intervals.get((rank % period, name)), step) for name, step in steps)
    waits = ((waiter, name) for waiter, step in waiting if waiter is not None for name in step.after)
    return flows_to(scenario, schedule, intervals, period, rank, waits, prefix)


def flows_to(
    scenario: Scenario,
    schedule: Schedule,
    intervals: Mapping[tuple[int, str], Interval],
    period: int,
    rank: int,
    waits: Iterable[tuple[Interval, str]],
    prefix: str = "",
) -> tuple[DataFlow, ...]:
    """What intervals of ``rank`` wait for by names, of what steps of ``schedule`` bring there; see ``flows_of``."""
    arrivals = _by_awaited_name(arrivals_at(scenario, schedule, rank))
    found: dict[tuple[int, str, str], DataFlow] = {}  # a call of a library moves many pieces
    for waiter, arrival in ((waiter, each) for waiter, name in waits for each in arrivals.get(name, ())):
        name = prefix + shown_name(scenario, schedule, arrival.transfer)
        transfer = intervals.get((arrival.issuer % period, name))
        if transfer is not None and transfer is not waiter:
            path = _path(scenario, schedule, arrival, rank)
            flow = DataFlow(arrival.issuer, rank, arrival.transfer.signal, transfer, waiter, path)
            found.setdefault((arrival.issuer, transfer.name, waiter.name), flow)
    return tuple(found.values())


def _by_awaited_name(arrivals: Sequence[Arrival]) -> dict[str, list[Arrival]]:
    """What has landed when a step need no longer wait for a name: that of a signal, or of a get."""
    awaited: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        names = {arrival.transfer.signal}
        if arrival.transfer.direction is Direction.GET:
            names.add(arrival.transfer.name)
        for name in names:
            awaited.setdefault(name, []).append(arrival)
    return awaited


def _path(scenario: Scenario, schedule: Schedule, arrival: Arrival, rank: int) -> tuple[int, ...]:
    if schedule.engine.by_library or arrival.transfer.reach is Reach.ALL:
        return ()
    return scenario.network.path((rank + arrival.source) % scenario.num_ranks, rank)
