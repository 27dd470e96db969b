"""Simulations of one op, or of a pair and the GEMM cut along it; who may copy, and what servers they use."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...compiler.ir import (
    TICKS_PER_SECOND,
    EngineChoice,
    EngineKind,
    EngineMode,
    Explore,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    OpPlan,
    OpShape,
    Part,
    Plan,
    Schedule,
    ShouldStop,
    System,
    TileGroup,
    Workload,
    network_of,
)
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...compiler.planning.knobs.engine import default_engine, max_copy_sms
from ...compiler.planning.parts import kernel_alone
from ...compiler.planning.plan import build_plan
from ...compiler.resolve.schedules.explore import BATCHES, GROUPS
from ...compiler.templates import BASELINE
from ...simcore import Result, RunOptions, RunOutcome, RunTooLarge, simulate
from ...simcore.figures.result import IntervalKind
from ...simcore.kernels.dispatch import compute_work
from ...simcore.kernels.work import KernelWork
from ...simcore.lower.plan import plan_period
from ..bounds.link_loads import least_traffic

LARGE = 32
"""Ranks from which on a workload is searched in fewer ways, where they are not the same: all take minutes otherwise."""

MOST_ERROR = 0.005
"""Share of time by which an op alone may be off: a fourth of what a schedule must gain to be recommended."""

UNIT_BYTES = 65536
"""Packets in which both are compared, of collectives that are large enough to take long."""


@dataclass(slots=True)
class AlikeRanks:
    """What is known of the ops of one graph."""

    system: System
    should_stop: ShouldStop = lambda: False
    _known: dict[tuple[OpShape, OpPlan], bool] = field(default_factory=dict)

    @property
    def differ(self) -> bool:
        """Whether the fabric is not the same around each rank."""
        return network_of(self.system.fabric, self.system.num_ranks).period > 1

    @property
    def are_many(self) -> bool:
        """Whether a run with all ranks that are not the same is too long to search by."""
        return self.differ and self.system.num_ranks >= LARGE

    def under(self, workload: Workload, choice: Schedule) -> bool:
        """Whether ranks may be taken for alike under ``choice``; it makes no difference where they are."""
        if not self.differ:
            return False
        try:
            plan = build_plan(self.system, workload, choice)
        except ScheduleError:
            return False
        return all(part.shape.moved is None or self.alone(part) for part in plan.parts)

    def saves(self, op: Op, mode: OpMode) -> bool:
        """Whether one rank may be simulated for all under one way to carry out ``op``."""
        workload, choice = Workload(op.name, "", (replace(op, reads=(), layer=1),)), Schedule(op.name, (mode,))
        try:
            plan = build_plan(self.system, workload, choice)
        except ScheduleError:
            return False
        return plan_period(self.system, plan, alike=True) == 1 and self.under(workload, choice)

    def alone(self, part: Part) -> bool:
        """Whether an op that copies takes as long alone if ranks are taken for alike."""
        key = part.shape, part.schedule
        if key not in self._known:
            self._known[key] = self._compared(part)
        return self._known[key]

    def _compared(self, part: Part) -> bool:
        alone = replace(part, name="op", op="op", waits=(), step_waits=(), layer=1)
        options = RunOptions(loads=False, should_stop=self.should_stop)
        times = []
        for alike in (True, False):
            plan = Plan("op", (alone,))
            try:
                run = simulate(self.system, plan, unit_bytes=UNIT_BYTES, alike=alike, options=options)
            except RunTooLarge:
                return False
            if run.outcome is not RunOutcome.DONE:
                return False
            times.append(run.makespan_ticks)
        estimate, exact = times
        return abs(estimate - exact) <= exact * MOST_ERROR


USUAL_SMS = (16, 32)
"""SMs that copy where the file does not say: fewer slow down collectives, more slow down the kernels beside them."""


@dataclass(frozen=True, slots=True)
class Copier:
    """DMA engines, or so many SMs, for the collectives of all ops."""

    engine: EngineChoice

    @property
    def taken_sms(self) -> int:
        """SMs that estimates take from the kernels of all ops."""
        return 0 if self.engine.leaves_all_sms else self.engine.count

    def takes(self, engine: EngineChoice) -> bool:
        """Whether an op that copies by ``engine`` fits beside others: DMA engines alone, or as many SMs."""
        if engine.mode is not EngineMode.OWN:
            return False
        same = engine.kind is self.engine.kind
        return same and (engine.kind is EngineKind.DMA or engine.count == self.engine.count)

    def serial(self, num_ranks: int) -> OpChoice:
        """A whole collective by this copier."""
        return OpChoice(BASELINE.name, num_ranks, self.engine)

    def __str__(self) -> str:
        return str(self.engine)


def copiers_of(system: System, workload: Workload, explore: Explore, *, few: bool = False) -> Iterator[Copier]:
    """Yield who may copy: what the file explores, else copy engines, then SMs unless they shall be ``few``.

    Copy engines are left out where no host knows how much some op moves.
    """
    requested = explore.values("engine")
    if requested:
        yield from (Copier(engine) for engine in requested if isinstance(engine, EngineChoice))
        return
    by_sms = leaves_out_copy_engines(workload, explore)
    if not by_sms:
        yield Copier(default_engine(system))
    for sms in USUAL_SMS[: int(by_sms) if few else len(USUAL_SMS)]:
        if sms <= max_copy_sms(system.gpu):
            yield Copier(EngineChoice(EngineKind.SM, sms))


def leaves_out_copy_engines(workload: Workload, explore: Explore) -> bool:
    """Whether copy engines are not tried, since no host knows how much some op moves."""
    return not explore.values("engine") and any(op.shape.counts_on_device for op in workload.ops)


def of_one_op(explore: Explore, copier: Copier) -> Explore:
    """What the file explores, for one op by itself: batches, groups and memory are those of the graph."""
    requested = tuple((word, values) for word, values in explore.requested if word not in (BATCHES, GROUPS))
    return replace(explore, requested=requested, staging_limit_bytes=None).asking("engine", (copier.engine,))


_QUICK = RunOptions(loads=False, path=False)
_OP = "op"


class Times(NamedTuple):
    """Of an op alone, in ticks: see ``Way``."""

    total: int
    kernel: int
    copies: tuple[int, int]
    staging_bytes: int
    sums: int


@dataclass(frozen=True, slots=True)
class OpRuns:
    """Simulates ops with the SMs that ``copier`` leaves to kernels, in packets of ``unit_bytes``; each way once."""

    system: System
    copier: Copier
    unit_bytes: int
    _known: dict[tuple[OpShape, OpMode, bool], Times] = field(default_factory=dict, compare=False)

    def plan(self, op: Op, mode: OpMode) -> Plan:
        """Return the plan of an op alone.

        Raises
        ------
        ScheduleError
            If it cannot be carried out so.
        """
        alone = Workload(_OP, "", (replace(op, name=_OP, reads=(), layer=1),))
        return build_plan(self.system, alone, Schedule(_OP, (replace(mode, op=_OP),) if mode.body is not None else ()))

    def times(self, op: Op, mode: OpMode, *, alike: bool = False) -> Times:
        """Return the times of an op that runs alone.

        Raises
        ------
        ScheduleError, RunTooLarge
            If it cannot be carried out so, or takes too long to simulate.
        """
        alike = alike or op.shape.moved is None  # lone kernels are, whatever the fabric
        key = op.shape, replace(mode, op=_OP), alike
        if key not in self._known:
            self._known[key] = self._times(op, mode, alike=alike)
        return self._known[key]

    def _times(self, op: Op, mode: OpMode, *, alike: bool) -> Times:
        result = self._run(self.plan(op, mode), alike=alike)
        of_kernels = [one for one in result.timeline.intervals if one.kind is IntervalKind.COMPUTE]
        of_copies = [one for one in result.timeline.intervals if one.kind is IntervalKind.COMM]
        kernel = max((one.end_ticks for one in of_kernels), default=0)
        begin = min((one.start_ticks for one in of_copies), default=0)
        end = max((one.end_ticks for one in of_copies), default=0)
        if op.shape.is_collective:
            begin, end = 0, result.makespan_ticks
        sums = sum(
            one.end_ticks - one.start_ticks
            for one in result.timeline.intervals
            if one.kind is IntervalKind.REDUCE and one.rank == 0
        )
        return Times(result.makespan_ticks, kernel, (begin, end), result.schedule.staging_bytes, sums)

    def with_next(self, op: Op, mode: OpMode, behind: Op, *, alike: bool) -> int:
        """Return the time of an op and the GEMM ``behind`` it, which is cut along it.

        Raises
        ------
        ScheduleError, RunTooLarge
            As ``times``.
        """
        choice = Schedule(_OP, (replace(mode, op=op.name),), chained=(behind.name,))
        plan = build_plan(self.system, _two_ops(op, behind), choice)
        return self._run(plan, alike=alike).makespan_ticks

    def _run(self, plan: Plan, *, alike: bool) -> Result:
        plan = self._with_sms(plan)
        return simulate(self.system, plan, unit_bytes=self.unit_bytes, alike=alike, options=_QUICK)

    def _with_sms(self, plan: Plan) -> Plan:
        """SMs that copy are taken from all kernels, also from those that move nothing."""
        sms = self.system.gpu.sms - self.copier.taken_sms
        return replace(
            plan,
            parts=tuple(
                replace(part, schedule=replace(part.schedule, compute_sms=min(part.schedule.compute_sms, sms)))
                for part in plan.parts
            ),
        )


def _two_ops(op: Op, behind: Op) -> Workload:
    """A workload of an op and the one that takes its result, where all else is there."""
    reads = (replace(read, made_by=read.made_by if read.made_by == op.name else "") for read in behind.reads)
    both = replace(op, reads=(), layer=1), replace(behind, reads=tuple(reads), layer=1)
    return Workload(_OP, "", both)


@dataclass(frozen=True, slots=True)
class Uses:
    """Shares of the time of servers that a kernel or copies take when alone."""

    memory: float = 0.0
    noc: float = 0.0

    def beside(self, copies: "Uses", share: float) -> float:
        """How much of a kernel is done in a unit of time beside ``copies`` that take a ``share`` of the links."""
        pairs = ((self.memory, copies.memory), (self.noc, copies.noc))
        return min(1.0, *((1 - taken * share) / max(own, 1e-9) for own, taken in pairs))


def kernel_works(system: System, op: Op, sms: int) -> list[KernelWork]:
    """The kernels of an op on so many SMs, without its collective."""
    kernel = kernel_alone(op.shape) if op.is_pair and op.shape.then is None else op.shape
    if kernel.compute is None:
        return []
    scenario = OpCase(op.name, system, kernel)
    schedule = build_op_plan(scenario, OpChoice(BASELINE.name, system.num_ranks, default_engine(system)))
    return [compute_work(scenario, step, sms) for step in schedule.steps if isinstance(step, TileGroup)]


def of_kernel(system: System, op: Op, sms: int) -> Uses:
    """What the kernel of an op takes on so many SMs."""
    works = kernel_works(system, op, sms)
    if not works:
        return Uses()
    ticks = max(1, sum(work.body_ticks for work in works))
    moved = sum(work.hbm_read_bytes + work.hbm_write_bytes for work in works)
    memory = moved * TICKS_PER_SECOND / ticks / system.gpu.hbm.achieved_bytes_per_s
    return Uses(min(1.0, memory), sum(work.num_units * work.noc_ticks for work in works) / ticks)


def of_copies(system: System, op: Op, ticks: int) -> Uses:
    """What the copies of an op take that last so long: each byte is read and written once."""
    moved = least_traffic(OpCase(op.name, system, op.shape))
    if moved is None or not ticks:
        return Uses()
    passed = 2 * max(*moved.into, *moved.out) * TICKS_PER_SECOND / ticks
    memory, noc = system.gpu.hbm.achieved_bytes_per_s, system.gpu.noc
    return Uses(min(0.9, passed / memory), 0.0 if noc is None else min(0.9, passed / noc.copy_bytes_per_s))
