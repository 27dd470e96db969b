"""The costs of the steps of a graph, the engines that share a copy, and parts of transfers and sums."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Gpu,
    OpCase,
    OpPlan,
    Reach,
    Transfer,
    Wait,
)
from ...simcore.kernels.work import KernelWork
from ...simcore.lower.collective import counts_ticks
from ...simcore.lower.copies import num_packets
from ...simcore.lower.machine import distance_ticks, is_one_kernel
from ...simcore.lower.one_kernel import launch_ticks, peers_to_be_ready
from ...simcore.lower.waits import monitor_wake_ticks, poll_ticks
from .fluid import Flow, FluidMemory, FluidPath, Leg, UnitSpan
from .graph import StepGraph


def copy_setup_ticks(
    gpu: Gpu, engine: EngineChoice, protocol: CopyProtocol = CopyProtocol.SIMPLE, by: EngineKind | None = None
) -> int:
    """Return the time of a copy before its first byte, as in the simulator; ``by`` whom if not by the engine."""
    if (by or engine.kind) is EngineKind.DMA:
        return gpu.dma.prelaunch_ticks if engine.mode is EngineMode.PRELAUNCHED else gpu.dma.setup_ticks
    return gpu.sm_copy.setup_ticks if protocol is CopyProtocol.SIMPLE else 0


class CopyCosts(NamedTuple):
    """Costs in ticks of all copies of a kind.

    They begin no earlier than ``earliest``. ``workers`` engines share one; ``setup_ticks`` pass before its first byte
    and ``flag_ticks`` after its last, and ``notice_ticks`` from its end until its successors know of it.
    """

    earliest: float
    workers: int
    setup_ticks: float
    flag_ticks: float
    notice_ticks: float


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs of the steps of ``graph``.

    ``one_kernel`` says that SMs do a lone collective in one kernel; then ``awaited[r]`` is the time of a request from
    the farthest rank for which the kernel of rank r waits. ``distance`` is that time to an offset from a rank.
    """

    scenario: OpCase
    schedule: OpPlan
    graph: StepGraph
    one_kernel: bool
    awaited: tuple[int, ...]
    distance: Callable[[int, int], int]

    @classmethod
    def of(cls, scenario: OpCase, schedule: OpPlan, graph: StepGraph) -> "StepCosts":
        """Return the costs of the steps of a schedule."""
        one_kernel = is_one_kernel(scenario, schedule)
        offsets: tuple[set[int], ...] = tuple(set() for _ in range(graph.num_ranks))
        for rank, copy in graph.kinds if one_kernel else ():
            offsets[rank].update(peers_to_be_ready(scenario, schedule, copy))
        distance = cache(partial(distance_ticks, scenario))
        awaited = (max((distance(-each, rank + each) for each in of), default=0) for rank, of in enumerate(offsets))
        return cls(scenario, schedule, graph, one_kernel, tuple(awaited), distance)

    @property
    def launched(self) -> float:
        """When steps other than copies may begin: see ``simcore/lower/one_kernel.py``."""
        return float(launch_ticks(self.scenario.gpu, self.schedule)) if self.one_kernel else 0.0

    @property
    def look_ticks(self) -> float:
        """Time from a set flag until what polls for it, or is woken, has read it: ``simcore/lower/waits.py``."""
        gpu, wait = self.scenario.gpu, self.schedule.tactics.wait
        if wait is Wait.EVENT:
            return 0.0
        woken_ticks = monitor_wake_ticks(gpu) if wait is Wait.MONITOR else 0
        return float(woken_ticks + gpu.hbm.latency_ticks)

    def of_copy(self, rank: int, copy: Transfer) -> CopyCosts:
        """Return the costs of a ``copy`` of ``rank``, and of all of its kind."""
        return CopyCosts(
            self._earliest(rank, copy),
            self._workers(rank, copy),
            self._setup_ticks(rank, copy),
            self._flag_ticks(rank, copy),
            self._notice_ticks(copy),
        )

    def mover(self, rank: int, copy: Transfer) -> EngineKind:
        """Return who moves a ``copy`` of ``rank``."""
        return self.scenario.mover(self.schedule.engine, copy, rank)

    def packet_ticks(self, i: int) -> int:
        """Return how long the packets of the copy that is step i hold a DMA engine beyond its first, 0 for SMs."""
        gpu, step, moved = self.scenario.gpu, self.graph.steps[i], self.scenario.shape.moved
        if not gpu.dma.packet_ticks or moved is None or not isinstance(step, Transfer):
            return 0
        if self.mover(self.graph.rank[i], step) is EngineKind.SM:
            return 0
        return gpu.dma.packet_ticks * (num_packets(gpu, moved.cols, step, self.graph.num_bytes[i]) - 1)

    def sum_workers(self, i: int) -> int:
        """Return how many of the SMs that copy share the sum that is step i."""
        return min(self.schedule.engine.count, self.graph.work[i][0].num_units)

    def _earliest(self, rank: int, copy: Transfer) -> float:
        scenario, gpu = self.scenario, self.scenario.gpu
        counted = max(self.launched, counts_ticks(scenario, self.schedule))
        if not scenario.shape.is_collective:
            return counted
        offsets = set(peers_to_be_ready(scenario, self.schedule, copy))
        if not offsets:
            return counted
        farthest = (self.distance(-offset, rank + offset) for offset in offsets)
        distance = self.awaited[rank] if self.one_kernel else max(farthest)
        return max(counted, self.launched + distance + gpu.hbm.latency_ticks + poll_ticks(gpu))

    def _workers(self, rank: int, copy: Transfer) -> int:
        """Return the engines that share a copy: one for DMA, else as many SMs as it has."""
        if self.mover(rank, copy) is EngineKind.DMA:
            return 1
        return self.schedule.engine.sms_of(copy, self.graph.num_sharing[rank])

    def _setup_ticks(self, rank: int, copy: Transfer) -> float:
        """Return the time of a copy before its first byte; a get sends its request first."""
        gpu, engine, protocol = self.scenario.gpu, self.schedule.engine, self.schedule.tactics.protocol
        if copy.reach is Reach.ALL:  # a switch does not forward flags between the data
            request = self.distance(1, 0) if copy.reduce else 0
            return float(copy_setup_ticks(gpu, engine) + request)
        is_get = copy.direction is Direction.GET
        if (
            engine.kind is EngineKind.DMA
            and engine.mode is EngineMode.CHANNELS
            and copy.lane is not None
            and not is_get
        ):
            return 0.0  # taken to be done while bytes of the copy before move
        if is_get:
            protocol = CopyProtocol.SIMPLE  # data that is read has no flags
        request = self.distance(copy.peer, rank) if is_get else 0
        return float(copy_setup_ticks(gpu, engine, protocol, self.mover(rank, copy))) + request

    def _flag_ticks(self, rank: int, copy: Transfer) -> float:
        """Return the time of the flag after a copy by SMs: a round trip, or 0 if links keep the order.

        Puts in the protocol SIMPLE send such a flag where somebody looks for it. Tiles hold nothing until it is set.
        """
        tactics, engine = self.schedule.tactics, self.schedule.engine
        flagged = self.mover(rank, copy) is EngineKind.SM and not engine.by_tiles
        flagged = flagged and (self.one_kernel or tactics.wait is not Wait.EVENT)
        flagged = flagged and tactics.protocol is CopyProtocol.SIMPLE
        flagged = flagged and copy.direction is Direction.PUT and copy.reach is Reach.PEER
        if not flagged or self.scenario.system.fabric.in_order:
            return 0.0
        back = self.distance(-copy.peer, rank + copy.peer)
        return float(back + self.distance(copy.peer, rank) + self.scenario.gpu.hbm.latency_ticks)

    def _notice_ticks(self, copy: Transfer) -> float:
        """Return the time from the end of a copy until its successors know of it: one kernel polls flags of puts."""
        polled = self.one_kernel and copy.direction is Direction.PUT
        return float(poll_ticks(self.scenario.gpu)) if polled else 0.0


@dataclass(slots=True)
class Engines:
    """A pool of ``count`` engines of a rank: free engines, waiting transfers, and the rate of one engine."""

    count: int
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

    Legs after one that queues are fed by the part ``following``, which arrives no earlier than ``late``.
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


class StaticOrder:
    """``slots`` SMs of a rank and the ``works`` of its groups in the order of their units.

    ``edges[g]`` is the first unit of group g, ``ready[g]`` when its data is there, and ``free[j]`` when SM j has done
    all units that are dealt to it; all in ticks.
    """

    def __init__(self, slots: int, works: Sequence[KernelWork]) -> None:
        self.slots, self.works = slots, works
        self.edges = [0, *accumulate(work.num_units for work in works)]
        self.ready: list[float | None] = [None] * len(works)
        self.dealt = [False] * len(works)
        self.free = np.zeros(slots)

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
