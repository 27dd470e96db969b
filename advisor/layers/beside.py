"""A layer with traffic beside it among other ranks: gradients that are summed, or weights that are gathered.

One layer and one collective begin at the same time on the same GPUs, and are simulated together: copies take SMs, ports
and memory from kernels, and these take them from copies.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

from ...compiler.ir import (
    Cancelled,
    DType,
    EngineMode,
    OpCase,
    OpChoice,
    OpPlan,
    OpShape,
    Pattern,
    Plan,
    Rejection,
    Scenario,
    Schedule,
    Shard,
    ShouldStop,
    System,
    Tensor,
    Workload,
)
from ...compiler.ir.stopping import heeding, never
from ...compiler.planning.build import ScheduleError, build_op_plan, build_schedules, reject_choice
from ...compiler.planning.knobs.library import library_engine, library_rejection, library_serial
from ...compiler.planning.plan import build_plan
from ...compiler.templates import BASELINE
from ...simcore import RunTooLarge
from ...simcore.cores.engine import run
from ...simcore.lower.beside import OnGroup, lower_beside, rejected
from ...simcore.lower.budget import check_budget
from ...simcore.lower.plan import lower, plan_period
from ...simcore.memo.memo import ADVISOR, memo_of, memoized
from ...simcore.program.arrays import Int64Array
from ...simcore.program.program import Program, RunOutcome
from ..estimate.makespan import estimate_ticks
from .joint import COARSE_BYTES

TRAFFIC = "traffic beside"
"""The part that moves it; no op of a workload has a space in its name."""

ACROSS_NODES = ("ring", "hierarchical")
"""Algorithms in the manner of libraries (NCCL) where the closed form of one node does not hold: the faster is taken."""


MOST_COMPARED = 512
"""Ranks for which both are estimated; the estimate of 16,384 takes ten seconds."""

SEND_SMS = 2
"""SMs of a send and receive between nodes: channels of NCCL for each peer of a network (2.28.9)."""


@dataclass(frozen=True, slots=True)
class GroupLayer:
    """One layer of a workload on its group of ranks; the ``schedule`` has no name, for it decides no time.

    ``kept`` are the ops that are computed, empty for all.
    """

    system: System
    workload: Workload
    schedule: Schedule
    kept: frozenset[str] = frozenset()

    @classmethod
    def of(cls, scenario: Scenario, schedule: Schedule) -> "GroupLayer":
        """Return the layer of a scenario under a schedule."""
        return cls(scenario.system, scenario.workload, replace(schedule, name=""))

    @property
    def plan(self) -> Plan:
        """The plan of one layer, with nothing of others ahead.

        Raises
        ------
        ScheduleError
            If the schedule cannot run so.
        """
        one = replace(self.workload, repeat=None)
        plan = build_plan(self.system, one, replace(self.schedule, prefetch=0, deferred=()))
        return some_parts(plan, self.kept, of=True) if self.kept else plan

    def placed(self) -> OnGroup:
        """Return its plan where it runs. Raises as ``plan``."""
        return OnGroup(self.system, self.plan)


def some_parts(plan: Plan, apart: frozenset[str], *, of: bool) -> Plan:
    """Return the parts of a backward pass that make gradients of weights, the ops ``apart``, or the others."""
    kept = [part for part in plan.parts if (part.op in apart) is of]
    names = {part.name for part in kept}
    parts = tuple(
        replace(
            part,
            waits=tuple(wait for wait in part.waits if wait.on in names),
            step_waits=tuple(wait for wait in part.step_waits if wait.on in names),
        )
        for part in kept
    )
    return replace(plan, parts=parts)


@dataclass(frozen=True, slots=True)
class SharedTraffic:
    """A collective among ``ranks`` that hold the same weights: ``elements`` of the whole tensor, as each rank has them.

    Of two ranks it may be what one sends to the other, between nodes with SMs of its own too.

    Where it ``sends`` to a neighbour it is issued before the kernels beside it, and has its SMs when they begin.
    """

    ranks: System
    pattern: Pattern
    dtype: DType
    elements: int
    sends: bool = False

    @property
    def case(self) -> OpCase:
        """The collective by itself."""
        num_ranks, gathers = self.ranks.num_ranks, self.pattern is Pattern.ALL_GATHER
        rows = -(-self.elements // num_ranks)
        moved = Tensor("x", self.dtype, num_ranks, rows, Shard.ROWS if gathers else Shard.NONE)
        return OpCase(TRAFFIC, self.ranks, OpShape(TRAFFIC, "", self.pattern, (moved,), moved, None, "y"))

    def placed(self, stream: int = 0) -> OnGroup:
        """Return its plan where it runs, in that stream. Raises as ``traffic_plan``."""
        case, schedule = traffic_plan(self)
        part = replace(Plan.of_one(TRAFFIC, case.shape, schedule).parts[0], stream=stream, behind_kernels=False)
        return OnGroup(self.ranks, Plan(schedule.expression, (part,)))


@dataclass(frozen=True, slots=True)
class Alone:
    """The question how long one layer, or traffic, takes with the machine to itself.

    It is simulated in packets of ``unit_bytes``. ``alike`` is whether ranks that do the same are taken for alike,
    whoever their peers are: an estimate.
    """

    what: GroupLayer | SharedTraffic
    unit_bytes: int = COARSE_BYTES
    alike: bool = False

    def ticks(self, should_stop: ShouldStop = never) -> int:
        """Simulate it, or look it up.

        Raises
        ------
        ScheduleError
            If it cannot be carried out so.
        Cancelled
            If ``should_stop`` said so.
        """
        with heeding(should_stop):
            return memoized(memo_of(("alone", self), ADVISOR), int, partial(self._simulated, should_stop))

    def _simulated(self, should_stop: ShouldStop) -> int:
        on = self.what.placed()
        program = lower(on.system, on.plan, unit_bytes=self.unit_bytes, alike=self.alike).program
        return int(_done(program, should_stop).max())


@dataclass(frozen=True, slots=True)
class LayerBeside:
    """The question how long a layer takes with what begins at the same time on the same GPUs, and that with the layer.

    This is traffic along other axes of the same system, or a pass of another layer on the same ranks. A layer begins
    with all that it takes and ends with its last op; layers that follow each other may take less. ``unit_bytes`` and
    ``alike`` are as of ``Alone``.
    """

    first: GroupLayer
    second: GroupLayer | SharedTraffic
    unit_bytes: int = COARSE_BYTES
    alike: bool = False

    @property
    def alone(self) -> tuple[Alone, Alone]:
        """The questions how long each takes alone."""
        return Alone(self.first, self.unit_bytes, self.alike), Alone(self.second, self.unit_bytes, self.alike)

    @property
    def rejection(self) -> Rejection | None:
        """Why it is not known what the groups of a layer and of traffic share; None if it is."""
        return None if isinstance(self.second, GroupLayer) else rejected(self.first.system, self.second.ranks)

    def ticks(self, should_stop: ShouldStop = never) -> tuple[int, int] | None:
        """Simulate both together, or look it up; None where there is a ``rejection``, or it cannot be simulated so.

        Raises
        ------
        Cancelled
            If ``should_stop`` said so.
        """
        if self.rejection is not None:
            return None
        with heeding(should_stop), suppress(ScheduleError, RunTooLarge):
            return memoized(memo_of(("beside", self), ADVISOR), tuple[int, int], partial(self._simulated, should_stop))
        return None

    def _simulated(self, should_stop: ShouldStop) -> tuple[int, int]:
        first, of_passes = self.first.placed(), isinstance(self.second, GroupLayer)
        free = 1 + max(part.stream for part in first.plan.parts)
        second = self.second.placed() if isinstance(self.second, GroupLayer) else self.second.placed(free)
        for on in (first, second):
            period = plan_period(on.system, on.plan, alike=self.alike)
            check_budget(on.system, on.plan, self.unit_bytes, period)
        lowered = lower_beside(first, second, unit_bytes=self.unit_bytes, alike=self.alike, same_group=of_passes)
        done = _done(lowered.program, should_stop)
        ends = [max(int(done[ops.start : ops.stop].max()) for ops in each) for each in (lowered.first, lowered.second)]
        return ends[0], ends[1]


def _done(program: Program, should_stop: ShouldStop) -> Int64Array:
    """When each op is done, [O]."""
    finished = run(program, should_stop=should_stop)
    if finished.outcome is RunOutcome.CANCELLED:
        raise Cancelled
    return finished.op_done


def crosses_nodes(copies: System) -> bool:
    """Whether traffic among ``copies`` is not what a library's time is known of, which is that in one node."""
    return library_rejection(SharedTraffic(copies, Pattern.ALL_GATHER, DType.FP8, 1).case) is not None


@lru_cache(maxsize=2)  # layers have gradients and weights of the same ranks; a plan of 16,384 has 160,000 steps
def traffic_plan(traffic: SharedTraffic) -> tuple[OpCase, OpPlan]:
    """Return the collective and its plan.

    By the library where its time is known, which is in one node; else by as many SMs in rings, or first in nodes.

    Raises
    ------
    ScheduleError
        If no algorithm does it.
    """
    case = traffic.case
    if traffic.pattern is Pattern.SEND_RECV:
        own = (EngineMode.OWN, SEND_SMS) if 0 < case.system.fabric.node_size < case.num_ranks else ()
        return case, build_op_plan(case, _by_rings(case, "", *own))
    if library_rejection(case) is None:
        return case, build_op_plan(case, library_serial(case))
    if traffic.sends:
        return case, build_op_plan(case, _by_rings(case, "ring", EngineMode.OWN, SEND_SMS))
    return case, build_op_plan(case, between_nodes(case) or _by_rings(case, ""))


@cache
def between_nodes(case: OpCase) -> OpChoice | None:
    """What a library does where the closed form of its time does not hold: the faster of ACROSS_NODES by the estimate.

    None where neither can be, as for exchanges. Rings over nodes gain on one of all ranks with each node, for they have
    fewer steps and each adds its latency: where they are the faster among ``MOST_COMPARED`` ranks, they are among more.
    """
    if case.shape.pattern.exchanges:
        return None
    if case.num_ranks > MOST_COMPARED and case.num_ranks % MOST_COMPARED == 0:
        fewer = between_nodes(replace(case, system=replace(case.system, num_ranks=MOST_COMPARED)))
        if fewer is not None and fewer.algorithm == ACROSS_NODES[1]:
            return replace(fewer, chunks=case.num_ranks)
    rings = (_by_rings(case, name) for name in ACROSS_NODES)
    fit = [choice for choice in rings if reject_choice(case, choice) is None]
    if len(fit) < 2:
        return next(iter(fit), None)
    plans = dict(zip(fit, build_schedules(case, fit), strict=True))
    return min(fit, key=lambda choice: estimate_ticks(case, plans[choice]))


def _by_rings(case: OpCase, algorithm: str, mode: EngineMode = EngineMode.SHARED, sms: int = 0) -> OpChoice:
    engine = library_engine(case.gpu)
    engine = replace(engine, mode=mode, count=sms or engine.count)
    return OpChoice(BASELINE.name, case.num_ranks, engine, algorithm=algorithm)
