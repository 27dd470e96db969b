"""Batches by dynamic programming: the sizes that end first if kernels run one after the other and copies at once.

F(j, u) is the earliest end of j kernels over the first u units of what is gathered, own rows apart:

    F(j, u) = min over v < u of max(F(j - 1, v), landed(u, j) + event) + kernel(u - v)

The same goes for columns of what is gathered, which all rows keep, so that kernels are slices of the inner dimension.
Where kernels are first it is the same run backwards: kernels, and the copies of their results behind them.
"""

from collections.abc import Iterator

from ...compiler.ir import EngineChoice, Scenario
from .batches import Batches
from .costs import OWN_UNITS, Costs, costs_of

MOST_BATCHES = 10
# Per share of the own block that runs first, so many of the best numbers of batches are worth a look.
KEPT = 3


def dp_batches(scenario: Scenario, engine: EngineChoice) -> tuple[Batches, ...]:
    """Batches for each share of the own block that runs first (last, where kernels are), those that end first first."""
    found = [
        (end, costs.batches(own, remote))
        for costs in (costs_of(scenario, engine), costs_of(scenario, engine, by_rows=False))
        for first in range(OWN_UNITS, -1, -1)
        for end, own, remote in _plans(costs, first)
    ]
    return tuple(dict.fromkeys(batches for _, batches in sorted(found, key=lambda plan: plan[0])))


def _plans(costs: Costs, first: int) -> list[tuple[int, list[int], list[int]]]:
    """(end, quarters of the own block in each batch, units of the others' in each) for the best numbers of batches."""
    ends, came_from = _ends(costs, first)
    found = []
    for batches in sorted(range(1, len(ends)), key=lambda j: ends[j][costs.grid])[:KEPT]:
        units = list(_units(came_from, batches, costs.grid))[::-1]
        own = [OWN_UNITS - first, *(0,) * (batches - 1)]
        found.append((ends[batches][costs.grid], [first, *own], [0, *units]))
    return found


def _ends(costs: Costs, first: int) -> tuple[list[list[int]], list[list[int]]]:
    """F by number of batches and units, and the v behind each; the rest of the own block fills the first batch up."""
    grid, filler = costs.grid, OWN_UNITS - first
    kernels = [[costs.kernel(own, d) + costs.event for d in range(grid + 1)] for own in (0, filler)]
    ends, came_from = [[costs.kernel(first, 0)] * (grid + 1)], [[0] * (grid + 1)]
    for j in range(1, min(MOST_BATCHES, grid) + 1):
        row, origin = [1 << 62] * (grid + 1), [0] * (grid + 1)
        for u in range(j, grid + 1):
            landed, kernel = costs.landed(u, j), kernels[j == 1 or not costs.by_rows]
            tried = ((max(ends[j - 1][v], landed) + kernel[u - v], v) for v in ((0,) if j == 1 else range(j - 1, u)))
            row[u], origin[u] = min(tried)
        ends.append(row)
        came_from.append(origin)
    return ends, came_from


def _units(came_from: list[list[int]], batches: int, grid: int) -> Iterator[int]:
    """Units of each batch, the last first."""
    at = grid
    for j in range(batches, 0, -1):
        yield at - came_from[j][at]
        at = came_from[j][at]
