"""Which chunks of a collective come together: how many hops lie before and behind each step, over all ranks.

A hop is a transfer that another one, a sum or a kernel waits for. Where ranks are grouped in nodes and have different
parts, a hop to another node counts as many as a node has ranks, since links across nodes are the slower ones. Chunks
with as many hops before them arrive in the same step of the algorithm, those with as many behind them leave in the
same: Syncopate calls them a wave (arXiv 2601.20595).
"""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter

from ..ir import Direction, Reach, Step, Transfer

Event = tuple[int, str]
"""(rank, name) of a step, of a signal where it arrives, or of something outside that a step waits for."""


class Hops:
    """The most hops there are on a way to or from an event.

    ``steps`` are those of each absolute rank, or of one if all are alike; ``node`` is the number of ranks in a node.
    """

    def __init__(self, steps: Sequence[Sequence[Step]], num_ranks: int, node: int) -> None:
        self._num_ranks, self._period, self._node = num_ranks, len(steps), node
        self._costs: dict[Event, int] = {}
        waits = self._waits(steps)
        order = list(TopologicalSorter(waits).static_order())
        followers: dict[Event, list[Event]] = {}
        for event, others in waits.items():
            for other in others:
                followers.setdefault(other, []).append(event)
        self._before = self._longest(order, waits)
        self._behind = self._longest(reversed(order), followers)

    def before(self, rank: int, name: str) -> int:
        """Hops until a step of ``rank``, or a signal that arrives there, is over."""
        return self._before[rank % self._period, name]

    def behind(self, rank: int, name: str) -> int:
        """Hops from the beginning of a step of ``rank``, or from what it waits for, to the end; 0 if nothing does."""
        return self._behind.get((rank % self._period, name), 0)

    def _waits(self, steps: Sequence[Sequence[Step]]) -> dict[Event, list[Event]]:
        waits: dict[Event, list[Event]] = {}
        for rank, mine in enumerate(steps):
            for step in mine:
                waits[rank, step.name] = [(rank, name) for name in step.after]
                if isinstance(step, Transfer):
                    self._costs[rank, step.name] = self._cost(rank, step)
                    for at in self._landing(rank, step):
                        waits.setdefault((at % self._period, step.signal), []).append((rank, step.name))
        return waits

    def _landing(self, rank: int, step: Transfer) -> Iterable[int]:
        if step.direction is Direction.GET:
            return (rank,)
        return range(self._period) if step.reach is Reach.ALL else ((rank + step.peer) % self._num_ranks,)

    def _cost(self, rank: int, step: Transfer) -> int:
        if self._period == 1 or self._node < 2:
            return 1
        peer = (rank + step.peer) % self._num_ranks
        return self._node if rank // self._node != peer // self._node else 1

    def _longest(self, order: Iterable[Event], others: Mapping[Event, Sequence[Event]]) -> dict[Event, int]:
        found: dict[Event, int] = {}
        for event in order:
            found[event] = self._costs.get(event, 0) + max((found[other] for other in others.get(event, ())), default=0)
        return found
