"""What a plan would take, by the step-level estimate: some hundred a second, so that thousands can be tried."""

from dataclasses import dataclass, field

from ...compiler.ir import Choice, EngineMode, Kernels, Scenario, ShouldStop
from ...compiler.planning.build import ScheduleError, build_schedule
from ..estimate.makespan import estimate_ticks
from .explore_limits import is_asked_for

NEVER = float("inf")


@dataclass(slots=True)
class PlanEstimator:
    """Estimates choices, each once, and counts them: search ends after so many, whatever the machine.

    ``known`` are the times in ticks of all that were asked for; what cannot run takes forever.
    """

    scenario: Scenario
    limit: int
    should_stop: ShouldStop = lambda: False
    count: int = 0
    known: dict[Choice, float] = field(default_factory=dict)

    @property
    def spent(self) -> bool:
        """Whether the budget is used up, or somebody asked to stop."""
        return self.count >= self.limit or self.should_stop()

    def __call__(self, choice: Choice) -> float:
        """Estimated makespan in ticks."""
        found = self.known.get(choice)
        if found is None:
            self.count += 1
            found = self.known[choice] = self._estimate(choice)
        return found

    def _estimate(self, choice: Choice) -> float:
        if may_hold(choice) or not is_asked_for(self.scenario.explore, choice):
            return NEVER
        try:
            return estimate_ticks(self.scenario, build_schedule(self.scenario, choice)).makespan_ticks
        except ScheduleError:
            return NEVER


def may_hold(choice: Choice) -> bool:
    """Whether a persistent kernel that waits may hold the SMs that the copies it waits for queue for.

    Whether it does is known from a simulation alone, so that such plans are not searched.
    """
    return choice.engine.mode is EngineMode.SHARED and choice.tactics.kernel is Kernels.PERSISTENT
