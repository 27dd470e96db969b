"""From a scenario to advice: enumerate, rank, simulate the shortlist, confirm, explain."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..compiler.codes import Code
from ..compiler.ir import Cancelled, Choice, Plan, Progress, Rejection, Scenario, Schedule, ShouldStop
from ..compiler.planning.build import ScheduleError, build_schedule, declared, default_engine
from ..compiler.planning.expression import expression_of
from ..compiler.templates import BASELINE
from ..simcore import affordable_unit
from .answer import (
    BESPOKE,
    BOUND,
    CONFIRM,
    ENUMERATE,
    RANK,
    SHORTLIST,
    Confirmed,
    Finalists,
    advice_of,
    finalists,
    without_endless,
)
from .bespoke.stage import DEFAULT_EVALUATIONS, bespoke_candidates, budget_of, is_searched
from .bounds.lower_bound import Bound, lower_bound
from .candidates.advice import Advice, Candidate
from .candidates.ranking import predicted_us
from .candidates.shortlist import (
    by_time,
    shortlist_unit,
    simulate_shortlist,
    simulate_variants,
    simulated_ranks,
)
from .candidates.shortlist import packet_bytes as packet_bytes
from .ranker.trees import Ranker
from .solver import enumerate_space
from .stages import Stages, told_failures
from .workers import SimulationJob, Workers, open_workers

DEFAULT_TOP = 8
# Some seconds to a minute, on one core each.
CONFIRM_LINE_HOPS = 1_000_000_000
# Of that where each rank has to be followed, and laid out, by itself.
CONFIRM_SHARE = 4


@dataclass(frozen=True, slots=True)
class Advisor:
    """Gives advice with a trained ranker; ``load`` takes the one that ships with Magus. Threads may share one."""

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
        should_stop: ShouldStop | None = None,
    ) -> Advice:
        """Which schedule to use for ``scenario``.

        What fails on the way, a stage or a simulation, is left out and named in ``Advice.notes``.

        Parameters
        ----------
        top
            How many of the ranker's favourites to simulate, beside the serial baseline and the declared schedules.
        verify
            Whether to simulate at all; without it times are predictions.
        bespoke
            How many plans with chunks of any size to try where templates overlap; 0 for none.
        workers
            Processes for the simulations. More than one needs a ``__main__`` that may be imported again.
        progress
            Told the stage, how much of it is done and how much there is.
        should_stop
            Asked now and then; once it says yes, the advice is the best that was found until then.

        Raises
        ------
        NoFeasibleSchedule
            If the constraints leave nothing, with those that do it.
        ScheduleError
            If the system replays a profile.
        Cancelled
            If ``should_stop`` said so before anything was ranked.
        """
        if scenario.system.replay is not None:
            message = f"{scenario.system.name} replays the profile of one schedule, and advice compares several"
            hint = "simulate that schedule, or drop 'replay' from the system"
            raise ScheduleError(Rejection(Code.MGS523, message, hint))
        stop = should_stop or (lambda: False)
        asked = _Question(scenario, stop, Stages(stop), progress or (lambda stage, done, total: None))
        candidates, num_feasible = asked.ranked(self.ranker)
        if asked.stages.interrupted or not candidates:
            raise Cancelled
        bound = asked.bound()
        confirmed = Confirmed()
        with open_workers(workers if verify else 1, should_stop) as pool:
            if verify:
                candidates = asked.simulated(pool, candidates, top)
                if bespoke > 0 and is_searched(scenario):
                    candidates = asked.with_bespoke(pool, candidates, bespoke, workers)
                candidates = without_endless(candidates, pool.failures)
                confirmed = asked.confirmed(pool, finalists(scenario, candidates), bound)
        notes = (*asked.stages.notes, *told_failures(pool.failures))
        if asked.stages.interrupted:
            notes = ("stopped early: this is the best of what was found until then", *notes)
        if all(math.isinf(candidate.best_us) for candidate in candidates):
            raise Cancelled if asked.stages.interrupted else RuntimeError("; ".join(notes))
        return advice_of(scenario, candidates, bound, confirmed, num_feasible, asked.stages, notes)


@dataclass(frozen=True, slots=True)
class _Question:
    """One scenario on its way through the stages."""

    scenario: Scenario
    should_stop: ShouldStop
    stages: Stages
    report: Progress

    def ranked(self, ranker: Ranker) -> tuple[list[Candidate], int]:
        """Every feasible choice with its predicted time, best first, and how many there are.

        Without a space or a ranking it is the baseline and what the file declares, in no order.
        """
        self.report("enumerate", 0, 1)
        space = self.stages.run(ENUMERATE, lambda: enumerate_space(self.scenario, should_stop=self.should_stop), None)
        structures = () if space is None else space.structures
        self.report("rank", 0, len(structures))
        found = self.stages.run(RANK, lambda: ranked(self.scenario, ranker, structures), None)
        if found is None:
            found = self.stages.run(RANK, lambda: _unranked(self.scenario), [])
        return found, 0 if space is None else len(space.choices)

    def bound(self) -> Bound | None:
        """What no schedule can beat."""
        return self.stages.run(BOUND, lambda: lower_bound(self.scenario), None)

    def simulated(self, pool: Workers, candidates: list[Candidate], top: int) -> list[Candidate]:
        """The candidates with times in packets of the likeliest, and these in other ways."""
        for stage in (partial(simulate_shortlist, top=top), simulate_variants):
            candidates = self.stages.run(
                SHORTLIST, partial(stage, pool, self.scenario, candidates, report=self.report), candidates
            )
        return candidates

    def with_bespoke(
        self, pool: Workers, candidates: list[Candidate], evaluations: int, workers: int
    ) -> list[Candidate]:
        """The candidates, and the fastest with chunks of their own."""
        self.report("bespoke", 0, 1)
        nothing: tuple[list[Candidate], tuple[str, ...]] = ([], ())
        found, faults = self.stages.run(
            BESPOKE,
            lambda: bespoke_candidates(
                self.scenario,
                candidates,
                budget_of(evaluations),
                pool=pool,
                together=workers,
                should_stop=self.should_stop,
                progress=lambda done, total: self.report("bespoke", done, total),
            ),
            nothing,
        )
        self.stages.notes.extend(f"a part of {BESPOKE} failed and was left out: {fault}" for fault in faults)
        known = {candidate.expression for candidate in candidates}
        return by_time([*candidates, *(each for each in found if each.expression not in known)])

    def confirmed(self, pool: Workers, finals: Finalists, bound: Bound | None) -> Confirmed:
        """Both finalists at line granularity, with their loss waterfalls."""
        best, serial = finals
        different = [best] if best is serial else [best, serial]
        self.report("confirm", 0, len(different))
        return self.stages.run(CONFIRM, lambda: self._confirmed(pool, different, bound), Confirmed())

    def _confirmed(self, pool: Workers, different: Sequence[Candidate], bound: Bound | None) -> Confirmed:
        jobs = [self._confirming(candidate.schedule, bound) for candidate in different]
        results = pool.run(jobs, lambda done: self.report("confirm", done, len(jobs)))
        return Confirmed(results[0], results[-1])

    def _confirming(self, schedule: Schedule, bound: Bound | None) -> SimulationJob:
        """Lines for the answer; coarser for problems so large that it would take minutes."""
        ranks = simulated_ranks(self.scenario, schedule)
        most = CONFIRM_LINE_HOPS // (CONFIRM_SHARE * ranks if ranks > 1 else 1)
        unit = affordable_unit(self.scenario, schedule, self.scenario.gpu.line_bytes, most)
        ticks = None if bound is None else bound.ticks
        return SimulationJob(self.scenario, schedule, unit, ticks, shortlist_unit(self.scenario, schedule))


def ranked(scenario: Scenario, ranker: Ranker, space: Sequence[Choice]) -> list[Candidate]:
    """Every feasible choice with its predicted time, best first; plans written out in the file come along unranked.

    Serial with the usual engines is always among them, whatever the space leaves out: it is what a user has today.
    """
    usual = Choice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system))
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


def _unranked(scenario: Scenario) -> list[Candidate]:
    """The usual serial schedule and what the file declares, as far as they can be built."""
    usual = Choice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system))
    found = [Candidate(expression_of(usual), usual, build_schedule(scenario, usual), True, None, None, None)]
    for named in scenario.schedules:
        with suppress(ScheduleError):
            choice, plan = named.body if isinstance(named.body, Choice) else None, declared(scenario, named)
            found.append(Candidate(plan.expression, choice, plan, is_baseline(scenario, choice), None, None, None))
    return list({candidate.expression: candidate for candidate in found}.values())


def is_baseline(scenario: Scenario, choice: Choice | None) -> bool:
    """Whether ``choice``, None for a plan written out, is one of those that others are compared with: the serial ones.

    Of a lone kernel every schedule is serial; of a lone collective those are that exchange directly and in one piece.
    """
    if scenario.workload.moved is None:
        return True
    return choice is not None and choice.template == BASELINE.name
