"""From a scenario to advice: enumerate, rank, simulate the shortlist, confirm, explain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from ..compiler.expectation import Verdict
from ..compiler.plan import build_schedule, declared
from ..compiler.plan_check import check_plan
from ..compiler.scenario import Scenario
from ..compiler.schedule import Choice, Plan
from ..simcore import PACKET_BYTES, Result
from .advice import Advice, Candidate, Timing
from .bounds import Bound, lower_bound
from .explain import confidence_of, marks_of, reasons_for
from .ranker import Ranker
from .solver import enumerate_space
from .workers import Cancelled, Job, Workers, open_workers

# Below this gain over serial the answer is serial: overlap must earn its complexity.
MIN_GAIN = 0.02
DEFAULT_TOP = 8
SERIAL = "serial"

Progress = Callable[[str, int, int], None]


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
        workers
            Processes for the simulations. More than one needs a ``__main__`` that may be imported again.
        progress
            Told the stage, how much of it is done and how much there is.

        Raises
        ------
        NoFeasibleSchedule
            If the constraints leave nothing, with those that do it.
        Cancelled
            If ``should_stop`` said so.
        """
        report = progress or (lambda stage, done, total: None)
        clock = [perf_counter()]
        report("enumerate", 0, 1)
        space = enumerate_space(scenario, should_stop=should_stop)
        if should_stop is not None and should_stop():
            raise Cancelled
        clock.append(perf_counter())
        report("rank", 0, len(space.choices))
        candidates = _ranked(scenario, self.ranker, space.choices)
        clock.append(perf_counter())
        bound = lower_bound(scenario)
        confirmed: tuple[Result, Result] | None = None
        with open_workers(workers if verify else 1, should_stop) as pool:
            if verify:
                candidates = _simulate_shortlist(pool, scenario, candidates, top, report)
            clock.append(perf_counter())
            best, serial = _finalists(candidates)
            if verify:
                confirmed = _confirm(pool, scenario, best, serial, bound, report)
        clock.append(perf_counter())
        timing = Timing(*(later - earlier for earlier, later in pairwise(clock)))
        return _advice(scenario, candidates, best, serial, bound, confirmed, len(space.choices), timing)


def _ranked(scenario: Scenario, ranker: Ranker, choices: Sequence[Choice]) -> list[Candidate]:
    """Every feasible choice with its predicted time, best first; plans written out in the file come along unranked."""
    found = [
        _candidate(scenario, choice, predicted)
        for choice, predicted in zip(choices, ranker.predict_us(scenario, choices), strict=True)
    ]
    known = {candidate.expression for candidate in found}
    for named in scenario.schedules:
        schedule = declared(scenario, named)
        if isinstance(named.body, Plan):
            if not check_plan(scenario, schedule):
                found.append(Candidate(schedule.expression, None, schedule, False, None, None, None))
        elif schedule.expression not in known:
            (predicted,) = ranker.predict_us(scenario, [named.body])
            found.append(_candidate(scenario, named.body, predicted))
            known.add(schedule.expression)
    return sorted(found, key=lambda candidate: (candidate.best_us, candidate.expression))


def _candidate(scenario: Scenario, choice: Choice, predicted: float) -> Candidate:
    schedule = build_schedule(scenario, choice)
    return Candidate(schedule.expression, choice, schedule, choice.template == SERIAL, predicted, None, None)


def _simulate_shortlist(
    pool: Workers, scenario: Scenario, candidates: list[Candidate], top: int, report: Progress
) -> list[Candidate]:
    """Simulate the favourites, the likeliest serial schedules and whatever the file declares, in packets."""
    declared_names = {declared(scenario, named).expression for named in scenario.schedules}
    overlapping = [candidate for candidate in candidates if not candidate.is_serial][:top]
    serial = [candidate for candidate in candidates if candidate.is_serial][:2]
    wanted = {candidate.expression for candidate in (*overlapping, *serial)} | declared_names
    chosen = [candidate for candidate in candidates if candidate.expression in wanted]
    unit = packet_bytes(scenario)
    jobs = [Job(scenario, candidate.schedule, unit) for candidate in chosen]
    report("simulate", 0, len(jobs))
    results = pool.run(jobs, lambda done: report("simulate", done, len(jobs)))
    simulated = {
        candidate.expression: replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=unit)
        for candidate, result in zip(chosen, results, strict=True)
    }
    return _sorted([simulated.get(candidate.expression, candidate) for candidate in candidates])


def _sorted(candidates: list[Candidate]) -> list[Candidate]:
    """Simulated ones first, by time; then the rest by prediction."""
    return sorted(candidates, key=lambda c: (c.simulated_ticks is None, c.best_us, c.expression))


def _finalists(candidates: list[Candidate]) -> tuple[Candidate, Candidate]:
    """(fastest of all that are not serial, fastest serial); the same one twice where nothing overlaps."""
    serial = next(candidate for candidate in candidates if candidate.is_serial)
    best = next((candidate for candidate in candidates if not candidate.is_serial), serial)
    return best, serial


def _confirm(
    pool: Workers, scenario: Scenario, best: Candidate, serial: Candidate, bound: Bound, report: Progress
) -> tuple[Result, Result]:
    """Both finalists at line granularity, with their loss waterfalls."""
    finalists = [best] if best is serial else [best, serial]
    line, packet = scenario.gpu.line_bytes, packet_bytes(scenario)
    report("confirm", 0, len(finalists))
    jobs = [Job(scenario, candidate.schedule, line, bound.ticks, packet) for candidate in finalists]
    results = pool.run(jobs, lambda done: report("confirm", done, len(finalists)))
    return results[0], results[-1]


def packet_bytes(scenario: Scenario) -> int:
    """The coarser granularity: 1 KiB, or the next multiple of the line."""
    line = scenario.gpu.line_bytes
    return -(-PACKET_BYTES // line) * line


def _advice(
    scenario: Scenario,
    candidates: list[Candidate],
    best: Candidate,
    serial: Candidate,
    bound: Bound,
    confirmed: tuple[Result, Result] | None,
    num_feasible: int,
    timing: Timing,
) -> Advice:
    """Put the answer together: overlap only if its confirmed gain is worth it."""
    if confirmed is not None:
        finals = {
            candidate.expression: replace(
                candidate, simulated_ticks=result.makespan_ticks, unit_bytes=scenario.gpu.line_bytes
            )
            for candidate, result in zip((best, serial), confirmed, strict=True)
        }
        candidates = _sorted([finals.get(candidate.expression, candidate) for candidate in candidates])
        best, serial = finals[best.expression], finals[serial.expression]
    gain = serial.best_us / best.best_us
    overlap = gain >= 1 + MIN_GAIN
    recommended = best if overlap else serial
    result, serial_result = (None, None) if confirmed is None else (confirmed[0 if overlap else 1], confirmed[1])
    ties = tuple(
        candidate.expression
        for candidate in candidates
        if candidate.expression != recommended.expression
        and candidate.simulated_ticks is not None
        and abs(candidate.best_us / recommended.best_us - 1) <= float(scenario.gpu.gemm.resolution)
    )
    confidence, why = confidence_of(scenario, overlap, gain, verified=confirmed is not None)
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
        ties=ties,
        confidence=confidence,
        confidence_reason=why,
        reasons=reasons_for(scenario, recommended, serial, best, bound, result, serial_result),
        marks=marks_of(scenario),
        timing=timing,
    )
