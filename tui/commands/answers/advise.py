"""``magus advise``: the answer with its proof."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....advisor import Advice, AdviceOptions, Advisor, NoFeasibleSchedule
from ....advisor.answer.export import advice_document
from ....advisor.layers.advice import GraphAdvice
from ....advisor.layers.recommend import recommend_graph
from ....compiler.ir import Cancelled, GraphScenario, Progress, Scenario, ShouldStop
from ....compiler.planning.build import ScheduleError
from ...exit_codes import Exit
from ...text.door import print_json, put, say
from ...text.next_steps import next_steps
from ...text.progress import progress_line
from ...text.render import advice_text
from ...text.several import WorkloadAnswer, name_of_workload, several_document, several_text
from ..graphs.advise import advise_graph
from ..inputs import ScenarioInput
from ..interrupts import interruptible
from ..out.pictures import NO_PICTURES, Pictures
from ..running import exit_code_if_strict, run_command


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """Options of ``magus advise``: those of the advice, the exit code, and the form of the output."""

    advice: AdviceOptions
    how: bool = False
    pictures: Pictures = NO_PICTURES
    strict: bool = False
    as_json: bool = False

    @property
    def about_one(self) -> str:
        """An option that is about one workload, empty without one."""
        wanted = {"--how": self.how, "--threshold": self.advice.threshold, "--sensitivity": self.advice.sensitivity}
        return next((name for name, given in wanted.items() if given), next(iter(self.pictures.wanted), ""))


def advise_file(source: ScenarioInput, options: AdviseOptions) -> Exit:
    """Print the advice for a scenario; where a file has several workloads, a table of all."""

    def action() -> Exit:
        options.pictures.check()
        subjects = source.subjects()
        if len(subjects) == 1:
            return _advise_one(source, subjects[0], options)
        if options.about_one:
            names = ", ".join(map(name_of_workload, subjects))
            say(f"magus: {options.about_one} is about one workload; --workload says which: {names}")
            return Exit.USAGE
        return _advise_all(source, subjects, options)

    return run_command(action)


def _advise_one(source: ScenarioInput, scenario: Scenario | GraphScenario, options: AdviseOptions) -> Exit:
    if isinstance(scenario, GraphScenario):
        of_pairs, as_json, strict = options.about_one, options.as_json, options.strict
        return advise_graph(scenario, options.advice, source.words, as_json=as_json, strict=strict, of_pairs=of_pairs)
    advisor = Advisor.load()
    with progress_line() as progress, interruptible() as stopped:
        advice = advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped)
    drawn = options.pictures.save_advice(advice)
    todo = next_steps(advice, source.words, how=options.how)
    if options.as_json:
        steps = [{"what": step.what, "command": step.command} for step in todo]
        print_json({**advice_document(advice, how=options.how), "next": steps})
    else:
        put(advice_text(advice, options.advice.top, how=options.how, todo=todo))
    if advice.interrupted and (options.advice.within_s is None or stopped()):
        return Exit.INTERRUPTED
    return max(drawn, exit_code_if_strict(scenario, options.strict, advice.outside_calibration))


def _advise_all(source: ScenarioInput, scenarios: Sequence[Scenario | GraphScenario], options: AdviseOptions) -> Exit:
    """Advise on one workload after the other: each has the whole time, and what fails leaves the others."""
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
    if answer.advice is None or isinstance(answer.scenario, GraphScenario):
        outside = strict and answer.advice is not None and answer.advice.outside_calibration
        return Exit.NOT_FEASIBLE if outside else Exit.DONE
    return exit_code_if_strict(answer.scenario, strict, answer.advice.outside_calibration)


def _answer(
    advisor: Advisor,
    scenario: Scenario | GraphScenario,
    options: AdviseOptions,
    progress: Progress,
    stopped: ShouldStop,
) -> WorkloadAnswer | None:
    """Return the advice for one workload, or why there is none; None if it was stopped before anything was found."""
    if scenario.system.replay is not None:
        return WorkloadAnswer(scenario, None, "its system replays the profile of one schedule")
    try:
        return WorkloadAnswer(scenario, _advice(advisor, scenario, options.advice, progress, stopped))
    except NoFeasibleSchedule as error:
        return WorkloadAnswer(scenario, None, f"no schedule is feasible: {'; '.join(error.reasons)}", Exit.NOT_FEASIBLE)
    except ScheduleError as error:
        return WorkloadAnswer(scenario, None, error.rejection.message, Exit.INPUT)
    except Cancelled:
        return None


def _advice(
    advisor: Advisor, scenario: Scenario | GraphScenario, options: AdviceOptions, progress: Progress, stop: ShouldStop
) -> Advice | GraphAdvice:
    if isinstance(scenario, GraphScenario):
        return recommend_graph(scenario, options, progress=progress, should_stop=stop)
    return advisor.recommend(scenario, options, progress=progress, should_stop=stop)
