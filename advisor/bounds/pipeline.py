"""The shortest time in which kernels of any sizes can keep up with links that bring what they need, or take it away.

Seen from one end of the schedule kernels and links run one after the other: what arrives is worked on after it has
come, and what leaves is computed before; the second is the first with time reversed. So let kernels *begin*. Order them
by when, and let F be the share of all operations of a kernel and those before it. What they need has come by then, and
links bring no share earlier than they can, so that it begins at ``begins(F)`` at the earliest. Within a time T

- it lasts T - begins(F) at most, and kernels that last so short a time cost more for each operation;
- it and all after it have S (T - begins(F)) of SM time at most, for at least what all after the share before it cost;
- so F is bounded by the share before it, and its size by the difference: small kernels cost more, too.

The cost of each share from the end is therefore bounded from below, and if it is more than there is SM time for, then
no schedule takes T. A share of an output is the share of all slices of its inner dimension, and one of what arrives is
that of the slices that need it, so that it makes no difference which dimension is cut.
"""

from dataclasses import dataclass

import numpy as np

from .boxes import Floats
from .gemm_area import SAFE, Ratios

# Cells of shares; how often costs are refined by what they forbid; halvings of the time.
CELLS, REFINEMENTS, HALVINGS = 96, 3, 22


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Kernels of ``size`` operations at a rank, and when shares of them can begin; times in us.

    Cell j of shares ends at ``ends[j]`` and begins at ``begins[j]`` at the earliest; both never fall. Kernels have
    ``sms`` SMs, or what copies leave of ``all_sms`` that take ``copies`` of SM time; after ``first`` they do ``others``
    of SM time beside. ``ranks`` is over how many ranks shares are counted. Units of ``dealt`` kernels (persistent ones)
    go to whatever shares they like, and do not last as long as the kernel.
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
        """No schedule is shorter."""
        low = float(self.begins[-1])
        high = 2 * (low + self.ratios.least * self.size / self.sms)
        if not high:
            return 0.0  # where memory has no latency, some kernels have no bound
        while not self._fits(high):
            low, high = high, 2 * high
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._fits(middle) else (middle, high)
        return low * SAFE

    def _fits(self, us: float) -> bool:
        """Whether nothing forbids that all is done in ``us``."""
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
            ratios = np.maximum(ratios, self.ratios.up_to(sizes / SAFE))
        return True

    def _reached(self, us: Floats) -> Floats:
        """The share that can have begun by then."""
        begun = np.searchsorted(self.begins, us, side="right")
        return np.asarray(np.append(0.0, self.ends)[begun])
