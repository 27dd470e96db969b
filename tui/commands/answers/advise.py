"""``magus advise``: the answer with its proof."""

from contextlib import suppress
from dataclasses import dataclass, replace

from ....advisor import AdviceOptions, Advisor
from ....advisor.answer.export import advice_document
from ....compiler.ir import Cancelled, GraphScenario
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.next_steps import next_steps
from ...text.progress import progress_line
from ...text.render import advice_text
from ..inputs import ScenarioInput
from ..interrupts import interruptible
from ..out.pictures import NO_PICTURES, Pictures
from ..over import axis_over
from ..running import exit_code_if_strict, run_command


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """Options of ``magus advise``: those of the advice, the exit code, and the form of the output.

    ``over`` is the parameter that the threshold of several ops is a value of, None: the only one with whole numbers.
    """

    advice: AdviceOptions
    how: bool = False
    over: str | None = None
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
        subjects = source.scenarios()
        if len(subjects) == 1:
            return _advise_one(source, subjects[0], options)
        from .advise_all import advise_all  # who asks about one does not wait for it

        return advise_all(source, subjects, options)

    return run_command(action)


def _advise_one(source: ScenarioInput, scenario: GraphScenario, options: AdviseOptions) -> Exit:
    axis = None
    if options.advice.threshold and scenario.pair is None:
        axis = axis_over(source, options.over)
        if axis is None:
            return Exit.USAGE
    advisor = Advisor.load()
    with progress_line() as progress, interruptible() as stopped:
        advice = advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped)
        if axis is not None and not advice.interrupted:
            from ....advisor.sensitivity.threshold_several import threshold_of_several

            with suppress(Cancelled):
                advice = replace(advice, threshold=threshold_of_several(advice, axis, progress, stopped))
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
