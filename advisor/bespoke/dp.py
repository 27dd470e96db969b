"""Batches by dynamic programming: the sizes that end first if kernels run one after the other and copies at once.

F(j, u) is the earliest end of j kernels over the first u units of the gathered rows, without the own rows:

    F(j, u) = min over v < u of max(F(j - 1, v), landed(u, j) + event) + kernel(u - v)

The same recurrence holds for columns of the gathered tensor, where each kernel has all rows and a slice of the inner
dimension. If kernels precede the collective, it holds for time reversed: kernels, then the copies of their results.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...compiler.ir import EngineChoice, Scenario
from .batches import Batches
from .costs import OWN_UNITS, Costs, costs_of

MAX_BATCHES = 10
# Numbers of batches that are kept, the best first, for each share of the own block that runs first.
NUM_KEPT = 3
# An end that no plan has: the sum of two such fits 64 bits.
NEVER = 1 << 61


def dp_batches(scenario: Scenario, engine: EngineChoice) -> tuple[Batches, ...]:
    """Return batches by their end, for each share of the own block that runs first (last if kernels precede copies)."""
    plans = [
        (end, costs.batches(own, remote))
        for costs in (costs_of(scenario, engine), costs_of(scenario, engine, by_rows=False))
        for first in range(OWN_UNITS, -1, -1)
        for end, own, remote in _plans(costs, first)
    ]
    return tuple(dict.fromkeys(batches for _, batches in sorted(plans, key=lambda plan: plan[0])))


def _plans(costs: Costs, first: int) -> list[tuple[int, list[int], list[int]]]:
    """Return (end, quarters of the own block by batch, remote units by batch) for the best numbers of batches."""
    ends, came_from = _ends(costs, first)
    plans = []
    for batches in sorted(range(1, len(ends)), key=lambda j: ends[j][costs.grid])[:NUM_KEPT]:
        units = list(_units(came_from, batches, costs.grid))[::-1]
        own = [OWN_UNITS - first, *(0,) * (batches - 1)]
        plans.append((ends[batches][costs.grid], [first, *own], [0, *units]))
    return plans


def _ends(costs: Costs, first: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return F by batches and units, and the v of each minimum; the rest of the own block is in the first batch."""
    grid, filler = costs.grid, OWN_UNITS - first
    with_own = _kernels(costs, filler)
    others = _kernels(costs, 0) if costs.by_rows else with_own
    ends, came_from = [[costs.kernel(first, 0), *[NEVER] * grid]], [[0] * (grid + 1)]
    for j in range(1, min(MAX_BATCHES, grid) + 1):
        landed = np.array([[costs.landed(u, j)] for u in range(grid + 1)])
        candidates = np.maximum(ends[-1], landed) + (with_own if j == 1 else others)  # [u, v]
        ends.append(np.minimum(candidates.min(axis=1), NEVER).tolist())
        came_from.append(candidates.argmin(axis=1).tolist())
    return ends, came_from


def _kernels(costs: Costs, own: int) -> npt.NDArray[np.int64]:
    """Return [u, v] the ticks of a kernel over the units from v to u beside ``own`` quarters of the own block."""
    units = np.arange(costs.grid + 1)
    ticks = np.array([costs.kernel(own, d) + costs.event for d in units.tolist()])
    sizes = np.subtract.outer(units, units)
    return np.where(sizes > 0, ticks[sizes], NEVER)


def _units(came_from: list[list[int]], batches: int, grid: int) -> Iterator[int]:
    """Yield the units of each batch, the last batch first."""
    end = grid
    for j in range(batches, 0, -1):
        yield end - came_from[j][end]
        end = came_from[j][end]
