"""Links, memories and SM slots of the step-level estimate, and the paths of transfers over them.

One rank stands for all with the busiest links (``FluidFabric``), or the ranks of one period are followed on all of
theirs (``WholeFabric``).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...compiler.ir import (
    TICKS_PER_SECOND,
    Direction,
    Fabric,
    Network,
    OpCase,
    Reach,
    Transfer,
    network_of,
)
from ...simcore.lower.collective import MAX_SLICES


@dataclass(slots=True)
class FluidLink:
    """A FIFO server: ``backlog`` in ticks of work, ``inflow`` in ticks of work per tick, both at time ``now``.

    ``landing`` is kept by the caller: the bytes per tick that leave it.
    """

    now: float = 0.0
    backlog: float = 0.0
    inflow: float = 0.0
    landing: float = 0.0

    @property
    def outflow(self) -> float:
        """Work done per tick."""
        inflow = self.inflow
        return 1.0 if self.backlog > 1.0 or inflow > 1.0 else inflow if inflow > 0.0 else 0.0

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
        hbm, noc = self.hbm.backlog, self.noc.backlog
        return hbm if hbm > noc else noc

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


class SlotPool:
    """SM slots as (time at which they come free, number of slots)."""

    def __init__(self, slots: int) -> None:
        self.free = [(0.0, slots)]

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


Ends = tuple[int, int]
"""Source and target of an edge, or its number in ``Network.own`` and the ranks it is shifted by."""


Leg = tuple[FluidLink, float]
"""A link, and its ticks of service for a byte."""
Times = tuple[tuple[int, int], ...]
"""(rank, number of accesses)."""


@dataclass(frozen=True, slots=True)
class FluidPath:
    """The path of a transfer: ``legs``, and the latency at its end.

    A transfer feeds its legs together, no faster than ``bytes_per_tick``. ``reads`` and ``writes`` are the ranks whose
    memory it uses, and how often; without ``writes`` bytes arrive at its own rank as its leg forwards them. A switch
    sends its result after the share ``slice_share`` of the time on the quickest leg. ``frees`` says that the engines
    are free when the legs are fed, not when all data has arrived.
    """

    legs: tuple[Leg, ...]
    latency: float
    bytes_per_tick: float = float("inf")
    reads: Times = ((0, 1),)
    writes: Times = ()
    slice_share: float = 0.0
    frees: bool = False

    def slice_ticks(self, num_bytes: float) -> float:
        """Return the delay of the last slice after its operands."""
        return self.slice_share * num_bytes * min(ticks for _, ticks in self.legs) if self.slice_share else 0.0


class FluidFabric:
    """The links that a rank sends on, created on use; with relative peers the rank is its own neighbour.

    Exact for plans and fabrics in which ranks are alike, an approximation for other fabrics.
    """

    def __init__(self, scenario: OpCase, by_sm: bool) -> None:
        self.scenario, self.by_sm = scenario, by_sm
        self.edges = _busiest_edges(scenario.system.fabric, scenario.num_ranks) if scenario.num_ranks > 1 else {}
        self.links = dict[int | Ends, FluidLink]()
        self._paths = dict[int, FluidPath]()  # by the peer that receives

    def path(self, rank: int, step: Transfer) -> FluidPath:
        """Return the path of a transfer of any ``rank``."""
        if step.reach is Reach.ALL:
            return self._through_switch(step)
        peer = (step.peer if step.direction is Direction.PUT else -step.peer) % self.scenario.num_ranks
        if peer not in self._paths:
            link, ticks_per_byte, latency = self.queue_to(peer)
            self._paths[peer] = FluidPath(((link, ticks_per_byte),), latency)
        return self._paths[peer]

    def _through_switch(self, step: Transfer) -> FluidPath:
        """Return the path of a copy to all, or a sum of all, by a switch; ports also carry those of other ranks."""
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

    def queue_to(self, peer: int) -> tuple[FluidLink, float, float]:
        """Return (link to queue for, its ticks of service per byte, latency between memories) from rank 0 to ``peer``.

        The link is the edge that is busiest while every rank sends to the same relative peer.
        """
        gpu = self.scenario.gpu
        latency = 2 * gpu.hbm.latency_ticks + (gpu.l2.latency_ticks if self.by_sm else 0)
        key, ticks_per_byte, on_links = self.edges[peer]
        latency += on_links
        return self.links.setdefault(key, FluidLink()), ticks_per_byte, float(latency)


@lru_cache(maxsize=16)
def _busiest_edges(fabric: Fabric, num_ranks: int) -> dict[int, tuple[Ends, float, int]]:
    """Return for each relative peer the edge to queue for, its ticks to pass a byte of every rank, and the latency.

    The edge is the busiest one if every rank sends to every other; for a peer whose route does not pass it, the busiest
    on that route.
    """
    network = network_of(fabric, num_ranks)
    load = _passes(network) * TICKS_PER_SECOND / [edge.bytes_per_s for edge in network.own]  # [peers, edges]
    total = np.cumsum(load, axis=0)[-1]
    busiest = _first_passed(network, range(1, num_ranks), total == total.max())
    edges = {}
    for peer in range(1, num_ranks):
        most = load[peer] == load[peer].max()
        number = busiest if load[peer, busiest] else _first_passed(network, [peer], most)
        edges[peer] = (network.own[number].ends, float(load[peer, number]), network.latency_ticks(0, peer))
    return edges


def _first_passed(network: Network, peers: Iterable[int], chosen: npt.NDArray[np.bool_]) -> int:
    """Return the first of the ``chosen`` edges [edge of ``own``] that a rank passes on its way to one of ``peers``."""
    n = network.num_ranks
    ways = (network.way(rank, (rank + peer) % n) for peer in peers for rank in range(network.period))
    return next(number for way in ways for number, _ in way if chosen[number])


MOST_WAYS = 200_000
"""Between two ranks that are followed, of all peers together: beyond, ranks at equal distances stand for all."""


def _passes(network: Network) -> npt.NDArray[np.float64]:
    """Return how often each edge is passed if every rank r sends to r + peer, [peer, edge of ``own``].

    Of edges that a shift maps onto each other the first stands for all.
    """
    n = network.num_ranks
    targets = range(0, network.period, 1 + n * network.period // MOST_WAYS)
    passed = np.zeros((n, len(network.own)))
    for target in targets:
        tree = network.tree_to(target)
        onward, edge = np.zeros((2, max(n, *tree) + 1), np.int64)
        for at, (following, (number, _)) in tree.items():
            onward[at], edge[at] = following, number
        node = np.arange(n)
        peer = (target - node) % n
        while (moving := node != target).any():
            node, peer = node[moving], peer[moving]
            passed[peer, edge[node]] += 1  # each peer once
            node = onward[node]
    return passed * network.period / len(targets)


class WholeFabric:
    """The links of the first ``num_ranks`` ranks, which all others repeat: by edge of the network and its shift."""

    def __init__(self, scenario: OpCase, by_sm: bool, num_ranks: int) -> None:
        self.scenario, self.by_sm, self.num_ranks = scenario, by_sm, num_ranks
        self.network = scenario.network
        self.links = dict[Ends, FluidLink]()
        self._paths = dict[tuple[int, int] | tuple[int, bool, str], FluidPath]()

    def path(self, rank: int, step: Transfer) -> FluidPath:
        """Return the path of a transfer of ``rank``."""
        n = self.network.num_ranks
        if step.reach is Reach.ALL:
            key: tuple[int, bool, str] = rank, step.reduce, "all"
            if key not in self._paths:
                self._paths[key] = self._through_switch(rank, step)
            return self._paths[key]
        peer = (rank + step.peer) % n
        ends = (rank, peer) if step.direction is Direction.PUT else (peer, rank)
        if ends not in self._paths:
            self._paths[ends] = self._between(*ends)
        return self._paths[ends]

    def _between(self, source: int, target: int) -> FluidPath:
        network = self.network
        legs = tuple(map(self._leg, network.way(source, target)))
        latency = self._memory_ticks + network.latency_ticks(source, target)
        slowest = max((ticks for _, ticks in legs), default=0.0)
        bytes_per_tick = 1 / slowest if slowest else float("inf")
        reads, writes = ((source % self.num_ranks, 1),), ((target % self.num_ranks, 1),)
        return FluidPath(legs, latency, bytes_per_tick, reads, writes)

    def _through_switch(self, rank: int, step: Transfer) -> FluidPath:
        n, network = self.scenario.num_ranks, self.network
        others = [(rank + k) % n for k in range(1, n)]
        to, fro = [network.way(rank, other) for other in others], network.way(others[0], rank)
        own: Times = ((rank, 1),)
        rest: Times = tuple((other % self.num_ranks, 1) for other in others)
        if step.reduce:
            hops = (to[0][0], *(network.way(other, rank)[0] for other in others), fro[-1])
            reads, writes = (*own, *rest), own
        else:
            hops, reads, writes = (to[0][0], *(way[-1] for way in to)), own, rest
        latency = self._memory_ticks + network.latency_ticks(rank, others[0])
        legs = tuple(map(self._leg, hops))
        slowest = max(ticks for _, ticks in legs)
        return FluidPath(legs, latency, 1 / slowest, reads, writes, slice_share=1 / MAX_SLICES, frees=True)

    @property
    def _memory_ticks(self) -> float:
        gpu = self.scenario.gpu
        return float(2 * gpu.hbm.latency_ticks + (gpu.l2.latency_ticks if self.by_sm else 0))

    def _leg(self, hop: Ends) -> Leg:
        number, ranks = hop
        link = self.links.setdefault((number, ranks % self.num_ranks), FluidLink())
        return link, TICKS_PER_SECOND / self.network.own[number].bytes_per_s
