"""The happens-before order of steps over all ranks: a step starts after all steps that it waits for are done.

Of a plan that ranks repeat after a period only the first are kept; steps of other ranks are theirs, shifted.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from ..ir import (
    Kernels,
    Scenario,
    Schedule,
    Step,
    Transfer,
    arrivals_at,
    kernels_of,
    queued_behind,
    seen_from,
    sums_of_all,
)

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

    def __init__(self, scenario: Scenario, schedule: Schedule) -> None:
        self.num_ranks = scenario.num_ranks
        self.period = schedule.period(scenario.num_ranks)
        self.steps: Mapping[int, tuple[Step, ...]] = {rank: schedule.steps_of(rank) for rank in range(self.period)}
        self.direct: dict[Event, set[Event]] = {}
        self._by_tiles = schedule.engine.by_tiles
        self._persistent = schedule.tactics.kernel is Kernels.PERSISTENT
        for rank, steps in self.steps.items():
            self._add(rank, steps, _setters(scenario, schedule, rank))

    def _add(self, rank: int, steps: tuple[Step, ...], signals: Mapping[str, set[Event]]) -> None:
        """Add the waits of the steps of ``rank``, as events relative to it."""
        names = {step.name for step in steps}
        for step in steps:
            events = {(0, name) for name in step.after if name in names}
            for name in step.after:
                events |= signals.get(name, set())
            self.direct[rank, step.name] = events
        if self._by_tiles:
            for step in sums_of_all(steps):
                self.direct[rank, step.name] |= self._computing(rank, step)
        for name, earlier in queued_behind(steps, persistent=self._persistent):
            self.direct[rank, name].add((0, earlier))

    def _computing(self, rank: int, step: Transfer) -> set[Event]:
        """Return the kernels of all ranks whose tiles say by flags that what ``step`` sums is there."""
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


def _setters(scenario: Scenario, schedule: Schedule, rank: int) -> dict[str, set[Event]]:
    """Return the transfers that set each signal at ``rank``, relative to it."""
    setters: dict[str, set[Event]] = {}
    for arrival in arrivals_at(scenario, schedule, rank):
        event = ((arrival.issuer - rank) % scenario.num_ranks, arrival.transfer.name)
        setters.setdefault(arrival.transfer.signal, set()).add(event)
    return setters
