"""The run of a step-level estimate: events of the steps of a graph, on links, memories, engines and SMs."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from ...compiler.ir import TICKS_PER_SECOND, EngineKind, Scenario, Schedule, Transfer, checkpoint
from .fluid import FluidFabric, FluidLink, FluidPath, Leg, SlotPool, WholeFabric
from .graph import StepGraph
from .step_costs import StepCosts

# Events between two checks whether to stop: some milliseconds.
EVENTS_PER_CHECKPOINT = 2048
# Kinds of events, in the order in which events of one time are handled: ends free resources for begins.
_FLAGGED, _COPIED, _SUMMED, _FINISHED, _DRAINED, _SPENT, _BEGUN, _FED, _LAUNCHED, _READY = range(10)


@dataclass(slots=True)
class _Copies:
    """The pool of engines of a rank: free engines, waiting transfers, and the rate of one engine."""

    free: int
    bytes_per_tick: float
    queue: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """A share of a transfer on some engines of the pool, and the legs that it feeds at the same time.

    Legs after one that queues are fed by the part ``following``, which lands no earlier than ``late``.
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
    """State of one estimate. ``i`` is the index of a step in the graph, ``r`` a rank."""

    scenario: Scenario
    schedule: Schedule
    graph: StepGraph
    costs: StepCosts
    fabric: FluidFabric | WholeFabric
    events: list[tuple[float, int, int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # [i] steps it still waits for
    begin: list[float] = field(default_factory=list)  # [i] first work
    done: list[float] = field(default_factory=list)  # [i] end
    earliest: list[float] = field(default_factory=list)  # [i] when its kernel, and that of its peer, have begun
    in_turn: bool = False
    hbm_bytes_per_s: int = 0
    noc_bytes_per_s: int | None = None  # None where the profile has no network on chip
    hbm: list[FluidLink] = field(default_factory=list)  # [r]
    noc: list[FluidLink] = field(default_factory=list)  # [r]; unused where the profile has none
    copies: list[_Copies] = field(default_factory=list)  # [r]
    pools: list[SlotPool] = field(default_factory=list)  # [r]
    paths: dict[int, FluidPath] = field(default_factory=dict)  # [i] of transfers
    parts: list[_Part] = field(default_factory=list)
    left: list[int] = field(default_factory=list)  # [i] engines a transfer still wants
    missing: list[int] = field(default_factory=list)  # [i] parts that run

    def prepare(self) -> None:
        """Reset all state; steps that wait for no other are ready."""
        gpu, graph, engine = self.scenario.gpu, self.graph, self.schedule.engine
        count, ranks = len(graph.steps), range(graph.num_ranks)
        self.waits, self.begin, self.done = list(graph.waits), [0.0] * count, [0.0] * count
        self.left, self.missing = [0] * count, [0] * count
        self.earliest = [self.costs.earliest(i) for i in range(count)]
        self.events = [(self.earliest[i], _READY, i) for i, waits in enumerate(self.waits) if not waits]
        self.in_turn = graph.num_ranks > 1 or self.scenario.workload.compute is None
        rate = (gpu.dma if engine.kind is EngineKind.DMA else gpu.sm_copy).bytes_per_s / TICKS_PER_SECOND
        self.hbm_bytes_per_s = gpu.hbm.achieved_bytes_per_s
        self.noc_bytes_per_s = None if gpu.noc is None else gpu.noc.copy_bytes_per_s
        self.hbm, self.noc = [FluidLink() for _ in ranks], [FluidLink() for _ in ranks]
        self.copies = [_Copies(engine.count, rate) for _ in ranks]
        self.pools = [SlotPool(self.schedule.compute_sms) for _ in ranks]
        self.paths = {
            i: self.fabric.path(rank, step)
            for i, (rank, step) in enumerate(zip(graph.rank, graph.steps, strict=True))
            if isinstance(step, Transfer)
        }

    def loop(self) -> None:
        """Handle events until none is left."""
        events, rank = self.events, self.graph.rank
        for handled in count():
            if not events:
                return
            if handled % EVENTS_PER_CHECKPOINT == 0:
                checkpoint()
            now, kind, i = heappop(events)
            if kind == _READY and (i not in self.graph.work or self.costs.one_kernel):
                copies = self.copies[rank[i]]
                self.left[i] = self.costs.workers(i)
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

    def seen(self, i: int) -> float:
        """Return when the successors of step i know that it is done."""
        return self.done[i] + self.costs.notice_ticks(i)

    def _launched(self, now: float, i: int) -> float:
        """Return when a kernel whose data is there can begin; kernels that poll were launched before."""
        work, gap = self.graph.work[i]
        if i not in self.graph.kernels_before:
            return now + work.start_ticks + gap
        return max(now, work.start_ticks + max((self.done[j] for j in self.graph.kernels_before[i]), default=0.0))

    def _grant(self, copies: _Copies, now: float) -> None:
        """Give free engines to the transfer that has waited longest; it starts with a part of those it wants."""
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
            rate = min(taken * copies.bytes_per_tick, self.paths[i].bytes_per_tick)
            self.parts.append(_Part(i, taken, self.graph.num_bytes[i] * taken / self.costs.workers(i), rate))
            begin = now + self.costs.setup_ticks(i) + self._turn_ticks(i, taken)
            heappush(self.events, (begin, _FED, len(self.parts) - 1))

    def _sum(self, now: float, i: int, taken: int) -> None:
        """Begin a sum's units on ``taken`` of the SMs that copy."""
        work, rank = self.graph.work[i][0], self.graph.rank[i]
        traffic = (work.hbm_read_bytes + work.hbm_write_bytes) * taken / work.num_units
        ticks = work.unit_ticks * (work.num_units / self.costs.workers(i))
        self.parts.append(_Part(i, taken, 0.0, traffic / ticks))
        self._use_hbm(rank, now, traffic / ticks)
        heappush(self.events, (now + ticks, _SUMMED, len(self.parts) - 1))

    def _summed(self, now: float, part: _Part) -> None:
        """Handle the end of a part of a sum."""
        i, rank = part.transfer, self.graph.rank[part.transfer]
        self._use_hbm(rank, now, -part.bytes_per_tick)
        self.copies[rank].free += part.engines
        self.missing[i] -= 1
        if not self.missing[i] and not self.left[i]:
            self._finish(now + self.hbm[rank].backlog, i)
        self._grant(self.copies[rank], now)

    def _turn_ticks(self, i: int, taken: int) -> float:
        """Return the delay of a copy that begins beside others: they send their first lines in turn, then drift apart.

        0 for the patterns of the ranker, which was trained without this delay.
        """
        busy = self.schedule.engine.count - self.copies[self.graph.rank[i]].free - taken
        if not self.in_turn or not busy:
            return 0.0
        return busy * self.scenario.gpu.line_bytes * self.paths[i].legs[0][1]

    def _copy(self, now: float, kind: int, part: _Part, idx: int) -> None:
        """Handle a part of a transfer that begins to feed its links, has fed them, or has landed."""
        i, rate = part.transfer, part.bytes_per_tick
        path, copies = self.paths[i], self.copies[self.graph.rank[i]]
        if kind == _FED:
            self._begin(now, part, path)
            heappush(self.events, (now + part.num_bytes / rate, _DRAINED, idx))
        elif kind == _DRAINED:
            self._feed(now, part, path, -rate)
            shared = [link[r].backlog for r in self._memories(part, path) for link in (self.hbm, self.noc)]
            queued = max([link.backlog for link, _ in part.legs] + shared)
            for link, ticks_per_byte in part.legs:
                link.served += part.num_bytes * ticks_per_byte
            copies.free += part.engines if path.frees else 0
            if part.following is not None:
                self.parts[part.following].late = max(part.late, now + queued)
            else:
                landed = max(now + queued, part.late) + path.latency
                heappush(self.events, (landed + path.slice_ticks(part.num_bytes), _COPIED, idx))
        elif kind == _COPIED and self.costs.flag_ticks(i):
            # The flag follows the data, and queues behind data that others have sent meanwhile.
            for link, _ in path.legs:
                link.feed(now, 0.0)
            queued = sum(link.backlog for link, _ in path.legs)
            heappush(self.events, (now + queued + self.costs.flag_ticks(i), _FLAGGED, idx))
        else:
            for link, _ in part.legs:
                link.feed(now, 0.0)
            copies.free += 0 if path.frees else part.engines
            self.missing[i] -= 1
            if not self.missing[i] and not self.left[i]:
                self._finish(now, i)
        if kind != _FED:
            self._grant(copies, now)
        if not path.writes:
            (link, ticks_per_byte), (rank, _) = path.legs[0], path.reads[0]
            landing = link.outflow / ticks_per_byte
            self._move(rank, now, landing - link.landing)
            link.landing = landing

    def _begin(self, now: float, part: _Part, path: FluidPath) -> None:
        """Feed the legs up to one that queues; the legs after it are fed once it forwards this data."""
        rate, stop = part.bytes_per_tick, part.first_leg
        while stop < len(path.legs):
            link = path.legs[stop][0]
            link.feed(now, 0.0)
            stop += 1
            if link.backlog > 1.0:
                break
        part.legs = path.legs[part.first_leg : stop]
        if stop < len(path.legs):
            part.following = len(self.parts)
            engines, part.engines = (0, part.engines) if path.frees else (part.engines, 0)
            self.parts.append(_Part(part.transfer, engines, part.num_bytes, rate, stop))
            heappush(self.events, (now + part.legs[-1][0].backlog, _FED, part.following))
        self._feed(now, part, path, rate)

    def _feed(self, now: float, part: _Part, path: FluidPath, rate: float) -> None:
        """Increase the inflow of a part's legs and memories by ``rate`` bytes per tick from ``now`` on."""
        for link, ticks_per_byte in part.legs:
            link.feed(now, rate * ticks_per_byte)
        for rank, times in path.reads if not part.first_leg else ():
            self._move(rank, now, rate * times)
        for rank, times in path.writes if part.following is None else ():
            self._move(rank, now, rate * times)

    def _memories(self, part: _Part, path: FluidPath) -> list[int]:
        """Return the ranks whose memories a part uses."""
        reads = path.reads if not part.first_leg else ()
        return [rank for rank, _ in (*reads, *(path.writes if part.following is None else ()))]

    def _move(self, rank: int, now: float, bytes_per_tick: float) -> None:
        """Increase the traffic of copies in a rank's memory and network on chip from ``now`` on."""
        self._use_hbm(rank, now, bytes_per_tick)
        if self.noc_bytes_per_s is not None:
            self.noc[rank].feed(now, bytes_per_tick * TICKS_PER_SECOND / self.noc_bytes_per_s)

    def _use_hbm(self, rank: int, now: float, bytes_per_tick: float) -> None:
        """Increase the traffic of a rank's memory by ``bytes_per_tick`` from ``now`` on."""
        self.hbm[rank].feed(now, bytes_per_tick * TICKS_PER_SECOND / self.hbm_bytes_per_s)

    def _compute(self, now: float, kind: int, i: int) -> None:
        """Handle a kernel that is launched, gets its first SM, or has spent its time on SMs."""
        work, rank = self.graph.work[i][0], self.graph.rank[i]
        pool, hbm, noc = self.pools[rank], self.hbm[rank], self.noc[rank]
        if kind == _LAUNCHED:
            self.begin[i], self.done[i] = pool.deal(now, work.num_units, work.unit_ticks)
            heappush(self.events, (self.begin[i], _BEGUN, i))
            heappush(self.events, (self.done[i], _SPENT, i))
            return
        per_tick = (1 if kind == _BEGUN else -1) / (self.done[i] - self.begin[i])
        self._use_hbm(rank, now, (work.hbm_read_bytes + work.hbm_write_bytes) * per_tick)
        noc.feed(now, work.num_units * work.noc_ticks * per_tick)
        behind = max(hbm.backlog, noc.backlog)
        if kind == _SPENT and behind > 1:
            pool.delay(now, behind)
            heappush(self.events, (now + behind, _FINISHED, i))
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
