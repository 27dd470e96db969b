"""Compute an answer: of one op by its stages, of several ops jointly; in this process, another one, or a cluster.

Begin with ``computed_advice``; its ``_findings`` calls the stages of one op in order.
"""

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import perf_counter

from ...compiler.ir import Cancelled, OpChoice, Progress, Scenario, ShouldStop, never, silent
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...compiler.planning.handoff import sole_chain
from ...compiler.planning.knobs.engine import explored_engines
from ...simcore.memo.codec import MalformedError, decode, encode
from ...simcore.memo.memo import ADVISOR, Memo, Store, current_store, memo_of, sources_digest, use, user_store
from ..answer.answer import Answered, Confirmed, Findings, PartialAnswers, advice_of
from ..answer.stages import PATIENCE_S, AdviceOptions, Stages, either, lateness
from ..candidates.advice import Advice, AnswerSource
from ..candidates.forests import left_out
from ..candidates.shortlist import answered_by_runs, merged
from ..estimate.makespan import MOST_RANKS
from ..learned.model_file import load as load_proposals
from ..learned.proposal_model import ALONE, Near, ProposalModel
from ..work.on_dask import BackendError
from ..work.processes import Caller
from ..work.workers import open_workers, suits_threads
from .one_op import AdviceRun

log = logging.getLogger(__name__)


def keep_results(folder: Path | None = None) -> None:
    """Keep results of advice and of simulations on disk from now on, in all threads.

    ``folder`` is by default that of the commands: ``MAGUS_CACHE_DIR``, else in the user's cache folder. Processes may
    share it, and may be killed at any time: an entry is written whole or not at all. Without a place nothing is kept.
    """
    use(user_store() if folder is None else Store(folder))


ONLY_RANKED = "{:,} GPUs see different networks: times are estimates, nothing was simulated; --within 10min simulates"


@dataclass(frozen=True, slots=True)
class KeptAdvice:
    """The place of the advice for ``scenario`` of one op: a line with choices, and one with the rest."""

    scenario: Scenario
    memo: Memo | None

    @property
    def is_filled(self) -> bool:
        """Whether something is kept there."""
        return self.memo is not None and self.memo.read() is not None

    def alone(self) -> AbstractContextManager[None]:
        """Return a block in which no other process of this machine computes this advice."""
        return nullcontext() if self.memo is None else self.memo.alone()

    def recall(self) -> Advice | None:
        """Return the advice, None if it is not known."""
        data = None if self.memo is None else self.memo.read()
        if data is None:
            return None
        choices, _, rest = data.partition(b"\n")
        try:
            case = self.scenario.case
            schedules = [build_op_plan(case, choice) for choice in decode(choices, tuple[OpChoice, ...])]
            return replace(decode(rest, Advice, (self.scenario, *schedules)), source=AnswerSource.CACHE)
        except (MalformedError, ScheduleError):
            log.debug("the advice on disk is malformed", exc_info=True)
            return None

    def keep(self, advice: Advice) -> None:
        """Keep ``advice`` if another run would give the same: it was neither cut short, nor did a part of it fail."""
        if self.memo is None or advice.interrupted or advice.notes:
            return
        built = {candidate.choice: candidate.schedule for candidate in advice.candidates if candidate.choice}
        try:
            self.memo.write(encode(tuple(built)) + b"\n" + encode(advice, (self.scenario, *built.values())))
        except TypeError:
            log.debug("the advice cannot be kept", exc_info=True)


def _solver_version() -> str:
    """The version of OR-tools; empty where advice does without."""
    from importlib.metadata import PackageNotFoundError, version  # those who keep nothing do not wait for it

    try:
        return version("ortools")
    except PackageNotFoundError:
        return ""


TIME_TO_PROPOSE = 0.5
"""Share of the time for an answer after which no more is proposed than has been, if something is to be simulated."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks of those who have waited ``waited_s`` for an answer: its progress, and the best answer so far."""

    progress: Progress = silent
    should_stop: ShouldStop = never
    answered: Answered | None = None
    waited_s: float = 0.0

    def late(self, within_s: float | None, more_s: float = 0.0) -> ShouldStop:
        """Return ``lateness`` since they asked."""
        return lateness(within_s, more_s - self.waited_s)


@dataclass(frozen=True, slots=True)
class Requested:
    """A question to another process, what is known ``near`` it, and whether to report answers on the way."""

    subject: Scenario
    options: AdviceOptions
    watched: bool = False
    near: Near = ALONE


def answer_there(proposals: ProposalModel | None, requested: Requested, caller: Caller) -> Advice:
    """Return the answer, in a process; a time limit counts from the moment of the question."""
    subject, options = requested.subject, requested.options

    def progress(stage: str, done: int, total: int) -> None:
        caller.tell((stage, done, total))

    answered = caller.tell if requested.watched else None
    return computed_advice(
        model_near(proposals, requested.near),
        subject,
        options,
        Watcher(progress, caller.should_stop, answered, caller.waited_s),
    )


def answer_at_worker(digests: tuple[str, str], keeps: bool, requested: Requested) -> Advice:
    """Return the answer at a worker of a cluster, which ``keeps`` results for itself too, and answers from them.

    Workers that share a folder compute an answer once, whoever asks for it and however often.

    Raises
    ------
    BackendError
        As ``check_worker``.
    """
    check_worker(digests, keeps)
    alone = replace(requested, options=replace(requested.options, workers=1))
    proposals, caller = shipped_proposals(), Caller(lambda what: None, never, 0.0)
    subject, options, near = requested.subject, requested.options, model_near(proposals, requested.near)
    if subject.only_case is None:  # what is jointly simulated is kept where it is
        return answer_there(proposals, alone, caller)
    place = place_of(near, subject, options)
    with place.alone():  # who asked before may have been killed while a worker went on, or as its answer arrived
        return place.recall() or answer_there(proposals, alone, caller)


def check_worker(digests: tuple[str, str], keeps: bool) -> None:
    """Begin a task at a worker of a cluster, which ``keeps`` results for itself too.

    Raises
    ------
    BackendError
        If the sources of Magus here, or the shipped model, have other digests.
    """
    if digests != digests_here():
        message = "a worker has another version of Magus, Python or numpy, or another model"
        raise BackendError(message, "install the same versions on all machines")
    use(user_store() if keeps else None)


@cache
def digests_here() -> tuple[str, str]:
    """Return what says which version of Magus and of the shipped model is here."""
    return sources_digest(ADVISOR), shipped_proposals().digest


@cache
def shipped_proposals() -> ProposalModel:
    """Return the shipped model, read once in a process: that takes four times as long as a short answer.

    Raises
    ------
    ModelError
        As ``load_proposals``.
    """
    return load_proposals(None)[0]


def reported_by(watcher: Watcher) -> Callable[[object], None]:
    """Return the receiver of what ``answer_there`` reports."""

    def tell(what: object) -> None:
        if isinstance(what, tuple):
            watcher.progress(*what)
        elif watcher.answered is not None and isinstance(what, Advice):
            watcher.answered(what)

    return tell


def model_near(proposals: ProposalModel | None, near: Near) -> ProposalModel | None:
    """Return the model; it prefers schedules that won at sizes ``near`` by."""
    return proposals if proposals is None or near == ALONE else replace(proposals, near=near)


def place_of(proposals: ProposalModel | None, scenario: Scenario, options: AdviceOptions) -> KeptAdvice:
    """Return where the advice on ``scenario``, of one op, is kept on disk; nowhere if it depends on sizes near by.

    Time limits and numbers of workers do not change the place, since no kept answer depends on them.
    """
    others_decide = proposals is not None and proposals.near != ALONE
    if others_decide or current_store() is None:
        return KeptAdvice(scenario, None)
    digest, same = proposals.digest if proposals else "", replace(options, within_s=None, workers=1)
    return KeptAdvice(scenario, memo_of(("advise", scenario.case, same, digest, _solver_version()), ADVISOR))


def computed_advice(
    proposals: ProposalModel | None, scenario: Scenario, options: AdviceOptions, watcher: Watcher
) -> Advice:
    """Return the advice on ``scenario``, by all stages; it is kept on disk if another run would give it too.

    If only one of several ops has a choice, that op gets the stages of one op.

    Raises as ``Advisor.recommend`` does.
    """
    case = scenario.only_case
    if case is None:
        return _of_several(proposals, scenario, options, watcher)
    stop, answers = watcher.should_stop, PartialAnswers(scenario, case, watcher.answered)
    only_ranked = options.within_s is None and case.num_ranks > MOST_RANKS and not case.network.symmetric
    of_run = replace(options, verify=False) if only_ranked else options
    run = AdviceRun(scenario, case, of_run, stop, Stages(stop), watcher.progress, answers)
    found = _findings(run, proposals, watcher)
    if only_ranked:
        found = replace(found, warnings=(ONLY_RANKED.format(case.num_ranks), *found.warnings))
    if (trees := left_out(case)) is not None:
        found = replace(found, warnings=(*found.warnings, trees))
    advice = advice_of(scenario, found)
    place_of(proposals, scenario, options).keep(advice)
    return advice


def _of_several(
    proposals: ProposalModel | None, scenario: Scenario, options: AdviceOptions, watcher: Watcher
) -> Advice:
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
    advice = recommend_workload(
        scenario,
        replace(options, within_s=left_s),
        progress=watcher.progress,
        should_stop=watcher.should_stop,
        answered=watcher.answered,
        of_sole=of_sole,
        proposals=proposals,
    )
    return _with_sensitivity(advice, watcher) if options.sensitivity and not advice.interrupted else advice


def _with_sensitivity(advice: Advice, watcher: Watcher) -> Advice:
    """Return an answer about several ops with what hardware numbers change of it; as it is if that is stopped."""
    from ..sensitivity.several import sensitivity_of_several

    with suppress(Cancelled):
        return replace(advice, sensitivity=sensitivity_of_several(advice, watcher.progress, watcher.should_stop))
    return advice


def _findings(run: AdviceRun, proposals: ProposalModel | None, watcher: Watcher) -> Findings:
    options, stop, answers = run.options, run.should_stop, run.answers
    late = None if options.within_s is None else watcher.late(options.within_s)
    early = either(stop, late or never)
    # Proposals are an answer: some are made however late it is, unless that takes much longer than it should.
    grace_over = either(stop, watcher.late(options.within_s, PATIENCE_S))
    share = TIME_TO_PROPOSE if options.verify else 1.0  # the rest is for simulations
    enough = watcher.late(None if options.within_s is None else options.within_s * share)
    workers, threads = options.workers if options.verify else 1, suits_threads(run.scenario)
    searches = options.verify and run.proposes(proposals)
    with open_workers(workers, early, threads=threads, busy=searches) as pool:
        pool.on_result = answers.simulated
        if searches:
            run.begin_baseline(pool)
        bound_when_requested = run.begin_bound(pool)
        candidates = run.proposed(proposals, enough, grace_over)
        proposed = bool(candidates)
        at_once = proposed and not options.verify
        # Workers simulate the first while the space is ranked, but where someone waits for an answer meanwhile.
        first = proposed and options.verify
        enumerates_beside = pool.works_beside and late is None and answers.answered is None
        if first:
            run.begin_first(pool, candidates)
        if first and not enumerates_beside:
            candidates = run.simulated_first(pool, candidates)
        num_feasible: int | None = None
        if not at_once:
            ranked, num_feasible = run.predicted(late)
            if first and enumerates_beside:
                candidates = run.simulated_first(pool, candidates)
            # Proposals that were not simulated would take the place of templates in the shortlist.
            candidates = merged(ranked, answered_by_runs(candidates) or candidates)
        if not candidates or (run.stages.interrupted and not proposed):
            raise Cancelled
        run.stages.should_stop = early
        run.stages.interrupted |= early()
        bound = None if at_once else bound_when_requested()
        candidates, confirmed = run.verified(pool, candidates, bound) if options.verify else (candidates, Confirmed())
        failures = tuple(pool.failures)
        if options.threshold or options.sensitivity:
            answers.confirmed(candidates, bound, confirmed)
        threshold = run.threshold(pool, candidates, confirmed) if options.threshold else None
        sensitivity = run.sensitivity(pool, candidates, confirmed) if options.sensitivity else None
    offers = run.offers() if options.verify else None
    notes = run.notes(failures)
    if confirmed.serial is None and all(math.isinf(candidate.best_us) for candidate in candidates):
        raise Cancelled if run.stages.interrupted else RuntimeError("; ".join(notes))
    return Findings(
        tuple(candidates), run.stages, num_feasible, bound, confirmed, notes, offers, threshold, sensitivity
    )
