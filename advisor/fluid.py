"""The two shared resources of the step-level estimate: links as fluids, SMs as slots.

Both follow what the simulator does with units one by one, in closed form: a link is a FIFO queue fed at constant rates,
and a kernel is dealt to the SMs that are free first, as soon as it is launched.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush


@dataclass(slots=True)
class FluidLink:
    """A FIFO server: ``backlog`` in ticks of work, ``inflow`` in ticks of work per tick, both as of ``now``.

    ``served`` and ``landing`` are for its user: the work done so far, and the bytes per tick that leave it.
    """

    now: float = 0.0
    backlog: float = 0.0
    inflow: float = 0.0
    served: float = 0.0
    landing: float = 0.0

    @property
    def outflow(self) -> float:
        """Work done per tick."""
        return 1.0 if self.backlog > 1.0 else min(1.0, max(0.0, self.inflow))

    def feed(self, now: float, change: float) -> None:
        """From ``now`` on the inflow is larger by ``change``."""
        self.backlog = max(0.0, self.backlog + (self.inflow - 1.0) * (now - self.now))
        self.inflow += change
        self.now = now


@dataclass(slots=True)
class SlotPool:
    """SM slots, as runs of slots that come free at the same time: (time, how many)."""

    slots: int
    free: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [(0.0, self.slots)]

    def deal(self, ready: float, units: int, ticks: float) -> tuple[float, float]:
        """Run ``units`` of ``ticks`` each from ``ready`` on; returns when the first begins and when the last ends.

        Kernels must be dealt in the order in which they are ready: what comes later queues behind.
        """
        first, end = -1.0, ready
        while units > 0:
            time, count = heappop(self.free)
            begin = max(time, ready)
            while self.free and self.free[0][0] <= begin:
                count += heappop(self.free)[1]
            if first < 0:
                first = begin
            if not self.free and units > count:  # every slot is free at once: whole waves in one go
                waves = units // count
                begin += (waves - 1) * ticks
                units -= (waves - 1) * count
            taken = min(units, count)
            units -= taken
            end = max(end, begin + ticks)
            heappush(self.free, (begin + ticks, taken))
            if count > taken:
                heappush(self.free, (max(time, ready), count - taken))
        return first, end

    def delay(self, time: float, by: float) -> None:
        """The slots that would come free at ``time`` do so later."""
        self.free = [(free + by if free == time else free, count) for free, count in self.free]
        heapify(self.free)
