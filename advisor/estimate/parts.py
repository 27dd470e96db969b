"""What copies hold while they run: the engines of a rank, the route that copies of a kind share, and their parts."""

from dataclasses import dataclass, field

from .fluid import FluidPath, Leg
from .servers import Flow, FluidMemory
from .step_costs import CopyCosts


@dataclass(slots=True)
class Engines:
    """The pool of engines of a rank: free engines, waiting transfers, and the rate of one engine."""

    free: int
    bytes_per_tick: float
    queue: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class Route:
    """What copies of a kind share: costs, the path, engines, and the memories that it reads and writes, how often.

    ``flows`` are those of parts, by rate, first leg and the leg after the last one.
    """

    costs: CopyCosts
    path: FluidPath
    engines: Engines
    reads: tuple[tuple[FluidMemory, int], ...]
    writes: tuple[tuple[FluidMemory, int], ...]
    flows: dict[tuple[float, int, int], tuple[Flow, ...]] = field(default_factory=dict)

    def flows_of(self, rate: float, first: int, stop: int) -> tuple[Flow, ...]:
        """Return the flows of ``rate`` bytes per tick on the legs from ``first`` to ``stop``, and in the memories.

        The first leg reads, and the last writes.
        """
        key = rate, first, stop
        if key not in self.flows:
            ends = (*(self.reads if not first else ()), *(self.writes if stop == len(self.path.legs) else ()))
            on_legs = ((link, rate * ticks_per_byte) for link, ticks_per_byte in self.path.legs[first:stop])
            in_memories = (flow for memory, times in ends for flow in memory.flows(rate * times))
            self.flows[key] = (*on_legs, *in_memories)
        return self.flows[key]

    def land(self, now: float) -> None:
        """Move what the leg now forwards into the memory of its own rank, where no other is written."""
        if self.writes:
            return
        (link, ticks_per_byte), (memory, _) = self.path.legs[0], self.reads[0]
        landing = link.outflow / ticks_per_byte
        memory.feed(now, landing - link.landing)
        link.landing = landing


@dataclass(slots=True)
class TransferPart:
    """A share of a transfer on some engines of the pool, and the legs that it feeds at the same time.

    Legs after one that queues are fed by the part ``following``, which lands no earlier than ``late``.
    """

    transfer: int
    route: Route
    engines: int
    num_bytes: float
    bytes_per_tick: float
    first_leg: int = 0
    legs: tuple[Leg, ...] = ()
    flows: tuple[Flow, ...] = ()
    following: int | None = None
    late: float = 0.0


@dataclass(frozen=True, slots=True)
class SumPart:
    """A share of a sum on some of the SMs that copy, and its traffic in memory."""

    step: int
    engines: int
    bytes_per_tick: float
