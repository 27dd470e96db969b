"""The narrowest cuts of a network, which bound any schedule of a collective: exact, by maximal flows of OR-tools.

A group of nodes, switches among them, that leaves a rank out must send all that its ranks hold over the links out of
it, whatever the schedule (ForestColl, arXiv 2402.06787, section 4). No floating point: a cut is the proof of its bound.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from math import gcd
from typing import TypeVar

import numpy as np

from ...compiler.ir import Edge, Fabric, checkpoint, network_of
from .forest import FEW_RANKS, prices_of
from .trees import TreeFlow


@dataclass(frozen=True, slots=True)
class LinkCut:
    """The ``links`` out of a group of nodes, of ``bytes_per_s`` together; ``ranks`` are those of the group.

    A link is its source and its target, as the flow passes it.
    """

    ranks: frozenset[int]
    bytes_per_s: int
    links: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LinkParts:
    """Parts of a network by their ranks, and the rate of the links into each, all together."""

    parts: tuple[frozenset[int], ...]
    bytes_per_s: int


class Flows:
    """Maximal flows in the network of ``edges``; ``reverse`` turns every link round.

    All raise an OverflowError where the rates of all links together are too large.
    """

    def __init__(self, num_ranks: int, edges: Sequence[Edge], *, reverse: bool = False) -> None:
        ends = np.array([edge.ends for edge in edges], np.int64).reshape(-1, 2)
        self.num_ranks = num_ranks
        self.tail, self.head = (ends[:, 1], ends[:, 0]) if reverse else (ends[:, 0], ends[:, 1])
        rates = [edge.bytes_per_s for edge in edges]
        self.unit = gcd(*rates)
        self.rates = np.array(rates, np.int64) // self.unit
        self.super_source = int(ends.max()) + 1

    def rate_into(self, rank: int) -> int:
        """The rate of all links into a rank, in ``unit``."""
        return int(self.rates[self.head == rank].sum())

    def cut_between(self, source: int, target: int) -> tuple[int, LinkCut]:
        """Return the largest flow from one node to another, in ``unit``, and the cut that allows no more."""
        return self._solved(self.tail, self.head, self.rates, source, target)

    def cut_from_all(self, target: int, *, supply: int, scale: int) -> tuple[int, LinkCut]:
        """Return the largest flow to ``target`` if each rank has ``supply``; rates are ``scale`` times as large."""
        ranks = np.arange(self.num_ranks)
        tail = np.concatenate([self.tail, np.full(self.num_ranks, self.super_source)])
        head = np.concatenate([self.head, ranks])
        rates = np.concatenate([self.rates * scale, np.full(self.num_ranks, supply)])
        return self._solved(tail, head, rates, self.super_source, target)

    def part_of(self, rank: int, worth: Sequence[int], *, scale: int) -> tuple[int, set[int]]:
        """Return a group of nodes with ``rank`` and none of the ranks behind it, and ``scale`` times the rate into it.

        That is the least rate, less the ``worth`` [ranks before] of those that are inside.
        """
        size, whole, before = self.super_source, int(self.rates.sum()) * scale + sum(map(abs, worth)), range(len(worth))
        behind = range(rank + 1, self.num_ranks)
        tail = [*(each if worth[each] > 0 else size for each in before), *(size for _ in behind)]
        head = [*(rank if worth[each] > 0 else each for each in before), *behind]
        more = np.array([*map(abs, worth), *(whole for _ in behind)], np.int64)
        arcs = np.concatenate([self.tail, tail]), np.concatenate([self.head, head])
        flow, outside = self._flow(*arcs, np.concatenate([self.rates * scale, more]), size, rank)
        return flow - sum(each for each in worth if each > 0), set(np.flatnonzero(~outside[:size]).tolist())

    def parts(self, groups: Sequence[set[int]]) -> LinkParts:
        """Return the ranks of groups of nodes, and the rate of the links into each group, all together."""
        part = np.full(self.super_source, -1)
        for number, group in enumerate(groups):
            part[list(group)] = number
        entered = (part[self.tail] != part[self.head]) & (part[self.head] >= 0)
        ranks = (frozenset(rank for rank in group if rank < self.num_ranks) for group in groups)
        return LinkParts(tuple(sorted(ranks, key=min)), int(self.rates[entered].sum()) * self.unit)

    def _solved(
        self, tail: np.ndarray, head: np.ndarray, rates: np.ndarray, source: int, target: int
    ) -> tuple[int, LinkCut]:
        flow, inside = self._flow(tail, head, rates, source, target)
        crossing = inside[self.tail] & ~inside[self.head]
        rate = int(self.rates[crossing].sum()) * self.unit
        ranks = frozenset(np.flatnonzero(inside[: self.num_ranks]).tolist())
        links = zip(self.tail[crossing].tolist(), self.head[crossing].tolist(), strict=True)
        return flow, LinkCut(ranks, rate, frozenset(links))

    def _flow(
        self, tail: np.ndarray, head: np.ndarray, rates: np.ndarray, source: int, target: int
    ) -> tuple[int, np.ndarray]:
        """The largest flow, and which nodes [nodes] are on the side of its source."""
        from ortools.graph.python.max_flow import SimpleMaxFlow  # 0.1 s, which a symmetric network never needs

        checkpoint()
        problem = SimpleMaxFlow()
        problem.add_arcs_with_capacity(tail, head, rates)
        if problem.solve(source, target) != problem.OPTIMAL:
            raise OverflowError("the rates of all links together are no 63 bits")
        inside = np.zeros(self.super_source + 1, bool)
        inside[list(problem.get_source_side_min_cut())] = True
        return problem.optimal_flow(), inside


def widest_spread(flows: Flows, targets: Iterable[int]) -> LinkCut | None:
    """Return the cut whose links have the least rate for each rank inside, if that is below what a rank receives.

    No schedule lets all ranks send to all others faster than that; None where the links into each single rank decide.
    Dinkelbach's method: each flow that falls short shows a narrower cut, until none does. ``targets`` are the ranks
    that a cut may leave out: with symmetry one of each class.
    """
    ranks, targets = flows.num_ranks, tuple(targets)
    rate, per = min(flows.rate_into(rank) for rank in targets), ranks - 1  # each rank sends rate / per
    found, is_new = None, True
    while is_new:
        is_new = False
        for target in targets:
            flow, cut = flows.cut_from_all(target, supply=rate, scale=per)
            if flow < ranks * rate:
                narrower = cut.bytes_per_s // flows.unit, len(cut.ranks)
                if narrower[0] * per < rate * narrower[1]:
                    (rate, per), found, is_new = narrower, cut, True
    return found


def narrowest_between(flows: Flows, targets: Iterable[int]) -> LinkCut:
    """Return the cut of the least rate that has one of ``targets`` and another rank on its two sides.

    What is summed at all ranks passes it, both ways.
    """
    cuts = [cut for rank in targets for cut in _both_ways(flows, rank)]
    return min(cuts, key=lambda cut: cut.bytes_per_s)


def strongest_partition(flows: Flows) -> LinkParts:
    """Return the parts of the network whose links have the least rate for each part but one.

    What is summed at all ranks takes two messages for each part but one, however it goes. Parts have all ranks,
    with the switches that they share with no other. Dinkelbach's method, as above, on flows to one rank after the other
    (Dilworth truncation: Frank and Tardos, "Generalized polymatroids and submodular flows", 1988). Exact without
    switches, or where links have one rate both ways: then trees up and down take no longer (Nash-Williams, Tutte).
    """
    found = flows.parts([{rank} for rank in range(flows.num_ranks)])
    while True:
        rate, count = found.bytes_per_s // flows.unit, len(found.parts) - 1
        narrower = flows.parts(_tight_parts(flows, rate, count))
        if len(narrower.parts) < 2 or narrower.bytes_per_s * count >= found.bytes_per_s * (len(narrower.parts) - 1):
            return found
        found = narrower


def _tight_parts(flows: Flows, rate: int, per: int) -> list[set[int]]:
    """Parts whose links, less ``rate`` / ``per`` for each part, have the least rate."""
    worth, parts = list[int](), list[set[int]]()
    for rank in range(flows.num_ranks):
        value, inside = flows.part_of(rank, worth, scale=per)
        worth.append(value - rate)
        together = [part for part in parts if min(part & inside, default=flows.num_ranks) < flows.num_ranks]
        apart = [part - inside for part in parts if part not in together]  # they may share switches
        parts = [*apart, inside.union(*together)]
    return parts


def _both_ways(flows: Flows, rank: int) -> Iterator[LinkCut]:
    """The cuts between ``rank`` and the rank before it: over all ranks some pair is on two sides of any cut."""
    other = (rank - 1) % flows.num_ranks
    yield flows.cut_between(rank, other)[1]
    yield flows.cut_between(other, rank)[1]


def narrowest_from(flows: Flows, others: Iterable[int], root: int = 0) -> LinkCut:
    """Return the cut of the least rate between ``root`` and one of ``others``: what it broadcasts passes it."""
    return min((flows.cut_between(root, rank)[1] for rank in others), key=lambda cut: cut.bytes_per_s)


# The least time of an all_to_all whose blocks may be passed on: a flow from each rank to each other, by any ways.
#
# Prices of links are those of the packing of trees, which deals the blocks to ways so that they take least time. For
# any prices that add up to 1 the blocks take at least as long as the sum of their cheapest ways: the busiest link is no
# less busy than the mean, weighted so.

Cost = TypeVar("Cost", int, float)
ROUNDING = 1e-9
"""By how much less sums of floating-point numbers may be taken for."""


@lru_cache(maxsize=32)
def exchange_us(fabric: Fabric, num_ranks: int) -> float:
    """Return the least us in which 1 MB from each rank reaches each other, 0 where it is not looked for.

    That is so of two ranks, and beyond ``FEW_RANKS`` that are no ring, whose links have one price.
    """
    if num_ranks <= 2:
        return 0.0
    network = network_of(fabric, num_ranks)
    known: tuple[tuple[float, ...], ...] = ((1 / len(network.edges),) * len(network.edges),)
    if not network.symmetric or len(network.own) > 2:  # on a torus a program may end before its prices are as good
        known = (*known, *prices_of(fabric, num_ranks, TreeFlow.EACH)) if num_ranks <= FEW_RANKS else ()
    return max((sum(_ways(fabric, num_ranks, prices)) for prices in known), default=0.0) * (1 - ROUNDING)


def _ways(fabric: Fabric, num_ranks: int, prices: tuple[float, ...]) -> Iterator[float]:
    """Yield the cost of the cheapest ways from each rank to all others, in us for 1 MB."""
    edges = network_of(fabric, num_ranks).edges
    costs = {edge.ends: price * 1e12 / edge.bytes_per_s for edge, price in zip(edges, prices, strict=True)}
    for away in least_costs(num_ranks, costs):
        yield sum(away[rank] for rank in range(num_ranks))


def least_costs(num_ranks: int, costs: Mapping[tuple[int, int], Cost]) -> Iterator[dict[int, Cost | int]]:
    """Yield for each rank the cost of the cheapest way to every node that it reaches (Dijkstra).

    ``costs`` are those of the links by their ends.
    """
    onward = defaultdict[int, list[tuple[int, Cost]]](list)
    for (source, target), cost in costs.items():
        onward[source].append((target, cost))
    for source in range(num_ranks):
        away, waiting = dict[int, Cost | int](), list[tuple[Cost | int, int]]([(0, source)])
        while waiting:
            known, node = heappop(waiting)
            if node not in away:
                away[node] = known
                for target, cost in onward[node]:
                    heappush(waiting, (known + cost, target))
        yield away
