"""Simulated times of proposed plans: what decides, since a gain of the cost model alone is no gain."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...compiler.ir import Choice, Counted, Scenario, Schedule
from ...compiler.planning.build import build_schedule
from ..workers import SimulationJob, Workers
from .result import Proposer, SimulatedPlan


@dataclass(slots=True)
class Replays:
    """Simulates choices, each once, until ``limit`` of them are; what was found before a stop is kept.

    ``unit_of`` says the granularity for a schedule, ``together`` how many are given to the pool at a time. ``count`` is
    how many were simulated here, ``tried`` which, also in vain; ``found`` may hold others that were known before. One
    that takes ``enough_ticks`` or less ends it.
    """

    scenario: Scenario
    pool: Workers
    limit: int
    unit_of: Callable[[Schedule], int]
    progress: Counted
    together: int = 1
    enough_ticks: float = 0.0
    stopped: bool = False
    count: int = 0
    found: dict[Choice, SimulatedPlan] = field(default_factory=dict)
    tried: set[Choice] = field(default_factory=set)

    @property
    def left(self) -> int:
        """How many more may be simulated."""
        return 0 if self.stopped or self.enough else self.limit - len(self.tried)

    @property
    def enough(self) -> bool:
        """Whether what was found is as good as any."""
        return min((found.ticks for found in self.found.values()), default=math.inf) <= self.enough_ticks

    def is_new(self, choice: Choice) -> bool:
        """Whether ``choice`` was not simulated yet, in vain or not."""
        return choice not in self.found and choice not in self.tried

    def __call__(self, choices: Sequence[tuple[Choice, Proposer]]) -> None:
        """Simulate as many of ``choices`` as are left, the first first."""
        new = list({choice: stage for choice, stage in choices if self.is_new(choice)}.items())[: self.left]
        for start in range(0, len(new), self.together):
            if not self.stopped and not self.enough:
                self._simulate(new[start : start + self.together])

    def _simulate(self, choices: Sequence[tuple[Choice, Proposer]]) -> None:
        schedules = [build_schedule(self.scenario, choice) for choice, _ in choices]
        jobs = [SimulationJob(self.scenario, schedule, self.unit_of(schedule)) for schedule in schedules]
        results = self.pool.run(jobs)
        self.stopped = self.pool.stopped
        for (choice, stage), schedule, result in zip(choices, schedules, results, strict=True):
            if result is not None:
                self.found[choice] = SimulatedPlan(choice, schedule, result.makespan_ticks, result.unit_bytes, stage)
        self.tried.update(choice for choice, _ in choices)
        self.count += sum(result is not None for result in results)
        self.progress(self.count, self.limit)

    def ranked(self) -> list[SimulatedPlan]:
        """All that was simulated, the fastest first; a tie goes to the simpler one."""

        def rank(found: SimulatedPlan) -> tuple[int, bool, int, str]:
            bespoke = found.stage is not Proposer.TEMPLATE
            return found.ticks, bespoke, len(found.schedule.steps), found.schedule.expression

        return sorted(self.found.values(), key=rank)
