"""Hits of a plan's reads in the last cache in front of memory, on data that peers have written shortly before.

Writes of peers arrive in the cache in front of memory, or in an L2 that is in one piece, and stay there as far as they
fit. Read again, a share of them hits: ``hit_share`` of all bytes that arrive at the rank in the plan, whether they are
still needed or not, which is the most that can lie between a write and its read. Three kinds of reads find them there:

- a sum reads the parts of others;
- a copy sends on what has come: it waits for a signal of that region, or in an all_gather the region is not its own;
- a copy that adds reads what an earlier one has left at the destination: of k that add to a region, all but the first.

What a rank reads of its own comes from memory, and every byte that arrives is written to memory in the end, in full.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ...compiler.ir import (
    Arrival,
    Direction,
    IndexRange,
    OpCase,
    OpPlan,
    Pattern,
    Reach,
    Reduction,
    Region,
    Transfer,
    all_arrivals,
    arrivals_at,
    seen_from,
)
from ..kernels.working_set import hit_share
from .machine import sent_per_byte

Share = Fraction | int
"""From 0 to 1; whole numbers are multiplied faster."""

NONE = 0
_GATHERS = (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG)


@dataclass(slots=True)
class Hits:
    """The hits of one plan, cached by rank."""

    scenario: OpCase
    schedule: OpPlan
    _arrivals: dict[int, tuple[Arrival, ...]] = field(default_factory=dict)
    _shares: dict[int, Share] = field(default_factory=dict)
    _added: dict[int, Counter[Region]] = field(default_factory=dict)
    _arrived: dict[int, dict[str, list[Region]]] = field(default_factory=dict)
    _brought: dict[tuple[int, Region, tuple[str, ...]], Share] = field(default_factory=dict)

    def arrivals(self, rank: int) -> tuple[Arrival, ...]:
        """Transfers that arrive at an absolute rank."""
        if rank not in self._arrivals:
            n = self.scenario.num_ranks
            if self._arrivals and self.schedule.period(n) == n:  # the rest will be asked for too
                self._arrivals = dict(enumerate(all_arrivals(self.scenario, self.schedule)))
            else:
                self._arrivals[rank] = arrivals_at(self.scenario, self.schedule, rank)
        return self._arrivals[rank]

    def share(self, rank: int) -> Share:
        """The share of what has arrived at ``rank`` that a later read finds in the cache."""
        rank = self._alike(rank)
        if rank not in self._shares:
            self._shares[rank] = self._share(self.arrivals(rank))
        return self._shares[rank]

    def of_sum(self, rank: int, step: Reduction) -> Share:
        """The share of the parts of others that hits."""
        return self.share(rank) if step.num_parts > 1 else NONE

    def of_copy(self, rank: int, step: Transfer) -> tuple[Share, Share]:
        """The shares that hit of what a copy reads at its source, and of what it reads at its destination to add to."""
        return self.at_source(rank, step), self.at_target(rank, step)

    def at_source(self, rank: int, step: Transfer) -> Share:
        """The share of what the copy of ``rank`` reads that hits at its source."""
        if step.reach is Reach.ALL or not self._possible:
            return NONE
        puts = step.direction is Direction.PUT
        source = 0 if puts else step.peer
        if self.scenario.shape.pattern in _GATHERS:
            owners = step.region.owners
            others = sum((owner - source) % self.scenario.num_ranks > 0 for owner in owners)
            return Fraction(others, len(owners)) * self.share(rank + source) if others else NONE
        return self._forwarded(rank, step) if puts and step.after else NONE

    def at_target(self, rank: int, step: Transfer) -> Share:
        """The share of what a copy that adds reads at its destination, and that hits there."""
        if not step.reduce or step.reach is Reach.ALL or not self._possible:
            return NONE
        n, target = self.scenario.num_ranks, step.peer if step.direction is Direction.PUT else 0
        counts, regions = self._adds_at(rank + target), seen_from(step.region, target, n).each
        again = sum((Fraction(counts[region] - 1, counts[region]) for region in regions), start=Fraction(0))
        return again / len(regions) * self.share(rank + target)

    @property
    def _possible(self) -> bool:
        return self.scenario.gpu.last_cache is not None

    def _alike(self, rank: int) -> int:
        """A rank to which the same things happen."""
        return rank % self.schedule.period(self.scenario.num_ranks)

    def _share(self, arrivals: Sequence[Arrival]) -> Share:
        cache, moved = self.scenario.gpu.last_cache, self.scenario.shape.moved
        if cache is None or moved is None or not arrivals:
            return NONE
        elements = sum(arrival.region.elements for arrival in arrivals)
        arrived = int(moved.dtype.bytes_of(elements) * sent_per_byte(self.schedule))
        return hit_share(arrived, cache.instances * cache.size_bytes)

    def _forwarded(self, rank: int, step: Transfer) -> Share:
        """The share of the region of a put that hits: what came with what it waits for."""
        key = self._alike(rank), step.region, step.after  # a sum of all parts goes to all peers
        if key not in self._brought:
            arrived = self._arrived_at(rank)
            awaited = [region for name in step.after for region in arrived.get(name, ())]
            common, size = _common(step.region, awaited) if awaited else 0, step.region.elements
            part = 1 if common >= size > 0 else Fraction(common, max(1, size)) if common else NONE
            self._brought[key] = self.share(rank) if part == 1 else part * self.share(rank)
        return self._brought[key]

    def _arrived_at(self, rank: int) -> dict[str, list[Region]]:
        """The regions that have arrived when a signal is set."""
        rank = self._alike(rank)
        if rank not in self._arrived:
            arrived: dict[str, list[Region]] = {}
            for arrival in self.arrivals(rank):
                arrived.setdefault(arrival.transfer.signal, []).append(arrival.region)
            self._arrived[rank] = arrived
        return self._arrived[rank]

    def _adds_at(self, rank: int) -> Counter[Region]:
        """Number of copies that add to each region."""
        rank = self._alike(rank)
        if rank not in self._added:
            adding = (arrival.region for arrival in self.arrivals(rank) if arrival.transfer.reduce)
            self._added[rank] = Counter(each for region in adding for each in region.each)
        return self._added[rank]


def _common(region: Region, others: Iterable[Region]) -> int:
    """Elements that ``region`` has in common with ``others``, of which none lie over each other."""
    return sum(
        _overlap(region.rows, other.rows) * _overlap(region.cols, other.cols)
        for other in others
        for owner in region.owners
        if owner in other.owners
    )


def _overlap(one: IndexRange, other: IndexRange) -> int:
    return max(0, min(one.stop, other.stop) - max(one.start, other.start))
