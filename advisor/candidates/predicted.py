"""Candidates before any simulation: the feasible choices with predicted times, and what the file declares."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from ...compiler.ir import Cancelled, Choice, EngineChoice, EngineKind, Plan, Scenario, Schedule, ShouldStop, heeding
from ...compiler.planning.build import ScheduleError, build_schedule, build_schedules, declared
from ...compiler.planning.expression import expression_of
from ...compiler.planning.knobs.engine import usual_engine
from ...compiler.planning.knobs.library import library_serial
from ...compiler.templates import BASELINE
from ..estimate.makespan import MAX_STEPS
from .candidate import Candidate, ScheduleOrigin
from .library import library_unfit
from .ranking import predicted_us

BATCH = 8
"""Choices that are ranked together where time is limited."""


def predicted_candidates(
    scenario: Scenario,
    space: Sequence[Choice],
    late: ShouldStop | None = None,
    too_late: ShouldStop | None = None,
) -> list[Candidate]:
    """Return a candidate for each choice of ``space`` and of the file, by predicted time; plans have no prediction.

    What users have today is always among them, even where the space leaves it out: see ``usual_serials``. Once it is
    ``late`` the rest is left out, the choices with most pieces; what is being ranked then is given up. Once it is
    ``too_late`` for those who are always among them, one rank stands for all.
    """
    asked = (*usual_serials(scenario), *(named.body for named in scenario.schedules if isinstance(named.body, Choice)))
    choices = sorted({expression_of(choice): choice for choice in (*space, *asked)}.values(), key=_plan_of)
    candidates: list[Candidate] = []
    for batch in (choices,) if late is None else _batches(choices, asked):
        if late is None:
            candidates += _ranked(scenario, batch)
        elif not candidates:
            candidates += _ranked_soon(scenario, batch, too_late)
        elif late():
            break
        else:
            with suppress(Cancelled), heeding(late):
                candidates += list(_ranked(scenario, batch))
    plans = [declared(scenario, named) for named in scenario.schedules if isinstance(named.body, Plan)]
    candidates.extend(_candidate(scenario, None, plan) for plan in plans)
    return sorted(candidates, key=lambda candidate: (candidate.best_us, candidate.expression))


def _plan_of(choice: Choice) -> str:
    """Return the expression of ``choice`` without its engine; in a row, those of one plan share its graph."""
    return expression_of(replace(choice, engine=EngineChoice(EngineKind.DMA, 1)))


def _batches(choices: Sequence[Choice], asked: Sequence[Choice]) -> Iterator[Sequence[Choice]]:
    """Yield what is ``asked`` for, then the others: those with fewest pieces first, whose plans are short."""
    others = sorted((choice for choice in choices if choice not in asked), key=lambda choice: choice.chunks)
    yield [choice for choice in choices if choice in asked]
    for first in range(0, len(others), BATCH):
        yield others[first : first + BATCH]


def _ranked_soon(scenario: Scenario, choices: Sequence[Choice], too_late: ShouldStop | None) -> list[Candidate]:
    """Rank by all ranks, or if that takes too long by one, which takes a fraction of a second."""
    try:
        with heeding(too_late):
            return list(_ranked(scenario, choices))
    except Cancelled:
        return list(_ranked(scenario, choices, max_steps=0))


def _ranked(scenario: Scenario, choices: Sequence[Choice], max_steps: int = MAX_STEPS) -> Iterator[Candidate]:
    schedules = list(build_schedules(scenario, choices))
    times_us = predicted_us(scenario, choices, schedules, max_steps=max_steps)
    for choice, schedule, time_us in zip(choices, schedules, times_us, strict=True):
        yield Candidate(schedule.expression, choice, schedule, origin_of(scenario, choice), time_us)


def unpredicted_candidates(scenario: Scenario) -> list[Candidate]:
    """Return the usual serial schedules, and what the file declares as far as it can be built."""
    usual = usual_serials(scenario)
    candidates = [_candidate(scenario, choice, build_schedule(scenario, choice)) for choice in usual]
    for named in scenario.schedules:
        with suppress(ScheduleError):
            choice = named.body if isinstance(named.body, Choice) else None
            candidates.append(_candidate(scenario, choice, declared(scenario, named)))
    return list({candidate.expression: candidate for candidate in candidates}.values())


def _candidate(scenario: Scenario, choice: Choice | None, schedule: Schedule) -> Candidate:
    return Candidate(schedule.expression, choice, schedule, origin_of(scenario, choice, ScheduleOrigin.DECLARED))


def usual_serials(scenario: Scenario) -> tuple[Choice, ...]:
    """The usual serial schedules: by copy engines, or SMs, and by the library where its time is known."""
    direct = Choice(BASELINE.name, scenario.num_ranks, usual_engine(scenario.system, scenario.workload))
    return (direct, library_serial(scenario)) if library_unfit(scenario) is None else (direct,)


def is_serial(scenario: Scenario, choice: Choice | None) -> bool:
    """Whether nothing overlaps in ``choice``, None for a plan written out.

    Every schedule of a lone kernel is serial. Serial schedules of a lone collective exchange directly, in one piece, or
    are the library's.
    """
    if scenario.workload.moved is None:
        return True
    return choice is not None and choice.template == BASELINE.name


def origin_of(
    scenario: Scenario, choice: Choice | None, else_of: ScheduleOrigin = ScheduleOrigin.TEMPLATE
) -> ScheduleOrigin:
    """Return where a schedule comes from: ``else_of`` unless nothing overlaps in it."""
    if not is_serial(scenario, choice):
        return else_of
    return ScheduleOrigin.LIBRARY if choice is not None and choice.engine.by_library else ScheduleOrigin.SERIAL
