"""From a workload to advice: options of its ops, joint search, all layers in packets, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from ...compiler.codes import Code
from ...compiler.ir import (
    TICKS_PER_US,
    Cancelled,
    OpCase,
    OpChoice,
    Progress,
    Rejection,
    Scenario,
    Schedule,
    ShouldStop,
    heeding,
    never,
    silent,
)
from ...compiler.planning.build import ScheduleError
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore import RunTooLarge
from ...simcore.lower.variability import check_compared
from ...simcore.memo.memo import ADVISOR, Memo, memo_of, memoized
from ..answer.answer import Findings, advice_of
from ..answer.explain import COPY_ENGINES_LEFT_OUT
from ..answer.extrapolation import imbalance_lines
from ..answer.rule import finalists, recommended_of
from ..answer.stages import (
    BESPOKE,
    BOUND,
    CONFIRM,
    DEFAULT,
    IMPLEMENTATIONS,
    PATIENCE_S,
    UNWATCHED,
    AdviceOptions,
    Answered,
    Stages,
    Watcher,
    either,
    lateness,
)
from ..bounds.lower_bound import workload_bound
from ..candidates.advice import Advice, OpAdvice
from ..candidates.candidate import Candidate, ScheduleOrigin, by_time, joint_candidate
from ..candidates.predicted import predicted_candidates
from ..implementations.offers import offers_of
from ..learned.proposal_model import ProposalModel
from ..solver.memory import check_workload_memory
from ..work.pools import open_processes, result_of
from ..work.processes import ProcessDied
from ..work.workers import failed_stage, failure_sentences, open_workers
from .declared import ops_of, reasons_for, simulated_schedules, slowly, with_simulated
from .finish import BespokeOps, Finish
from .joint import JointRuns, Start, too_much
from .op_runs import leaves_out_copy_engines
from .orders import BY_LIBRARY, EACH_ITS_BEST, NO_OVERLAP, OfferSearch, by_library, free_names, in_turn_of
from .search import JOINT, JointSearch

NUM_FINALISTS = 3
"""Searched schedules of which all layers are simulated."""

SEARCH, ORDERS = "the joint search", "orders of whole layers"
DECLARED = "declared in the file"

SEARCHED_FOR_ALL = "searched for all ops together"
OWN_CHUNKS = "{}, with chunks that no template has in {}"

INTERRUPTED = "stopped early: this is the best of what was found until then"

NOT_SIMULATED = "nothing was simulated in time: the time without overlap is the sum of the estimates of all ops"

NOT_SEARCHED = "copies by {} and ways in which all must be simulated were compared only where they are explored"

SIMULATED_ALL_THE_SAME = (
    "a layer is simulated without verification too, and no small changes of its schedules are tried"
)

SHORTENED = "a large workload: the search ended before small changes gained nothing any more"


@dataclass(frozen=True, slots=True)
class _Question:
    """A workload, how much work to spend, advice on the op that alone has a choice, and who proposes."""

    scenario: Scenario
    options: AdviceOptions
    of_sole: Advice | None
    proposals: ProposalModel | None

    @property
    def compared(self) -> tuple[Candidate, ...]:
        """The options of the op that alone has a choice; none if there is no such op."""
        return () if self.of_sole is None else self.of_sole.candidates

    @property
    def best_alone(self) -> OpChoice | None:
        """What is recommended for that op by itself; None for a plan that the file has."""
        return None if self.of_sole is None else self.of_sole.recommended.choice

    @property
    def memo(self) -> Memo | None:
        """Where the answer is kept: for any limit of time and number of workers, which decide none that is."""
        options = replace(self.options, within_s=None, workers=1)
        compared = self.best_alone, *(one.expression for one in self.compared)
        digest = "" if self.proposals is None else self.proposals.digest
        return memo_of(("recommend_workload", self.scenario, options, compared, digest), ADVISOR)


def recommend_workload(
    scenario: Scenario,
    options: AdviceOptions = DEFAULT,
    watcher: Watcher = UNWATCHED,
    *,
    of_sole: Advice | None = None,
    proposals: ProposalModel | None = None,
) -> Advice:
    """Return which schedule to use for all ops of a workload together; while results are kept on disk, the kept answer.

    Parameters
    ----------
    scenario
        The question: a workload of several ops on a system.
    options
        How much to search. Without ``verify``, or with ``bespoke`` 0, no small changes of schedules are tried. ``top``,
        ``threshold`` and ``sensitivity`` have no effect here.
    watcher
        Who waits. Once its ``should_stop`` returns true, the answer is the best that was found until then. If it is to
        be ``answered`` what is known so far, the schedules of the file are simulated first, by ``workers``; the search
        is made in another process.
    of_sole
        The advice on ``scenario.sole``, if only one op has a choice: then the schedules of that op are compared, and
        nothing is searched.
    proposals
        The model that proposes schedules of each op; not used with ``of_sole``.

    Raises
    ------
    ScheduleError
        If the workload does not fit into memory, or its system replays a profile.
    RunTooLarge
        If not even the schedule without overlap can be simulated.
    NoFeasibleSchedule
        If someone watches, and no schedule can be simulated.
    Cancelled
        If ``watcher.should_stop`` returned true before anything was simulated.
    """
    check_workload_memory(scenario)
    check_compared(scenario.system)
    proposals = proposals if options.verify and options.bespoke > 0 and of_sole is None else None
    question = _Question(scenario, options, of_sole, proposals)
    if watcher.answered is not None:
        return _watched(question, watcher, watcher.answered)
    return _searched(question, watcher.should_stop, watcher.progress)


def _watched(question: _Question, watcher: Watcher, answered: Answered) -> Advice:
    """What the schedules of the file give, told as it becomes known, then what is searched."""
    first = replace(simulated_schedules(question.scenario, question.options.workers, watcher), interrupted=True)
    answered(first)
    watcher.progress("joint search", 0, 0)
    begun = perf_counter()
    try:
        advice = _searched_in_process(question, watcher)
    except Cancelled:
        return first
    except (ScheduleError, RunTooLarge) as error:
        failed = tuple(failure_sentences([failed_stage("the search for a joint schedule", error)]))
        kept = replace(first, interrupted=False, notes=(*first.notes, *failed), marks=(*first.marks, *failed))
        return replace(kept, timing=replace(kept.timing, shortlist_s=perf_counter() - begun))
    return with_simulated(advice, first)


def _searched_in_process(question: _Question, watcher: Watcher) -> Advice:
    if question.options.workers > 1:
        try:
            with open_processes(1) as submit:
                return result_of(submit(_searched, question), watcher.should_stop)
        except ProcessDied:
            pass  # it is searched here
    return _searched(question, watcher.should_stop, watcher.progress)


def _searched(question: _Question, should_stop: ShouldStop, progress: Progress = silent) -> Advice:
    return memoized(
        question.memo,
        Advice,
        lambda: _recommended(question, should_stop, progress),
        given=(question.scenario,),
        lasts=lambda advice: not advice.interrupted,
    )


def _recommended(question: _Question, stop: ShouldStop, report: Progress) -> Advice:
    scenario, options = question.scenario, question.options
    early = either(stop, lateness(options.within_s))
    limit, quick = scenario.explore.staging_limit_bytes, not options.verify
    runs = JointRuns(scenario.system, scenario.workload, limit, early, quick=quick)
    runs.reported = lambda choice, ticks: report("joint", runs.num_runs, 0)
    report("place", 0, 1)
    serial = _begun(scenario, options, runs, stop)
    if isinstance(serial, Advice):
        return serial
    search = JointSearch(scenario, runs, climbs=options.verify and options.bespoke > 0)
    stages, finish = Stages(early), Finish(scenario, runs, serial, early, report, quick=quick)
    library, by_others = by_library(scenario)
    if library is not None:
        stages.run(SEARCH, lambda: search.take(library.choice, library.what), None)
    origins = _take_options(scenario, search, question.compared, stages)
    if not origins:
        stages.run(SEARCH, search.run, None)
    if not origins and options.verify and options.bespoke > 0:
        reported = partial(report, "bespoke")
        with open_workers(1, early) as pool:
            stages.run(BESPOKE, BespokeOps(search, options.bespoke, pool, reported, question.proposals).run, None)
    orders = OfferSearch(scenario, runs, library, search.known, search.found)
    report("offers", 0, 1)
    stages.run(ORDERS, orders.run, None)
    known = [replace(one, origin=origins.get(one.joint, one.origin)) for one in _candidates(scenario, search, serial)]
    begun = perf_counter()
    candidates = finish.candidates([*known, *orders.candidates(known)], question.best_alone)
    of_all = partial(workload_bound, scenario, quick=quick)
    bound = stages.run(BOUND, of_all, None)
    candidates = _with_whole_winner(scenario, finish, candidates)
    offers = stages.run(IMPLEMENTATIONS, lambda: offers_of(scenario, orders.timed(candidates)), None)
    stages.seconds[CONFIRM] = perf_counter() - begun
    stages.interrupted |= finish.stopped
    notes = (*((INTERRUPTED,) if stages.interrupted else ()), *failure_sentences(stages.failures))
    warnings = (
        *_warnings(scenario, runs, verify=options.verify),
        *(by_others if any(one.is_library for one in candidates) else ()),
        *_staged(runs, serial, candidates),
    )
    findings = Findings(tuple(candidates), stages, bound=bound, notes=notes, offers=offers, warnings=warnings)
    return _explained(advice_of(scenario, findings), search)


def _begun(scenario: Scenario, options: AdviceOptions, runs: JointRuns, stop: ShouldStop) -> Start | Advice:
    """Simulate all ops without overlap; return the answer by estimates where that takes more than patience.

    Raises
    ------
    ScheduleError
        If it cannot be simulated.
    Cancelled
        If ``stop`` returned true.
    """
    patience = either(stop, lateness(options.within_s, PATIENCE_S))
    estimate_ticks = 0 if options.within_s is None else serial_estimate(scenario, stop, patience)
    try:
        serial = runs.begin(SERIAL, patience)
    except Cancelled:
        if stop():
            raise
        return _unsimulated(scenario, estimate_ticks)
    if serial is None:
        message = f"{scenario.name} cannot be simulated without overlap"
        raise ScheduleError(Rejection(Code.MGS402, message, "repeat fewer layers, or use smaller tensors"))
    return serial


def _warnings(scenario: Scenario, runs: JointRuns, *, verify: bool) -> Iterator[str]:
    """What was left out, of the file and of the search."""
    yield from (f"{one.name} is left out: {runs.left_out[one]}" for one in scenario.schedules if one in runs.left_out)
    yield from _not_searched(scenario, runs)
    if not verify:
        yield SIMULATED_ALL_THE_SAME


def _staged(runs: JointRuns, serial: Start, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Whether all that was found stages more than is allowed."""
    if all(one.is_serial for one in candidates) and runs.stages_too_much(serial.result):
        staged = too_much(serial.result, runs.staging_limit_bytes or 0)
        yield f"{SERIAL.name}: {staged}, and nothing that was found stages less"


def _take_options(
    scenario: Scenario, search: JointSearch, options: Sequence[Candidate], stages: Stages
) -> dict[Schedule, ScheduleOrigin]:
    """Simulate the declared schedules and one for each of ``options``; return where the latter come from."""
    origins: dict[Schedule, ScheduleOrigin] = {}
    if not options:
        return origins

    def take() -> None:
        search.take(SERIAL, NO_OVERLAP)
        for choice in scenario.schedules:
            search.take(choice, DECLARED)
        for known, origin in in_turn_of(scenario, options):
            search.take(known.choice, known.what)
            origins[known.choice] = origin

    stages.run(SEARCH, take, None)
    return origins


def _with_whole_winner(scenario: Scenario, finish: Finish, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, all layers of the one that wins simulated: what a few of them promise may not be so."""
    seen: set[str] = set()
    while True:
        best = recommended_of(scenario, finalists(scenario, candidates))
        if best.result is None or not best.is_estimate or best.expression in seen:
            return list(candidates)
        seen.add(best.expression)
        whole = finish.whole(best)
        candidates = by_time([whole if one is best else one for one in candidates])


def serial_estimate(scenario: Scenario, should_stop: ShouldStop, too_late: ShouldStop) -> int:
    """Return the estimated ticks of all layers without overlap: the serial schedules of all ops, one after the other.

    Once it is ``too_late``, one rank of a collective stands for all.

    Raises
    ------
    Cancelled
        If ``should_stop`` returned true.
    """
    with heeding(should_stop):
        pairs = (OpCase(op.name, scenario.system, op.shape) for op in scenario.workload.ops)
        one_us = sum(predicted_candidates(pair, (), never, too_late)[0].best_us for pair in pairs)
    return round(one_us * TICKS_PER_US * scenario.workload.num_layers)


def _unsimulated(scenario: Scenario, estimate_ticks: int) -> Advice:
    """The answer where nothing was simulated in time: no overlap, as it is estimated."""
    serial = joint_candidate(SERIAL, ScheduleOrigin.SERIAL, NO_OVERLAP, estimate_ticks)
    return advice_of(scenario, Findings((serial,), Stages(interrupted=True), notes=(INTERRUPTED, NOT_SIMULATED)))


def _not_searched(scenario: Scenario, runs: JointRuns) -> Iterator[str]:
    """What was left out of a search that would take too long."""
    if runs.ranks.are_many:
        others = "other numbers of SMs" if leaves_out_copy_engines(scenario.workload, scenario.explore) else "SMs"
        yield f"{runs.system.num_ranks} GPUs that are not alike: {NOT_SEARCHED.format(others)}"
    if runs.is_spent:
        yield SHORTENED


def _candidates(scenario: Scenario, search: JointSearch, serial: Start) -> list[Candidate]:
    """What was found; of what was searched the fastest, each as long as no other: equal to the tick is the same."""
    known = {search.found[choice] for choice in search.known}
    by_ticks = {search.found[choice]: choice for choice in reversed(search.best_searched())}
    searched = [by_ticks[ticks] for ticks in sorted(by_ticks.keys() - known)][:NUM_FINALISTS]
    found = [
        joint_candidate(replace(choice, name=name), ScheduleOrigin.SEARCHED, _searched_as(choice), search.found[choice])
        for choice, name in zip(searched, free_names(JOINT, scenario.schedules), strict=False)
    ]
    for choice, what in search.known.items():
        found.append(joint_candidate(choice, _origin(scenario, choice, what), what, search.found[choice]))
    if not any(one.joint == SERIAL for one in found):
        found.append(joint_candidate(SERIAL, ScheduleOrigin.SERIAL, NO_OVERLAP, serial.result.total_ticks))
    return found


def _searched_as(choice: Schedule) -> str:
    """What a schedule is that was searched, with its groups of experts and the ops that are bespoke."""
    bespoke = [mode.op for mode in choice.modes if isinstance(mode.body, OpChoice) and mode.body.parts]
    groups = f", experts in groups of {', '.join(map(str, choice.groups))}" if choice.groups else ""
    searched = f"{SEARCHED_FOR_ALL}{groups}"
    return OWN_CHUNKS.format(searched, ", ".join(bespoke)) if bespoke else searched


def _origin(scenario: Scenario, choice: Schedule, what: str) -> ScheduleOrigin:
    if choice == SERIAL:
        return ScheduleOrigin.SERIAL
    if what == BY_LIBRARY:
        return ScheduleOrigin.LIBRARY
    return ScheduleOrigin.DECLARED if choice in scenario.schedules else ScheduleOrigin.KNOWN


def _explained(advice: Advice, search: JointSearch) -> Advice:
    """The answer with what each op does in it, and why."""
    scenario, recommended = advice.scenario, advice.recommended
    space = search.space_of(recommended.joint)
    kernels = 0 if space is None else space.kernels_ticks * scenario.num_layers
    ops: tuple[OpAdvice, ...] = ()
    if recommended.result is not None and space is not None:
        ops = ops_of(space.workload, space.op_options, recommended.joint, recommended.result)
    in_turns = (one for one in advice.candidates if one.what.startswith(EACH_ITS_BEST))  # by each copier
    in_turn = min(in_turns, key=lambda one: one.ticks, default=None)
    reasons = (
        *imbalance_lines(scenario),  # no schedule mends it
        *reasons_for(ops, recommended, in_turn, kernels),
        *(slowly(space.op_options, recommended.joint) if space is not None else ()),
        *((COPY_ENGINES_LEFT_OUT,) if leaves_out_copy_engines(scenario.workload, scenario.explore) else ()),
        *advice.reasons,
    )
    return replace(
        advice,
        ops=ops,
        reasons=reasons,
        kernels_ticks=kernels,
        copier="" if space is None else str(space.copier),
        searched=search.runs.num_runs,
    )
