"""The serial baseline of a scenario, without the ranker: the fastest of its serial schedules."""

from dataclasses import replace

from ...compiler.ir import Choice, Scenario, Schedule
from ...compiler.planning.build import build_schedule, declared, default_engine
from ...compiler.templates import BASELINE
from ...simcore import simulate
from ..candidates.shortlist import shortlist_unit
from ..recommend import is_baseline
from ..solver import NoFeasibleSchedule, enumerate_space


def serial_baseline(scenario: Scenario) -> Schedule:
    """The serial schedule that advice calls the baseline: the fastest of them, simulated as a shortlist is.

    Of a lone kernel every schedule is serial.
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
    usual = Choice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system))
    found = [build_schedule(scenario, choice) for choice in (*choices, usual)]
    for named in scenario.schedules:
        if is_baseline(scenario, named.body if isinstance(named.body, Choice) else None):
            found.append(declared(scenario, named))
    return tuple({schedule.expression: schedule for schedule in found}.values())


def _shortlist_ticks(scenario: Scenario, schedule: Schedule) -> int:
    """Makespan at the granularity of a shortlist."""
    return simulate(scenario, schedule, unit_bytes=shortlist_unit(scenario, schedule)).makespan_ticks
