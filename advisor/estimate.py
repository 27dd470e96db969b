"""Step-level estimate of a schedule: the simulator's machine without its cache lines.

Events are steps, not lines. Transfers queue for engines, feed a link at the rate of their engine and end when the link
has drained them; kernels queue for their stream, then are dealt to SMs as units. Both feed the HBM at even rates, and
end late by what is queued there. What only lines show (bursts, L2, the order on a ring) is left out: the ranker learns
the ratio of the simulator to this.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..compiler.plan_view import num_peers
from ..compiler.scenario import TICKS_PER_SECOND, Gpu, Scenario
from ..compiler.schedule import (
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Protocol,
    Schedule,
    Step,
    TileGroup,
    Transfer,
)
from ..simcore.kernels.work import KernelWork
from ..simcore.machine import distance_ticks
from .estimate_graph import Graph, graph_of
from .fluid import FluidFabric, FluidLink, SlotPool

# Kinds of events, in the order in which those of one time are handled: what ends frees what begins.
_COPIED, _FINISHED, _DRAINED, _SPENT, _BEGUN, _FED, _LAUNCHED, _READY = range(8)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the estimate found, in ticks; of one rank, which stands for all.

    ``gemm_ticks`` and ``reduce_ticks`` are sums of kernels, each alone, ``comm_ticks`` is the service time of the
    busiest link. ``part`` is one of the equal kernels that the plan repeats.
    ``first_ticks`` is when the first transfer has landed (AG+GEMM) or the first group is computed (GEMM+RS).
    ``tail_ticks`` is what follows the end of the other kind of work: kernels after the last transfer, or transfers
    and sums after the last group. ``exposed_ticks`` is the time in which no kernel runs. ``hbm_bytes`` is all traffic.
    """

    makespan_ticks: float
    gemm_ticks: int
    reduce_ticks: int
    comm_ticks: float
    first_ticks: float
    tail_ticks: float
    exposed_ticks: float
    hbm_bytes: int
    num_groups: int
    num_transfers: int
    part: KernelWork | None


def copy_setup_ticks(gpu: Gpu, engine: EngineChoice, protocol: Protocol = Protocol.SIMPLE) -> int:
    """What a copy costs before its first byte, as the simulator has it."""
    if engine.kind is EngineKind.DMA:
        return gpu.dma.prelaunch_ticks if engine.mode is EngineMode.PRELAUNCHED else gpu.dma.setup_ticks
    return gpu.sm_copy.setup_ticks if protocol is Protocol.SIMPLE else 0


def estimate_ticks(scenario: Scenario, schedule: Schedule) -> Estimate:
    """Estimate ``schedule`` on ``scenario``; under 3 ms for plans of some hundred steps.

    Plans that differ from rank to rank are estimated by the steps of rank 0; what comes from other steps than its own
    is there at once.
    """
    fabric = FluidFabric(scenario, by_sm=schedule.engine.kind is EngineKind.SM)
    steps = schedule.steps_of(0)
    run = _Run(scenario, schedule, steps, graph_of(scenario, schedule, steps), fabric, num_peers(steps))
    run.prepare()
    run.loop()
    return run.found()


@dataclass(slots=True)
class _Copies:
    """The pool of engines: who is free, who waits, and what one engine does."""

    free: int
    bytes_per_tick: float
    setup_ticks: float
    queue: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """A share of a transfer, on some engines of the pool."""

    transfer: int
    engines: int
    num_bytes: float


@dataclass(slots=True)
class _Run:
    """State of one estimate. Steps go by their index ``i`` in the plan."""

    scenario: Scenario
    schedule: Schedule
    steps: tuple[Step, ...]
    graph: Graph
    fabric: FluidFabric
    num_peers: int  # that share the SMs that copy
    events: list[tuple[float, int, int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # [i] what it still waits for
    begin: list[float] = field(default_factory=list)  # [i] first work
    done: list[float] = field(default_factory=list)  # [i] end
    hbm: FluidLink = field(default_factory=FluidLink)
    parts: list[_Part] = field(default_factory=list)
    left: list[int] = field(default_factory=list)  # [i] engines a transfer still wants
    missing: list[int] = field(default_factory=list)  # [i] parts that run

    def prepare(self) -> None:
        """Nothing has begun, and what waits for nothing is ready."""
        count = len(self.steps)
        self.waits, self.begin, self.done = list(self.graph.waits), [0.0] * count, [0.0] * count
        self.left, self.missing = [0] * count, [0] * count
        self.events = [(0.0, _READY, i) for i, waits in enumerate(self.waits) if not waits]

    def loop(self) -> None:
        """Handle events until none is left."""
        gpu, events = self.scenario.gpu, self.events
        engine, protocol = self.schedule.engine, self.schedule.tactics.protocol
        rate = (gpu.dma if engine.kind is EngineKind.DMA else gpu.sm_copy).bytes_per_s
        copies = _Copies(engine.count, rate / TICKS_PER_SECOND, float(copy_setup_ticks(gpu, engine, protocol)))
        pool = SlotPool(self.schedule.compute_sms)
        while events:
            now, kind, i = heappop(events)
            if kind == _READY and i not in self.graph.work:
                self.left[i] = self._workers(i)
                heappush(copies.queue, (now, i))
                self._grant(copies, now)
            elif kind == _READY:
                heappush(events, (self._launched(now, i), _LAUNCHED, i))
            elif kind == _FINISHED:
                self._finish(now, i)
            elif kind in (_COPIED, _DRAINED, _FED):
                self._copy(copies, now, kind, self.parts[i], i)
            else:
                self._compute(pool, now, kind, i)

    def _launched(self, now: float, i: int) -> float:
        """When a kernel can begin that has nothing to wait for; those that poll were launched before."""
        work, gap = self.graph.work[i]
        if i not in self.graph.kernels_before:
            return now + work.start_ticks + gap
        return max(now, work.start_ticks + max((self.done[j] for j in self.graph.kernels_before[i]), default=0.0))

    def _workers(self, i: int) -> int:
        """Engines that share a copy: one for DMA, all SMs in a lane, else an even part of the SMs for each peer."""
        step, count = self.steps[i], self.schedule.engine.count
        if self.schedule.engine.kind is EngineKind.DMA:
            return 1
        in_lane = isinstance(step, Transfer) and step.lane is not None
        return count if in_lane else max(1, count // self.num_peers)

    def _grant(self, copies: _Copies, now: float) -> None:
        """Free engines go to the transfer that has waited longest; one that gets a part of what it wants starts."""
        while copies.free and copies.queue:
            i = copies.queue[0][1]
            step = self.steps[i]
            taken = min(copies.free, self.left[i])
            copies.free -= taken
            self.left[i] -= taken
            if not self.left[i]:
                heappop(copies.queue)
            if not self.missing[i]:
                self.begin[i] = now
            self.missing[i] += 1
            self.parts.append(_Part(i, taken, self.graph.num_bytes[i] * taken / self._workers(i)))
            request = 0
            if isinstance(step, Transfer) and step.direction is Direction.GET:
                request = distance_ticks(self.scenario, step.peer)
            heappush(self.events, (now + copies.setup_ticks + request, _FED, len(self.parts) - 1))

    def _copy(self, copies: _Copies, now: float, kind: int, part: _Part, idx: int) -> None:
        """One part of a transfer begins to feed its link, has fed it all, or has landed."""
        i, rate = part.transfer, part.engines * copies.bytes_per_tick
        link, ticks_per_byte, latency = self.fabric.path(self.steps[i])
        if kind == _FED:
            link.feed(now, rate * ticks_per_byte)
            self._use_hbm(now, rate)
            heappush(self.events, (now + part.num_bytes / rate, _DRAINED, idx))
        elif kind == _DRAINED:
            link.feed(now, -rate * ticks_per_byte)
            link.served += part.num_bytes * ticks_per_byte
            self._use_hbm(now, -rate)
            heappush(self.events, (now + max(link.backlog, self.hbm.backlog) + latency, _COPIED, idx))
        else:
            link.feed(now, 0.0)
            copies.free += part.engines
            self.missing[i] -= 1
            if not self.missing[i] and not self.left[i]:
                self._finish(now, i)
            self._grant(copies, now)
        landing = link.outflow / ticks_per_byte
        self._use_hbm(now, landing - link.landing)
        link.landing = landing

    def _use_hbm(self, now: float, bytes_per_tick: float) -> None:
        """From ``now`` on the memory's traffic is larger by so much."""
        self.hbm.feed(now, bytes_per_tick * TICKS_PER_SECOND / self.scenario.gpu.hbm.achieved_bytes_per_s)

    def _compute(self, pool: SlotPool, now: float, kind: int, i: int) -> None:
        """A kernel is launched, gets its first SM, or has spent the time it needs on SMs."""
        work, _ = self.graph.work[i]
        if kind == _LAUNCHED:
            self.begin[i], self.done[i] = pool.deal(now, work.num_units, work.unit_ticks)
            heappush(self.events, (self.begin[i], _BEGUN, i))
            heappush(self.events, (self.done[i], _SPENT, i))
            return
        rate = (work.hbm_read_bytes + work.hbm_write_bytes) / (self.done[i] - self.begin[i])
        self._use_hbm(now, rate if kind == _BEGUN else -rate)
        if kind == _SPENT and self.hbm.backlog > 1:
            pool.delay(now, self.hbm.backlog)
            heappush(self.events, (now + self.hbm.backlog, _FINISHED, i))
        elif kind == _SPENT:
            self._finish(now, i)

    def _finish(self, now: float, i: int) -> None:
        self.done[i] = now
        for j in self.graph.next[i]:
            self.waits[j] -= 1
            if not self.waits[j]:
                heappush(self.events, (now, _READY, j))

    def _part_of(self, groups: list[KernelWork]) -> KernelWork | None:
        """The kernel that the plan repeats; the own shard comes first for a gather and last for a scatter."""
        return None if not groups else groups[0] if self.scenario.workload.pattern.reduces else groups[-1]

    def found(self) -> Estimate:
        """Read the figures off the finished run."""
        copied = [self.done[i] for i in range(len(self.steps)) if i not in self.graph.work]
        computed = [self.done[i] for i in self.graph.work if isinstance(self.steps[i], TileGroup)]
        first, last = (copied, computed) if not self.scenario.workload.pattern.reduces else (computed, copied)
        makespan = max(self.done, default=0.0)
        idle, reached = 0.0, 0.0
        for begin, end in sorted((self.begin[i], self.done[i]) for i in self.graph.work):
            idle += max(0.0, begin - reached)
            reached = max(reached, end)
        kernels = [work for work, _ in self.graph.work.values()]
        groups = [work for i, (work, _) in self.graph.work.items() if isinstance(self.steps[i], TileGroup)]
        gemm_ticks = sum(work.alone_ticks for work in groups)
        return Estimate(
            makespan_ticks=makespan,
            gemm_ticks=gemm_ticks,
            reduce_ticks=sum(work.alone_ticks for work in kernels) - gemm_ticks,
            comm_ticks=max((link.served for link in self.fabric.links.values()), default=0.0),
            first_ticks=min(first, default=0.0),
            tail_ticks=makespan - max(first or last, default=0.0),
            exposed_ticks=idle + makespan - reached,
            hbm_bytes=sum(w.hbm_read_bytes + w.hbm_write_bytes for w in kernels) + 2 * sum(self.graph.num_bytes),
            num_groups=len(computed),
            num_transfers=len(copied),
            part=self._part_of(groups),
        )
