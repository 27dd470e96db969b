"""The shared resources of the step-level estimate: links and memories as fluids, SMs as slots.

All follow what the simulator does with units one by one, in closed form: a link is a FIFO queue fed at constant rates,
and a kernel is dealt to the SMs that are free first, as soon as it is launched.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ...compiler.ir import TICKS_PER_SECOND


@dataclass(slots=True)
class FluidLink:
    """A FIFO server: ``backlog`` in ticks of work, ``inflow`` in ticks of work per tick, both at time ``now``.

    ``served`` and ``landing`` are kept by the caller: the work done so far, and the bytes per tick that leave it.
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
        """Increase the inflow by ``change`` from ``now`` on."""
        if now != self.now:
            backlog = self.backlog + (self.inflow - 1.0) * (now - self.now)
            self.backlog = backlog if backlog > 0.0 else 0.0
            self.now = now
        self.inflow += change


Flow = tuple[FluidLink, float]
"""A link, and by how much a copy increases its inflow while it lasts."""


@dataclass(slots=True)
class FluidMemory:
    """The memory of a rank, and the network on chip that its copies pass; both also serve its kernels.

    ``noc_bytes_per_s`` is None where the profile has no network on chip.
    """

    hbm_bytes_per_s: int
    noc_bytes_per_s: int | None
    hbm: FluidLink = field(default_factory=FluidLink)
    noc: FluidLink = field(default_factory=FluidLink)

    @property
    def backlog(self) -> float:
        """The longer of the two queues, in ticks."""
        return max(self.hbm.backlog, self.noc.backlog)

    def use(self, now: float, bytes_per_tick: float) -> None:
        """Increase the traffic of the memory by ``bytes_per_tick`` from ``now`` on."""
        self.hbm.feed(now, bytes_per_tick * TICKS_PER_SECOND / self.hbm_bytes_per_s)

    def feed(self, now: float, bytes_per_tick: float) -> None:
        """Increase the traffic of copies by ``bytes_per_tick`` from ``now`` on."""
        self.hbm.feed(now, bytes_per_tick * TICKS_PER_SECOND / self.hbm_bytes_per_s)
        if self.noc_bytes_per_s is not None:
            self.noc.feed(now, bytes_per_tick * TICKS_PER_SECOND / self.noc_bytes_per_s)

    def flows(self, bytes_per_tick: float) -> tuple[Flow, ...]:
        """Return the inflow of copies that move ``bytes_per_tick``."""
        in_memory = self.hbm, bytes_per_tick * TICKS_PER_SECOND / self.hbm_bytes_per_s
        if self.noc_bytes_per_s is None:
            return (in_memory,)
        return in_memory, (self.noc, bytes_per_tick * TICKS_PER_SECOND / self.noc_bytes_per_s)


class UnitSpan(NamedTuple):
    """``units`` of a kernel that run from ``begin`` to ``end``, in ticks."""

    begin: float
    end: float
    units: int


@dataclass(slots=True)
class SlotPool:
    """SM slots as (time at which they come free, number of slots)."""

    slots: int
    free: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [(0.0, self.slots)]

    def deal(self, ready: float, units: int, ticks: float) -> UnitSpan:
        """Run ``units`` of ``ticks`` each from ``ready`` on; return from when to when.

        Kernels must be dealt in the order in which they are ready: later kernels queue behind earlier ones.
        """
        first, end, dealt = -1.0, ready, units
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
        return UnitSpan(first, end, dealt)

    def delay(self, time: float, by: float) -> None:
        """Delay the slots that come free at ``time``."""
        self.free = [(free + by if free == time else free, count) for free, count in self.free]
        heapify(self.free)
