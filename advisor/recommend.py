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
from ..simcore import PACKET_BYTES, Result, affordable_unit
from .advice import Advice, Candidate, Timing
from .bounds import Bound, lower_bound
from .calibrated import outside_calibration
from .explain import confidence_of, marks_of, reasons_for
from .ranker import Ranker
from .solver import enumerate_space
from .workers import Cancelled, Job, Workers, open_workers

# Below this gain over serial the answer is serial: overlap must earn its complexity.
MIN_GAIN = 0.02
DEFAULT_TOP = 8
# A blink, and some seconds, on one core each.
FINE_LINE_HOPS = 5_000_000
SHORTLIST_LINE_HOPS = 60_000_000
CONFIRM_LINE_HOPS = 1_000_000_000
SERIAL = "serial"

Progress = Callable[[str, int, int], None]
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
        candidates = _ranked(scenario, self.ranker, space.choices)
        clock.append(perf_counter())
        bound = lower_bound(scenario)
        confirmed: tuple[Result, Result] | None = None
        with open_workers(workers if verify else 1, should_stop) as pool:
            if verify:
                candidates = _simulate_shortlist(pool, scenario, candidates, top, report)
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
    found = [
        _candidate(scenario, build_schedule(scenario, choice), choice, predicted)
        for choice, predicted in zip(choices, ranker.predict_us(scenario, choices), strict=True)
    ]
    plans = [declared(scenario, named) for named in scenario.schedules if isinstance(named.body, Plan)]
    found.extend(_candidate(scenario, plan, None, None) for plan in plans)
    return sorted(found, key=lambda candidate: (candidate.best_us, candidate.expression))


def _candidate(scenario: Scenario, schedule: Schedule, choice: Choice | None, predicted: float | None) -> Candidate:
    """Where nothing can overlap every schedule is serial, also one written out by hand."""
    is_serial = not scenario.workload.pattern.overlaps or (choice is not None and choice.template == SERIAL)
    return Candidate(schedule.expression, choice, schedule, is_serial, predicted, None, None)


def _simulate_shortlist(
    pool: Workers, scenario: Scenario, candidates: list[Candidate], top: int, report: Progress
) -> list[Candidate]:
    """Simulate in packets the favourites, every serial schedule and whatever the file declares.

    The baseline must not depend on what the ranker likes, or a bad ranker would make overlap look good.
    """
    wanted = {declared(scenario, named).expression for named in scenario.schedules}
    wanted |= {candidate.expression for candidate in candidates if candidate.is_serial}
    wanted |= {candidate.expression for candidate in [c for c in candidates if not c.is_serial][:top]}
    chosen = [candidate for candidate in candidates if candidate.expression in wanted]
    jobs = [Job(scenario, candidate.schedule, _unit(scenario, candidate, packet=True)) for candidate in chosen]
    report("simulate", 0, len(jobs))
    results = pool.run(jobs, lambda done: report("simulate", done, len(jobs)))
    simulated = {
        candidate.expression: replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        for candidate, result in zip(chosen, results, strict=True)
    }
    return _sorted([simulated.get(candidate.expression, candidate) for candidate in candidates])


def _sorted(candidates: list[Candidate]) -> list[Candidate]:
    """Simulated ones first, by time; then the rest by prediction."""
    return sorted(candidates, key=lambda c: (c.simulated_ticks is None, c.best_us, c.expression))


def _finalists(candidates: list[Candidate]) -> Finalists:
    """(fastest of all that are not serial, fastest serial); the same one twice where nothing overlaps."""
    serial = next(candidate for candidate in candidates if candidate.is_serial)
    best = next((candidate for candidate in candidates if not candidate.is_serial), serial)
    return best, serial


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
            _unit(scenario, candidate, packet=False),
            bound.ticks,
            _unit(scenario, candidate, packet=True),
        )
        for candidate in different
    ]
    results = pool.run(jobs, lambda done: report("confirm", done, len(different)))
    return results[0], results[-1]


def _unit(scenario: Scenario, candidate: Candidate, *, packet: bool) -> int:
    """Packets for the shortlist and lines for the answer; coarser for problems so large that it would take minutes."""
    line = scenario.gpu.line_bytes
    if not packet:
        return affordable_unit(scenario, candidate.schedule, line, CONFIRM_LINE_HOPS)
    if affordable_unit(scenario, candidate.schedule, line, FINE_LINE_HOPS) == line:
        return line  # where pieces are small packets are rough, and lines cost nothing
    return affordable_unit(scenario, candidate.schedule, packet_bytes(scenario), SHORTLIST_LINE_HOPS)


def packet_bytes(scenario: Scenario) -> int:
    """The coarser granularity: 1 KiB, or the next multiple of the line."""
    line = scenario.gpu.line_bytes
    return -(-PACKET_BYTES // line) * line


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
    ranking = _sorted([finals.get(candidate.expression, candidate) for candidate in candidates])
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
    """Put the answer together: overlap only if its confirmed gain is worth it."""
    candidates, (best, serial) = _settled(candidates, finalists, confirmed)
    gain = serial.best_us / best.best_us
    overlap = gain >= 1 + MIN_GAIN
    recommended = best if overlap else serial
    if overlap:  # a packet time may be a hair below the confirmed one
        candidates = sorted(candidates, key=lambda candidate: candidate.expression != recommended.expression)
    result, serial_result = (None, None) if confirmed is None else (confirmed[0 if overlap else 1], confirmed[1])
    outside = outside_calibration(scenario, (recommended.schedule, serial.schedule))
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
        ties=_ties(scenario, candidates, recommended),
        confidence=confidence,
        confidence_reason=why,
        reasons=reasons_for(scenario, recommended, serial, best, bound, result, serial_result),
        marks=(*outside, *marks_of(scenario)),
        timing=timing,
        outside_calibration=outside,
    )
