"""Text from outside on the screen: shown as it is, neither obeyed by the terminal nor read as markup."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from magus.advisor.candidates.advice import Advice
from magus.advisor.solver import NoFeasibleSchedule
from magus.compiler.codes import Code
from magus.compiler.ir import OpCase, OpPlan, Progress, Rejection, Scenario, Settings, ShouldStop
from magus.compiler.pipeline import Compiled
from magus.compiler.planning.build import ScheduleError
from magus.compiler.text.diagnostics import CompileError, Diagnostic, Severity, Source, Span
from magus.simcore.figures.result import Result
from magus.tui.app.app import MagusApp
from tests.helpers.hostile_text import ESCAPES, EVERYTHING, is_safe
from tests.helpers.marks import first
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, press, screen_text, settled

SHOWN = r"\x1b[31mred"
MARKUP = ESCAPES["markup"]


class HostileStages(fakes.FakeStages):
    """Stages whose every text is hostile."""

    def compile(self, path: Path, settings: Settings) -> Compiled:
        """A scenario with a hostile name for everything, and a warning."""
        evil = [self._hostile(each) for each in self.scenarios]
        span = Span(Source(EVERYTHING, EVERYTHING), 0, 1)
        warning = Diagnostic(Code.MGS120, EVERYTHING, span, EVERYTHING, Severity.WARNING)
        return Compiled(str(path), tuple(map(Scenario.of_one, evil)), (), (warning,), ())

    def _hostile(self, scenario: OpCase) -> OpCase:
        gpu = replace(scenario.system.gpu, name=MARKUP)
        workload = replace(scenario.shape, name=EVERYTHING + scenario.shape.name, about=EVERYTHING)
        return replace(scenario, name=EVERYTHING, system=replace(scenario.system, gpu=gpu), shape=workload)

    def recommend(
        self, scenario: Scenario, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
    ) -> Advice:
        """Hostile names of schedules, reasons and marks."""
        advice = super().recommend(scenario, progress, should_stop, answered)
        evil = replace(advice.recommended, expression=EVERYTHING, plan=fakes.schedule(EVERYTHING))
        assert advice.result is not None
        assert advice.bound is not None
        return replace(
            advice,
            recommended=evil,
            candidates=(evil, *advice.candidates[1:]),
            result=self._named(advice.result),
            ties=(EVERYTHING,),
            reasons=(EVERYTHING, MARKUP),
            marks=(EVERYTHING, MARKUP),
            confidence_reason=EVERYTHING,
            bound=replace(advice.bound, binding=MARKUP + EVERYTHING),
        )

    def _named(self, result: Result) -> Result:
        timeline = result.timeline
        assert timeline is not None
        evil = tuple(replace(each, lane=f"dma {MARKUP[:9]}\x1b", name="\x1b]") for each in timeline.intervals)
        return replace(result, schedule=fakes.schedule(EVERYTHING), timeline=replace(timeline, intervals=evil))

    def simulate(self, scenario: OpCase, plan: OpPlan, bound: int | None, should_stop: ShouldStop) -> Result:
        """A failure with a hostile text."""
        raise ScheduleError(Rejection(Code.MGS503, EVERYTHING, EVERYTHING))


def app_of(stages: fakes.FakeStages) -> MagusApp:
    return MagusApp(Path(EVERYTHING), ((EVERYTHING, EVERYTHING),), backend=stages.backend())


async def test_an_answer_made_of_hostile_text() -> None:
    app = app_of(HostileStages(fakes.two_workloads()))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        text = screen_text(app)

        assert is_safe(text), text
        assert text.count(SHOWN) > 6 and "[red]x[/red] [@click=app.quit]y[/]" in text
        for keys in (("plus", "plus", "r"), ("3",), ("1", "j"), ("s", "s"), ("w",)):
            await press(pilot, *keys)
            assert is_safe(screen_text(app))


def wrong_file() -> Exception:
    source = Source(EVERYTHING, f"{EVERYTHING} nosuch\n")
    span = Span(source, len(EVERYTHING) + 1, len(EVERYTHING) + 7)
    return CompileError([Diagnostic(Code.MGS120, EVERYTHING, span, EVERYTHING)])


@pytest.mark.parametrize(
    "failure",
    first(
        [
            wrong_file,
            lambda: OSError(2, EVERYTHING, EVERYTHING),
            lambda: ScheduleError(Rejection(Code.MGS503, EVERYTHING, EVERYTHING)),
            lambda: NoFeasibleSchedule((EVERYTHING, MARKUP)),
            lambda: RuntimeError(EVERYTHING),
        ],
        1,
    ),
)
async def test_a_problem_made_of_hostile_text(failure: Callable[[], Exception]) -> None:
    app = app_of(fakes.FakeStages(fakes.two_workloads(), failure=failure))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        text = screen_text(app)

        assert is_safe(text) and SHOWN in text, text
        if failure is wrong_file:
            code, carets = next((one, two) for one, two in pairwise(text.splitlines()) if "^" in two)
            assert code[carets.index("^") : carets.rindex("^") + 1] == "nosuch"


@pytest.mark.slow
async def test_a_hostile_file_that_is_not_there() -> None:
    app = MagusApp(Path(EVERYTHING))
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)

        assert is_safe(screen_text(app)) and SHOWN in screen_text(app)
