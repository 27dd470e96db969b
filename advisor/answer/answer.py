"""The answer from the findings of the stages: which schedule wins, by how much, with what confidence, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import Scenario
from ...compiler.resolve.expect.expectation import Verdict
from ...simcore import Result
from ..bespoke.stage import sentence_of
from ..bounds.lower_bound import Bound, quick_bound_ticks
from ..candidates.advice import Advice, Source, Threshold, Timing, is_algorithm_choice, resolution_of
from ..candidates.candidate import MIN_LEAD, Candidate, baseline_of, by_time
from ..candidates.sensitivity import Sensitivity
from ..candidates.shortlist import answered_by_runs
from ..failures import Failure, FailureKind
from ..implementations.offers import Offers
from ..implementations.promise import MIN_GAIN, Promise, kernel_promise
from ..stages import Stages
from .above_bound import BoundCheck
from .explain import confidence_of, marks_of, price_of_simplicity, reasons_for
from .extrapolation import outside_calibration

PROPOSE, ENUMERATE, RANK, BOUND = "the proposals", "the enumeration", "the ranking", "the lower bound"
IMPLEMENTATIONS = "the implementations"
SHORTLIST, BESPOKE, CONFIRM = "the shortlist", "the bespoke search", "the confirmation"
THRESHOLD, SENSITIVITY = "the threshold", "the sensitivity"

Finalists = tuple[Candidate, Candidate]  # the best other one, the baseline


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Results of the two finalists in cache lines; None for one without a result."""

    best: Result | None = None
    serial: Result | None = None


def finalists(scenario: Scenario, candidates: Sequence[Candidate]) -> Finalists:
    """Return (the simplest of the fastest others, the baseline); the baseline twice if there is nothing else.

    Only schedules that beat the baseline by more than the profile resolves compete by simplicity. If there are none,
    the fastest that overlaps is returned, to explain why it is not worth it.
    """
    serial = baseline_of(candidates)
    others = [candidate for candidate in candidates if candidate.expression != serial.expression]
    timed = _timed(others)
    known = [candidate for candidate in timed if math.isfinite(candidate.best_us)]
    worth = [candidate for candidate in known if is_worth_it(scenario, serial, candidate)]
    if worth:
        return _simplest(worth, resolution_of(scenario)), serial
    alone = is_algorithm_choice(scenario)
    return next((candidate for candidate in timed if alone or not candidate.is_serial), serial), serial


def _timed(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The simulated ones; all where a stop left none that overlaps among them: then predictions compete."""
    if all(candidate.is_serial for candidate in candidates):
        return [candidate for candidate in candidates if candidate.simulated_ticks is not None] or candidates
    return answered_by_runs(candidates) or candidates


def _simplest(candidates: Sequence[Candidate], resolution: float) -> Candidate:
    """The simplest of those that ``resolution`` cannot tell from the fastest; of equally simple ones the fastest."""
    slowest = min(candidate.best_us for candidate in candidates) * (1 + max(MIN_LEAD, resolution))
    near = [candidate for candidate in candidates if candidate.best_us < slowest]
    return min(near, key=lambda candidate: (_complexity(candidate), candidate.best_us, candidate.expression))


def _complexity(candidate: Candidate) -> tuple[int, bool]:
    """Return 0 for a serial schedule, 1 for a template or a plan, 2 if bespoke; then whether options are unusual."""
    if candidate.provenance is not None:
        return 2, False
    return int(not candidate.is_serial), not candidate.has_usual_options


def is_worth_it(scenario: Scenario, serial: Candidate, candidate: Candidate) -> bool:
    """Whether ``candidate`` gains over ``serial`` at least ``MIN_GAIN`` and what the profile resolves.

    Of the library it resolves no less than the error of its collectives.
    """
    library = scenario.gpu.collectives if serial.is_library else None
    error = 0.0 if library is None else float(library.error)
    return serial.best_us >= candidate.best_us * (1 + max(MIN_GAIN, resolution_of(scenario), error))


def without_endless(candidates: list[Candidate], failures: Sequence[Failure]) -> list[Candidate]:
    """Return the candidates without overlapping ones that a simulation found to never finish."""
    endless = {failure.subject for failure in failures if failure.kind is FailureKind.NEVER_FINISHES}
    return [candidate for candidate in candidates if candidate.is_serial or candidate.expression not in endless]


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of the stages about a scenario; ``notes`` name what failed, and ``stages`` holds their wall times.

    ``num_feasible`` is None if the space was not enumerated.
    """

    candidates: tuple[Candidate, ...]
    num_feasible: int | None
    bound: Bound | None
    confirmed: Confirmed
    stages: Stages
    notes: tuple[str, ...]
    implementations: Offers | None = None
    threshold: Threshold | None = None
    sensitivity: Sensitivity | None = None


def recommended_of(scenario: Scenario, finals: Finalists) -> Candidate:
    """Return the best other schedule if it is worth it, else the baseline."""
    best, serial = finals
    return best if best is not serial and is_worth_it(scenario, serial, best) else serial


def overlap_pays(scenario: Scenario, finals: Finalists) -> bool:
    """Whether the best other schedule overlaps and is worth it."""
    best, serial = finals
    return not best.is_serial and is_worth_it(scenario, serial, best)


def advice_of(scenario: Scenario, found: Findings) -> Advice:
    """Return the answer that the findings give."""
    found = _above_bound(scenario, found)
    bound, confirmed = found.bound, found.confirmed
    candidates, (best, serial) = confirmed_times(found.candidates, finalists(scenario, found.candidates), confirmed)
    recommended = recommended_of(scenario, (best, serial))
    better = recommended is not serial
    promise = _promise(scenario, candidates, serial, recommended)
    if better:  # a packet time may be a hair below the confirmed one
        candidates = sorted(candidates, key=lambda candidate: candidate.expression != recommended.expression)
    result = confirmed.best if better else confirmed.serial
    outside = outside_calibration(scenario, (recommended.schedule, serial.schedule))
    reasons = reasons_for(scenario, candidates, (recommended, serial, best), bound, (result, confirmed.serial))
    verified = recommended.simulated_ticks is not None and serial.simulated_ticks is not None
    gain = serial.best_us / best.best_us
    verdict = _verdict(scenario, recommended, promise)
    promised = verdict is not Verdict.WORTH_TRYING
    confidence, confidence_reason = confidence_of(
        scenario, better, gain, verified=verified, outside=bool(outside), promised=promised
    )
    return Advice(
        scenario=scenario,
        verdict=verdict,
        recommended=recommended,
        serial=serial,
        speedup=serial.best_us / recommended.best_us,
        candidates=tuple(candidates),
        num_feasible=found.num_feasible,
        bound=bound,
        result=result,
        serial_result=confirmed.serial,
        ties=_ties(scenario, candidates, recommended),
        confidence=confidence,
        confidence_reason=confidence_reason,
        reasons=(
            *price_of_simplicity(scenario, candidates, recommended, serial),
            *reasons,
            *filter(None, (sentence_of(recommended),)),
        ),
        marks=(*found.notes, *outside, *marks_of(scenario)),
        timing=_timing(found.stages),
        outside_calibration=outside,
        interrupted=found.stages.interrupted,
        notes=found.notes,
        implementations=found.implementations,
        promise=promise,
        threshold=found.threshold,
        sensitivity=found.sensitivity,
        source=Source.MODEL if recommended.simulated_ticks is None else Source.SIMULATION,
    )


def _above_bound(scenario: Scenario, found: Findings) -> Findings:
    """Return the findings without times below the bound; where it is not known, below what is known at once."""
    limit = BoundCheck(quick_bound_ticks(scenario) if found.bound is None else found.bound.ticks)
    finals = finalists(scenario, found.candidates)
    timed, _ = confirmed_times(found.candidates, finals, found.confirmed)
    below, (offers, about_offers) = limit.below(timed), limit.offers(found.implementations)
    kept = tuple(limit.raised(one) for one in found.candidates if one.expression not in below)
    confirmed = found.confirmed
    if below and any(one.is_serial for one in kept):
        results = {finals[0].expression: confirmed.best, finals[1].expression: confirmed.serial}
        confirmed = Confirmed(*(results.get(final.expression) for final in finalists(scenario, kept)))
    elif below:  # without a baseline there is no answer
        kept = found.candidates
    notes = (*found.notes, *below.values(), *about_offers)
    return replace(found, candidates=kept, confirmed=confirmed, implementations=offers, notes=notes)


def _promise(
    scenario: Scenario, candidates: Sequence[Candidate], serial: Candidate, recommended: Candidate
) -> Promise | None:
    """Return what the gain of ``recommended`` promises; None for the baseline and for a lone collective.

    The estimate of what nobody proposed is taken to be no better than those of proposals.
    """
    if recommended.expression == serial.expression or is_algorithm_choice(scenario):
        return None
    speedup = serial.best_us / recommended.best_us
    estimated = recommended.simulated_ticks is None or serial.simulated_ticks is None
    known = [recommended.gain_error] if recommended.gain_error else [one.gain_error or 0.0 for one in candidates]
    error = max(known) if estimated else 0.0
    return kernel_promise(speedup, recommended.best_us, resolution_of(scenario), error)


def _verdict(scenario: Scenario, recommended: Candidate, promise: Promise | None) -> Verdict:
    """Return the verdict: a gain beyond the error pays by overlap, or by another schedule in which nothing overlaps.

    Of a collective alone it is whether to keep what the library chooses.
    """
    if is_algorithm_choice(scenario):
        return Verdict.LIBRARY if recommended.is_library else Verdict.USE
    if promise is None or promise.verdict is Verdict.OVERLAP:
        return Verdict.SERIAL if promise is None or recommended.is_serial else Verdict.OVERLAP
    return promise.verdict


def confirmed_times(
    candidates: Sequence[Candidate], finals: Finalists, confirmed: Confirmed
) -> tuple[list[Candidate], Finalists]:
    """Return the ranking and the finalists, both with the confirmed times of the finalists."""
    timed = {
        candidate.expression: replace(candidate, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        for candidate, result in zip(finals, (confirmed.best, confirmed.serial), strict=True)
        if result is not None
    }
    ranking = by_time([timed.get(candidate.expression, candidate) for candidate in candidates])
    best, serial = (timed.get(candidate.expression, candidate) for candidate in finals)
    return ranking, (best, serial)


def _ties(scenario: Scenario, candidates: Sequence[Candidate], recommended: Candidate) -> tuple[str, ...]:
    """Return the simulated schedules that the hardware profile cannot tell from the recommended one."""
    resolution = resolution_of(scenario)
    return tuple(
        candidate.expression
        for candidate in candidates
        if candidate.expression != recommended.expression
        and candidate.simulated_ticks is not None
        and abs(candidate.best_us / recommended.best_us - 1) <= resolution
    )


def _timing(stages: Stages) -> Timing:
    def seconds(*names: str) -> float:
        return sum(stages.seconds.get(name, 0.0) for name in names)

    return Timing(seconds(ENUMERATE), seconds(PROPOSE, RANK), seconds(BOUND, SHORTLIST, BESPOKE), seconds(CONFIRM))
