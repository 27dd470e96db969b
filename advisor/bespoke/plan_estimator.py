"""Estimated times of plans, some hundred a second, so that a search can try thousands."""

from dataclasses import dataclass, field, replace

from ...compiler.ir import Choice, Scenario, ShouldStop
from ...compiler.planning.build import ScheduleError, build_schedule
from ..candidates.variations import may_deadlock
from ..estimate.makespan import makespans
from .explore_limits import is_explored

INFEASIBLE = float("inf")
"""The time of a plan that cannot run."""


@dataclass(slots=True)
class PlanEstimator:
    """Estimates choices, each once; a search ends after ``limit`` of them, so that it does the same on any machine.

    ``known`` holds the times in ticks of all estimated choices, ``INFEASIBLE`` for those that cannot run; ``foreseen``
    those of choices that were looked at ahead.
    """

    scenario: Scenario
    limit: int
    should_stop: ShouldStop = lambda: False
    count: int = 0
    known: dict[Choice, float] = field(default_factory=dict)
    foreseen: dict[Choice, float] = field(default_factory=dict)

    def copy(self, should_stop: ShouldStop) -> "PlanEstimator":
        """Return one that counts for itself, and foresees for both."""
        return replace(self, known=dict(self.known), should_stop=should_stop)

    @property
    def spent(self) -> bool:
        """Whether the budget is spent, or the caller asked to stop."""
        return self.count >= self.limit or self.should_stop()

    def ticks(self, choice: Choice) -> float:
        """Return the estimated makespan."""
        known = self.known.get(choice)  # a choice is hashed by all its parts
        if known is None:
            self.count += 1
            known = self.known[choice] = self.foresee(choice)
        return known

    def foresee(self, choice: Choice) -> float:
        """Return the estimated makespan without counting it."""
        known = self.known.get(choice, self.foreseen.get(choice))
        if known is None:
            known = self.foreseen[choice] = self._estimate(choice)
        return known

    def _estimate(self, choice: Choice) -> float:
        if may_deadlock(choice) or not is_explored(self.scenario.explore, choice):
            return INFEASIBLE
        try:
            return next(makespans(self.scenario, (build_schedule(self.scenario, choice),)))
        except ScheduleError:
            return INFEASIBLE
