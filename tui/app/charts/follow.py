"""Follow a chunk: from its put over the links to the kernel that waits for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ....compiler.ir import Direction, Reach, Scenario, Step, Transfer
from ....simcore.figures.flows import DataFlow, data_flows
from ....simcore.figures.result import Interval, IntervalKind, Result

MOST_STOPS = 64
"""A chunk that is passed on around a large ring is followed so far."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop on the way of a chunk: an interval as an absolute rank has it, and the nodes that lead to it."""

    rank: int
    interval: Interval
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chunks:
    """The chunks of a Result, to be followed; flows into a rank are looked up once."""

    scenario: Scenario
    result: Result

    @cached_property
    def _known(self) -> dict[int, tuple[DataFlow, ...]]:
        return {}

    def chain_from(self, rank: int, interval: Interval) -> tuple[Stop, ...]:
        """Return the stops of the chunk that ``interval`` of ``rank`` moves, up to the kernel that waits for it.

        From a kernel the chunk that came last for it is followed. Where several steps wait, the first kernel is taken,
        else the transfer that passes it on.
        """
        if interval.kind is not IntervalKind.COMM:
            into = [flow for flow in self._into(rank) if flow.waiter == interval]
            if not into:
                return (Stop(rank, interval),)
            last = max(into, key=lambda flow: flow.transfer.end_ticks)
            return Stop(last.issuer, last.transfer), Stop(rank, interval, last.path)
        stops = [Stop(rank, interval)]
        while stops[-1].interval.kind is IntervalKind.COMM and len(stops) < MOST_STOPS:
            onward = self._onward(stops[-1])
            if onward is None:
                break
            stops.append(onward)
        return tuple(stops)

    def _into(self, rank: int) -> tuple[DataFlow, ...]:
        if rank not in self._known:
            result = self.result
            self._known[rank] = data_flows(self.scenario, result.schedule, result.timeline, rank)
        return self._known[rank]

    def _onward(self, stop: Stop) -> Stop | None:
        """What waits for the transfer of ``stop``: a kernel if there is one, else the transfer that goes first."""
        flows = [
            flow
            for rank in self._reached(stop)
            for flow in self._into(rank)
            if flow.issuer == stop.rank and flow.transfer == stop.interval
        ]
        if not flows:
            return None
        flow = min(flows, key=lambda one: (one.waiter.kind is IntervalKind.COMM, one.waiter.start_ticks, one.rank))
        return Stop(flow.rank, flow.waiter, flow.path)

    def _reached(self, stop: Stop) -> Iterable[int]:
        """Return the ranks at which the transfer of ``stop`` lands; of many alike the next and the own one."""
        num_ranks = self.scenario.num_ranks
        step = step_named(self.result, stop.rank, stop.interval.name)
        match step:
            case Transfer(reach=Reach.PEER, direction=Direction.PUT):
                return ((stop.rank + step.peer) % num_ranks,)
            case Transfer(reach=Reach.PEER, direction=Direction.GET):
                return (stop.rank,)
            case _:
                return dict.fromkeys(((stop.rank + 1) % num_ranks, stop.rank))


def step_named(result: Result, rank: int, name: str) -> Step | None:
    """The step of this name of a rank; None where a call of the library stands for several."""
    return next((step for step in result.schedule.steps_of(rank) if step.name == name), None)
