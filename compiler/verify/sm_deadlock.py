"""Deadlocks of a plan: cycles of waits, including waits for SMs that another kernel holds.

The persistent kernel of a stream holds its SMs until its last group is done. Kernels of several streams get them one
after the other, in the order of their first groups. Sums come after all of them, and a sum that polls holds its SMs
until its data has arrived. Every kernel is assumed to fill all SMs, so a plan may be refused although its kernels are
small enough to run side by side.
"""

from collections.abc import Iterator
from itertools import chain, groupby, pairwise

from ..codes import Code
from ..ir import Kernels, PlanFault, Reduction, Scenario, Schedule, TileGroup, Transfer, Wait
from .happens_before import Event, HappensBefore, Waits, cycle_in

_Node = tuple[Event, bool]
"""A step that is done, or with True a sum whose data has all arrived."""


def deadlock_faults(scenario: Scenario, schedule: Schedule) -> Iterator[PlanFault]:
    """Return a fault for steps that wait for each other, directly or because one holds the SMs of another."""
    waits = Waits(scenario, schedule)
    cycle, why = waits.cycle(), ""
    if not cycle and schedule.tactics.kernel is Kernels.PERSISTENT:
        nodes = cycle_in(_graph(waits, polls=_polls(scenario, schedule)))
        cycle = tuple(name for name, _ in groupby(name for (_, name), _ in nodes))
        why = ", and a kernel that waits holds its SMs"
    if cycle:
        yield PlanFault(Code.MGS503, cycle[0], f"these wait for each other: {' -> '.join(cycle)}{why}")


def _polls(scenario: Scenario, schedule: Schedule) -> bool:
    """Whether a waiting kernel may hold its SMs; one that waits for a monitor does so when all monitors are taken."""
    wait = schedule.tactics.wait
    return wait is Wait.POLL or (wait is Wait.MONITOR and scenario.gpu.sync.monitor_entries is not None)


def _graph(waits: Waits, *, polls: bool) -> dict[_Node, set[_Node]]:
    """Return the nodes that each node waits for; the steps alone have no cycle."""
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
    """Return the groups of a rank in the order in which they get SMs: stream by stream."""
    streams: dict[int, list[Event]] = {}
    for step in waits.steps[rank]:
        if isinstance(step, TileGroup):
            streams.setdefault(step.stream, []).append((rank, step.name))
    return chain.from_iterable(streams.values())


def _blocked(waits: Waits) -> Iterator[tuple[Event, Event, set[Event]]]:
    """Return (sum, another sum of the rank that may hold its SMs, copies that the other one polls for)."""
    copies = {(rank, step.name) for rank, steps in waits.steps.items() for step in steps if isinstance(step, Transfer)}
    sums = {rank: [step for step in steps if isinstance(step, Reduction)] for rank, steps in waits.steps.items()}
    if all(len({step.stream for step in own_sums}) < 2 for own_sums in sums.values()):
        return  # sums of one stream run one after the other
    order = HappensBefore(waits)
    for rank, own_sums in sums.items():
        events = [(rank, step.name) for step in own_sums]
        for looking in events:
            awaited, launched_after = waits.of(looking) & copies, waits.of(looking) & set(events)
            for blocked in events if awaited else ():
                before = any(other == blocked or order.happened(blocked, other) for other in launched_after)
                if blocked != looking and not before:
                    yield blocked, looking, awaited
