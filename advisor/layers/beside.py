"""A layer with traffic beside it among other ranks: gradients that are summed, or weights that are gathered.

One layer and one collective begin at the same time on the same GPUs, and are simulated together: copies take SMs, ports
and memory from kernels, and these take them from copies.
"""

from collections.abc import Callable
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
)
from ...compiler.ir.stopping import heeding, never
from ...compiler.planning.build import build_op_plan, build_schedules, reject_choice
from ...compiler.planning.knobs.library import library_engine, library_rejection, library_serial
from ...compiler.planning.plan import build_plan
from ...compiler.templates import BASELINE
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
class SharedTraffic:
    """A collective among ranks that hold the same weights: ``elements`` of the whole tensor, as each rank has them.

    Where it ``sends`` to a neighbour it is issued before the kernels beside it, and has its SMs when they begin.
    """

    pattern: Pattern
    dtype: DType
    elements: int
    sends: bool = False


@dataclass(frozen=True, slots=True)
class BesideTicks:
    """Ticks of one layer and of traffic, each ``alone`` and ``beside`` the other.

    A layer that begins with all that it takes and ends with its last op; layers that follow each other may take less.
    """

    layer_alone: int
    layer_beside: int
    traffic_alone: int
    traffic_beside: int

    @property
    def longer(self) -> float:
        """How many times as long a layer takes beside the traffic."""
        return self.layer_beside / self.layer_alone


@dataclass(frozen=True, slots=True)
class LayerBeside:
    """A layer with traffic beside it.

    Attributes
    ----------
    scenario, schedule
        The layer on its group of ranks, and how it is carried out.
    copies
        The ranks that hold the same weights, a group along other axes of the same system.
    traffic
        What is moved among them, by the library, or as it does where it is not known.
    unit_bytes
        The packets of the simulation.
    alike
        Whether ranks that do the same are taken for alike, whoever their peers are: an estimate.
    """

    scenario: Scenario
    schedule: Schedule
    copies: System
    traffic: SharedTraffic
    unit_bytes: int = COARSE_BYTES
    alike: bool = False

    def ticks(self, should_stop: ShouldStop = never) -> BesideTicks | Rejection:
        """Simulate it, each alone and both together; a Rejection where it is not known what the groups share.

        Raises
        ------
        ScheduleError
            If the layer, or the traffic, cannot be carried out so.
        RunTooLarge
            If the run would take minutes or more memory than is sensible.
        Cancelled
            If ``should_stop`` said so.
        """
        unfit = rejected(self.scenario.system, self.copies)
        if unfit is not None:
            return unfit
        system, schedule = self.scenario.system, replace(self.schedule, name="")
        question = system, self.scenario.workload, schedule, self.copies, self.traffic, self.unit_bytes, self.alike
        with heeding(should_stop):
            compute = partial(self._simulated, should_stop)
            return memoized(memo_of(("beside", *question), ADVISOR), BesideTicks, compute)

    def _simulated(self, should_stop: ShouldStop) -> BesideTicks:
        layer = one_layer(self.scenario, self.schedule)
        both = layer, self._others(1 + max(part.stream for part in layer.plan.parts))
        traffic = partial(ticks_alone, self.copies, self.traffic, self.unit_bytes, should_stop)
        return _ticks_of_both(
            both, self.unit_bytes, should_stop, alike=self.alike, second=traffic if self.alike else None
        )

    def _others(self, stream: int) -> OnGroup:
        """The traffic, in a stream that the layer has not."""
        case, schedule = traffic_plan(self.copies, self.traffic)
        part = replace(Plan.of_one(TRAFFIC, case.shape, schedule).parts[0], stream=stream, behind_kernels=False)
        return OnGroup(self.copies, Plan(schedule.expression, (part,)))


@dataclass(frozen=True, slots=True)
class PassesBeside:
    """The question how long a pass of a layer takes beside one of another, on the same ranks: forward and backward.

    Each is a scenario and its schedule; ranks that do the same are taken for alike.
    """

    forward: tuple[Scenario, Schedule]
    backward: tuple[Scenario, Schedule]
    unit_bytes: int = COARSE_BYTES

    def ticks(self, should_stop: ShouldStop = never) -> BesideTicks:
        """Simulate each alone and both together; the backward pass is what the other calls traffic.

        Raises
        ------
        ScheduleError
            If one of them cannot be carried out so.
        RunTooLarge
            If the run would take minutes or more memory than is sensible.
        Cancelled
            If ``should_stop`` said so.
        """
        both = [(each.system, each.workload, replace(how, name="")) for each, how in (self.forward, self.backward)]
        with heeding(should_stop):
            question = memo_of(("passes beside", *both, self.unit_bytes), ADVISOR)
            return memoized(question, BesideTicks, partial(self._simulated, should_stop))

    def _simulated(self, should_stop: ShouldStop) -> BesideTicks:
        both = one_layer(*self.forward), one_layer(*self.backward)
        return _ticks_of_both(both, self.unit_bytes, should_stop, alike=True, same_group=True)


def one_layer(scenario: Scenario, schedule: Schedule) -> OnGroup:
    """Return one layer; it has no others among which anything could be moved."""
    one = replace(scenario.workload, repeat=None)
    return OnGroup(scenario.system, build_plan(scenario.system, one, replace(schedule, prefetch=0, deferred=())))


def _ticks_of_both(
    both: tuple[OnGroup, OnGroup],
    unit: int,
    should_stop: ShouldStop,
    *,
    alike: bool,
    same_group: bool = False,
    second: Callable[[], int] | None = None,
) -> BesideTicks:
    """Simulate both together, and each alone; ``second`` returns the ticks of that one where they may be known."""
    for on in both:
        check_budget(on.system, on.plan, unit, plan_period(on.system, on.plan, alike=alike))
    together = lower_beside(*both, unit_bytes=unit, alike=alike, same_group=same_group)
    done = _done(together.program, should_stop)
    beside = [max(int(done[ops.start : ops.stop].max()) for ops in each) for each in (together.first, together.second)]
    programs = (lower(on.system, on.plan, unit_bytes=unit, alike=alike).program for on in both[: 1 + (second is None)])
    alone = [int(_done(program, should_stop).max()) for program in programs]
    return BesideTicks(alone[0], beside[0], alone[1] if second is None else second(), beside[1])


def _done(program: Program, should_stop: ShouldStop) -> Int64Array:
    """When each op is done, [O]."""
    finished = run(program, should_stop=should_stop)
    if finished.outcome is RunOutcome.CANCELLED:
        raise Cancelled
    return finished.op_done


def traffic_case(copies: System, traffic: SharedTraffic) -> OpCase:
    """Return the collective among ``copies`` by itself."""
    ranks, gathers = copies.num_ranks, traffic.pattern is Pattern.ALL_GATHER
    moved = Tensor("x", traffic.dtype, ranks, -(-traffic.elements // ranks), Shard.ROWS if gathers else Shard.NONE)
    return OpCase(TRAFFIC, copies, OpShape(TRAFFIC, "", traffic.pattern, (moved,), moved, None, "y"))


@dataclass(frozen=True, slots=True)
class TrafficTicks:
    """Ticks of traffic with the machine to itself."""

    ticks: int


@dataclass(frozen=True, slots=True)
class TrafficAlone:
    """The question how long ``traffic`` among ``copies`` takes by itself, in packets of ``unit_bytes``."""

    copies: System
    traffic: SharedTraffic
    unit_bytes: int

    def ticks(self, should_stop: ShouldStop = never) -> TrafficTicks:
        """Simulate it, or look it up.

        Raises
        ------
        ScheduleError
            If no algorithm does it.
        Cancelled
            If ``should_stop`` said so.
        """
        question = memo_of(("traffic alone", self.copies, self.traffic, self.unit_bytes), ADVISOR)
        with heeding(should_stop):
            return memoized(question, TrafficTicks, partial(self._simulated, should_stop))

    def _simulated(self, should_stop: ShouldStop) -> TrafficTicks:
        return TrafficTicks(ticks_alone(self.copies, self.traffic, self.unit_bytes, should_stop))


@lru_cache(maxsize=8)  # layers with other rows, or that keep less, have the same weights
def ticks_alone(copies: System, traffic: SharedTraffic, unit_bytes: int, should_stop: ShouldStop) -> int:
    """Return the ticks of traffic that has the machine to itself, of ranks that do the same taken for alike.

    Raises
    ------
    ScheduleError
        If no algorithm does it.
    Cancelled
        If ``should_stop`` said so.
    """
    case, schedule = traffic_plan(copies, traffic)
    lowered = lower(copies, Plan.of_one(TRAFFIC, case.shape, schedule), unit_bytes=unit_bytes, alike=True)
    return int(_done(lowered.program, should_stop).max())


def crosses_nodes(copies: System) -> bool:
    """Whether traffic among ``copies`` is not what a library's time is known of, which is that in one node."""
    return library_rejection(traffic_case(copies, SharedTraffic(Pattern.ALL_GATHER, DType.FP8, 1))) is not None


@lru_cache(maxsize=2)  # layers have gradients and weights of the same ranks; a plan of 16,384 has 160,000 steps
def traffic_plan(copies: System, traffic: SharedTraffic) -> tuple[OpCase, OpPlan]:
    """Return the collective among ``copies`` and its plan.

    By the library where its time is known, which is in one node; else by as many SMs in rings, or first in nodes.

    Raises
    ------
    ScheduleError
        If no algorithm does it.
    """
    case = traffic_case(copies, traffic)
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
    return min(fit, key=lambda choice: estimate_ticks(case, plans[choice]).makespan_ticks)


def _by_rings(case: OpCase, algorithm: str, mode: EngineMode = EngineMode.SHARED, sms: int = 0) -> OpChoice:
    engine = library_engine(case.gpu)
    engine = replace(engine, mode=mode, count=sms or engine.count)
    return OpChoice(BASELINE.name, case.num_ranks, engine, algorithm=algorithm)
