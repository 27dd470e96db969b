"""The answer from what the stages found: who wins, by how much, how sure that is, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..compiler.ir import ExecutionOptions, Scenario
from ..compiler.resolve.expect.expectation import Verdict
from ..simcore import Result
from .bespoke.stage import sentence_of
from .bounds.lower_bound import Bound
from .candidates.advice import Advice, Candidate, Timing, is_algorithm_choice, resolution_of
from .candidates.library import MIN_GAIN, speedup_of
from .candidates.shortlist import by_time
from .explain import confidence_of, marks_of, reasons_for
from .extrapolation import outside_calibration
from .stages import Stages
from .workers import Failure, FailureKind

# What is more complex than another schedule must be faster than that by this share, whatever the profile resolves.
MIN_LEAD = 0.01

ENUMERATE, RANK, BOUND = "the enumeration", "the ranking", "the lower bound"
SHORTLIST, BESPOKE, CONFIRM = "the shortlist", "the bespoke search", "the confirmation"

Finalists = tuple[Candidate, Candidate]  # the one that overlaps and is to be compared, the best serial


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Results of the two finalists in lines, None for one that has none."""

    best: Result | None = None
    serial: Result | None = None


def finalists(scenario: Scenario, candidates: Sequence[Candidate]) -> Finalists:
    """(the simplest of the fastest that overlap, the fastest serial); the same one twice where all are serial.

    Only those that beat serial by more than the profile can tell apart compete by simplicity. Without any it is the
    fastest, to be told why it is not worth it.
    """
    serial = next(candidate for candidate in candidates if candidate.is_serial)
    overlapping = [candidate for candidate in candidates if not candidate.is_serial]
    # What was predicted and not simulated competes only where nothing was simulated.
    known = [candidate for candidate in overlapping if candidate.simulated_ticks is not None] or overlapping
    worth = [candidate for candidate in known if is_worth_it(scenario, serial, candidate)]
    best = _simplest(worth, resolution_of(scenario)) if worth else next(iter(known), serial)
    return best, serial


def _simplest(candidates: Sequence[Candidate], resolution: float) -> Candidate:
    """The simplest of those that ``resolution`` cannot tell from the fastest; of equally simple ones the fastest."""
    slowest = min(candidate.best_us for candidate in candidates) * (1 + max(MIN_LEAD, resolution))
    near = [candidate for candidate in candidates if candidate.best_us < slowest]
    return min(near, key=lambda candidate: (_complexity(candidate), candidate.best_us, candidate.expression))


def _complexity(candidate: Candidate) -> int:
    """0 for a template as it is usual, or what the file says; 1 with unusual options, 2 for what was searched for."""
    if candidate.provenance is not None:
        return 2
    return int(candidate.choice is not None and candidate.choice.tactics != ExecutionOptions())


def is_worth_it(scenario: Scenario, serial: Candidate, candidate: Candidate) -> bool:
    """Whether ``candidate`` gains over ``serial`` what its complexity costs, and what the profile can tell apart."""
    return serial.best_us >= candidate.best_us * (1 + max(MIN_GAIN, resolution_of(scenario)))


def without_endless(candidates: list[Candidate], failures: Sequence[Failure]) -> list[Candidate]:
    """The candidates but those of which a simulation found that they never finish: these are no schedules."""
    endless = {failure.schedule for failure in failures if failure.kind is FailureKind.NEVER_FINISHES}
    return [candidate for candidate in candidates if candidate.is_serial or candidate.expression not in endless]


def advice_of(
    scenario: Scenario,
    candidates: list[Candidate],
    bound: Bound | None,
    confirmed: Confirmed,
    num_feasible: int,
    stages: Stages,
    notes: tuple[str, ...],
) -> Advice:
    """Put the answer together; ``notes`` say what failed on the way, and ``stages`` what time they took."""
    candidates, (best, serial) = _settled(candidates, finalists(scenario, candidates), confirmed)
    better = best is not serial and is_worth_it(scenario, serial, best)
    recommended = best if better else serial
    if better:  # a packet time may be a hair below the confirmed one
        candidates = sorted(candidates, key=lambda candidate: candidate.expression != recommended.expression)
    result = confirmed.best if better else confirmed.serial
    outside = outside_calibration(scenario, (recommended.schedule, serial.schedule))
    reasons = reasons_for(scenario, candidates, (recommended, serial, best), bound, (result, confirmed.serial))
    verified = recommended.simulated_ticks is not None and serial.simulated_ticks is not None
    gain = serial.best_us / best.best_us
    confidence, why = confidence_of(scenario, better, gain, verified=verified, outside=bool(outside))
    return Advice(
        scenario=scenario,
        verdict=Verdict.OVERLAP if better and not is_algorithm_choice(scenario) else Verdict.SERIAL,
        recommended=recommended,
        serial=serial,
        speedup=speedup_of(scenario, serial.best_us, recommended.best_us),
        candidates=tuple(candidates),
        num_feasible=num_feasible,
        bound=bound,
        result=result,
        serial_result=confirmed.serial,
        ties=_ties(scenario, candidates, recommended),
        confidence=confidence,
        confidence_reason=why,
        reasons=(*reasons, *filter(None, (sentence_of(recommended),))),
        marks=(*notes, *outside, *marks_of(scenario)),
        timing=_timing(stages),
        outside_calibration=outside,
        interrupted=stages.interrupted,
        notes=notes,
    )


def _settled(candidates: list[Candidate], finals: Finalists, confirmed: Confirmed) -> tuple[list[Candidate], Finalists]:
    """The finalists with their confirmed times, in the ranking too."""
    settled = {
        candidate.expression: replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        for candidate, result in zip(finals, (confirmed.best, confirmed.serial), strict=True)
        if result is not None
    }
    ranking = by_time([settled.get(candidate.expression, candidate) for candidate in candidates])
    best, serial = (settled.get(candidate.expression, candidate) for candidate in finals)
    return ranking, (best, serial)


def _ties(scenario: Scenario, candidates: list[Candidate], recommended: Candidate) -> tuple[str, ...]:
    """Simulated schedules that the hardware profile cannot tell from the recommended one."""
    resolution = resolution_of(scenario)
    return tuple(
        candidate.expression
        for candidate in candidates
        if candidate.expression != recommended.expression
        and candidate.simulated_ticks is not None
        and abs(candidate.best_us / recommended.best_us - 1) <= resolution
    )


def _timing(stages: Stages) -> Timing:
    def spent(*names: str) -> float:
        return sum(stages.seconds.get(name, 0.0) for name in names)

    return Timing(spent(ENUMERATE), spent(RANK), spent(BOUND, SHORTLIST, BESPOKE), spent(CONFIRM))
