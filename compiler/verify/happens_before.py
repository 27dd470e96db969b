"""The happens-before order of steps over all ranks, and what is wrong in it: deadlocks, and kernels beside copies.

A step starts after all steps that it waits for are done. Of a plan that ranks repeat after a period only the first are
kept; steps of other ranks are theirs, shifted.

A deadlock is a cycle of waits, including waits for SMs that another kernel holds. The persistent kernel of a stream
holds its SMs until its last group is done. Kernels of several streams get them one after the other, in the order of
their first groups. Sums come after all of them, and a sum that polls holds its SMs until its data has arrived. Every
kernel is assumed to fill all SMs, so a plan may be refused although its kernels are small enough to run side by side.

Only where kernels and copies never overlap may kernels use the SMs that copy.
"""

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain, groupby, pairwise
from typing import TypeVar

from ..codes import Code
from ..ir import (
    Kernels,
    OpCase,
    OpPlan,
    PlanFault,
    RankPlan,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    Wait,
    arrivals_at,
    kernels_of,
    queued_behind,
    seen_from,
    sums_of_all,
)
from ..planning.build import compute_sms

_Node = TypeVar("_Node")
Event = tuple[int, str]
"""A step: the rank that issues it, and its name."""


def cycle_in(graph: Mapping[_Node, Iterable[_Node]]) -> tuple[_Node, ...]:
    """Return the nodes of a cycle of ``graph``, which maps nodes to those they wait for; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


class Waits:
    """Direct waits of each step, for steps of its own rank and of others."""

    def __init__(self, scenario: OpCase, schedule: OpPlan) -> None:
        self.num_ranks = scenario.num_ranks
        self.period = schedule.period(scenario.num_ranks)
        self.steps: Mapping[int, tuple[Step, ...]] = {rank: schedule.steps_of(rank) for rank in range(self.period)}
        self.direct: dict[Event, set[Event]] = {}
        self._by_tiles, self._by_groups = schedule.engine.by_tiles, schedule.engine.kernel is not None
        self._persistent = schedule.tactics.kernel is Kernels.PERSISTENT
        self._names = {rank: {step.name for step in steps} for rank, steps in self.steps.items()}
        self._signals = {rank: _setters(scenario, schedule, rank) for rank in self.steps}
        for rank, steps in self.steps.items():
            self._add(rank, steps)

    def _add(self, rank: int, steps: tuple[Step, ...]) -> None:
        """Add the waits of the steps of ``rank``, as events relative to it."""
        for step in steps:
            self.direct[rank, step.name] = self._named(rank, step.after)
            if isinstance(step, Transfer) and step.peer_after:
                there = self._named((rank + step.peer) % self.period, step.peer_after)
                self.direct[rank, step.name] |= {
                    ((step.peer + offset) % self.num_ranks, name) for offset, name in there
                }
        if self._by_tiles:
            for step in sums_of_all(steps):
                self.direct[rank, step.name] |= self._computing(rank, step)
        queued = [step for step in steps if not isinstance(step, Transfer)] if self._by_groups else steps
        for name, earlier in queued_behind(queued, persistent=self._persistent):
            self.direct[rank, name].add((0, earlier))

    def _named(self, rank: int, names: Iterable[str]) -> set[Event]:
        """Return the steps of ``rank`` of these names, and those that set signals of these names there."""
        own = self._names[rank]
        return {(0, name) for name in names if name in own}.union(
            *(self._signals[rank].get(name, ()) for name in names)
        )

    def _computing(self, rank: int, step: Transfer) -> set[Event]:
        """Return the kernels of all ranks whose tiles set the flags that the sum of ``step`` waits for."""
        n = self.num_ranks
        return {
            (offset, group.name)
            for offset in range(n)
            for group in kernels_of(seen_from(step.region, offset, n), self.steps[(rank + offset) % self.period])
        }

    def in_order(self) -> list[Event]:
        """Return all steps, each after those that it waits for.

        Raises
        ------
        graphlib.CycleError
            If there is no such order.
        """
        return list(TopologicalSorter(self._absolute()).static_order())

    def cycle(self) -> tuple[str, ...]:
        """Return a cycle of waits as names of steps, empty if there is none."""
        return tuple(name for _, name in cycle_in(self._absolute()))

    def of(self, event: Event) -> set[Event]:
        """Return the steps that ``event`` waits for directly, at the ranks that are kept."""
        return {((event[0] + offset) % self.period, other) for offset, other in self.direct[event]}

    def _absolute(self) -> dict[Event, set[Event]]:
        return {event: self.of(event) for event in self.direct}


class HappensBefore:
    """The order of steps that always holds: one is done before the other starts. Plans must have no cycle of waits."""

    def __init__(self, waits: Waits) -> None:
        self._num_ranks, self._period = waits.num_ranks, waits.period
        names = {name for _, name in waits.direct}
        self._index = {name: index for index, name in enumerate(sorted(names))}
        self.events = waits.in_order()
        # For each step, a bit for each step of each rank that is done before; ranks are relative to its own.
        self._before: dict[Event, int] = {}
        for rank, name in self.events:
            self._before[rank, name] = self._known(rank, waits.direct[rank, name])

    def happened(self, first: Event, then: Event) -> bool:
        """Whether ``first`` is done before ``then`` starts; ranks count modulo their number."""
        offset = (first[0] - then[0]) % self._num_ranks
        bit = offset * len(self._index) + self._index[first[1]]
        return bool(self._before[then[0] % self._period, then[1]] >> bit & 1)

    def _known(self, rank: int, waited: Iterable[Event]) -> int:
        known, width = 0, len(self._index)
        size = width * self._num_ranks
        for offset, name in waited:
            theirs = self._before[(rank + offset) % self._period, name]
            shift = offset % self._num_ranks * width
            known |= (theirs << shift | theirs >> (size - shift)) & ((1 << size) - 1)
            known |= 1 << (shift + self._index[name])
        return known


def _setters(scenario: OpCase, schedule: OpPlan, rank: int) -> dict[str, set[Event]]:
    """Return the transfers that set each signal at ``rank``, relative to it."""
    setters: dict[str, set[Event]] = {}
    for arrival in arrivals_at(scenario, schedule, rank):
        event = ((arrival.issuer - rank) % scenario.num_ranks, arrival.transfer.name)
        setters.setdefault(arrival.transfer.signal, set()).add(event)
    return setters


_Start = tuple[Event, bool]
"""A step that is done, or with True a sum whose data has all arrived."""


def deadlock_faults(scenario: OpCase, schedule: OpPlan) -> Iterator[PlanFault]:
    """Return a fault for steps that wait for each other, directly or because one holds the SMs of another."""
    waits = Waits(scenario, schedule)
    cycle, why = waits.cycle(), ""
    if not cycle and schedule.tactics.kernel is Kernels.PERSISTENT:
        nodes = cycle_in(_graph(waits, polls=_polls(scenario, schedule)))
        cycle = tuple(name for name, _ in groupby(name for (_, name), _ in nodes))
        why = ", and a kernel that waits holds its SMs"
    if cycle:
        yield PlanFault(Code.MGS503, cycle[0], f"these wait for each other: {' -> '.join(cycle)}{why}")


def _polls(scenario: OpCase, schedule: OpPlan) -> bool:
    """Whether a waiting kernel may hold its SMs; one that waits for a monitor does so when all monitors are taken."""
    wait = schedule.tactics.wait
    return wait is Wait.POLL or (wait is Wait.MONITOR and scenario.gpu.sync.monitor_entries is not None)


def _graph(waits: Waits, *, polls: bool) -> dict[_Start, set[_Start]]:
    """Return the nodes that each node waits for; the steps alone have no cycle."""
    graph: dict[_Start, set[_Start]] = {
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


def overlap_faults(scenario: OpCase, schedule: OpPlan) -> Iterator[PlanFault]:
    """Return faults for kernels that may overlap with copies although the plan says ``alone``.

    A kernel must come after all arrivals at its rank or before all its transfers. The plan must have no cycle of waits.
    """
    if schedule.compute_sms == compute_sms(scenario, schedule.engine, overlaps=True):
        return
    plans = [RankPlan.of(scenario, schedule, rank) for rank in range(schedule.period(scenario.num_ranks))]
    overlapping = [(plan, kernels) for plan in plans if (kernels := _not_last(plan))]
    if not overlapping:
        return
    # The waits may lead through other ranks: data of a peer may depend on the own kernel.
    order = HappensBefore(Waits(scenario, schedule))
    for plan, kernels in overlapping:
        for kernel in kernels:
            sent = (step.name for step in plan.steps.values() if isinstance(step, Transfer))
            early = next((name for name in sent if not order.happened((plan.rank, kernel), (plan.rank, name))), None)
            if early is not None:
                message = f"{kernel} may run beside {early}: alone means that copies come all before it or all after it"
                yield PlanFault(Code.MGS513, kernel, message)


def _not_last(plan: RankPlan) -> list[str]:
    """Return the kernels that do not come after all arrivals at the rank."""
    before, arrived = plan.before, plan.signals
    kernels = (step.name for step in plan.steps.values() if isinstance(step, TileGroup))
    return [kernel for kernel in kernels if not arrived <= before[kernel]]
