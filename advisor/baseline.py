"""The serial baseline of a scenario, without the ranker: the fastest of its serial schedules."""

from dataclasses import replace

from ..compiler.plan import build_schedule, declared, default_engine
from ..compiler.scenario import Scenario
from ..compiler.schedule import Choice, Schedule
from ..simcore import affordable_unit, simulate
from .recommend import FINE_LINE_HOPS, SERIAL, SHORTLIST_LINE_HOPS, packet_bytes
from .solver import NoFeasibleSchedule, enumerate_space


def serial_baseline(scenario: Scenario) -> Schedule:
    """The serial schedule that advice calls the baseline: the fastest of them, simulated as a shortlist is.

    Where nothing can overlap every schedule of the space is serial.
    """
    schedules = _serial_schedules(scenario)
    if len(schedules) == 1:
        return schedules[0]
    times = {schedule.expression: _shortlist_ticks(scenario, schedule) for schedule in schedules}
    return min(schedules, key=lambda schedule: (times[schedule.expression], schedule.expression))


def _serial_schedules(scenario: Scenario) -> tuple[Schedule, ...]:
    overlaps = scenario.workload.pattern.overlaps
    only_serial = replace(scenario, explore=replace(scenario.explore, templates=(SERIAL,)))
    try:
        choices = enumerate_space(only_serial if overlaps else scenario).choices
    except NoFeasibleSchedule:
        choices = ()
    usual = Choice(SERIAL, scenario.num_ranks, default_engine(scenario))
    found = [build_schedule(scenario, choice) for choice in (*choices, usual)]
    for named in scenario.schedules:
        if not overlaps or (isinstance(named.body, Choice) and named.body.template == SERIAL):
            found.append(declared(scenario, named))
    return tuple({schedule.expression: schedule for schedule in found}.values())


def _shortlist_ticks(scenario: Scenario, schedule: Schedule) -> int:
    """Makespan at the granularity of a shortlist: lines where they cost nothing, else packets."""
    unit = scenario.gpu.line_bytes
    if affordable_unit(scenario, schedule, unit, FINE_LINE_HOPS) != unit:
        unit = affordable_unit(scenario, schedule, packet_bytes(scenario), SHORTLIST_LINE_HOPS)
    return simulate(scenario, schedule, unit_bytes=unit).makespan_ticks
