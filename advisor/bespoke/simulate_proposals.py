"""Simulated times of proposed plans. They decide: a gain that only the cost model sees is no gain."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...compiler.ir import Choice, Counted, Scenario, Schedule
from ...compiler.planning.build import build_schedule
from ..workers import Begun, SimulationJob, Workers
from .result import Proposer, SimulatedPlan


@dataclass(slots=True)
class PlanSimulator:
    """Simulates choices, each once and at most ``limit`` of them; a stop keeps what was simulated before it.

    ``unit_of`` returns the granularity for a schedule. ``count`` is the number of simulations that succeeded here;
    ``tried`` also holds the choices whose simulation failed. ``plans`` may hold others that were simulated before. A
    plan that takes ``enough_ticks`` or less ends the search.
    """

    scenario: Scenario
    pool: Workers
    limit: int
    unit_of: Callable[[Schedule], int]
    progress: Counted
    enough_ticks: float = 0.0
    stopped: bool = False
    count: int = 0
    plans: dict[Choice, SimulatedPlan] = field(default_factory=dict)
    tried: set[Choice] = field(default_factory=set)
    begun: dict[Choice, Begun] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many more choices may be simulated."""
        return 0 if self.stopped or self.enough else self.limit - len(self.tried)

    @property
    def enough(self) -> bool:
        """Whether a plan takes ``enough_ticks`` or less."""
        return min((plan.ticks for plan in self.plans.values()), default=math.inf) <= self.enough_ticks

    def is_new(self, choice: Choice) -> bool:
        """Whether ``choice`` was not simulated yet, with or without success."""
        return choice not in self.plans and choice not in self.tried

    def begin(self, choices: Iterable[Choice]) -> None:
        """Begin to simulate new choices that may be wanted; it has no effect but to have their results earlier."""
        for choice in choices:
            if self.is_new(choice) and choice not in self.begun:
                schedule = build_schedule(self.scenario, choice)
                job = SimulationJob(self.scenario, schedule, self.unit_of(schedule))
                (self.begun[choice],) = self.pool.begin([job])

    def simulate(self, choices: Sequence[tuple[Choice, Proposer]]) -> None:
        """Simulate the first of the new ``choices``, as many as the limit allows."""
        new = list({choice: proposer for choice, proposer in choices if self.is_new(choice)}.items())[: self.left]
        self.begin(choice for choice, _ in new)
        for choice, proposer in new:
            if not self.stopped and not self.enough:
                self._finish(choice, proposer)

    def drop_begun(self) -> None:
        """Leave out what was begun and is not wanted."""
        for begun in self.begun.values():
            begun.drop()
        self.begun.clear()

    def _finish(self, choice: Choice, proposer: Proposer) -> None:
        begun = self.begun.pop(choice)
        (result,) = self.pool.finish([begun])
        self.stopped = self.pool.stopped
        if result is not None:
            ticks, unit_bytes = result.makespan_ticks, result.unit_bytes
            self.plans[choice] = SimulatedPlan(choice, begun.job.schedule, ticks, unit_bytes, proposer)
            self.count += 1
        self.tried.add(choice)
        self.progress(self.count, self.limit)

    def ranked(self) -> list[SimulatedPlan]:
        """Return all simulated plans, the fastest first; of equally fast ones the simpler."""

        def rank(plan: SimulatedPlan) -> tuple[int, bool, int, str]:
            bespoke = plan.proposer is not Proposer.TEMPLATE
            return plan.ticks, bespoke, len(plan.schedule.steps), plan.schedule.expression

        return sorted(self.plans.values(), key=rank)
