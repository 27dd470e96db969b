"""The run of a step-level estimate: what happens when to the steps of a graph, on links, memories, engines and SMs."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from ...compiler.ir import (
    TICKS_PER_SECOND,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Gpu,
    Reach,
    Scenario,
    Schedule,
    Transfer,
    checkpoint,
)
from ...simcore.lower.machine import distance_ticks
from ...simcore.lower.one_kernel import is_one_kernel, launch_ticks, peers_to_be_ready
from ...simcore.lower.waits import poll_ticks
from .fluid import FluidFabric, FluidLink, FluidPath, Leg, SlotPool, WholeFabric
from .graph import StepGraph

# Between two looks whether to stop, so many events are handled: some milliseconds.
EVENTS_A_LOOK = 2048
# Kinds of events, in the order in which those of one time are handled: what ends frees what begins.
_FLAGGED, _COPIED, _SUMMED, _FINISHED, _DRAINED, _SPENT, _BEGUN, _FED, _LAUNCHED, _READY = range(10)


def copy_setup_ticks(gpu: Gpu, engine: EngineChoice, protocol: CopyProtocol = CopyProtocol.SIMPLE) -> int:
    """What a copy costs before its first byte, as the simulator has it."""
    if engine.kind is EngineKind.DMA:
        return gpu.dma.prelaunch_ticks if engine.mode is EngineMode.PRELAUNCHED else gpu.dma.setup_ticks
    return gpu.sm_copy.setup_ticks if protocol is CopyProtocol.SIMPLE else 0


@dataclass(slots=True)
class _Copies:
    """The pool of engines: who is free, who waits, and what one engine does."""

    free: int
    bytes_per_tick: float
    queue: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """A share of a transfer, on some engines of the pool, and the legs that it feeds at one time.

    Legs behind one that queues are fed by the part ``following``, which lands no sooner than ``late``.
    """

    transfer: int
    engines: int
    num_bytes: float
    bytes_per_tick: float
    first_leg: int = 0
    legs: tuple[Leg, ...] = ()
    following: int | None = None
    late: float = 0.0


@dataclass(slots=True)
class EstimateRun:
    """State of one estimate. Steps go by their index ``i`` in the graph, ranks by ``r``."""

    scenario: Scenario
    schedule: Schedule
    graph: StepGraph
    fabric: FluidFabric | WholeFabric
    events: list[tuple[float, int, int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # [i] what it still waits for
    begin: list[float] = field(default_factory=list)  # [i] first work
    done: list[float] = field(default_factory=list)  # [i] end
    one_kernel: bool = False
    look_ticks: float = 0.0  # until a kernel has seen the flag of what was put to it
    earliest: list[float] = field(default_factory=list)  # [i] when its kernel, and that of its peer, have begun
    awaited: list[set[int]] = field(default_factory=list)  # [r] offsets of the ranks for which its kernel waits
    in_turn: bool = False
    hbm: list[FluidLink] = field(default_factory=list)  # [r]
    copies: list[_Copies] = field(default_factory=list)  # [r]
    pools: list[SlotPool] = field(default_factory=list)  # [r]
    ways: dict[int, FluidPath] = field(default_factory=dict)  # [i] of transfers
    parts: list[_Part] = field(default_factory=list)
    left: list[int] = field(default_factory=list)  # [i] engines a transfer still wants
    missing: list[int] = field(default_factory=list)  # [i] parts that run

    def prepare(self) -> None:
        """Nothing has begun, and what waits for nothing is ready."""
        gpu, graph, engine = self.scenario.gpu, self.graph, self.schedule.engine
        count, ranks = len(graph.steps), range(graph.num_ranks)
        self.waits, self.begin, self.done = list(graph.waits), [0.0] * count, [0.0] * count
        self.left, self.missing = [0] * count, [0] * count
        self.one_kernel = is_one_kernel(self.scenario, self.schedule)
        self.look_ticks = float(poll_ticks(gpu)) if self.one_kernel else 0.0
        self.awaited = [set() for _ in ranks]
        for rank, step in zip(graph.rank, graph.steps, strict=True) if self.one_kernel else ():
            if isinstance(step, Transfer):
                self.awaited[rank] |= set(peers_to_be_ready(self.scenario, self.schedule, step))
        self.earliest = [self._earliest(i) for i in range(count)]
        self.events = [(self.earliest[i], _READY, i) for i, waits in enumerate(self.waits) if not waits]
        self.in_turn = graph.num_ranks > 1 or self.scenario.workload.compute is None
        rate = (gpu.dma if engine.kind is EngineKind.DMA else gpu.sm_copy).bytes_per_s / TICKS_PER_SECOND
        self.hbm = [FluidLink() for _ in ranks]
        self.copies = [_Copies(engine.count, rate) for _ in ranks]
        self.pools = [SlotPool(self.schedule.compute_sms) for _ in ranks]
        self.ways = {
            i: self.fabric.way(rank, step)
            for i, (rank, step) in enumerate(zip(graph.rank, graph.steps, strict=True))
            if isinstance(step, Transfer)
        }

    def loop(self) -> None:
        """Handle events until none is left."""
        events, rank = self.events, self.graph.rank
        for handled in count():
            if not events:
                return
            if handled % EVENTS_A_LOOK == 0:
                checkpoint()
            now, kind, i = heappop(events)
            if kind == _READY and (i not in self.graph.work or self.one_kernel):
                copies = self.copies[rank[i]]
                self.left[i] = self._workers(i)
                heappush(copies.queue, (now, i))
                self._grant(copies, now)
            elif kind == _READY:
                heappush(events, (self._launched(now, i), _LAUNCHED, i))
            elif kind == _FINISHED:
                self._finish(now, i)
            elif kind in (_FLAGGED, _COPIED, _DRAINED, _FED):
                self._copy(now, kind, self.parts[i], i)
            elif kind == _SUMMED:
                self._summed(now, self.parts[i])
            else:
                self._compute(now, kind, i)

    def _earliest(self, i: int) -> float:
        """When step i may begin at the earliest: see ``simcore/lower/one_kernel.py``."""
        scenario, step, gpu = self.scenario, self.graph.steps[i], self.scenario.gpu
        launched = float(launch_ticks(gpu, self.schedule)) if self.one_kernel else 0.0
        if not scenario.workload.is_collective or not isinstance(step, Transfer):
            return launched
        rank, offsets = self.graph.rank[i], set(peers_to_be_ready(scenario, self.schedule, step))
        if not offsets:
            return launched
        if self.one_kernel:
            offsets = self.awaited[rank]
        way = max(distance_ticks(scenario, -offset, rank + offset) for offset in offsets)
        return launched + way + gpu.hbm.latency_ticks + poll_ticks(gpu)

    def seen(self, i: int) -> float:
        """When what waits for step i knows that it is done."""
        step = self.graph.steps[i]
        put = isinstance(step, Transfer) and step.direction is Direction.PUT
        return self.done[i] + (self.look_ticks if put else 0.0)

    def _launched(self, now: float, i: int) -> float:
        """When a kernel can begin that has nothing to wait for; those that poll were launched before."""
        work, gap = self.graph.work[i]
        if i not in self.graph.kernels_before:
            return now + work.start_ticks + gap
        return max(now, work.start_ticks + max((self.done[j] for j in self.graph.kernels_before[i]), default=0.0))

    def _workers(self, i: int) -> int:
        """Engines that share a copy: one for DMA, all SMs in a lane or to all, else an even part for each peer."""
        step, count = self.graph.steps[i], self.schedule.engine.count
        if self.schedule.engine.kind is EngineKind.DMA:
            return 1
        if i in self.graph.work:  # a sum by the SMs that copy
            return min(count, self.graph.work[i][0].num_units)
        alone = isinstance(step, Transfer) and (step.lane is not None or step.reach is Reach.ALL)
        return count if alone else max(1, count // self.graph.num_peers[self.graph.rank[i]])

    def _setup_ticks(self, i: int) -> float:
        """What a copy costs before its first byte; the request of a get travels first."""
        step, protocol = self.graph.steps[i], self.schedule.tactics.protocol
        assert isinstance(step, Transfer), "only transfers are copies"
        if step.reach is Reach.ALL:  # a switch passes on no flags between the data
            request = distance_ticks(self.scenario, 1) if step.reduce else 0
            return float(copy_setup_ticks(self.scenario.gpu, self.schedule.engine) + request)
        gets = step.direction is Direction.GET
        if gets and self.one_kernel:
            protocol = CopyProtocol.SIMPLE  # there are no flags in what is read
        request = distance_ticks(self.scenario, step.peer, self.graph.rank[i]) if gets else 0
        return float(copy_setup_ticks(self.scenario.gpu, self.schedule.engine, protocol)) + request

    def _flag_ticks(self, i: int) -> float:
        """How long the flag of a copy by SMs takes that others wait for: to and fro, or none where links keep order."""
        step = self.graph.steps[i]
        if i not in self.graph.flagged or not isinstance(step, Transfer):
            return 0.0
        if all(link.ordered for link in self.scenario.system.fabric.links):
            return 0.0
        rank, gpu = self.graph.rank[i], self.scenario.gpu
        back = distance_ticks(self.scenario, -step.peer, rank + step.peer)
        return float(back + distance_ticks(self.scenario, step.peer, rank) + gpu.hbm.latency_ticks)

    def _grant(self, copies: _Copies, now: float) -> None:
        """Free engines go to the transfer that has waited longest; one that gets a part of what it wants starts."""
        while copies.free and copies.queue:
            i = copies.queue[0][1]
            taken = min(copies.free, self.left[i])
            copies.free -= taken
            self.left[i] -= taken
            if not self.left[i]:
                heappop(copies.queue)
            if not self.missing[i]:
                self.begin[i] = now
            self.missing[i] += 1
            if i in self.graph.work:
                self._sum(now, i, taken)
                continue
            rate = min(taken * copies.bytes_per_tick, self.ways[i].bytes_per_tick)
            self.parts.append(_Part(i, taken, self.graph.num_bytes[i] * taken / self._workers(i), rate))
            begin = now + self._setup_ticks(i) + self._turn_ticks(i, taken)
            heappush(self.events, (begin, _FED, len(self.parts) - 1))

    def _sum(self, now: float, i: int, taken: int) -> None:
        """So many of the SMs that copy begin with their units of a sum."""
        work, rank = self.graph.work[i][0], self.graph.rank[i]
        traffic = (work.hbm_read_bytes + work.hbm_write_bytes) * taken / work.num_units
        ticks = work.unit_ticks * (work.num_units / self._workers(i))
        self.parts.append(_Part(i, taken, 0.0, traffic / ticks))
        self._use_hbm(rank, now, traffic / ticks)
        heappush(self.events, (now + ticks, _SUMMED, len(self.parts) - 1))

    def _summed(self, now: float, part: _Part) -> None:
        """A part of a sum is done."""
        i, rank = part.transfer, self.graph.rank[part.transfer]
        self._use_hbm(rank, now, -part.bytes_per_tick)
        self.copies[rank].free += part.engines
        self.missing[i] -= 1
        if not self.missing[i] and not self.left[i]:
            self._finish(now + self.hbm[rank].backlog, i)
        self._grant(self.copies[rank], now)

    def _turn_ticks(self, i: int, taken: int) -> float:
        """Those that begin at once send their first lines in turn; who is first is soon ahead, and all out of step.

        The ranker learned the patterns it is trained on without that.
        """
        busy = self.schedule.engine.count - self.copies[self.graph.rank[i]].free - taken
        if not self.in_turn or not busy:
            return 0.0
        return busy * self.scenario.gpu.line_bytes * self.ways[i].legs[0][1]

    def _copy(self, now: float, kind: int, part: _Part, idx: int) -> None:
        """One part of a transfer begins to feed its links, has fed them all, or has landed."""
        i, rate = part.transfer, part.bytes_per_tick
        way, copies = self.ways[i], self.copies[self.graph.rank[i]]
        if kind == _FED:
            self._begin(now, part, way)
            heappush(self.events, (now + part.num_bytes / rate, _DRAINED, idx))
        elif kind == _DRAINED:
            self._feed(now, part, way, -rate)
            queued = max(
                [link.backlog for link, _ in part.legs] + [self.hbm[r].backlog for r in self._memories(part, way)]
            )
            for link, ticks_per_byte in part.legs:
                link.served += part.num_bytes * ticks_per_byte
            copies.free += part.engines if way.frees else 0
            if part.following is not None:
                self.parts[part.following].late = max(part.late, now + queued)
            else:
                landed = max(now + queued, part.late) + way.latency
                heappush(self.events, (landed + way.slice_ticks(part.num_bytes), _COPIED, idx))
        elif kind == _COPIED and self._flag_ticks(i):
            # The flag follows the data, and queues behind what others have sent meanwhile.
            for link, _ in way.legs:
                link.feed(now, 0.0)
            queued = sum(link.backlog for link, _ in way.legs)
            heappush(self.events, (now + queued + self._flag_ticks(i), _FLAGGED, idx))
        else:
            for link, _ in part.legs:
                link.feed(now, 0.0)
            copies.free += 0 if way.frees else part.engines
            self.missing[i] -= 1
            if not self.missing[i] and not self.left[i]:
                self._finish(now, i)
        if kind != _FED:
            self._grant(copies, now)
        if not way.writes:
            (link, ticks_per_byte), (rank, _) = way.legs[0], way.reads[0]
            landing = link.outflow / ticks_per_byte
            self._use_hbm(rank, now, landing - link.landing)
            link.landing = landing

    def _begin(self, now: float, part: _Part, way: FluidPath) -> None:
        """Feed the legs up to one that queues; those behind it are fed when it passes on what comes now."""
        rate, stop = part.bytes_per_tick, part.first_leg
        while stop < len(way.legs):
            link = way.legs[stop][0]
            link.feed(now, 0.0)
            stop += 1
            if link.backlog > 1.0:
                break
        part.legs = way.legs[part.first_leg : stop]
        if stop < len(way.legs):
            part.following = len(self.parts)
            engines, part.engines = (0, part.engines) if way.frees else (part.engines, 0)
            self.parts.append(_Part(part.transfer, engines, part.num_bytes, rate, stop))
            heappush(self.events, (now + part.legs[-1][0].backlog, _FED, part.following))
        self._feed(now, part, way, rate)

    def _feed(self, now: float, part: _Part, way: FluidPath, rate: float) -> None:
        """From ``now`` on the legs of a part are fed by so many bytes per tick more."""
        for link, ticks_per_byte in part.legs:
            link.feed(now, rate * ticks_per_byte)
        for rank, times in way.reads if not part.first_leg else ():
            self._use_hbm(rank, now, rate * times)
        for rank, times in way.writes if part.following is None else ():
            self._use_hbm(rank, now, rate * times)

    def _memories(self, part: _Part, way: FluidPath) -> list[int]:
        """The ranks whose memories a part uses."""
        reads = way.reads if not part.first_leg else ()
        return [rank for rank, _ in (*reads, *(way.writes if part.following is None else ()))]

    def _use_hbm(self, rank: int, now: float, bytes_per_tick: float) -> None:
        """From ``now`` on the traffic of a rank's memory is larger by so much."""
        self.hbm[rank].feed(now, bytes_per_tick * TICKS_PER_SECOND / self.scenario.gpu.hbm.achieved_bytes_per_s)

    def _compute(self, now: float, kind: int, i: int) -> None:
        """A kernel is launched, gets its first SM, or has spent the time it needs on SMs."""
        work, rank = self.graph.work[i][0], self.graph.rank[i]
        pool, hbm = self.pools[rank], self.hbm[rank]
        if kind == _LAUNCHED:
            self.begin[i], self.done[i] = pool.deal(now, work.num_units, work.unit_ticks)
            heappush(self.events, (self.begin[i], _BEGUN, i))
            heappush(self.events, (self.done[i], _SPENT, i))
            return
        rate = (work.hbm_read_bytes + work.hbm_write_bytes) / (self.done[i] - self.begin[i])
        self._use_hbm(rank, now, rate if kind == _BEGUN else -rate)
        if kind == _SPENT and hbm.backlog > 1:
            pool.delay(now, hbm.backlog)
            heappush(self.events, (now + hbm.backlog, _FINISHED, i))
        elif kind == _SPENT:
            self._finish(now, i)

    def _finish(self, now: float, i: int) -> None:
        self.done[i] = now
        seen = self.seen(i)
        for j in self.graph.next[i]:
            self.earliest[j] = max(self.earliest[j], seen)
            self.waits[j] -= 1
            if not self.waits[j]:
                heappush(self.events, (self.earliest[j], _READY, j))
