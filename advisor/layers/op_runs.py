"""Simulations of one op of a graph alone, or of a pair with the GEMM that is cut along it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...compiler.ir import Graph, GraphChoice, GraphOp, GraphPlan, OpMode, System
from ...compiler.planning.graph_build import build_graph_plan
from ...simcore import Result, RunOptions, simulate
from ...simcore.figures.result import IntervalKind
from .copiers import Copier

_QUICK = RunOptions(loads=False)
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
    """Simulates ops with the SMs that ``copier`` leaves to kernels, in packets of ``unit_bytes``."""

    system: System
    copier: Copier
    unit_bytes: int

    def plan(self, op: GraphOp, mode: OpMode) -> GraphPlan:
        """Return the plan of an op alone.

        Raises
        ------
        ScheduleError
            If it cannot be carried out so.
        """
        alone = Graph(_OP, "", (replace(op, name=_OP, reads=(), layer=1),))
        return build_graph_plan(self.system, alone, GraphChoice(_OP, (mode,) if mode.body is not None else ()))

    def times(self, op: GraphOp, mode: OpMode, *, alike: bool = False) -> Times:
        """Return the times of an op that runs alone.

        Raises
        ------
        ScheduleError, RunTooLarge
            If it cannot be carried out so, or takes too long to simulate.
        """
        alike = alike or op.workload.moved is None  # lone kernels are, whatever the fabric
        result = self._run(self.plan(op, mode), alike=alike)
        of_kernels = [one for one in result.timeline.intervals if one.kind is IntervalKind.COMPUTE]
        of_copies = [one for one in result.timeline.intervals if one.kind is IntervalKind.COMM]
        kernel = max((one.end_ticks for one in of_kernels), default=0)
        begin = min((one.start_ticks for one in of_copies), default=0)
        end = max((one.end_ticks for one in of_copies), default=0)
        if op.workload.is_collective:
            begin, end = 0, result.makespan_ticks
        sums = sum(
            one.end_ticks - one.start_ticks
            for one in result.timeline.intervals
            if one.kind is IntervalKind.REDUCE and one.rank == 0
        )
        return Times(result.makespan_ticks, kernel, (begin, end), result.schedule.staging_bytes, sums)

    def with_next(self, op: GraphOp, mode: OpMode, behind: GraphOp, *, alike: bool) -> int:
        """Return the time of an op and the GEMM ``behind`` it, which is cut along it.

        Raises
        ------
        ScheduleError, RunTooLarge
            As ``times``.
        """
        choice = GraphChoice(_OP, (replace(mode, op=op.name),), along=(behind.name,))
        plan = build_graph_plan(self.system, _two_ops(op, behind), choice)
        return self._run(plan, alike=alike).makespan_ticks

    def _run(self, plan: GraphPlan, *, alike: bool) -> Result:
        plan = self._with_sms(plan)
        return simulate(self.system, plan, unit_bytes=self.unit_bytes, alike=alike, options=_QUICK)

    def _with_sms(self, plan: GraphPlan) -> GraphPlan:
        """SMs that copy are taken from all kernels, also from those that move nothing."""
        sms = self.system.gpu.sms - self.copier.taken_sms
        return replace(
            plan,
            parts=tuple(
                replace(part, schedule=replace(part.schedule, compute_sms=min(part.schedule.compute_sms, sms)))
                for part in plan.parts
            ),
        )


def _two_ops(op: GraphOp, behind: GraphOp) -> Graph:
    """A graph of an op and the one that takes its result, where all else is there."""
    reads = (replace(read, made_by=read.made_by if read.made_by == op.name else "") for read in behind.reads)
    both = replace(op, reads=(), layer=1), replace(behind, reads=tuple(reads), layer=1)
    return Graph(_OP, "", both)
