"""What would be answered now: advice as candidates are ranked and simulated, for those who watch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from time import perf_counter

from ...compiler.ir import GraphScenario, Scenario
from ...simcore import Result
from ..bounds.lower_bound import Bound
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate, by_time
from ..stages import Stages
from ..workers import SimulationJob
from .answer import Confirmed, Findings, advice_of

Answered = Callable[[Advice], None]

INTERVAL_S = 0.1
"""Least time between two answers that differ in simulated times alone."""


@dataclass(slots=True)
class PartialAnswers:
    """Tells ``answered`` the answer so far, on one op, the ``case``; without it nothing is computed."""

    scenario: GraphScenario
    case: Scenario
    answered: Answered | None = None
    _known: dict[str, Candidate] = field(default_factory=dict)
    _told_at: float = 0.0

    def ranked(self, candidates: Sequence[Candidate]) -> None:
        """Take the candidates as they are now, and tell the answer."""
        if self.answered is not None:
            self._known = {candidate.expression: candidate for candidate in candidates}
            self._tell()

    def simulated(self, job: SimulationJob, result: Result) -> None:
        """Take the time of a candidate that had none, and tell the answer unless one was told a moment ago."""
        before = self._known.get(job.schedule.expression)
        if before is None or before.simulated_ticks is not None or job.scenario is not self.case:
            return
        timed = replace(before, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        self._known[before.expression] = timed
        if perf_counter() - self._told_at > INTERVAL_S:
            self._tell()

    def confirmed(self, candidates: Sequence[Candidate], bound: Bound | None, confirmed: Confirmed) -> None:
        """Tell the confirmed answer: what is asked beside it takes longer."""
        if self.answered is not None:
            found = Findings(tuple(candidates), None, bound, confirmed, Stages(interrupted=True), ())
            self.answered(advice_of(self.scenario, found))

    def _tell(self) -> None:
        """Tell the answer, if there is a baseline and anything has a time."""
        candidates = by_time(list(self._known.values()))
        known = any(isfinite(candidate.best_us) for candidate in candidates)
        if self.answered is None or not known or not any(candidate.is_serial for candidate in candidates):
            return
        found = Findings(tuple(candidates), None, None, Confirmed(), Stages(interrupted=True), ())
        self.answered(advice_of(self.scenario, found))
        self._told_at = perf_counter()
