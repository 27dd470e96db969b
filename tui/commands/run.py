"""``magus run``: schedules carried out with real data, and whether every rank ends with what it should."""

from ...compiler.codes import Code
from ...compiler.ir import Scenario, Schedule
from ...compiler.planning.build import declared
from ...compiler.resolve.schedules.from_text import resolve_schedule
from ...runtime import RunRefused, carry_out
from ...runtime.over_torch.launch import RankFailed, carry_out_over_torch
from ..exit_codes import Exit
from ..text.door import print_json, put, say
from ..text.runs import Carried, run_text, runs_document
from .console import show
from .inputs import ScenarioInput
from .running import run_command


def run_file(source: ScenarioInput, *, schedule: str | None, seeds: range, over_torch: bool, as_json: bool) -> Exit:
    """Carry out ``schedule``, by default every one that the file declares, and print what became of it."""

    def action() -> Exit:
        scenario = source.scenario()
        carried: list[Carried] = []
        for each in _schedules(scenario, schedule):
            carried.append(_carried(scenario, each, seeds, over_torch))
            if not as_json:
                put(run_text(carried[-1], seeds))
        if as_json:
            print_json(runs_document(scenario, seeds, carried))
        return Exit.DONE if all(each.exact for each in carried) else Exit.INPUT

    try:
        return run_command(action)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        say(f"{Code.MGS432.name} error: torch is not installed\n  help: pip install 'magus-gpu[torch]'")
        return Exit.USAGE
    except RankFailed as error:
        say(f"magus: {error}")
        return Exit.INPUT


def _schedules(scenario: Scenario, text: str | None) -> list[Schedule]:
    if text is None and scenario.schedules:
        return [declared(scenario, named) for named in scenario.schedules]
    return [resolve_schedule(scenario, text, show)]


def _carried(scenario: Scenario, schedule: Schedule, seeds: range, over_torch: bool) -> Carried:
    try:
        if over_torch:
            (report,) = carry_out_over_torch([(scenario, schedule)], seeds)
        else:
            report = carry_out(scenario, schedule, seeds)
        return Carried(schedule.expression, report)
    except RunRefused as error:
        return Carried(schedule.expression, None, error.rejection)
