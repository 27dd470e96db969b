"""``magus advise``: the answer with its proof."""

from dataclasses import dataclass

from ...advisor import AdviceOptions, Advisor
from ...advisor.export import advice_document
from ..exit_codes import Exit
from ..text.door import print_json, put
from ..text.progress import progress_line
from ..text.render import advice_text
from .inputs import ScenarioInput
from .interrupts import interruptible
from .running import exit_code_if_strict, run_command


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """Options of ``magus advise``: those of the advice, the exit code, and the form of the output."""

    advice: AdviceOptions
    strict: bool = False
    as_json: bool = False


def advise_file(source: ScenarioInput, options: AdviseOptions) -> Exit:
    """Print the advice for a scenario."""

    def action() -> Exit:
        scenario = source.scenario()
        advisor = Advisor.load()
        with progress_line() as progress, interruptible() as stopped:
            advice = advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped)
        if options.as_json:
            print_json(advice_document(advice))
        else:
            put(advice_text(advice, options.advice.top))
        if advice.interrupted and (options.advice.within_s is None or stopped()):
            return Exit.INTERRUPTED
        return exit_code_if_strict(scenario, options.strict, advice.outside_calibration)

    return run_command(action)
