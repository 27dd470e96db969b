"""Answers of a small scenario that is really simulated: schedules with steps, flows and loads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from magus.advisor.bounds.lower_bound import Bound
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin
from magus.compiler.ir import OpCase, OpPlan, Progress, Scenario, Settings, ShouldStop
from magus.compiler.pipeline import Compiled
from magus.compiler.planning.build import build_op_plan
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.simcore import simulate_op
from magus.simcore.figures.result import Result
from magus.tui.app.session.backend import Backend
from tests.helpers.scenarios import scenarios
from tests.helpers.tui import fakes

PIECES = "uniform_fused_1d(chunks=32, engine=dma(7))"
WHOLE = "shard_p2p(engine=dma(7))"
SERIAL = "serial(engine=dma(7))"
EXPRESSIONS = (PIECES, WHOLE, SERIAL)
UNIT = 1024


def gather() -> OpCase:
    """A small AG+GEMM on a full mesh of eight."""
    return scenarios.ag_gemm(2048, 2048, 1024)


@cache
def _simulated(scenario: OpCase, expression: str) -> Result:
    return simulate_op(scenario, build_op_plan(scenario, read_choice(scenario, expression)), unit_bytes=UNIT)


def result_of(scenario: OpCase, expression: str) -> Result:
    """The result of a schedule, simulated once."""
    return _simulated(scenario, expression)


@dataclass
class RealStages:
    """Stages that give a few real schedules, of which the first ``num_known`` are simulated."""

    scenario: OpCase
    expressions: Sequence[str] = EXPRESSIONS
    num_known: int = 1

    def backend(self) -> Backend:
        """The stages as the session takes them."""
        return Backend(self.compile, self.recommend, self.simulate)

    def compile(self, path: Path, settings: Settings) -> Compiled:
        """The scenario, whatever the file says."""
        return Compiled(str(path), (Scenario.of_one(self.scenario),), (), (), ())

    def recommend(
        self, scenario: Scenario, progress: Progress, should_stop: ShouldStop, found: Callable[[Advice], None]
    ) -> Advice:
        """Advice about the real schedules; its words are made by hand."""
        made = fakes.advice(scenario.case)
        candidates = tuple(self._candidate(place, each) for place, each in enumerate(self.expressions))
        best, serial = candidates[0], candidates[-1]
        return replace(
            made,
            recommended=best,
            serial=serial,
            candidates=candidates,
            ties=(),
            bound=Bound(fakes.ticks(20), "links", ()),
            result=result_of(scenario.case, best.expression),
            serial_result=None,
        )

    def _candidate(self, place: int, expression: str) -> Candidate:
        choice = read_choice(self.scenario, expression)
        schedule = build_op_plan(self.scenario, choice)
        known = result_of(self.scenario, expression).makespan_ticks if place < self.num_known else None
        origin = ScheduleOrigin.SERIAL if expression.startswith("serial") else ScheduleOrigin.TEMPLATE
        return Candidate(expression, choice, schedule, origin, 50.0 + place, known, None if known is None else UNIT)

    def simulate(self, scenario: OpCase, plan: OpPlan, bound: int | None, should_stop: ShouldStop) -> Result:
        """The real result."""
        return result_of(scenario, plan.expression)
