"""SMs that go through the units of persistent kernels in a fixed order, whether or not the data of a unit is there.

SM j runs the units j, j + S, j + 2 S ... of all groups of a rank on S SMs (``simcore/lower/kernels.py``). So a group
whose data is late keeps its SMs from the groups behind it, which are dealt when all units before theirs are.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ...simcore.kernels.work import KernelWork
from .servers import UnitSpan


@dataclass(slots=True)
class StaticOrder:
    """``slots`` SMs of a rank and the ``works`` of its groups in the order of their units.

    ``edges[g]`` is the first unit of group g, ``ready[g]`` when its data is there, and ``free[j]`` when SM j has done
    all units that are dealt to it; all in ticks.
    """

    slots: int
    works: Sequence[KernelWork]
    edges: list[int] = field(default_factory=list)
    ready: list[float | None] = field(default_factory=list)
    dealt: list[bool] = field(default_factory=list)
    free: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.edges = [0, *accumulate(work.num_units for work in self.works)]
        self.ready, self.dealt = [None] * len(self.works), [False] * len(self.works)
        self.free = np.zeros(self.slots)

    def begin(self, group: int, now: float) -> Iterator[tuple[int, list[UnitSpan]]]:
        """Deal the units of ``group``, whose data is there ``now``, and of those that waited behind it; yield both."""
        self.ready[group] = now
        for each in range(group, len(self.works)):
            ready = self.ready[each]
            if not self.dealt[each] and ready is not None and self._is_next(each):
                yield each, self._deal(each, ready, now)
            elif not self.dealt[each] and self.works[each].num_units >= self.slots:
                return  # all SMs wait for its data

    def delay(self, time: float, by: float) -> None:
        """Delay the SMs that come free at ``time``."""
        self.free[self.free == time] += by

    def _is_next(self, group: int) -> bool:
        """Whether all units that the SMs of ``group`` run before its own are dealt."""
        first, last = self.edges[group] - self.slots, self.edges[group + 1] - self.slots
        since = bisect_right(self.edges, max(0, first)) - 1
        return all(self.dealt[each] for each in range(since, group) if self.edges[each] < last)

    def _deal(self, group: int, ready: float, now: float) -> list[UnitSpan]:
        """Return the spans of units that begin and end together; those that began in the past begin ``now``."""
        self.dealt[group] = True
        work, at = self.works[group], self.edges[group] % self.slots
        waves, rest = divmod(work.num_units, self.slots)
        slots = (np.arange(min(work.num_units, self.slots)) + at) % self.slots
        counts = np.full(len(slots), waves)
        counts[:rest] += 1
        begins = np.maximum(self.free[slots], ready)
        self.free[slots] = begins + counts * work.unit_ticks
        alike = Counter(zip(begins.tolist(), counts.tolist(), strict=True))
        return [
            UnitSpan(first, max(begin + count * work.unit_ticks, first + work.unit_ticks), count * number)
            for (begin, count), number in alike.items()
            for first in (max(begin, now),)
        ]
