"""The baseline of a scenario, without the ranker: the library's schedule, or the fastest of the serial ones."""

from dataclasses import replace

from ...compiler.ir import Choice, Scenario, Schedule
from ...compiler.planning.build import build_schedule, declared
from ...compiler.planning.knobs.library import library_rejection, library_serial
from ...compiler.templates import BASELINE
from ...simcore import simulate
from ..candidates.predicted import is_serial, usual_serials
from ..candidates.shortlist import shortlist_unit
from ..solver import NoFeasibleSchedule, enumerate_space


def serial_baseline(scenario: Scenario) -> Schedule:
    """Return the baseline of advice: the library's schedule where its time is known, else the fastest serial one.

    They are simulated at the granularity of the shortlist. Every schedule of a lone kernel is serial.
    """
    if library_rejection(scenario) is None:
        return build_schedule(scenario, library_serial(scenario))
    schedules = _serial_schedules(scenario)
    if len(schedules) == 1:
        return schedules[0]
    times = {schedule.expression: _shortlist_ticks(scenario, schedule) for schedule in schedules}
    return min(schedules, key=lambda schedule: (times[schedule.expression], schedule.expression))


def _serial_schedules(scenario: Scenario) -> tuple[Schedule, ...]:
    only_serial = replace(scenario, explore=scenario.explore.asking("schedules", (BASELINE.name,)))
    try:
        choices = enumerate_space(only_serial).choices
    except NoFeasibleSchedule:
        choices = ()
    schedules = [build_schedule(scenario, choice) for choice in (*choices, *usual_serials(scenario))]
    for named in scenario.schedules:
        if is_serial(scenario, named.body if isinstance(named.body, Choice) else None):
            schedules.append(declared(scenario, named))
    return tuple({schedule.expression: schedule for schedule in schedules}.values())


def _shortlist_ticks(scenario: Scenario, schedule: Schedule) -> int:
    """Return the makespan at the granularity of the shortlist."""
    return simulate(scenario, schedule, unit_bytes=shortlist_unit(scenario, schedule)).makespan_ticks
