"""From a scenario to advice: enumerate, rank, simulate the shortlist, confirm, explain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from ..compiler.codes import Code
from ..compiler.expectation import Verdict
from ..compiler.expression import expression_of
from ..compiler.plan import ScheduleError, build_schedule, declared, default_engine
from ..compiler.scenario import Scenario
from ..compiler.schedule import Choice, Plan, Schedule
from ..simcore import Result, affordable_unit
from .advice import Advice, Candidate, Timing, is_algorithm_choice
from .bespoke.stage import (
    DEFAULT_EVALUATIONS,
    bespoke_candidates,
    budget_of,
    clearly_best,
    is_searched,
    sentence_of,
)
from .bounds import Bound, lower_bound
from .calibrated import outside_calibration
from .explain import confidence_of, marks_of, reasons_for
from .ranker import Ranker
from .ranking import predicted_us
from .shortlist import SERIAL as SERIAL
from .shortlist import Progress, by_time, shortlist_unit, simulate_shortlist, simulate_variants
from .shortlist import packet_bytes as packet_bytes
from .solver import enumerate_space
from .workers import Cancelled, Job, Workers, open_workers

# Below this gain over serial the answer is serial: overlap must earn its complexity.
MIN_GAIN = 0.02
DEFAULT_TOP = 8
# Some seconds to a minute, on one core each.
CONFIRM_LINE_HOPS = 1_000_000_000

Finalists = tuple[Candidate, Candidate]  # the best that overlaps, the best serial


@dataclass(frozen=True, slots=True)
class Advisor:
    """Gives advice with a trained ranker; ``load`` takes the one that ships with Magus."""

    ranker: Ranker

    @classmethod
    def load(cls, folder: Path | None = None) -> "Advisor":
        """An advisor with the shipped model, or with the one in ``folder``.

        Raises
        ------
        ModelError
            If the model's files are damaged, of another version or hold anything but the expected types.
        """
        return cls(Ranker.load(folder))

    def recommend(
        self,
        scenario: Scenario,
        *,
        top: int = DEFAULT_TOP,
        verify: bool = True,
        bespoke: int = DEFAULT_EVALUATIONS,
        workers: int = 1,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Advice:
        """Which schedule to use for ``scenario``.

        Parameters
        ----------
        top
            How many of the ranker's favourites to simulate, beside the serial baseline and the declared schedules.
        verify
            Whether to simulate at all; without it times are predictions.
        bespoke
            How many plans with chunks of any size to try where templates overlap; 0 for none. Interrupted by the
            keyboard, the search ends with what it found.
        workers
            Processes for the simulations. More than one needs a ``__main__`` that may be imported again.
        progress
            Told the stage, how much of it is done and how much there is.

        Raises
        ------
        NoFeasibleSchedule
            If the constraints leave nothing, with those that do it.
        ScheduleError
            If the system replays a profile.
        Cancelled
            If ``should_stop`` said so.
        """
        if scenario.system.replay is not None:
            message = f"{scenario.system.name} replays the profile of one schedule, and advice compares several"
            raise ScheduleError(Code.MGS523, message, "simulate that schedule, or drop 'replay' from the system")
        report = progress or (lambda stage, done, total: None)
        clock = [perf_counter()]
        report("enumerate", 0, 1)
        space = enumerate_space(scenario, should_stop=should_stop)
        if should_stop is not None and should_stop():
            raise Cancelled
        clock.append(perf_counter())
        report("rank", 0, len(space.choices))
        candidates = _ranked(scenario, self.ranker, space.structures)
        clock.append(perf_counter())
        bound = lower_bound(scenario)
        confirmed: tuple[Result, Result] | None = None
        with open_workers(workers if verify else 1, should_stop) as pool:
            if verify:
                candidates = simulate_shortlist(pool, scenario, candidates, top, report)
                candidates = simulate_variants(pool, scenario, candidates, report)
            if verify and bespoke > 0 and is_searched(scenario):
                candidates = _with_bespoke(pool, scenario, candidates, bespoke, workers, should_stop, report)
            clock.append(perf_counter())
            finalists = _finalists(candidates)
            if verify:
                confirmed = _confirm(pool, scenario, finalists, bound, report)
        clock.append(perf_counter())
        timing = Timing(*(later - earlier for earlier, later in pairwise(clock)))
        return _advice(scenario, candidates, finalists, bound, confirmed, len(space.choices), timing)


def _ranked(scenario: Scenario, ranker: Ranker, space: Sequence[Choice]) -> list[Candidate]:
    """Every feasible choice with its predicted time, best first; plans written out in the file come along unranked.

    Serial with the usual engines is always among them, whatever the space leaves out: it is what a user has today.
    """
    usual = Choice(SERIAL, scenario.num_ranks, default_engine(scenario))
    named = [named.body for named in scenario.schedules if isinstance(named.body, Choice)]
    choices = list({expression_of(choice): choice for choice in (*space, usual, *named)}.values())
    schedules = [build_schedule(scenario, choice) for choice in choices]
    times = predicted_us(scenario, ranker, choices, schedules)
    found = [
        Candidate(schedule.expression, choice, schedule, is_baseline(scenario, choice), predicted, None, None)
        for choice, schedule, predicted in zip(choices, schedules, times, strict=True)
    ]
    plans = [declared(scenario, named) for named in scenario.schedules if isinstance(named.body, Plan)]
    serial = is_baseline(scenario, None)
    found.extend(Candidate(plan.expression, None, plan, serial, None, None, None) for plan in plans)
    return sorted(found, key=lambda candidate: (candidate.best_us, candidate.expression))


def is_baseline(scenario: Scenario, choice: Choice | None) -> bool:
    """Whether ``choice``, None for a plan written out, is one of those that others are compared with: the serial ones.

    Of a lone kernel every schedule is serial; of a lone collective those are that exchange directly and in one piece.
    """
    if scenario.workload.moved is None:
        return True
    return choice is not None and choice.template == SERIAL


def _with_bespoke(
    pool: Workers,
    scenario: Scenario,
    candidates: list[Candidate],
    evaluations: int,
    workers: int,
    should_stop: Callable[[], bool] | None,
    report: Progress,
) -> list[Candidate]:
    """The candidates, and the fastest with chunks of their own."""
    report("bespoke", 0, 1)
    found = bespoke_candidates(
        scenario,
        candidates,
        budget_of(evaluations),
        pool=pool,
        together=workers,
        should_stop=should_stop or (lambda: False),
        progress=lambda done, total: report("bespoke", done, total),
    )
    if should_stop is not None and should_stop():
        raise Cancelled
    known = {candidate.expression for candidate in candidates}
    return by_time([*candidates, *(each for each in found if each.expression not in known)])


def _finalists(candidates: list[Candidate]) -> Finalists:
    """(fastest of all that are not serial, fastest serial); the same one twice where all are serial."""
    serial = next(candidate for candidate in candidates if candidate.is_serial)
    return clearly_best(candidates) or serial, serial


def _confirm(
    pool: Workers, scenario: Scenario, finalists: Finalists, bound: Bound, report: Progress
) -> tuple[Result, Result]:
    """Both finalists at line granularity, with their loss waterfalls."""
    best, serial = finalists
    different = [best] if best is serial else [best, serial]
    report("confirm", 0, len(different))
    jobs = [
        Job(
            scenario,
            candidate.schedule,
            _confirm_unit(scenario, candidate.schedule),
            bound.ticks,
            shortlist_unit(scenario, candidate.schedule),
        )
        for candidate in different
    ]
    results = pool.run(jobs, lambda done: report("confirm", done, len(different)))
    return results[0], results[-1]


def _confirm_unit(scenario: Scenario, schedule: Schedule) -> int:
    """Lines for the answer; coarser for problems so large that it would take minutes."""
    return affordable_unit(scenario, schedule, scenario.gpu.line_bytes, CONFIRM_LINE_HOPS)


def _settled(
    candidates: list[Candidate], finalists: Finalists, confirmed: tuple[Result, Result] | None
) -> tuple[list[Candidate], Finalists]:
    """The finalists with their confirmed times, in the ranking too."""
    if confirmed is None:
        return candidates, finalists
    finals = {
        candidate.expression: replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        for candidate, result in zip(finalists, confirmed, strict=True)
    }
    ranking = by_time([finals.get(candidate.expression, candidate) for candidate in candidates])
    best, serial = finalists
    return ranking, (finals[best.expression], finals[serial.expression])


def _ties(scenario: Scenario, candidates: list[Candidate], recommended: Candidate) -> tuple[str, ...]:
    """Simulated schedules that the hardware profile cannot tell from the recommended one."""
    resolution = float(scenario.gpu.gemm.resolution) if scenario.workload.gemm is not None else 0.0
    return tuple(
        candidate.expression
        for candidate in candidates
        if candidate.expression != recommended.expression
        and candidate.simulated_ticks is not None
        and abs(candidate.best_us / recommended.best_us - 1) <= resolution
    )


def _advice(
    scenario: Scenario,
    candidates: list[Candidate],
    finalists: Finalists,
    bound: Bound,
    confirmed: tuple[Result, Result] | None,
    num_feasible: int,
    timing: Timing,
) -> Advice:
    """Put the answer together: what is not serial only if its confirmed gain is worth it."""
    candidates, (best, serial) = _settled(candidates, finalists, confirmed)
    gain = serial.best_us / best.best_us
    better = gain >= 1 + MIN_GAIN
    overlap = better and not is_algorithm_choice(scenario)
    recommended = best if better else serial
    if better:  # a packet time may be a hair below the confirmed one
        candidates = sorted(candidates, key=lambda candidate: candidate.expression != recommended.expression)
    result, serial_result = (None, None) if confirmed is None else (confirmed[0 if better else 1], confirmed[1])
    outside = outside_calibration(scenario, (recommended.schedule, serial.schedule))
    reasons = reasons_for(scenario, candidates, (recommended, serial, best), bound, (result, serial_result))
    confidence, why = confidence_of(scenario, better, gain, verified=confirmed is not None, outside=bool(outside))
    return Advice(
        scenario=scenario,
        verdict=Verdict.OVERLAP if overlap else Verdict.SERIAL,
        recommended=recommended,
        serial=serial,
        speedup=serial.best_us / recommended.best_us,
        candidates=tuple(candidates),
        num_feasible=num_feasible,
        bound=bound,
        result=result,
        serial_result=serial_result,
        ties=_ties(scenario, candidates, recommended),
        confidence=confidence,
        confidence_reason=why,
        reasons=(*reasons, *filter(None, (sentence_of(recommended),))),
        marks=(*outside, *marks_of(scenario)),
        timing=timing,
        outside_calibration=outside,
    )
