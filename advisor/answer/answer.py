"""The answer from the findings of the stages: which schedule wins, by how much, with what confidence, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from time import perf_counter

from ...compiler.ir import TICKS_PER_US, OpCase, Scenario
from ...compiler.planning.plan import build_plan
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.units import us_text
from ...simcore import Result, ShownRun, run_of
from ..bespoke.stage import sentence_of
from ..bounds.lower_bound import Bound, quick_bound_ticks
from ..candidates.advice import Advice, AnswerSource, Threshold, Timing
from ..candidates.candidate import Candidate, by_time
from ..candidates.sensitivity import Sensitivity
from ..implementations.offers import Offers
from ..work.workers import Failure, FailureKind, SimulationJob
from .explain import confidence_of_ops, marks_of, price_of_simplicity, reasons_for, reasons_of_several
from .extrapolation import outside_calibration, outside_of_plan
from .rule import Finalists, finalists, promise_of, ratio_of, recommended_of, ties_of, verdict_of
from .stages import BESPOKE, BOUND, CONFIRM, ENUMERATE, PROPOSE, RANK, SHORTLIST, Answered, Stages


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """Compares shown times with the lower bound, in ticks."""

    ticks: int

    def is_below(self, us: float) -> bool:
        """Whether a time is less than the bound."""
        return us * TICKS_PER_US < self.ticks * (1 - 1e-9)

    def sentence(self, name: str, us: float) -> str:
        """The note on something whose time is below the bound."""
        bound = us_text(self.ticks / TICKS_PER_US)
        return f"{name} is left out: its time, {us_text(us)}, is below the bound, {bound}, so that either is wrong"

    def below(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Return a note on each candidate whose time is below the bound, by expression; estimates are raised."""
        return {
            one.expression: self.sentence(one.expression, one.best_us)
            for one in candidates
            if self.is_below(one.best_us) and (one.is_library or not one.is_estimate)
        }

    def raised(self, candidate: Candidate) -> Candidate:
        """Return a candidate whose estimate is no less than the bound, without a run of a few layers that is."""
        if candidate.result is not None and candidate.result.is_estimate and self.is_below(candidate.best_us):
            candidate = replace(candidate, simulated_ticks=None, unit_bytes=None, result=None)
        us, interval, least = candidate.predicted_us, candidate.interval_us, self.ticks / TICKS_PER_US
        if us is None or us >= least:
            return candidate
        interval = interval and (max(least, interval[0]), max(least, interval[1]))
        return replace(candidate, predicted_us=least, interval_us=interval)

    def offers(self, found: Offers | None) -> tuple[Offers | None, list[str]]:
        """The same of implementations; without the library there is nothing to compare them with."""
        if found is None or found.library_us is None:
            return found, []
        if self.is_below(found.library_us):
            return None, [self.sentence(found.library, found.library_us)]
        below = [offer for offer in found.offers if self.is_below(offer.us + offer.saved_us)]
        kept = tuple(offer for offer in found.offers if offer not in below)
        return replace(found, offers=kept), [self.sentence(offer.name, offer.us) for offer in below]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Results of the two finalists in cache lines; None for one without a result."""

    best: Result | None = None
    serial: Result | None = None


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
    stages: Stages
    num_feasible: int | None = None
    bound: Bound | None = None
    confirmed: Confirmed = Confirmed()
    notes: tuple[str, ...] = ()
    offers: Offers | None = None
    threshold: Threshold | None = None
    sensitivity: Sensitivity | None = None
    warnings: tuple[str, ...] = ()
    """What the reader must know besides: nothing of it failed, and another run would say it too."""


def advice_of(scenario: Scenario, found: Findings) -> Advice:
    """Return the answer that the findings give."""
    found = _above_bound(scenario, found)
    bound, confirmed = found.bound, found.confirmed
    candidates, (best, serial) = confirmed_times(found.candidates, finalists(scenario, found.candidates), confirmed)
    recommended = recommended_of(scenario, (best, serial))
    better = recommended is not serial
    promise = promise_of(scenario, candidates, serial, recommended, found.offers)
    if better:  # a packet time may be a hair below the confirmed one
        candidates = sorted(candidates, key=lambda candidate: candidate.expression != recommended.expression)
    result = confirmed.best if better else confirmed.serial
    outside = _outside(scenario, (recommended, serial))
    reasons = _reasons(scenario, candidates, (recommended, serial, best), bound, (result, confirmed.serial))
    verified = not recommended.is_estimate and not serial.is_estimate
    gain = ratio_of(scenario, serial, best)
    verdict = verdict_of(scenario, recommended, promise)
    promised = verdict is not Verdict.WORTH_TRYING
    confidence, confidence_reason = confidence_of_ops(
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
        ties=ties_of(scenario, candidates, recommended),
        confidence=confidence,
        confidence_reason=confidence_reason,
        reasons=reasons,
        marks=(*found.notes, *found.warnings, *outside, *marks_of(scenario, promise)),
        timing=_timing(found.stages),
        outside_calibration=outside,
        interrupted=found.stages.interrupted,
        notes=found.notes,
        offers=found.offers,
        promise=promise,
        threshold=found.threshold,
        sensitivity=found.sensitivity,
        source=AnswerSource.MODEL if recommended.simulated_ticks is None else AnswerSource.SIMULATION,
    )


def _reasons(
    scenario: Scenario,
    candidates: Sequence[Candidate],
    finals: tuple[Candidate, Candidate, Candidate],
    bound: Bound | None,
    results: tuple[Result | None, Result | None],
) -> tuple[str, ...]:
    """Why the first of ``finals`` (recommended, baseline, best other) is recommended, in sentences."""
    recommended, serial, _ = finals
    if recommended.several is None:
        reasons = reasons_for(scenario.cases[0], candidates, finals, bound, results)
    else:
        reasons = tuple(reasons_of_several(scenario, serial, bound))
    price = price_of_simplicity(scenario, candidates, recommended, serial)
    return *price, *reasons, *filter(None, (sentence_of(recommended),))


def _outside(scenario: Scenario, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Why results of ``candidates`` lie outside what the profile is fitted to, each reason once."""
    case = scenario.only_case
    if case is None:
        plans = (build_plan(scenario.system, scenario.workload, one.joint, 1) for one in candidates)
        return tuple(dict.fromkeys(said for plan in plans for said in outside_of_plan(scenario.system, plan)))
    return outside_calibration(case, (one.schedule for one in candidates))


def _above_bound(scenario: Scenario, found: Findings) -> Findings:
    """Return the findings without times below the bound; where it is not known, below what is known at once."""
    limit = BoundCheck(_quick_bound_ticks(scenario, found) if found.bound is None else found.bound.ticks)
    finals = finalists(scenario, found.candidates)
    timed, _ = confirmed_times(found.candidates, finals, found.confirmed)
    below, (offers, about_offers) = limit.below(timed), limit.offers(found.offers)
    kept = tuple(limit.raised(one) for one in found.candidates if one.expression not in below)
    confirmed = found.confirmed
    if below and any(one.is_serial for one in kept):
        results = {finals[0].expression: confirmed.best, finals[1].expression: confirmed.serial}
        confirmed = Confirmed(*(results.get(final.expression) for final in finalists(scenario, kept)))
    elif below:  # without a baseline there is no answer
        kept = found.candidates
    notes = (*found.notes, *below.values(), *about_offers)
    return replace(found, candidates=kept, confirmed=confirmed, offers=offers, notes=notes)


def _quick_bound_ticks(scenario: Scenario, found: Findings) -> int:
    """A bound that tells which times of ``found`` are below the quick one; 0 of several ops."""
    if len(scenario.cases) > 1:
        return 0
    if found.offers is not None or found.confirmed != Confirmed():
        return quick_bound_ticks(scenario.cases[0])
    times = (us for one in found.candidates for us in (one.best_us, one.predicted_us) if us is not None)
    return quick_bound_ticks(scenario.cases[0], beside=min(times, default=0.0) * TICKS_PER_US * (1 - 1e-9))


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


def _timing(stages: Stages) -> Timing:
    def seconds(*names: str) -> float:
        return sum(stages.seconds.get(name, 0.0) for name in names)

    return Timing(seconds(ENUMERATE), seconds(PROPOSE, RANK), seconds(BOUND, SHORTLIST, BESPOKE), seconds(CONFIRM))


INTERVAL_S = 0.1
"""Least time between two answers that differ in simulated times alone."""


@dataclass(slots=True)
class PartialAnswers:
    """Tells ``answered`` the answer so far, on one op, the ``case``; without it nothing is computed."""

    scenario: Scenario
    case: OpCase
    answered: Answered | None = None
    _known: dict[str, Candidate] = field(default_factory=dict)
    _reported_at: float = 0.0

    def ranked(self, candidates: Sequence[Candidate]) -> None:
        """Take the candidates as they are now, and tell the answer."""
        if self.answered is not None:
            self._known = {candidate.expression: candidate for candidate in candidates}
            self._tell()

    def simulated(self, job: SimulationJob, result: Result) -> None:
        """Take the time of a candidate that had none, and tell the answer unless one was told a moment ago."""
        before = self._known.get(job.schedule.expression)
        if before is None or before.simulated_ticks is not None or job.scenario is not self.case:
            return
        timed = replace(before, simulated_ticks=result.makespan_ticks, unit_bytes=result.unit_bytes)
        self._known[before.expression] = timed
        if perf_counter() - self._reported_at > INTERVAL_S:
            self._tell()

    def confirmed(self, candidates: Sequence[Candidate], bound: Bound | None, confirmed: Confirmed) -> None:
        """Report the confirmed answer: threshold and sensitivity take longer."""
        if self.answered is not None:
            found = Findings(tuple(candidates), Stages(interrupted=True), bound=bound, confirmed=confirmed)
            self.answered(advice_of(self.scenario, found))

    def _tell(self) -> None:
        """Tell the answer, if there is a baseline and anything has a time."""
        candidates = by_time(list(self._known.values()))
        known = any(isfinite(candidate.best_us) for candidate in candidates)
        if self.answered is None or not known or not any(candidate.is_serial for candidate in candidates):
            return
        self.answered(advice_of(self.scenario, Findings(tuple(candidates), Stages(interrupted=True))))
        self._reported_at = perf_counter()


def run_of_candidate(scenario: Scenario, candidate: Candidate) -> ShownRun | None:
    """Return the run of a schedule of several ops, None if it is not simulated."""
    return None if candidate.result is None else run_of(scenario, candidate.result, candidate.joint)


def new_runs_of(advice: Advice, known: Mapping[str, ShownRun]) -> dict[str, ShownRun]:
    """Return the runs that an answer brings and that are not among the ``known``, by expressions of schedules."""

    def is_new(expression: str, result: object) -> bool:
        return expression not in known or known[expression].result is not result

    results = {one.schedule.expression: one for one in (advice.result, advice.serial_result) if one is not None}
    new = {name: run_of(advice.case, result) for name, result in results.items() if is_new(name, result)}
    for one in advice.candidates:
        if one.result is not None and is_new(one.expression, one.result):
            new[one.expression] = run_of(advice.scenario, one.result, one.joint)
    return new
