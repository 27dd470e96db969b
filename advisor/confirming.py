"""Simulations that confirm an answer: finalists in lines, with the what-if runs that explain them."""

from dataclasses import dataclass, field, replace

from ..compiler.ir import Scenario, Schedule
from ..simcore import Result, affordable_unit
from .candidates.shortlist import shortlist_unit, simulated_ranks
from .workers import Begun, SimulationJob, Workers

# Line-hops of a confirming run: some seconds to a minute on one core.
CONFIRM_LINE_HOPS = 1_000_000_000
# Divides CONFIRM_LINE_HOPS where every rank is simulated: each of them is laid out and followed by itself.
EACH_RANK_COST = 4


@dataclass(frozen=True, slots=True)
class Confirming:
    """Simulations of finalists by the workers of ``pool``.

    Waterfalls end at ``bound_ticks``; ``begun`` holds the jobs by the expression of the schedule.
    """

    scenario: Scenario
    pool: Workers
    bound_ticks: int | None
    begun: dict[str, tuple[Begun, ...]] = field(default_factory=dict)

    def begin(self, schedule: Schedule) -> None:
        """Begin to simulate ``schedule``, unless that is begun."""
        if schedule.expression not in self.begun:
            self.begun[schedule.expression] = self.pool.begin(self._jobs(schedule))

    def finish(self, schedule: Schedule) -> Result | None:
        """Return the result, None without one; it has no waterfall if the what-if runs have no result."""
        in_lines, *explained = self.pool.finish(self.begun[schedule.expression])
        for result in explained:
            if in_lines is not None and result is not None:
                in_lines = replace(in_lines, waterfall=result.waterfall, cil=result.cil)
        return in_lines

    def _jobs(self, schedule: Schedule) -> tuple[SimulationJob, ...]:
        """Return a job in lines; in coarser units for problems so large that lines would take minutes.

        What-if runs in other units are a second job: they take about half as long as the run in lines, beside it.
        """
        ranks = simulated_ranks(self.scenario, schedule)
        max_line_hops = CONFIRM_LINE_HOPS // (EACH_RANK_COST * ranks if ranks > 1 else 1)
        unit = affordable_unit(self.scenario, schedule, self.scenario.gpu.line_bytes, max_line_hops)
        explained = shortlist_unit(self.scenario, schedule)
        in_lines = SimulationJob(self.scenario, schedule, unit, loads=True)
        if unit == explained:
            return (replace(in_lines, bound_ticks=self.bound_ticks, explain_bytes=explained),)
        return in_lines, SimulationJob(self.scenario, schedule, explained, self.bound_ticks, explained)
