"""The stages of advice on one op: propose, enumerate, rank, simulate the shortlist, search, confirm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ...compiler.ir import Cancelled, OpCase, OpPlan, Scenario, ShouldStop, heeding
from ...compiler.planning.build import build_op_plan
from ...simcore import Result, affordable_unit, line_hops, load_core
from ..answer.answer import Confirmed, PartialAnswers, confirmed_times, without_endless
from ..answer.rule import finalists, overlap_pays, recommended_of
from ..answer.stages import (
    BESPOKE,
    BOUND,
    CONFIRM,
    ENUMERATE,
    IMPLEMENTATIONS,
    PATIENCE_S,
    PROPOSE,
    RANK,
    SENSITIVITY,
    SHORTLIST,
    THRESHOLD,
    AdviceOptions,
    Stages,
    Watcher,
    either,
    lateness,
)
from ..bespoke.stage import bespoke_candidates, budget_of, is_searched
from ..bounds.lower_bound import Bound, lower_bound
from ..candidates.advice import Threshold
from ..candidates.candidate import Candidate, baseline_of
from ..candidates.predicted import predicted_candidates, unpredicted_candidates, usual_serials
from ..candidates.sensitivity import Sensitivity
from ..candidates.shortlist import (
    COLLECTIVE_DIVISOR,
    first_to_simulate,
    job_in_packets,
    merged,
    shortlist_unit,
    simulate_first,
    simulate_shortlist,
    simulate_variants,
    simulated_ranks,
    without_beaten,
)
from ..implementations.offers import Offers, offers_of
from ..learned.proposal_model import (
    DEFAULT_EVALUATIONS,
    MANY_EVALUATIONS,
    ProposalModel,
    proposed_candidates,
    serial_candidates,
)
from ..sensitivity.sensitivity import sensitivity_of
from ..sensitivity.threshold import threshold_of
from ..solver import Space, enumerate_space
from ..work.workers import Begun, Failure, SimulationJob, Workers, failure_sentences

# Line-hops of a confirming run: some seconds to a minute on one core.
CONFIRM_LINE_HOPS = 1_000_000_000
# Divides CONFIRM_LINE_HOPS where every rank is simulated: each of them is laid out and followed by itself. Of lone
# collectives by the second, as their shortlist: there packets of 8 KiB and lines differ by 0.02 % at most.
EACH_RANK_COST, ALONE_COST = 4, 4 * COLLECTIVE_DIVISOR


@dataclass(frozen=True, slots=True)
class Confirming:
    """Simulations of finalists by the workers of ``pool``.

    Waterfalls end at the ``bound``; ``begun`` holds the jobs by the expression of the schedule.
    """

    scenario: OpCase
    pool: Workers
    bound: Bound | None
    begun: dict[str, tuple[Begun, ...]] = field(default_factory=dict)

    def begin(self, candidate: Candidate) -> None:
        """Begin to simulate the schedule of ``candidate``, unless that is begun."""
        if candidate.expression not in self.begun:
            self.begun[candidate.expression] = self.pool.begin(self._jobs(candidate))

    def finish(self, schedule: OpPlan) -> Result | None:
        """Return the result, None without one; it has no waterfall if the what-if runs have no result."""
        in_lines, *explained = self.pool.finish(self.begun[schedule.expression])
        for result in explained:
            if in_lines is not None and result is not None:
                in_lines = replace(in_lines, waterfall=result.waterfall, cil=result.cil)
        return in_lines

    def _jobs(self, candidate: Candidate) -> tuple[SimulationJob, ...]:
        """Return a job in lines; in coarser units for problems so large that lines would take minutes.

        What-if runs in other units are a second job: they take about half as long as the run in lines, beside it. But
        to lay out each rank by itself takes longer than a run: then what ranked the schedule is not simulated again.
        """
        schedule = candidate.schedule
        ranks = simulated_ranks(self.scenario, schedule)
        cost = ALONE_COST if self.scenario.is_algorithm_choice else EACH_RANK_COST
        max_line_hops = CONFIRM_LINE_HOPS // (cost * ranks if ranks > 1 else 1)
        unit = affordable_unit(self.scenario, schedule, self.scenario.gpu.line_bytes, max_line_hops)
        explained = shortlist_unit(self.scenario, schedule)
        in_lines = SimulationJob(self.scenario, schedule, unit, loads=True)
        known = candidate.simulated_ticks if candidate.unit_bytes == explained and ranks > 1 else None
        bound_ticks = None if self.bound is None else self.bound.ticks
        if unit == explained or known is not None:
            return (replace(in_lines, bound_ticks=bound_ticks, explain_bytes=explained, makespan_ticks=known),)
        return in_lines, SimulationJob(self.scenario, schedule, explained, bound_ticks, explained)


# Proposals that are simulated before the space is ranked.
NUM_FIRST = 2


def proposes(model: ProposalModel | None, scenario: OpCase, options: AdviceOptions) -> bool:
    """Return whether ``model`` may propose anything."""
    return model is not None and options.bespoke > 0 and is_searched(scenario)


@dataclass(frozen=True, slots=True)
class AdviceRun:
    """One op on its way through the stages: ``scenario`` is its place in the ``question``; the ``pool`` simulates."""

    question: Scenario
    scenario: OpCase
    options: AdviceOptions
    pool: Workers
    watcher: Watcher
    answers: PartialAnswers
    stages: Stages

    def begin_baseline(self) -> None:
        """Begin to simulate the usual baseline, which is among the first in any case, with all that takes loaded."""

        def begin() -> None:
            job = job_in_packets(self.scenario, build_op_plan(self.scenario, usual_serials(self.scenario)[0]))
            load_core(line_hops(self.scenario, job.schedule, job.unit_bytes))
            self.pool.ahead([job])

        self.stages.run(SHORTLIST, begin, None)

    def proposed(self, model: ProposalModel | None, time_up: ShouldStop, early: ShouldStop) -> list[Candidate]:
        """Return the baseline, what the file declares and what ``model`` proposes; nothing if it proposes nothing.

        Once ``time_up``, a few are proposed; once it is time to stop ``early``, nothing. Where time for simulations
        is limited, they are improved for longer than where a search follows.

        Where schedules are simulated, serial ones are not proposed: the baseline has the options that pay, tried by
        rules, and is the same with any model. Else it is the fastest by the estimate, of any algorithm and options.
        """
        if model is None:
            return []
        self.watcher.progress("propose", 0, 1)
        hurried = self.options.verify and self.options.within_s is not None
        changes = MANY_EVALUATIONS if hurried else DEFAULT_EVALUATIONS

        def propose() -> list[Candidate]:
            try:
                with heeding(early):
                    return proposed_candidates(self.scenario, model, changes, time_up)
            except Cancelled:
                return []

        proposed = self.stages.run(PROPOSE, propose, [])
        if self.options.verify:
            proposed = [one for one in proposed if not one.is_serial]
        elif proposed and not time_up():
            proposed = merged(self.stages.run(PROPOSE, lambda: serial_candidates(self.scenario, model), []), proposed)
        usual = self.stages.run(RANK, lambda: predicted_candidates(self.scenario, ()), []) if proposed else []
        requested = {candidate.expression for candidate in usual}  # what the file declares stays what it declares
        return merged(usual, [one for one in proposed if one.expression not in requested]) if usual else []

    def begin_first(self, candidates: list[Candidate]) -> None:
        """Begin what ``simulated_first`` finishes."""

        def begin() -> None:
            first = first_to_simulate(candidates, NUM_FIRST)
            self.pool.ahead([job_in_packets(self.scenario, each.schedule) for each in first])

        self.stages.run(SHORTLIST, begin, None)

    def simulated_first(self, candidates: list[Candidate]) -> list[Candidate]:
        """Simulate the baseline and the best proposals: an answer, should time end while the space is ranked."""
        simulate = partial(simulate_first, self.pool, self.scenario, candidates, NUM_FIRST, self.watcher.progress)
        self.answers.ranked(candidates)
        if self.stages.interrupted:  # what workers have done until then is an answer
            return simulate()
        return self.stages.run(SHORTLIST, simulate, candidates)

    def predicted(self, time_up: ShouldStop | None) -> tuple[list[Candidate], int]:
        """Return the candidates ranked before ``time_up``, best first, and the number of feasible choices.

        If the enumeration or the ranking fails, or takes too long, the candidates are the baseline and what the file
        declares, estimated by one rank once it is ``time_up`` and ``PATIENCE_S`` have passed.
        """
        self.watcher.progress("enumerate", 0, 1)
        early = self.watcher.should_stop if time_up is None else either(self.watcher.should_stop, time_up)

        def enumerated() -> Space | None:
            try:
                with heeding(early):
                    return enumerate_space(self.scenario, should_stop=early)
            except Cancelled:
                if self.watcher.should_stop():
                    raise
                return None  # time is up: the baseline is ranked all the same

        space = self.stages.run(ENUMERATE, enumerated, None)
        structures = () if space is None else space.structures
        self.watcher.progress("rank", 0, len(structures))
        patient = lateness(PATIENCE_S)
        grace_over = either(self.watcher.should_stop, lambda: early() and patient())
        candidates = self.stages.run(
            RANK, lambda: predicted_candidates(self.scenario, structures, time_up, grace_over), None
        )
        if candidates is None:
            candidates = self.stages.run(RANK, lambda: unpredicted_candidates(self.scenario), [])
        return candidates, 0 if space is None else len(space.choices)

    def begin_bound(self) -> Callable[[], Bound | None]:
        """Begin to compute the lower bound on any schedule; return what waits for it: None if it cannot be computed."""
        begun = self.pool.compute(_lower_bound, self.scenario)
        return lambda: self.stages.run(BOUND, begun, None)

    def offers(self) -> Offers | None:
        """What can be switched on today; None if nothing is known of it."""
        return self.stages.run(IMPLEMENTATIONS, lambda: offers_of(Scenario.of_one(self.scenario)), None)

    def simulated(self, candidates: list[Candidate]) -> list[Candidate]:
        """Simulate the shortlist in packets, then variants of the fastest."""
        for stage in (partial(simulate_shortlist, top=self.options.top), simulate_variants):
            self.answers.ranked(candidates)
            simulate = partial(stage, self.pool, self.scenario, candidates, report=self.watcher.progress)
            candidates = self.stages.run(SHORTLIST, simulate, candidates)
        return candidates

    def searched(self, candidates: list[Candidate], confirming: Confirming) -> list[Candidate]:
        """Add the fastest bespoke schedules to the candidates, and leave out those that never finish.

        No search changes the baseline: its confirmation runs beside the search.
        """
        if self.options.bespoke > 0 and is_searched(self.scenario):
            self.stages.run(CONFIRM, lambda: confirming.begin(baseline_of(candidates)), None)
            candidates = without_beaten(self._with_bespoke(candidates, confirming.bound))
        return without_endless(candidates, self.pool.failures)

    def confirmed(self, candidates: list[Candidate], confirming: Confirming) -> Confirmed:
        """Simulate both finalists at line granularity, with their loss waterfalls."""
        self.answers.ranked(candidates)
        best, serial = finalists(self.question, candidates)
        chosen = [best] if best is serial else [best, serial]
        self.watcher.progress("confirm", 0, len(chosen))

        results: list[Result | None] = []

        def confirm() -> None:
            for candidate in chosen:
                confirming.begin(candidate)
            for candidate in chosen:
                results.append(confirming.finish(candidate.schedule))
                self.watcher.progress("confirm", len(results), len(chosen))

        self.stages.run(CONFIRM, confirm, None)
        if len(results) < len(chosen):  # stopped, or failed
            results.extend([None] * len(chosen))
        return Confirmed(results[0], results[len(chosen) - 1])

    def threshold(self, candidates: Sequence[Candidate], confirmed: Confirmed) -> Threshold | None:
        """The rows at which the answer flips; None if that was not found. A run that fails here is no mark."""

        def find() -> Threshold | None:
            question, workers = self.question, self.pool if self.options.verify else None
            timed, finals = confirmed_times(candidates, finalists(question, candidates), confirmed)
            return threshold_of(self.scenario, timed, overlap_pays(question, finals), workers)

        return self.stages.run(THRESHOLD, find, None)

    def sensitivity(self, candidates: Sequence[Candidate], confirmed: Confirmed) -> Sensitivity | None:
        """How the answer depends on hardware numbers; None if that was not found. A run that fails here is no mark."""

        def find() -> Sensitivity | None:
            self.watcher.progress("sensitivity", 0, 1)
            question, workers = self.question, self.pool if self.options.verify else None
            timed, finals = confirmed_times(candidates, finalists(question, candidates), confirmed)
            chosen = recommended_of(question, finals).expression
            return sensitivity_of(self.scenario, candidates, timed, chosen, workers)

        return self.stages.run(SENSITIVITY, find, None)

    def notes(self, simulations: Sequence[Failure]) -> tuple[str, ...]:
        """Sentences on stages that failed, and on an early stop."""
        reported = tuple(failure_sentences((*self.stages.failures, *simulations)))
        if not self.stages.interrupted:
            return reported
        on_time = self.options.within_s is None or self.watcher.should_stop()
        when = "early" if on_time else f"after {self.options.within_s:g} s"
        return (f"stopped {when}: this is the best of what was found until then", *reported)

    def _with_bespoke(self, candidates: list[Candidate], bound: Bound | None) -> list[Candidate]:
        """Return the candidates with the fastest bespoke schedules."""
        self.answers.ranked(candidates)
        self.watcher.progress("bespoke", 0, 1)
        search = partial(
            bespoke_candidates,
            self.scenario,
            candidates,
            budget_of(self.options.bespoke, self.scenario.num_ranks),
            1 if bound is None else bound.ticks,
            pool=self.pool,
            progress=lambda done, total: self.watcher.progress("bespoke", done, total),
        )
        nothing: tuple[list[Candidate], tuple[Failure, ...]] = ([], ())
        found, failures = self.stages.run(BESPOKE, search, nothing)
        self.stages.failures.extend(failures)
        return merged(candidates, found)


def _lower_bound(scenario: OpCase, should_stop: ShouldStop) -> Bound:
    return lower_bound(scenario, should_stop=should_stop)
