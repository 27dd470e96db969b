"""The serial baseline of a scenario, without the ranker: the fastest of its serial schedules."""

from dataclasses import replace

from ...compiler.ir import Choice, Scenario, Schedule
from ...compiler.planning.build import build_schedule, declared
from ...compiler.templates import BASELINE
from ...simcore import simulate
from ..candidates.predicted import is_baseline, usual_serial
from ..candidates.shortlist import shortlist_unit
from ..solver import NoFeasibleSchedule, enumerate_space


def serial_baseline(scenario: Scenario) -> Schedule:
    """Return the baseline of advice: the fastest serial schedule, simulated at the granularity of the shortlist.

    Every schedule of a lone kernel is serial.
    """
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
    schedules = [build_schedule(scenario, choice) for choice in (*choices, usual_serial(scenario))]
    for named in scenario.schedules:
        if is_baseline(scenario, named.body if isinstance(named.body, Choice) else None):
            schedules.append(declared(scenario, named))
    return tuple({schedule.expression: schedule for schedule in schedules}.values())


def _shortlist_ticks(scenario: Scenario, schedule: Schedule) -> int:
    """Return the makespan at the granularity of the shortlist."""
    return simulate(scenario, schedule, unit_bytes=shortlist_unit(scenario, schedule)).makespan_ticks
