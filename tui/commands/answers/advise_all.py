"""``magus advise`` on a file with several workloads: the answer to each, as one table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....advisor import Advisor, NoFeasibleSchedule
from ....compiler.ir import Cancelled, GraphScenario, Progress, ShouldStop
from ....compiler.planning.build import ScheduleError
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.progress import progress_line
from ...text.several import WorkloadAnswer, several_document, several_text
from ..inputs import ScenarioInput
from ..interrupts import interruptible
from ..running import exit_code_if_strict

if TYPE_CHECKING:
    from .advise import AdviseOptions


def advise_all(source: ScenarioInput, scenarios: Sequence[GraphScenario], options: "AdviseOptions") -> Exit:
    """Advise on one workload after the other: each has the whole time, and what fails leaves the others."""
    if options.about_one:
        names = ", ".join(each.title for each in scenarios)
        say(f"magus: {options.about_one} is about one workload; --workload says which: {names}")
        return Exit.USAGE
    advisor = Advisor.load()
    found: list[WorkloadAnswer] = []
    with progress_line() as progress, interruptible() as stopped:
        for scenario in scenarios:
            if stopped():
                break
            answer = _answer(advisor, scenario, options, progress, stopped)
            if answer is not None:
                found.append(answer)
    if not found:
        raise Cancelled
    if options.as_json:
        print_json(several_document(found))
    else:
        put(several_text(found, source.words))
    if stopped():
        say(f"magus: stopped early: {len(found)} of {len(scenarios)} workloads")
        return Exit.INTERRUPTED
    codes = [answer.exit_code for answer in found]
    codes += [_strict_code(answer, options.strict) for answer in found]
    return max(codes)


def _strict_code(answer: WorkloadAnswer, strict: bool) -> Exit:
    if answer.advice is None:
        return Exit.DONE
    return exit_code_if_strict(answer.scenario, strict, answer.advice.outside_calibration)


def _answer(
    advisor: Advisor,
    scenario: GraphScenario,
    options: "AdviseOptions",
    progress: Progress,
    stopped: ShouldStop,
) -> WorkloadAnswer | None:
    """Return the advice for one workload, or why there is none; None if it was stopped before anything was found."""
    if scenario.system.replay is not None:
        return WorkloadAnswer(scenario, None, "its system replays the profile of one schedule")
    try:
        return WorkloadAnswer(
            scenario, advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped)
        )
    except NoFeasibleSchedule as error:
        return WorkloadAnswer(scenario, None, f"no schedule is feasible: {'; '.join(error.reasons)}", Exit.NOT_FEASIBLE)
    except ScheduleError as error:
        return WorkloadAnswer(scenario, None, error.rejection.message, Exit.INPUT)
    except Cancelled:
        return None
