"""``magus run``: schedules carried out with real data, and whether every rank ends with what it should."""

from ...compiler.ir import Scenario, Schedule
from ...compiler.planning.build import declared
from ...compiler.resolve.schedules.from_text import resolve_schedule
from ...runtime import RunRefused, carry_out
from ..exit_codes import Exit
from ..text.door import print_json, put
from ..text.runs import Carried, run_text, runs_document
from .console import show
from .inputs import ScenarioInput
from .running import run_command


def run_file(source: ScenarioInput, *, schedule: str | None, seeds: range, as_json: bool) -> Exit:
    """Carry out ``schedule``, by default every one that the file declares, and print what became of it."""

    def action() -> Exit:
        scenario = source.scenario()
        carried: list[Carried] = []
        for each in _schedules(scenario, schedule):
            carried.append(_carried(scenario, each, seeds))
            if not as_json:
                put(run_text(carried[-1], seeds))
        if as_json:
            print_json(runs_document(scenario, seeds, carried))
        return Exit.DONE if all(each.exact for each in carried) else Exit.INPUT

    return run_command(action)


def _schedules(scenario: Scenario, text: str | None) -> list[Schedule]:
    if text is None and scenario.schedules:
        return [declared(scenario, named) for named in scenario.schedules]
    return [resolve_schedule(scenario, text, show)]


def _carried(scenario: Scenario, schedule: Schedule, seeds: range) -> Carried:
    try:
        return Carried(schedule.expression, carry_out(scenario, schedule, seeds))
    except RunRefused as error:
        return Carried(schedule.expression, None, error.rejection)
