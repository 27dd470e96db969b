"""The stages that the workbench calls: compile, recommend, simulate. No Textual.

The advisor is imported when it is first asked: a file with an error is shown without it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ....advisor.candidates.advice import Advice
from ....advisor.candidates.candidate import Candidate
from ....compiler.changed import Changes, compile_changed_file
from ....compiler.ir import (
    Cancelled,
    OpCase,
    OpPlan,
    Progress,
    Scenario,
    Settings,
    ShouldStop,
)
from ....compiler.pipeline import Compiled, compile_file
from ....compiler.text.diagnostics import Source
from ....simcore.figures.result import Result

if TYPE_CHECKING:
    from ....advisor.questions.advisor import Advisor
    from ....advisor.steps.answer import StepAdvice
    from ....advisor.steps.layer_times import LayerTimes

AdviseStep = Callable[
    [Source, Changes, str, Progress, ShouldStop, Callable[["StepAdvice"], None]],
    "StepAdvice",
]
SweepAdvice = Callable[[Scenario, bool, ShouldStop], Advice]
SWEEP_TOP, SWEEP_WORKERS = 4, 2


def short_advice(scenario: Scenario, simulated: bool, should_stop: ShouldStop) -> Advice:
    """Return short advice: templates alone, of which few are simulated; of several ops all declared schedules are."""
    if scenario.only_case is None:
        from ....advisor.answer.stages import Watcher
        from ....advisor.layers.declared import simulated_schedules

        answer = simulated_schedules(scenario, SWEEP_WORKERS, Watcher(should_stop=should_stop))
        if answer.interrupted:
            raise Cancelled
        return answer
    from ....advisor.answer.stages import AdviceOptions
    from ....advisor.questions.advisor import Advisor

    options = AdviceOptions(top=SWEEP_TOP, verify=simulated, bespoke=0, workers=SWEEP_WORKERS)
    advice = Advisor().recommend(scenario, options, should_stop=should_stop)
    if advice.interrupted:
        raise Cancelled
    return advice


def _simulated_schedule(scenario: Scenario, candidate: Candidate, should_stop: ShouldStop) -> Candidate:
    """Return one schedule of several ops, simulated."""
    from ....advisor.layers.declared import simulated_candidate

    return simulated_candidate(scenario, candidate, should_stop)


def step_stage() -> AdviseStep:
    """Return what answers about steps, and keeps times of layers: after a change only those that are new are simulated.

    Its function takes a text with the numbers of ``changes`` in it.
    """
    times: list[LayerTimes] = []

    def advise(
        source: Source,
        changes: Changes,
        name: str,
        progress: Progress,
        should_stop: ShouldStop,
        answered: Callable[["StepAdvice"], None],
    ) -> "StepAdvice":
        from ....advisor.steps.answer import advise_step
        from ....advisor.steps.layer_times import LayerTimes

        if not times:
            times.append(LayerTimes())
        return advise_step(
            source.text,
            source.path,
            changes.params,
            name,
            progress=progress,
            should_stop=should_stop,
            times=times[0],
            as_written=not changes,
            answered=answered,
        )

    return advise


@dataclass(frozen=True, slots=True)
class Backend:
    """The stages that the application calls.

    ``recommend`` tells what it would answer now to the function it takes last. ``simulate`` takes the bound in ticks
    for the loss waterfall, None to leave the waterfall out. ``change`` compiles a file with numbers of the hardware
    changed. ``sweep`` is the short advice for one point of a sweep, which it simulates if asked to. ``simulate_graph``
    simulates a schedule of several ops. ``advise_step`` answers about the step of a name in a text with params set, and
    tells what it would answer now to the function it takes last.
    """

    compile: Callable[[Path, Settings], Compiled]
    recommend: Callable[[Scenario, Progress, ShouldStop, Callable[[Advice], None]], Advice]
    simulate: Callable[[OpCase, OpPlan, int | None, ShouldStop], Result]
    change: Callable[[Path, Changes], Compiled] = compile_changed_file
    sweep: SweepAdvice = short_advice
    simulate_graph: Callable[[Scenario, Candidate, ShouldStop], Candidate] = _simulated_schedule
    advise_step: AdviseStep = field(default_factory=lambda: step_stage())


@cache
def _advisor() -> "Advisor":
    """Return the advisor with the shipped model, which takes longer to load than to answer."""
    from ....advisor.questions.advisor import Advisor

    return Advisor.load()


def default_backend(workers: int) -> Backend:
    """Return the real stages; simulations of the advice run in ``workers`` processes, those on demand in this one."""

    def recommend(
        scenario: Scenario, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
    ) -> Advice:
        from ....advisor.answer.stages import AdviceOptions

        options = AdviceOptions(workers=workers, threshold=scenario.only_case is not None)
        return _advisor().recommend(scenario, options, progress=progress, should_stop=should_stop, answered=answered)

    def simulate_packets(
        scenario: OpCase, schedule: OpPlan, bound_ticks: int | None, should_stop: ShouldStop
    ) -> Result:
        from ....advisor.candidates.shortlist import packet_bytes
        from ....simcore import RunOptions, WhatIf, simulate_op

        unit = packet_bytes(scenario.gpu)
        what_if = None if bound_ticks is None else WhatIf(unit, bound_ticks)
        return simulate_op(
            scenario,
            schedule,
            unit_bytes=unit,
            what_if=what_if,
            options=RunOptions(should_stop=should_stop),
        )

    return Backend(compile_file, recommend, simulate_packets)
