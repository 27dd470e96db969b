"""Scenario + Schedule -> Program: every step of the plan as ops on servers and pools.

A symmetric plan is written for rank 0 alone (``folded``); relative peers then make the one rank its own neighbour,
which gives the same times as all ranks together (a test compares them).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..compiler.plan_check import arrivals_at
from ..compiler.scenario import GemmShape, Scenario
from ..compiler.schedule import Direction, EngineKind, Reduction, Region, Schedule, Step, TileGroup, Transfer
from .builder import ProgramBuilder
from .kernels.gemm import gemm_work, ticks_for
from .kernels.reduce import reduce_work
from .kernels.work import KernelWork
from .machine import Hop, Idealization, Machine, build_machine, distance_ticks
from .program import Flow, OpKind, Program, Stage, TrafficClass


@dataclass(frozen=True, slots=True)
class StepOps:
    """The ops of one step at one rank: ``work`` does it (tiles, copies), ``done`` is what others wait for.

    ``kernel`` is the work model of a group or a reduction, None for a transfer.
    """

    rank: int
    step: Step
    work: range
    done: int
    kernel: KernelWork | None


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Program with the way back to the plan.

    ``hops_to[k]`` is the number of links between a rank and the one k further.
    """

    scenario: Scenario
    schedule: Schedule
    program: Program
    steps: tuple[StepOps, ...]
    hops_to: tuple[int, ...]
    folded: bool


def lower(
    scenario: Scenario,
    schedule: Schedule,
    *,
    unit_bytes: int,
    fold: bool = True,
    ideal: Idealization = Idealization.NONE,
) -> Lowered:
    """Lower a checked ``schedule``; the memory traffic is cut into units of ``unit_bytes`` (a multiple of a line).

    Plans with overrides differ from rank to rank and are never folded.

    Raises
    ------
    ValueError
        If ``unit_bytes`` is not a multiple of the GPU's line.
    """
    if unit_bytes < 1 or unit_bytes % scenario.gpu.line_bytes:
        raise ValueError(f"granularity must be a multiple of {scenario.gpu.line_bytes} B, got {unit_bytes} B")
    folded = fold and not schedule.overrides
    builder = ProgramBuilder(scenario.num_ranks, folded=folded, unit_bytes=unit_bytes)
    machine = build_machine(builder, scenario, schedule, unit_bytes, ideal)
    lowering = _Lowering(scenario, schedule, unit_bytes, builder, machine, ideal, folded)
    ranks = range(1) if folded else range(scenario.num_ranks)
    for rank in ranks:
        steps = schedule.steps_of(rank)
        kernels = frozenset(step.name for step in steps if not isinstance(step, Transfer))
        for step in steps:
            lowering.add(rank, step, kernels)
    for rank in ranks:
        lowering.connect(rank)
    hops_to = tuple(len(route) for route in machine.links)
    return Lowered(scenario, schedule, builder.build(), tuple(lowering.made.values()), hops_to, folded)


@dataclass(slots=True)
class _Lowering:
    """State while a plan is lowered: what each step became."""

    scenario: Scenario
    schedule: Schedule
    unit_bytes: int
    builder: ProgramBuilder
    machine: Machine
    ideal: Idealization
    folded: bool
    made: dict[tuple[int, str], StepOps] = field(default_factory=dict)
    heads: dict[tuple[int, str], range] = field(default_factory=dict)

    def add(self, rank: int, step: Step, kernels: frozenset[str]) -> None:
        """Emit the ops of ``step``; ``kernels`` names the rank's groups and reductions."""
        match step:
            case Transfer():
                self._transfer(rank, step)
            case TileGroup():
                shape = group_shape(self.scenario, step)
                work = gemm_work(self.scenario.gpu, shape, self.schedule.compute_sms, step.accumulate)
                self._kernel(rank, step, self._as_whole(shape, work), OpKind.TILE, kernels)
            case Reduction():
                num_bytes = moved_bytes(self.scenario, step.region)
                work = reduce_work(self.scenario.gpu, num_bytes, step.num_parts, self.schedule.compute_sms)
                self._kernel(rank, step, work, OpKind.REDUCE, kernels)

    def connect(self, rank: int) -> None:
        """Turn the plan's waits, the order of streams and of engine lanes into dependencies."""
        signals = {
            arrival.transfer.signal: (0 if self.folded else arrival.issuer, arrival.transfer.name)
            for arrival in arrivals_at(self.scenario, self.schedule, rank)
        }
        last: dict[tuple[str, int], int] = {}
        for step in self.schedule.steps_of(rank):
            waits = [self.made[signals.get(name, (rank, name))].done for name in step.after]
            queue = _queue_of(step)
            if queue is not None:
                if queue in last:
                    waits.append(last[queue])
                last[queue] = self.made[rank, step.name].done
            self.builder.after(self.heads[rank, step.name], waits)

    def _as_whole(self, shape: GemmShape, work: KernelWork) -> KernelWork:
        """With decomposition loss idealised away: the part takes its share of the whole kernel's SM time."""
        gemm = self.scenario.workload.gemm
        if Idealization.WHOLE_KERNEL not in self.ideal or gemm is None:
            return work
        whole = gemm_work(self.scenario.gpu, gemm, self.scenario.gpu.sms)
        share = whole.body_ticks * self.scenario.gpu.sms * shape.flops // gemm.flops
        waves = max(1, -(-work.num_units // self.schedule.compute_sms))
        units = waves * self.schedule.compute_sms
        return KernelWork(
            num_units=units,
            unit_ticks=max(1, share // units),
            start_ticks=work.start_ticks,
            waves=waves,
            l2_hit_bytes=work.l2_hit_bytes,
            hbm_read_bytes=work.hbm_read_bytes,
            hbm_write_bytes=work.hbm_write_bytes,
            stall_ticks=0,
            label=work.label,
        )

    def _setup(self, ticks: int) -> int:
        return 0 if Idealization.FREE_LAUNCH in self.ideal else ticks

    def _transfer(self, rank: int, step: Transfer) -> None:
        """One op per engine, or one per SM that shares the copy, each with its part of the bytes."""
        gpu, num_bytes = self.scenario.gpu, moved_bytes(self.scenario, step.region)
        by_dma = self.schedule.engine.kind is EngineKind.DMA
        workers = 1 if by_dma else self._copy_workers(step)
        rate, setup = (
            (gpu.dma.bytes_per_s, gpu.dma.setup_ticks) if by_dma else (gpu.sm_copy.bytes_per_s, gpu.sm_copy.setup_ticks)
        )
        setup = self._setup(setup)
        route = self._copy_route(rank, step)
        if step.direction is Direction.GET:
            setup += distance_ticks(self.scenario, step.peer)  # the request travels first
        gap = ticks_for(self.unit_bytes, rate)
        first: range | None = None
        ops: list[range] = []
        # Dealt in lines, so that as many SMs take part at any granularity.
        for count, lines in _deal(-(-num_bytes // gpu.line_bytes), workers):
            units = self._units(lines * gpu.line_bytes)
            # A unit leaves when it is whole, so that a copy feeds its link as long at any granularity.
            flow = Flow(route, units, gap, gap, TrafficClass.COMM, self._window(units))
            made = self.builder.op(
                rank,
                OpKind.TRANSFER,
                step.name,
                (Stage(0, (flow,)),),
                pool=self.machine.engines,
                setup_ticks=setup,
                count=count,
            )
            first = made if first is None else range(first.start, made.stop)
            ops.append(made)
        assert first is not None
        self._finish(rank, step, first, first, None)

    def _window(self, units: int) -> int:
        """Units of a copy that may be under way; 0, no limit, where the copy is smaller or the limit is not known.

        Copies by SMs are paced at the rate that their outstanding requests allow.
        """
        outstanding = self.scenario.gpu.dma.outstanding_bytes
        if self.schedule.engine.kind is not EngineKind.DMA or outstanding is None:
            return 0
        window = max(1, outstanding // self.unit_bytes)
        return window if window < units else 0

    def _copy_workers(self, step: Transfer) -> int:
        """SMs per copy: all of them for copies in a lane, else an even share for each peer."""
        if step.lane is not None or self.scenario.num_ranks < 2:
            return self.schedule.engine.count
        return max(1, self.schedule.engine.count // (self.scenario.num_ranks - 1))

    def _copy_route(self, rank: int, step: Transfer) -> tuple[Hop, ...]:
        """From memory to memory; SMs read through L2, a copy that adds reads the destination too."""
        peer = rank + step.peer
        source, target = (rank, peer) if step.direction is Direction.PUT else (peer, rank)
        memory = self.machine.memory_for(TrafficClass.COMM)
        read = [(memory.hbm, source)]
        if self.schedule.engine.kind is EngineKind.SM:
            read.append((memory.l2, source))
        write = [(memory.hbm, target)] * (2 if step.reduce else 1)
        return (*read, *self.machine.route(source, target), *write)

    def _kernel(
        self, rank: int, step: TileGroup | Reduction, work: KernelWork, kind: OpKind, kernels: frozenset[str]
    ) -> None:
        """A launch op, then work units on the SM pool."""
        waits_for_transfer = any(name not in kernels for name in step.after)
        start = work.start_ticks + (self.scenario.gpu.launch.event_ticks if waits_for_transfer else 0)
        launch = self.builder.op(rank, OpKind.LAUNCH, step.name, setup_ticks=self._setup(start))
        first: range | None = None
        for count, stage in self._unit_stages(rank, work):
            made = self.builder.op(rank, kind, step.name, (stage,), pool=self.machine.sms, count=count)
            first = made if first is None else range(first.start, made.stop)
        assert first is not None
        self.builder.after(first, launch)
        self._finish(rank, step, launch, first, work)

    def _unit_stages(self, rank: int, work: KernelWork) -> Iterable[tuple[int, Stage]]:
        """Stages of the work units, grouped where the same: (how many, stage).

        Reads are spread evenly over a unit's SM time, so that the last of them is just in time when nothing queues;
        writes likewise. Whatever queues then delays the end of the unit.
        """
        memory, gpu = self.machine.memory_for(TrafficClass.COMPUTE), self.scenario.gpu
        routes: tuple[tuple[tuple[Hop, ...], int], ...] = (
            (((memory.l2, rank),), work.l2_hit_bytes),
            (((memory.hbm, rank), (memory.l2, rank)), work.hbm_read_bytes),
            (((memory.l2, rank), (memory.hbm, rank)), work.hbm_write_bytes),
        )
        slack = gpu.l2.latency_ticks + gpu.hbm.latency_ticks + self._burst_ticks(work.num_units)
        window = max(0, work.unit_ticks - slack)
        totals = [self._units(num_bytes) for _, num_bytes in routes]
        for count, shares in _deal_together(totals, work.num_units):
            flows = tuple(
                Flow(route, units, window // units, 0, TrafficClass.COMPUTE)
                for (route, _), units in zip(routes, shares, strict=True)
                if units
            )
            yield count, Stage(work.unit_ticks, flows)

    def _burst_ticks(self, num_units: int) -> int:
        """Time L2 and HBM need for one unit of traffic of each of the SMs that start together."""
        gpu, together = self.scenario.gpu, min(num_units, self.schedule.compute_sms)
        l2 = ticks_for(self.unit_bytes, gpu.l2.instances * gpu.l2.bytes_per_s)
        return together * (2 * ticks_for(self.unit_bytes, gpu.hbm.achieved_bytes_per_s) + 3 * l2)

    def _units(self, num_bytes: int) -> int:
        return -(-num_bytes // self.unit_bytes)

    def _finish(self, rank: int, step: Step, head: range, work: range, kernel: KernelWork | None) -> None:
        """Remember the step; several ops are joined so that waiting for them is one edge."""
        if len(work) > 1:
            join = self.builder.op(rank, OpKind.JOIN, step.name)
            self.builder.after(join, work)
            done = join.start
        else:
            done = work.start
        self.made[rank, step.name] = StepOps(rank, step, work, done, kernel)
        self.heads[rank, step.name] = head


def moved_bytes(scenario: Scenario, region: Region) -> int:
    """Size of a region of the tensor that crosses the fabric."""
    moved = scenario.workload.moved
    assert moved is not None, "a checked plan moves only what its workload moves"
    return region.rows.size * region.cols.size * moved.dtype.num_bytes


def group_shape(scenario: Scenario, group: TileGroup) -> GemmShape:
    """The GEMM that ``group`` launches: rows of all its regions stacked, the columns of the first."""
    gemm = scenario.workload.gemm
    assert gemm is not None, "a checked plan computes only where the workload has a GEMM"
    assert len({region.cols for region in group.regions}) == 1, "a checked plan keeps the columns of a group together"
    rows = sum(region.rows.size for region in group.regions)
    return GemmShape(rows, group.regions[0].cols.size, group.k.size, gemm.dtype)


def _queue_of(step: Step) -> tuple[str, int] | None:
    """What runs in order at a rank: kernels of a stream, transfers of an engine lane."""
    if isinstance(step, Transfer):
        return None if step.lane is None else ("lane", step.lane)
    return "stream", step.stream


def _deal(total: int, num_workers: int) -> list[tuple[int, int]]:
    """``total`` dealt evenly: (how many workers, share of each), shares of zero left out unless all are."""
    share, extra = divmod(total, num_workers)
    hands = [(extra, share + 1), (num_workers - extra, share)]
    return [(count, units) for count, units in hands if count and units] or [(1, 0)]


def _deal_together(totals: Sequence[int], num_workers: int) -> list[tuple[int, tuple[int, ...]]]:
    """Several totals dealt evenly to the same workers, remainders to the first: runs of workers with equal shares."""
    edges = sorted({0, num_workers} | {total % num_workers for total in totals})
    runs = pairwise(edges)
    return [(high - low, tuple(t // num_workers + (low < t % num_workers) for t in totals)) for low, high in runs]
