"""The baseline of a scenario: the library's schedule, or the fastest of the serial ones."""

from collections.abc import Iterable
from dataclasses import replace

from ...compiler.ir import Choice, Scenario, Schedule
from ...compiler.planning.build import build_schedule, declared
from ...compiler.planning.knobs.library import library_serial
from ...compiler.templates import BASELINE
from ...simcore import simulate_op
from ..candidates.candidate import Candidate, ScheduleOrigin, baseline_of, by_time
from ..candidates.library import library_unfit
from ..candidates.predicted import is_serial, usual_serials
from ..candidates.shortlist import shortlist_unit
from ..candidates.variations import variants
from ..solver import NoFeasibleSchedule, enumerate_space


def serial_baseline(scenario: Scenario) -> Schedule:
    """Return the baseline of advice: the library's schedule where its time is known, else the fastest serial one.

    They are simulated at the granularity of the shortlist, and the fastest with other execution options too. Every
    schedule of a lone kernel is serial.
    """
    if library_unfit(scenario) is None:
        return build_schedule(scenario, library_serial(scenario))
    candidates = _serial_candidates(scenario)
    if len(candidates) == 1 and scenario.workload.moved is None:
        return candidates[0].schedule
    candidates = _simulated(scenario, candidates)
    if scenario.workload.moved is not None and not scenario.is_algorithm_choice:
        varied = (_candidate(choice, build_schedule(scenario, choice)) for choice in variants(scenario, candidates))
        candidates = by_time([*candidates, *_simulated(scenario, varied)])
    return baseline_of(candidates).schedule


def _serial_candidates(scenario: Scenario) -> list[Candidate]:
    """Return the serial schedules with usual options, and those that the file declares."""
    only_serial = replace(scenario, explore=scenario.explore.asking("schedules", (BASELINE.name,)))
    try:
        choices = enumerate_space(only_serial).structures
    except NoFeasibleSchedule:
        choices = ()
    candidates = [_candidate(each, build_schedule(scenario, each)) for each in (*choices, *usual_serials(scenario))]
    for named in scenario.schedules:
        choice = named.body if isinstance(named.body, Choice) else None
        if is_serial(scenario, choice):
            candidates.append(_candidate(choice, declared(scenario, named)))
    return list({candidate.expression: candidate for candidate in candidates}.values())


def _candidate(choice: Choice | None, schedule: Schedule) -> Candidate:
    by_library = choice is not None and choice.engine.by_library
    return Candidate(
        schedule.expression, choice, schedule, ScheduleOrigin.LIBRARY if by_library else ScheduleOrigin.SERIAL
    )


def _simulated(scenario: Scenario, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates with their times at the granularity of the shortlist, the fastest first."""
    simulated = []
    for candidate in candidates:
        result = simulate_op(scenario, candidate.schedule, unit_bytes=shortlist_unit(scenario, candidate.schedule))
        simulated.append(replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes))
    return by_time(simulated)
