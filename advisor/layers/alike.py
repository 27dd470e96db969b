"""Which schedules may be searched with one rank for all, where the fabric is not the same around each rank.

Ranks taken for alike leave a fourth or an eighth of the work, but times are estimates: on rails within 0.4 % for most
collectives, and wrong for a ring, or where the order of peers counts. So each op that copies is simulated alone both
ways, once, and a schedule is searched so only if that makes no difference for any of its ops.
"""

from dataclasses import dataclass, field, replace

from ...compiler.ir import (
    Graph,
    GraphChoice,
    GraphOp,
    GraphPlan,
    OpMode,
    Part,
    Schedule,
    ShouldStop,
    System,
    Workload,
    network_of,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.graph_build import build_graph_plan
from ...simcore import RunOptions, RunOutcome, RunTooLarge, simulate
from ...simcore.lower.plan import plan_period

LARGE = 32
"""Ranks from which on a graph is searched in fewer ways, where they are not the same: all take minutes otherwise."""

MOST_ERROR = 0.005
"""Share of time by which an op alone may be off: a fourth of what a schedule must gain to be recommended."""

UNIT_BYTES = 65536
"""Packets in which both are compared, of collectives that are large enough to take long."""


@dataclass(slots=True)
class AlikeRanks:
    """What is known of the ops of one graph."""

    system: System
    should_stop: ShouldStop = lambda: False
    _known: dict[tuple[Workload, Schedule], bool] = field(default_factory=dict)

    @property
    def differ(self) -> bool:
        """Whether the fabric is not the same around each rank."""
        return not network_of(self.system.fabric, self.system.num_ranks).symmetric

    @property
    def are_many(self) -> bool:
        """Whether a run with all ranks that are not the same is too long to search by."""
        return self.differ and self.system.num_ranks >= LARGE

    def under(self, graph: Graph, choice: GraphChoice) -> bool:
        """Whether ranks may be taken for alike under ``choice``; it makes no difference where they are."""
        if not self.differ:
            return False
        try:
            plan = build_graph_plan(self.system, graph, choice)
        except ScheduleError:
            return False
        return all(part.workload.moved is None or self.alone(part) for part in plan.parts)

    def saves(self, op: GraphOp, mode: OpMode) -> bool:
        """Whether one rank may be simulated for all under one way to carry out ``op``."""
        graph, choice = Graph(op.name, "", (replace(op, reads=(), layer=1),)), GraphChoice(op.name, (mode,))
        try:
            plan = build_graph_plan(self.system, graph, choice)
        except ScheduleError:
            return False
        return plan_period(self.system, plan, alike=True) == 1 and self.under(graph, choice)

    def alone(self, part: Part) -> bool:
        """Whether an op that copies takes as long alone if ranks are taken for alike."""
        key = part.workload, part.schedule
        if key not in self._known:
            self._known[key] = self._compared(part)
        return self._known[key]

    def _compared(self, part: Part) -> bool:
        alone = replace(part, name="op", op="op", waits=(), step_waits=(), layer=1)
        options = RunOptions(loads=False, should_stop=self.should_stop)
        times = []
        for alike in (True, False):
            plan = GraphPlan("op", (alone,))
            try:
                run = simulate(self.system, plan, unit_bytes=UNIT_BYTES, alike=alike, options=options)
            except RunTooLarge:
                return False
            if run.outcome is not RunOutcome.DONE:
                return False
            times.append(run.makespan_ticks)
        estimate, exact = times
        return abs(estimate - exact) <= exact * MOST_ERROR
