"""Circles of waits in a plan, with what waits only because another kernel holds its SMs.

The persistent kernel of a stream has its SMs until its last group is done. Those of several streams come to them one
after the other, in the order of their first groups. Sums come after all of them, and one that polls holds its SMs until
what it looks for is there. How many SMs a kernel fills is not known here: it is taken to fill all, so that a plan whose
kernels are small enough to run side by side may be refused too.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain, groupby, pairwise

from ..codes import Code
from ..ir import Kernels, PlanFault, Reduction, Scenario, Schedule, TileGroup, Transfer, Wait
from .happens_before import Event, HappensBefore, Waits

_Node = tuple[Event, bool]
"""A step that is done, or (True) a sum that has found all that it looks for."""


def circle_faults(scenario: Scenario, schedule: Schedule) -> Iterator[PlanFault]:
    """Steps that wait for each other for ever, or that may do so because one holds the SMs of another."""
    waits = Waits(scenario, schedule)
    circle, why = waits.cycle(), ""
    if not circle and schedule.tactics.kernel is Kernels.PERSISTENT:
        circle = _circle(_graph(waits, polls=_polls(scenario, schedule)))
        why = ", and a kernel that waits holds its SMs"
    if circle:
        yield PlanFault(Code.MGS503, circle[0], f"these wait for each other: {' -> '.join(circle)}{why}")


def _polls(scenario: Scenario, schedule: Schedule) -> bool:
    """Whether a kernel that waits may hold its SMs: one that a monitor wakes does where the monitor is full."""
    wait = schedule.tactics.wait
    return wait is Wait.POLL or (wait is Wait.MONITOR and scenario.gpu.sync.monitor_entries is not None)


def _graph(waits: Waits, *, polls: bool) -> dict[_Node, set[_Node]]:
    """What each node waits for; the steps alone have no circle."""
    graph: dict[_Node, set[_Node]] = {
        (event, False): {(other, False) for other in waits.of(event)} for event in waits.direct
    }
    for rank in waits.steps:
        for earlier, group in pairwise(_groups(waits, rank)):
            graph[group, False].add((earlier, False))
    for blocked, looking, awaited in _blocked(waits) if polls else ():
        graph[blocked, False].add((looking, True))
        graph[looking, True] = {(copy, False) for copy in awaited}
    return graph


def _groups(waits: Waits, rank: int) -> Iterator[Event]:
    """The groups of a rank in the order in which SMs come to them: stream by stream."""
    streams: dict[int, list[Event]] = {}
    for step in waits.steps[rank]:
        if isinstance(step, TileGroup):
            streams.setdefault(step.stream, []).append((rank, step.name))
    return chain.from_iterable(streams.values())


def _blocked(waits: Waits) -> Iterator[tuple[Event, Event, set[Event]]]:
    """(sum, another of its rank that may hold the SMs which it needs, the copies that this one looks for)."""
    copies = {(rank, step.name) for rank, steps in waits.steps.items() for step in steps if isinstance(step, Transfer)}
    sums = {rank: [step for step in steps if isinstance(step, Reduction)] for rank, steps in waits.steps.items()}
    if all(len({step.stream for step in mine}) < 2 for mine in sums.values()):
        return  # those of one stream come one after the other
    order = HappensBefore(waits)
    for rank, mine in sums.items():
        events = [(rank, step.name) for step in mine]
        for looking in events:
            awaited, launched_after = waits.of(looking) & copies, waits.of(looking) & set(events)
            for each in events if awaited else ():
                before = any(other == each or order.happened(each, other) for other in launched_after)
                if each != looking and not before:
                    yield each, looking, awaited


def _circle(graph: dict[_Node, set[_Node]]) -> tuple[str, ...]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(name for name, _ in groupby(name for (_, name), _ in error.args[1]))
    return ()
