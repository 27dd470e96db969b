"""The end of a search: what may be the answer is simulated in fine units, with all layers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import Cancelled, OpChoice, Progress, Scenario, Schedule, ShouldStop
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore import Result
from ..candidates.candidate import Candidate, by_time
from .joint import COARSE_BYTES, JointRuns, Start, affordable_packet, simulated
from .orders import EACH_ITS_BEST, free_names
from .search import JOINT

NEAR = 1.03
"""Candidates that are slower than the fastest by more than this, in coarse packets, are not simulated further."""

FINE_LINE_HOPS = 120_000_000
"""Most line-hops of a run that confirms, about a second on one core."""


@dataclass(slots=True)
class Finish:
    """Simulates all layers of the candidates that may be the answer, in units as fine as time allows.

    A ``quick`` one simulates the baselines and the fastest alone, as coarse as the search did.
    """

    scenario: Scenario
    runs: JointRuns
    serial: Start
    should_stop: ShouldStop
    report: Progress
    quick: bool = False
    stopped: bool = False

    def candidates(self, found: Sequence[Candidate], best_alone: OpChoice | None = None) -> list[Candidate]:
        """Return all, those that may be the answer with results.

        ``best_alone`` is the answer to the op that alone has a choice: it may be so here, however far behind it is in
        coarse packets, and because it is simpler than what is faster.
        """
        best = min(one.ticks for one in found)
        most = best if self.quick else best * NEAR
        shown = () if self.quick else (EACH_ITS_BEST,)
        wanted = None if self.quick else best_alone
        near = [one for one in found if one.ticks <= most or one.is_serial or one.what in shown or _is(one, wanted)]
        near.sort(key=lambda one: (one.joint != SERIAL, one.side_by_side, one.ticks))
        unit, results = self._unit(), dict[str, Result]()
        for done, one in enumerate(near):
            self.report("layers", done, len(near))
            try:
                result = self._result(one, unit)
            except Cancelled:
                self.stopped = True
                break
            if result is not None:
                results[one.expression] = result
        if len(results) < min(2, len(near)):  # not even no overlap and the fastest: estimates compare better
            results.clear()
        finished = [one.with_result(results[one.expression]) if one.expression in results else one for one in found]
        return _renamed(by_time(finished), self.scenario.schedules)

    def whole(self, one: Candidate) -> Candidate:
        """Return a candidate whose layers show no period with all of them simulated, if that can be; as it was else."""
        try:
            result = self._result(one, one.unit_bytes or self._unit(), whole=True)
        except Cancelled:
            self.stopped = True
            return one
        return one if result is None or result.is_estimate else one.with_result(result)

    def _result(self, one: Candidate, unit: int, *, whole: bool = False) -> Result | None:
        """Of all layers, which may stage more than a few do; None if it is too much.

        No overlap, of which the length of a run is known, is not simulated again where that takes too long.
        """
        if one.joint == SERIAL and self.serial.is_long and unit == COARSE_BYTES and not whole:
            return self.serial.result
        system, workload = self.scenario.system, self.scenario.workload
        alike = self.quick and self.runs.ranks.under(replace(workload, repeat=None), one.joint)
        result = simulated(system, workload, one.joint, unit, self.should_stop, fine=True, alike=alike, whole=whole)
        may_not_be = result is not None and one.joint != SERIAL and self.runs.stages_too_much(result)
        return None if may_not_be else result

    def _unit(self) -> int:
        """The finest unit in which a run has no more line-hops than are affordable: lines, or packets."""
        if self.quick:
            return self.runs.exact_bytes
        line, unit = self.scenario.system.gpu.line_bytes, affordable_packet(self.serial.line_hops, FINE_LINE_HOPS)
        line_hops = self.serial.line_hops * COARSE_BYTES // unit
        while unit // 2 >= line and line_hops * 2 <= FINE_LINE_HOPS:
            unit, line_hops = unit // 2, line_hops * 2
        return unit


def _is(candidate: Candidate, choice: OpChoice | None) -> bool:
    """Whether it carries an op out as ``choice`` says."""
    return choice is not None and any(mode.body == choice for mode in candidate.joint.modes)


def _renamed(candidates: Sequence[Candidate], declared: Sequence[Schedule]) -> list[Candidate]:
    """The searched schedules with names in the order of their times."""
    names = free_names(JOINT, declared)
    return [_named(one, next(names)) if one.is_searched else one for one in candidates]


def _named(candidate: Candidate, name: str) -> Candidate:
    return replace(candidate, expression=name, several=replace(candidate.joint, name=name))
