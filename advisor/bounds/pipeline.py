"""The least time of kernels of any sizes with links that bring their operands, or take their results away.

Kernels follow the arrival of their operands, and the departure of results follows kernels; the second case is the
first with time reversed, so that only the first is treated. Order kernels by their begin, and let F be the share of the
operations of a kernel and all kernels before it. Their operands have arrived by then, and links bring a share no
earlier than their rate allows, so that the kernel begins at ``begins(F)`` at the earliest. Within a time T

- the kernel lasts T - begins(F) at most, and short kernels cost more SM time for each operation;
- it and all kernels after it have at most S (T - begins(F)) of SM time, and need at least the cost of the rest of the
  operations;
- so F is bounded by the share before the kernel, and its size by the difference; small kernels cost more, too.

This bounds the cost of each share from the end from below. If the cost exceeds the SM time, no schedule takes T. A
share of an output counts all slices of its inner dimension, and a share of the arrived data the slices that need it, so
that the bound holds for cuts of any dimension.
"""

from dataclasses import dataclass

import numpy as np

from .boxes import Floats
from .gemm_area import ROUNDING_MARGIN, Ratios

# Cells of shares; refinements of the costs; bisections of the time.
CELLS, REFINEMENTS, BISECTIONS = 96, 3, 22


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Kernels of ``size`` operations at a rank, and the times at which shares of them can begin; times in us.

    Cell j of shares ends at ``ends[j]`` and begins at ``begins[j]`` at the earliest; both are non-decreasing. Kernels
    have ``sms`` SMs, or those of ``all_sms`` that copies with ``copies`` of SM time leave; after ``first`` they share
    them with ``others`` of SM time. Shares are counted over ``ranks`` ranks. Units of ``dealt`` (persistent) kernels
    may work on any share, and do not last as long as the kernel.
    """

    ratios: Ratios
    size: float
    ends: Floats
    begins: Floats
    sms: int
    all_sms: int
    first: float = 0.0
    copies: float = 0.0
    others: float = 0.0
    ranks: int = 1
    dealt: bool = False

    def least_us(self) -> float:
        """Return the least time."""
        low = float(self.begins[-1])
        high = 2 * (low + self.ratios.least * self.size / self.sms)
        if not high:
            return 0.0  # if memory has no latency, some kernels have no bound
        while not self._fits(high):
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._fits(middle) else (middle, high)
        return low * ROUNDING_MARGIN

    def _fits(self, us: float) -> bool:
        """Whether the necessary conditions allow ``us`` for all kernels."""
        left, sms = us - self.begins, min(self.sms, self.all_sms - self.copies / us)
        if left[-1] <= 0 or sms <= 0:
            return False
        firsts = np.append(0.0, self.ends[:-1])
        ratios = self.ratios.within(left)
        for _ in range(REFINEMENTS):
            costs = np.cumsum((ratios * (self.ends - firsts) * self.size)[::-1])[::-1]
            if costs[0] > sms * left[0] or costs[0] + self.others > sms * (us - self.first):
                return False
            if self.dealt:
                return True
            if (costs > sms * left).any():
                return False
            reached = self._reached(us - np.append(costs[1:], 0.0) / sms)
            largest = np.where(reached >= firsts[:, None], reached - firsts, 0.0)
            sizes = np.tril(largest).max(axis=1) * self.size * self.ranks
            ratios = np.maximum(ratios, self.ratios.up_to(sizes / ROUNDING_MARGIN))
        return True

    def _reached(self, us: Floats) -> Floats:
        """Return the share that can have begun by ``us``."""
        begun = np.searchsorted(self.begins, us, side="right")
        return np.asarray(np.append(0.0, self.ends)[begun])
