"""Follow a chunk: from its put over the links to the kernel that waits for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ....compiler.ir import Direction, Reach, Transfer
from ....simcore.figures.metrics import DataFlow
from ....simcore.figures.result import Interval, IntervalKind
from ....simcore.shown_run import ShownRun

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
    """The chunks of a run, to be followed; flows into a rank are looked up once."""

    run: ShownRun

    @cached_property
    def _known(self) -> dict[int, tuple[DataFlow, ...]]:
        return {}

    def chain_from(self, rank: int, interval: Interval) -> tuple[Stop, ...]:
        """Return the stops of the chunk that ``interval`` of ``rank`` moves, up to the kernel that waits for it.

        From a kernel the chunk that came last for it is followed, without one what it waits for of another op. Where
        several steps wait, the first kernel is taken, else the transfer that passes it on. From one of several ops its
        first step there is followed.
        """
        interval = self._first_step(rank, interval)
        if interval.kind is not IntervalKind.COMM:
            into = [flow for flow in self._into(rank) if flow.waiter == interval]
            if not into:
                return (Stop(rank, interval),)
            last = max(into, key=lambda flow: (flow.transfer.kind is IntervalKind.COMM, flow.transfer.end_ticks))
            return Stop(last.issuer, last.transfer), Stop(rank, interval, last.path)
        stops = [Stop(rank, interval)]
        while stops[-1].interval.kind is IntervalKind.COMM and len(stops) < MOST_STOPS:
            onward = self._onward(stops[-1])
            if onward is None:
                break
            stops.append(onward)
        return tuple(stops)

    def _first_step(self, rank: int, interval: Interval) -> Interval:
        """The step with which the time of an op begins; a step is one itself."""
        own = (part for part in self.run.parts if part.op == interval.name)
        names = {part.shown(step) for part in own for step in part.schedule.steps_of(rank)}
        begin = (
            each
            for each in (self.run.result.timeline.of_rank(rank) if names else ())
            if each.name in names and each.start_ticks == interval.start_ticks and _moves(each) is _moves(interval)
        )
        return next(begin, interval)

    def _into(self, rank: int) -> tuple[DataFlow, ...]:
        if rank not in self._known:
            self._known[rank] = self.run.flows(rank)
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
        """Return the ranks at which the transfer of ``stop`` arrives; of many alike the next and the own one."""
        num_ranks = self.run.num_ranks
        step = self.run.step_of(stop.rank, stop.interval.name)
        match step:
            case Transfer(reach=Reach.PEER, direction=Direction.PUT):
                return ((stop.rank + step.peer) % num_ranks,)
            case Transfer(reach=Reach.PEER, direction=Direction.GET):
                return (stop.rank,)
            case _:
                return dict.fromkeys(((stop.rank + 1) % num_ranks, stop.rank))


def _moves(interval: Interval) -> bool:
    return interval.kind is IntervalKind.COMM
