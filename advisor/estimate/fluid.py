"""The shared resources of the step-level estimate: links as fluids, SMs as slots.

Both follow what the simulator does with units one by one, in closed form: a link is a FIFO queue fed at constant rates,
and a kernel is dealt to the SMs that are free first, as soon as it is launched.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

from ...compiler.ir import (
    TICKS_PER_SECOND,
    Direction,
    Edge,
    Fabric,
    Network,
    Reach,
    Scenario,
    Step,
    Transfer,
    network_of,
)
from ...simcore.lower.switch import MAX_SLICES

Ends = tuple[int, int]
"""Nodes that an edge joins."""


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


Leg = tuple[FluidLink, float]
"""A link, and the ticks of service that it has for a byte."""
Times = tuple[tuple[int, int], ...]
"""Ranks, and how often each."""


@dataclass(frozen=True, slots=True)
class FluidPath:
    """What a transfer passes: ``legs`` with the ticks of service per byte of each, and the latency at its end.

    It feeds its legs together, no faster than ``bytes_per_tick``. ``reads`` and ``writes`` are the ranks whose memory
    it uses, and how often; without ``writes`` its bytes land at its own rank as its leg passes them on. ``slice_share``
    is the part of its time on the quickest leg after which what a switch has made follows. ``frees`` says that its
    engines are free when it has fed its legs, not when all has landed.
    """

    legs: tuple[Leg, ...]
    latency: float
    bytes_per_tick: float = float("inf")
    reads: Times = ((0, 1),)
    writes: Times = ()
    slice_share: float = 0.0
    frees: bool = False

    def slice_ticks(self, num_bytes: float) -> float:
        """How long the last slice follows what it is made of."""
        return self.slice_share * num_bytes * min(ticks for _, ticks in self.legs) if self.slice_share else 0.0


@dataclass(slots=True)
class FluidFabric:
    """The links that a rank sends on, made as they are used; relative peers make the rank its own neighbour.

    For plans that are the same at every rank, and nearly so for fabrics that are not.
    """

    scenario: Scenario
    by_sm: bool
    links: dict[int | Ends, FluidLink] = field(default_factory=dict)
    paths: dict[int, tuple[FluidLink, float, float]] = field(default_factory=dict)
    ways: dict[int, FluidPath] = field(default_factory=dict)

    def way(self, rank: int, step: Transfer) -> FluidPath:
        """What a transfer of any ``rank`` passes."""
        if step.reach is Reach.ALL:
            return self._through_switch(step)
        link, ticks_per_byte, latency = self.path(step)
        key = id(link) if step.peer == 0 else step.peer if step.direction is Direction.PUT else -step.peer
        if key not in self.ways:
            self.ways[key] = FluidPath(((link, ticks_per_byte),), latency)
        return self.ways[key]

    def _through_switch(self, step: Transfer) -> FluidPath:
        """A copy to all, or a sum of all, by a switch: the ports of each rank have its part in those of the others."""
        n, fabric, gpu = self.scenario.num_ranks, self.scenario.system.fabric, self.scenario.gpu
        assert fabric.switch is not None, "a checked plan copies to all and sums only where there is a switch"
        up, down = fabric.link.achieved_bytes_per_s, min(fabric.switch.bytes_per_s, fabric.link.achieved_bytes_per_s)
        rises, falls, reads, writes = (n, 1, n, 1) if step.reduce else (1, n - 1, 1, n - 1)
        legs = tuple(
            (self.links.setdefault((-1, port), FluidLink()), times * TICKS_PER_SECOND / rate)
            for port, times, rate in ((0, rises, up), (1, falls, down))
        )
        latency = 2 * fabric.link.latency_ticks + fabric.switch.latency_ticks + 2 * gpu.hbm.latency_ticks
        latency += gpu.l2.latency_ticks if self.by_sm else 0
        return FluidPath(
            legs, latency, reads=((0, reads),), writes=((0, writes),), slice_share=1 / MAX_SLICES, frees=True
        )

    def path(self, step: Step) -> tuple[FluidLink, float, float]:
        """For a transfer the link it queues for, ticks of service per byte, and the latency from memory to memory."""
        assert isinstance(step, Transfer), "only transfers use links"
        peer = (step.peer if step.direction is Direction.PUT else -step.peer) % self.scenario.num_ranks
        if peer not in self.paths:
            self.paths[peer] = self.path_to(peer)
        return self.paths[peer]

    def path_to(self, peer: int) -> tuple[FluidLink, float, float]:
        """``path`` of a transfer from rank 0, queued for the edge that is busiest while every rank sends like this."""
        n, fabric, gpu = self.scenario.num_ranks, self.scenario.system.fabric, self.scenario.gpu
        latency = 2 * gpu.hbm.latency_ticks + (gpu.l2.latency_ticks if self.by_sm else 0)
        key, ticks_per_byte = _busiest_edges(fabric, n)[peer]
        latency += network_of(fabric, n).latency_ticks(0, peer)
        return self.links.setdefault(key, FluidLink()), ticks_per_byte, float(latency)


@lru_cache(maxsize=16)
def _busiest_edges(fabric: Fabric, num_ranks: int) -> dict[int, tuple[Ends, float]]:
    """For each relative peer an edge that all queue for, and the ticks in which it passes a byte of every rank.

    That is the edge which most bytes pass if every rank sends to every other; where a peer is reached without it, the
    one that is busiest then.
    """
    network = network_of(fabric, num_ranks)
    load: dict[int, dict[Ends, float]] = {}
    total: dict[Ends, float] = defaultdict(float)
    for peer in range(1, num_ranks):
        load[peer] = {
            ends: times * TICKS_PER_SECOND / network.edge(*ends).bytes_per_s
            for ends, times in _passes(network, peer).items()
        }
        for ends, ticks in load[peer].items():
            total[ends] += ticks
    busiest = max(total, key=lambda ends: total[ends])
    found = {}
    for peer, of_peer in load.items():
        ends = busiest if busiest in of_peer else max(of_peer, key=lambda each: of_peer[each])
        found[peer] = (ends, of_peer[ends])
    return found


def _passes(network: Network, peer: int) -> Counter[Ends]:
    """How often each edge is passed where every rank sends to the one so much further.

    Of a symmetric network those of rank 0, each of which is passed as often as all others of its name.
    """
    if network.symmetric:
        return Counter(network.own[number].ends for number, _ in network.ways[peer])
    n = network.num_ranks
    return Counter(ends for rank in range(n) for ends in pairwise(network.path(rank, (rank + peer) % n)))


@dataclass(slots=True)
class WholeFabric:
    """The links of all ranks, by the edges of the fabric."""

    scenario: Scenario
    by_sm: bool
    links: dict[Ends, FluidLink] = field(default_factory=dict)
    ways: dict[tuple[int, int] | tuple[int, bool, str], FluidPath] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        """The graph whose edges the links are."""
        return network_of(self.scenario.system.fabric, self.scenario.num_ranks)

    def way(self, rank: int, step: Transfer) -> FluidPath:
        """What a transfer of ``rank`` passes."""
        n = self.scenario.num_ranks
        if step.reach is Reach.ALL:
            key: tuple[int, bool, str] = rank, step.reduce, "all"
            if key not in self.ways:
                self.ways[key] = self._through_switch(rank, step)
            return self.ways[key]
        peer = (rank + step.peer) % n
        ends = (rank, peer) if step.direction is Direction.PUT else (peer, rank)
        if ends not in self.ways:
            self.ways[ends] = self._between(*ends)
        return self.ways[ends]

    def _between(self, source: int, target: int) -> FluidPath:
        legs = tuple(map(self._leg, self.network.route(source, target)))
        latency = self._memory_ticks + self.network.latency_ticks(source, target)
        slowest = max((ticks for _, ticks in legs), default=0.0)
        most = 1 / slowest if slowest else float("inf")
        return FluidPath(legs, latency, most, ((source, 1),), ((target, 1),))

    def _through_switch(self, rank: int, step: Transfer) -> FluidPath:
        n = self.scenario.num_ranks
        others = [(rank + k) % n for k in range(1, n)]
        to, fro = [self.network.route(rank, other) for other in others], self.network.route(others[0], rank)
        own: Times = ((rank, 1),)
        rest: Times = tuple((other, 1) for other in others)
        if step.reduce:
            edges = (to[0][0], *(self.network.route(other, rank)[0] for other in others), fro[-1])
            reads, writes = (*own, *rest), own
        else:
            edges, reads, writes = (to[0][0], *(route[-1] for route in to)), own, rest
        latency = self._memory_ticks + self.network.latency_ticks(rank, others[0])
        legs = tuple(map(self._leg, edges))
        slowest = max(ticks for _, ticks in legs)
        return FluidPath(legs, latency, 1 / slowest, reads, writes, slice_share=1 / MAX_SLICES, frees=True)

    @property
    def _memory_ticks(self) -> float:
        gpu = self.scenario.gpu
        return float(2 * gpu.hbm.latency_ticks + (gpu.l2.latency_ticks if self.by_sm else 0))

    def _leg(self, edge: Edge) -> Leg:
        return self.links.setdefault(edge.ends, FluidLink()), TICKS_PER_SECOND / edge.bytes_per_s


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
