"""The simulations that the expectations of one scenario need, each run once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ...compiler.ir import GraphScenario, Metric, Scenario, Schedule
from ...compiler.planning.build import ScheduleError, declared
from ...compiler.resolve.expect.expectation import Verdict
from ...simcore import Result, RunOutcome, RunTooLarge, WhatIf, affordable_unit, simulate_op
from ..bounds.lower_bound import lower_bound
from ..candidates.advice import Advice
from ..candidates.shortlist import packet_bytes
from ..confirming import CONFIRM_LINE_HOPS
from ..options import AdviceOptions
from ..recommend import Advisor
from ..solver import NoFeasibleSchedule
from .baseline import serial_baseline

BEST, SERIAL, BOUND = "best", "serial", "bound"


class ExpectationError(ValueError):
    """An expectation refers to a figure that does not exist, for instance the DIL of a lone collective."""


class Simulated(Protocol):
    """What expectations ask of the simulations of a workload; see ``Runs``."""

    def verdict(self) -> Verdict:
        """Return whether overlap pays."""

    def bound_ticks(self) -> int:
        """Return the lower bound on any schedule."""

    def result(self, name: str, *, explained: bool = False) -> Result:
        """Return the result of a schedule."""

    def seeded(self, name: str, count: int) -> tuple[Result, ...]:
        """Return results of a schedule under so many seeds."""

    def of_op(self, name: str, op: str, metric: Metric, seed: int | None) -> int:
        """Return a figure in ticks of one op of a graph."""


@dataclass(slots=True)
class Runs:
    """Results of the schedules of ``scenario`` by name: declared ones, ``best`` and ``serial``."""

    scenario: Scenario
    advisor: Callable[[], Advisor]
    workers: int = 1
    packets: bool = False
    """Whether to simulate in packets, else in lines; advice is always confirmed in lines."""
    _advice: Advice | None = None
    _baseline: Schedule | None = None
    _bound_ticks: int | None = None
    _results: dict[tuple[str, bool], Result] = field(default_factory=dict)
    _seeded: dict[tuple[str, int], tuple[Result, ...]] = field(default_factory=dict)

    def advice(self) -> Advice:
        """Return the advice for the scenario, computed once.

        Raises
        ------
        ExpectationError
            If no schedule is feasible, or advice does not support the system.
        """
        if self._advice is None:
            try:
                self._advice = self.advisor().recommend(
                    GraphScenario.of_one(self.scenario), AdviceOptions(workers=self.workers)
                )
            except (NoFeasibleSchedule, ScheduleError) as error:
                raise ExpectationError(str(error)) from error
        return self._advice

    def verdict(self) -> Verdict:
        """Return that of the advice.

        Raises
        ------
        ExpectationError
            As ``advice``.
        """
        return self.advice().verdict

    def bound_ticks(self) -> int:
        """Return the lower bound on any schedule."""
        if self._bound_ticks is None:
            self._bound_ticks = lower_bound(self.scenario).ticks
        return self._bound_ticks

    def result(self, name: str, *, explained: bool = False) -> Result:
        """Return the result of a schedule in lines; ``explained`` adds the runs behind ``cil``.

        Raises
        ------
        ExpectationError
            If the schedule does not fit the scenario, is too large to simulate or does not finish.
        """
        if name == BEST or (name == SERIAL and self._advice is not None):
            advice = self.advice()
            result = advice.result if name == BEST else advice.serial_result
            assert result is not None, "advice is verified unless asked otherwise"
            return result
        if (name, explained) not in self._results:
            self._results[name, explained] = self._simulate(name, explained)
        return self._results[name, explained]

    def seeded(self, name: str, count: int) -> tuple[Result, ...]:
        """Return results of a declared schedule or ``serial`` under the seeds 0 to ``count`` - 1 of the variability.

        Raises
        ------
        ExpectationError
            As ``result``.
        """
        if (name, count) not in self._seeded:
            schedule = self._schedule(name)
            # Imported here: expectations without seeds do without it.
            from ...simcore import plan_of, simulate_seeds

            unit = self._unit(name, schedule)
            try:
                results = simulate_seeds(
                    self.scenario.system,
                    plan_of(self.scenario, schedule),
                    range(count),
                    name=self.scenario.name,
                    unit_bytes=unit,
                )
            except (RunTooLarge, ScheduleError) as error:
                raise ExpectationError(str(error)) from error
            self._seeded[name, count] = tuple(_done(name, result) for result in results)
        return self._seeded[name, count]

    def of_op(self, name: str, op: str, metric: Metric, seed: int | None) -> int:
        """Raise ExpectationError: a pair has no ops."""
        raise ExpectationError(f"{self.scenario.name} is no graph, and has no op {op}")

    def _simulate(self, name: str, explained: bool) -> Result:
        schedule = self._schedule(name)
        what_if = WhatIf(packet_bytes(self.scenario.gpu)) if explained else None
        unit = self._unit(name, schedule)
        try:
            result = simulate_op(self.scenario, schedule, unit_bytes=unit, what_if=what_if)
        except (RunTooLarge, ScheduleError) as error:
            raise ExpectationError(str(error)) from error
        return _done(name, result)

    def _schedule(self, name: str) -> Schedule:
        if name == BOUND:
            raise ExpectationError("the lower bound has a makespan and nothing else")
        if name == SERIAL:
            if self._baseline is None:
                self._baseline = serial_baseline(self.scenario)
            return self._baseline
        named = next((named for named in self.scenario.schedules if named.name == name), None)
        if named is None:
            raise ExpectationError(f"{name} does not fit these sizes and was left out")
        try:
            return declared(self.scenario, named)
        except ScheduleError as error:
            raise ExpectationError(f"{name}: {error}") from error

    def _unit(self, name: str, schedule: Schedule) -> int:
        """Return the granularity: lines or packets; coarser for the baseline of a large problem, as in advice."""
        line = packet_bytes(self.scenario.gpu) if self.packets else self.scenario.gpu.line_bytes
        return affordable_unit(self.scenario, schedule, line, CONFIRM_LINE_HOPS) if name == SERIAL else line


def _done(name: str, result: Result) -> Result:
    if result.outcome is not RunOutcome.DONE:
        raise ExpectationError(f"{name} does not finish: {result.outcome.value}")
    return result
