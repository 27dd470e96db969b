"""Joint simulations of one workload: each schedule once, a few layers in coarse packets, to tell which is faster."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median

from ...compiler.ir import Cancelled, Plan, Schedule, ShouldStop, System, Workload, WorkloadCut, heeding
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.plan import build_plan, in_layer, own_name
from ...compiler.text.units import bytes_text
from ...simcore import Result, RunOptions, RunOutcome, RunTooLarge
from ...simcore.lower.plan import plan_period
from ...simcore.simulate import Case
from ...simcore.simulate_layers import FEWEST_LAYERS, effort_of, simulate_layers
from .op_runs import AlikeRanks, Copier, Uses, of_copies, of_kernel
from .options import OpOption, OpOptions

COARSE_BYTES = 8192
"""Bytes of a packet in the search: within 0.2 % of packets of 1 KiB on the shipped layers, in a third of the time."""

SEARCH_LAYERS, QUICK_LAYERS = 3, 2
"""Layers that are simulated in the search, of those that repeat: one with its neighbours on both sides.

A quick search has none behind it where nothing is brought ahead: the period is the same where layers do not overlap.
"""

MOST_LINE_HOPS, QUICK_LINE_HOPS = 60_000_000, 20_000_000
"""Line-hops of a run in the search, about a second on one core: larger workloads are searched in larger packets.

Those of a quick search are within 0.3 % of packets of 8 KiB: five schedules of each pass of llama-3.1-405b on 8 H200,
forward in 16 and backward in 32 KiB.
"""

MOST_EFFORT = 600_000_000
"""Line-hops, and what takes as long, of a run of more layers where five show no period: 6 s or so on one core."""

SEARCH_EFFORT = 4_000_000_000
"""The same of a whole search, 40 s or so: then no further small changes are tried."""

CANNOT_BE = "it cannot be carried out"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """The first schedule of a search, estimated: ``result`` is that of all layers, from a few in coarse packets.

    ``line_hops`` are those of so many layers as show a period, at all ranks that are not the same.
    """

    line_hops: int
    result: Result

    @property
    def is_long(self) -> bool:
        """Whether to simulate so many layers as show a period takes more than a run may."""
        return effort_of(self.result) * FEWEST_LAYERS > MOST_EFFORT * self.result.num_simulated


@dataclass(slots=True)
class JointRuns:
    """Simulations of schedules of ``workload``, remembered by what they say and by the plans that these are.

    ``staging_limit_bytes`` is the most memory that a schedule may stage. ``num_runs`` counts those whose time was
    looked for, in packets of ``unit_bytes``, and ``effort`` what that has taken, in line-hops. ``ranks`` knows where
    one is simulated for all. ``left_out`` says of schedules without a time why, in words. ``quick`` runs are of fewer
    layers in larger packets, and the answer is simulated in ``exact_bytes``.
    """

    system: System
    workload: Workload
    staging_limit_bytes: int | None = None
    should_stop: ShouldStop = lambda: False
    reported: Callable[[Schedule, int], None] = lambda choice, ticks: None
    num_runs: int = 0
    effort: int = 0
    unit_bytes: int = COARSE_BYTES
    exact_bytes: int = COARSE_BYTES
    quick: bool = False
    left_out: dict[Schedule, str] = field(default_factory=dict)
    ranks: AlikeRanks = field(init=False)
    _known: dict[Schedule, int | None] = field(default_factory=dict)
    _by_plan: dict[tuple[Plan, int], int] = field(default_factory=dict)  # and by how far parts are from their layers

    def __post_init__(self) -> None:
        self.ranks = AlikeRanks(self.system, self.should_stop)

    def ticks(self, choice: Schedule) -> int | None:
        """Return the estimated time of all layers under ``choice``; None where it cannot be, or stages too much.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        key = replace(choice, name="")
        if key not in self._known:
            if self.should_stop():
                raise Cancelled
            self._known[key] = self._simulated(choice)
        return self._known[key]

    @property
    def is_spent(self) -> bool:
        """Whether the search has taken all that it may, so that no further small changes are tried."""
        return self.effort > SEARCH_EFFORT

    def begin(self, choice: Schedule, should_stop: ShouldStop) -> Start | None:
        """Simulate ``choice`` as the first one, which says in which packets the others are; None where it cannot be.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        most = QUICK_LINE_HOPS if self.quick else MOST_LINE_HOPS
        counted = self._counted(choice, should_stop) if self.quick else 0
        large, unnamed = counted > most, replace(choice, name="")
        if large:
            self.unit_bytes = affordable_packet(counted, most)
        result = self.estimated(choice, should_stop, QUICK_LAYERS if large else SEARCH_LAYERS, fine=not large)
        if result is None:
            return None
        start = Start(counted if large else self._line_hops(choice, result), result)
        self.unit_bytes, self.exact_bytes = (affordable_packet(start.line_hops, each) for each in (most, 2 * most))
        if large and not self.stages_too_much(result):
            plan = build_plan(self.system, few := self._of_few(choice, QUICK_LAYERS), unnamed, few.num_layers)
            self._by_plan[plan, choice.layers_shifted] = result.total_ticks
        elif self.unit_bytes == COARSE_BYTES and not self.stages_too_much(result):
            self.num_runs, self._known[unnamed] = self.num_runs + 1, result.total_ticks
        return start

    def estimated(
        self, choice: Schedule, should_stop: ShouldStop, layers: int = SEARCH_LAYERS, *, fine: bool = False
    ) -> Result | None:
        """Return the result of all layers from a few of them, in packets of ``unit_bytes``; None where it cannot be.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        result = self._few(choice, should_stop, layers, fine=fine)
        if result is None or result.num_simulated == self.workload.num_layers:
            return result
        period = _shift(result, 0)
        return replace(result, layers=self.workload.num_layers, period_ticks=period, is_estimate=True)

    def _line_hops(self, choice: Schedule, result: Result) -> int:
        """Those of so many layers as show a period, at all ranks that are not the same, from a run of few layers."""
        one_layer = replace(self.workload, repeat=None)
        taken = result.line_hops
        if self.ranks.under(one_layer, choice):
            plan = build_plan(self.system, one_layer, choice)
            taken = taken * plan_period(self.system, plan) // plan_period(self.system, plan, alike=True)
        return taken * min(self.workload.num_layers, FEWEST_LAYERS) // result.num_simulated

    def _counted(self, choice: Schedule, should_stop: ShouldStop) -> int:
        """Those of so many layers as show a period, by one layer that is not run; 0 where more than one rank would be.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        with heeding(should_stop), suppress(ScheduleError, RunTooLarge):
            plan = build_plan(self.system, replace(self.workload, repeat=None), choice)
            if plan_period(self.system, plan) == 1:
                program = Case(self.system, plan).lowered(COARSE_BYTES).program
                hops = int((program.flow_units * program.flow_num_hops).sum())
                return hops * min(self.workload.num_layers, FEWEST_LAYERS)
        return 0

    def few(self, choice: Schedule) -> Result | None:
        """Return the result of a few layers; None where it cannot be.

        Raises
        ------
        Cancelled
            If the caller is asked to stop.
        """
        self.num_runs += 1
        return self._few(choice, self.should_stop, SEARCH_LAYERS)

    def _few(
        self, choice: Schedule, should_stop: ShouldStop, layers: int, *, fine: bool = False, plan: Plan | None = None
    ) -> Result | None:
        """The result of a few ``layers``, with one rank for all where that makes no difference; ``plan`` if known."""
        workload = self._of_few(choice, layers)
        alike = self.ranks.under(replace(workload, repeat=None), choice)
        return simulated(self.system, workload, plan or choice, self.unit_bytes, should_stop, fine=fine, alike=alike)

    def _of_few(self, choice: Schedule, layers: int) -> Workload:
        repeat = self.workload.repeat
        few = None if repeat is None else replace(repeat, count=few_layers(repeat.count, choice, layers))
        return replace(self.workload, repeat=few)

    def _simulated(self, choice: Schedule) -> int | None:
        """The time, that of another schedule where both are the same plan."""
        layers = QUICK_LAYERS if self.quick else SEARCH_LAYERS
        workload = self._of_few(choice, layers)
        self.num_runs += 1
        try:
            plan = build_plan(self.system, workload, replace(choice, name=""), workload.num_layers)
        except ScheduleError as error:
            log.debug("%s is left out: %s", choice.name, error)
            self.left_out[choice] = CANNOT_BE
            return None
        key = plan, choice.layers_shifted
        if key not in self._by_plan:
            ticks = self._run(choice, layers, plan)
            if ticks is None:
                return None
            self._by_plan[key] = ticks
        self.reported(choice, self._by_plan[key])
        return self._by_plan[key]

    def _run(self, choice: Schedule, layers: int, plan: Plan) -> int | None:
        result = self._few(choice, self.should_stop, layers, plan=plan)
        self.effort += 0 if result is None else effort_of(result)
        if result is None or self.stages_too_much(result):
            self.left_out[choice] = CANNOT_BE if result is None else too_much(result, self.staging_limit_bytes or 0)
            return None
        return _of_layers(result, self.workload.num_layers, choice.layers_shifted)

    def stages_too_much(self, result: Result) -> bool:
        """Whether a schedule stages more than the file allows."""
        limit = self.staging_limit_bytes
        return limit is not None and result.schedule.staging_bytes > limit


def too_much(result: Result, limit: int) -> str:
    """Return what a schedule stages, which is more than ``limit``, in words."""
    staged = bytes_text(result.schedule.staging_bytes)
    return f"it stages {staged}, more than the {bytes_text(limit)} that the file allows"


def affordable_packet(line_hops: int, most_line_hops: int = MOST_LINE_HOPS) -> int:
    """``COARSE_BYTES``, doubled until a run that has so many ``line_hops`` in such packets has no more than that."""
    unit = COARSE_BYTES
    while line_hops > most_line_hops:
        unit, line_hops = unit * 2, line_hops // 2
    return unit


def few_layers(count: int, choice: Schedule, layers: int = SEARCH_LAYERS) -> int:
    """How many of ``count`` layers are simulated in the search: more where something is brought layers ahead."""
    return min(count, SEARCH_LAYERS + choice.layers_shifted if choice.layers_shifted else layers)


def _of_layers(result: Result, layers: int, apart: int) -> int:
    """The time of so many layers, from a few."""
    few = result.num_simulated
    if few == layers:
        return result.makespan_ticks
    return result.makespan_ticks + (layers - few) * _shift(result, apart)


def _shift(result: Result, apart: int) -> int:
    """The time of each further layer: as long as most ops come later than in the layer before.

    Parts are issued up to so many layers ``apart`` from their place, so that the last of the few lack some beside them.
    """
    ends = {op.name: op.end_ticks for op in result.ops}
    shown = result.num_simulated - apart
    last = {own_name(name): end for name, end in ends.items() if name == in_layer(own_name(name), shown)}
    return int(median(end - ends[in_layer(name, shown - 1)] for name, end in last.items()))


def simulated(
    system: System,
    workload: Workload,
    choice: Schedule | Plan,
    unit_bytes: int,
    should_stop: ShouldStop,
    *,
    fine: bool = False,
    alike: bool = False,
    whole: bool = False,
) -> Result | None:
    """Return the result of one schedule; None where it cannot be carried out, or does not finish.

    A ``fine`` one tells where units queue, the critical path, and the loads of links over time. Ranks may be taken for
    ``alike``. Where no period shows, of a ``whole`` one all layers are simulated.

    Raises
    ------
    Cancelled
        If the caller is asked to stop.
    """
    options = RunOptions(observe=fine, loads=fine, path=fine, should_stop=should_stop)
    try:
        result = simulate_layers(
            system,
            workload,
            choice,
            name=workload.name,
            unit_bytes=unit_bytes,
            alike=alike,
            most_effort=None if whole else MOST_EFFORT,
            options=options,
        )
    except (ScheduleError, RunTooLarge) as error:
        log.debug("%s is left out: %s", choice.expression if isinstance(choice, Plan) else choice.name, error)
        return None
    if result.outcome is RunOutcome.CANCELLED:
        raise Cancelled
    return result if result.outcome is RunOutcome.DONE else None


@dataclass(frozen=True, slots=True)
class LayerSpace:
    """The ops of a workload, cut up, by one copier.

    ``op_options`` and the times of ``kernels`` and of whole ``copies`` alone, in ticks, are by the names of ops; so is
    what their kernels and such copies use of the memory and of the network on chip. ``following`` has for a pair the
    GEMMs that may be cut along it, the longest first.
    """

    copier: Copier
    cut: WorkloadCut
    workload: Workload
    op_options: Mapping[str, tuple[OpOption, ...]] = field(hash=False)
    kernels: Mapping[str, int] = field(hash=False)
    copies: Mapping[str, int] = field(hash=False)
    kernel_uses: Mapping[str, Uses] = field(hash=False)
    copy_uses: Mapping[str, Uses] = field(hash=False)
    following: Mapping[str, tuple[str, ...]] = field(hash=False)

    @property
    def kernels_ticks(self) -> int:
        """All kernels of a layer alone, one after the other."""
        return sum(self.kernels.values())

    def quick(self, ranks: AlikeRanks) -> "LayerSpace":
        """Return the space without options that take all ranks to simulate; an op that has no other keeps its own."""
        op_options = {
            op.name: tuple(option for option in self.op_options[op.name] if ranks.saves(op, option.mode))
            or self.op_options[op.name]
            for op in self.workload.ops
            if op.shape.moved is not None
        }
        return replace(self, op_options=dict(self.op_options) | op_options)


def space_of(op_options: OpOptions, cut: WorkloadCut, workload: Workload) -> LayerSpace:
    """Return the space of a workload that is cut up so."""
    system, copier, of_graph = op_options.system, op_options.copier, op_options.of_graph(workload)
    sms = system.gpu.sms - copier.taken_sms
    copies = {
        op.name: min((option.copies[1] - option.sums for option in of_graph[op.name] if option.is_whole), default=0)
        for op in workload.ops
    }
    return LayerSpace(
        copier,
        cut,
        workload,
        of_graph,
        {op.name: op_options.kernel_ticks(op) for op in workload.ops},
        copies,
        {op.name: of_kernel(system, op, sms) for op in workload.ops},
        {op.name: of_copies(system, op, copies[op.name]) for op in workload.ops},
        {pair: tuple(op.name for op in ops) for pair, ops in op_options.following(workload).items()},
    )
