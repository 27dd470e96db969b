"""The road of an answer: from a scenario to advice, in this process. Begin with ``computed_advice``.

One op goes through the stages of ``_findings``: propose, enumerate, rank, simulate, search, bound, confirm, offer. What
each stage does is in ``one_op.py``, and what it calls in the room of its name. Several ops are searched jointly
(``layers``). Then ``advice_of`` chooses among what was found, and explains the choice.

A stage may fail, find that time is up, or hear that the caller has enough: what is known then is the answer.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

from ...compiler.ir import Cancelled, OpCase, Scenario, ShouldStop, never
from ...compiler.planning.handoff import sole_chain
from ...compiler.planning.knobs.engine import explored_engines
from ..answer.answer import Confirmed, Findings, PartialAnswers, advice_of
from ..answer.stages import PATIENCE_S, AdviceOptions, Stages, Watcher, either
from ..candidates.advice import Advice
from ..candidates.candidate import Candidate
from ..candidates.forests import left_out
from ..candidates.shortlist import answered_by_runs, merged
from ..estimate.makespan import MOST_RANKS
from ..learned.proposal_model import ProposalModel
from ..work.workers import open_workers, suits_threads
from .kept import place_of
from .one_op import AdviceRun, Confirming, proposes

ONLY_RANKED = "{:,} GPUs see different networks: times are estimates, nothing was simulated; --within 10min simulates"

TIME_TO_PROPOSE = 0.5
"""Share of the time for an answer after which no more is proposed than has been, if something is to be simulated."""


def computed_advice(
    proposals: ProposalModel | None, scenario: Scenario, options: AdviceOptions, watcher: Watcher
) -> Advice:
    """Return the advice on ``scenario``; that on one op is kept on disk if another run would give it too.

    If only one of several ops has a choice, that op gets the stages of one op.

    Raises as ``Advisor.recommend`` does.
    """
    case = scenario.only_case
    if case is None:
        return _of_several(proposals, scenario, options, watcher)
    only_ranked = options.within_s is None and case.num_ranks > MOST_RANKS and not case.network.symmetric
    of_run = replace(options, verify=False) if only_ranked else options
    found = _findings(scenario, case, of_run, proposals, watcher)
    warnings = (ONLY_RANKED.format(case.num_ranks) if only_ranked else None, left_out(case))
    advice = advice_of(scenario, replace(found, warnings=tuple(filter(None, warnings))))
    place_of(proposals, scenario, options).keep(advice)
    return advice


@dataclass(frozen=True, slots=True)
class _Limits:
    """When to stop; None or never without a time limit.

    ``late`` is once the time is over, ``early`` that or once the caller asks to stop. Proposals are an answer: once
    there was ``enough`` time for them, the rest is for simulations, but some are made however late it is, unless that
    takes much longer than it should: until ``grace_over``.
    """

    late: ShouldStop | None
    early: ShouldStop
    enough: ShouldStop
    grace_over: ShouldStop

    @classmethod
    def of(cls, options: AdviceOptions, watcher: Watcher) -> "_Limits":
        """Return the limits of an answer whose time began when those who wait asked."""
        within_s, stop = options.within_s, watcher.should_stop
        late = None if within_s is None else watcher.late(within_s)
        share = TIME_TO_PROPOSE if options.verify else 1.0
        enough = watcher.late(None if within_s is None else within_s * share)
        return cls(late, either(stop, late or never), enough, either(stop, watcher.late(within_s, PATIENCE_S)))


def _findings(
    scenario: Scenario, case: OpCase, options: AdviceOptions, proposals: ProposalModel | None, watcher: Watcher
) -> Findings:
    """Send one op through the stages."""
    limits, answers = _Limits.of(options, watcher), PartialAnswers(scenario, case, watcher.answered)
    model = proposals if proposes(proposals, case, options) else None
    searches = options.verify and model is not None
    workers, threads = options.workers if options.verify else 1, suits_threads(case)
    with open_workers(workers, limits.early, threads=threads, busy=searches) as pool:
        pool.on_result = answers.simulated
        run = AdviceRun(scenario, case, options, pool, watcher, answers, Stages(watcher.should_stop))
        if searches:
            run.begin_baseline()
        bound_when_requested = run.begin_bound()
        candidates, num_feasible = _ranked(run, model, limits)
        run.stages.should_stop = limits.early
        run.stages.interrupted |= limits.early()
        bound = None if num_feasible is None else bound_when_requested()
        confirmed = Confirmed()
        if options.verify:
            confirming = Confirming(case, pool, bound)
            candidates = run.searched(run.simulated(candidates), confirming)
            confirmed = run.confirmed(candidates, confirming)
        failures = tuple(pool.failures)
        if options.threshold or options.sensitivity:
            answers.confirmed(candidates, bound, confirmed)
        threshold = run.threshold(candidates, confirmed) if options.threshold else None
        sensitivity = run.sensitivity(candidates, confirmed) if options.sensitivity else None
    offers = run.offers() if options.verify else None
    notes = run.notes(failures)
    if confirmed.serial is None and all(math.isinf(candidate.best_us) for candidate in candidates):
        raise Cancelled if run.stages.interrupted else RuntimeError("; ".join(notes))
    return Findings(
        tuple(candidates), run.stages, num_feasible, bound, confirmed, notes, offers, threshold, sensitivity
    )


def _ranked(run: AdviceRun, model: ProposalModel | None, limits: _Limits) -> tuple[list[Candidate], int | None]:
    """Propose, simulate the best proposals, enumerate the space and rank it.

    Returns the candidates, and how many are feasible: None where proposals answer, and nothing is enumerated.
    """
    candidates = run.proposed(model, limits.enough, limits.grace_over)
    proposed = bool(candidates)
    if proposed and not run.options.verify:
        return candidates, None
    # Workers simulate the first while the space is ranked, but where someone waits for an answer meanwhile.
    beside = run.pool.works_beside and limits.late is None and run.answers.answered is None
    if proposed:
        run.begin_first(candidates)
    if proposed and not beside:
        candidates = run.simulated_first(candidates)
    ranked, num_feasible = run.predicted(limits.late)
    if proposed and beside:
        candidates = run.simulated_first(candidates)
    # Proposals that were not simulated would take the place of templates in the shortlist.
    candidates = merged(ranked, answered_by_runs(candidates) or candidates)
    if not candidates or (run.stages.interrupted and not proposed):
        raise Cancelled
    return candidates, num_feasible


def _of_several(
    proposals: ProposalModel | None, scenario: Scenario, options: AdviceOptions, watcher: Watcher
) -> Advice:
    """Search for all ops jointly, behind the advice on the op that alone has a choice, if there is one."""
    from ..layers.recommend import recommend_workload  # those who ask about one op do not wait for it

    within_s = None if options.within_s is None else max(0.0, options.within_s - watcher.waited_s)
    begun, of_sole = perf_counter(), None
    chain = None if scenario.sole is not None else sole_chain(scenario)
    sole = scenario.sole if chain is None else chain[0]
    if sole is not None and within_s != 0:
        sole = replace(sole, explore=explored_engines(sole.system, sole.shape, sole.explore))
        half_s = None if within_s is None else within_s / 2  # the rest is for all ops together
        of_one = replace(options, within_s=half_s, threshold=False, sensitivity=False)
        with suppress(Cancelled):
            of_sole = computed_advice(
                proposals, Scenario.of_one(sole), of_one, Watcher(watcher.progress, watcher.should_stop)
            )
    left_s = None if within_s is None else max(0.0, within_s - (perf_counter() - begun))
    of_all = replace(options, within_s=left_s)
    advice = recommend_workload(scenario, of_all, watcher, of_sole=of_sole, proposals=proposals)
    return _with_sensitivity(advice, watcher) if options.sensitivity and not advice.interrupted else advice


def _with_sensitivity(advice: Advice, watcher: Watcher) -> Advice:
    """Return an answer about several ops with what hardware numbers change of it; as it is if that is stopped."""
    from ..sensitivity.several import sensitivity_of_several

    with suppress(Cancelled):
        return replace(advice, sensitivity=sensitivity_of_several(advice, watcher.progress, watcher.should_stop))
    return advice
