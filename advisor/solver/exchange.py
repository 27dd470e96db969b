"""The least time of an all_to_all whose blocks may be passed on: a flow from each rank to each other, by any ways.

Prices of links are those of the packing of trees, which deals the blocks to ways so that they take least time. For any
prices that add up to 1 the blocks take at least as long as the sum of their cheapest ways: the busiest link is no less
busy than the mean, weighted so.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from typing import TypeVar

from ...compiler.ir import Fabric, network_of
from .forest import FEW_RANKS, prices_of
from .trees import TreeFlow

Cost = TypeVar("Cost", int, float)
ROUNDING = 1e-9
"""By how much less sums of floating-point numbers may be taken for."""


@lru_cache(maxsize=32)
def exchange_us(fabric: Fabric, num_ranks: int) -> float:
    """Return the least us in which 1 MB from each rank reaches each other, 0 where it is not looked for.

    That is so beyond ``FEW_RANKS`` ranks and of two.
    """
    if not 2 < num_ranks <= FEW_RANKS:
        return 0.0
    known = prices_of(fabric, num_ranks, TreeFlow.EACH)
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
