"""The least time of an all_to_all whose blocks may be passed on: a flow from each rank to each other, by any ways.

Prices of links are those of the packing of trees, which deals the blocks to ways so that they take least time. For any
prices that add up to 1 the blocks take at least as long as the sum of their cheapest ways: the busiest link is no less
busy than the mean, weighted so.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush

from ...compiler.ir import Fabric, network_of
from .forest import FEW_RANKS, prices_of
from .trees import TreeFlow

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
    """Yield the cost of the cheapest way between any two ranks (Dijkstra), in us for 1 MB."""
    onward = defaultdict[int, list[tuple[int, float]]](list)
    for edge, price in zip(network_of(fabric, num_ranks).edges, prices, strict=True):
        onward[edge.source].append((edge.target, price * 1e12 / edge.bytes_per_s))
    for source in range(num_ranks):
        away, waiting = dict[int, float](), [(0.0, source)]
        while waiting:
            cost, node = heappop(waiting)
            if node not in away:
                away[node] = cost
                for target, price in onward[node]:
                    heappush(waiting, (cost + price, target))
        yield sum(away[rank] for rank in range(num_ranks))
