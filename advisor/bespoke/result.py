"""What goes into a bespoke search and comes out: budget, options, plans proposed and simulated."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ...compiler.ir import Counted, OpCase, OpChoice, OpPlan
from ...compiler.planning.build import build_op_plan
from ..work.workers import Begun, Failure, SimulationJob, Workers
from .batches import Batches, batches_of, is_cut
from .neighbours import INFEASIBLE, PlanEstimator


class Proposer(Enum):
    """The part of the portfolio that proposed a plan."""

    TEMPLATE = "template"
    LEARNED = "a learned proposal"
    OPTIONS = "other ways to carry out a template"
    SHAPE = "shapes"
    DP = "dynamic programming"
    LOCAL = "local search"
    SOLVER = "CP-SAT"
    REFINED = "local search by simulation"


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """The budget of a search: estimates of bespoke plans, simulations, and CP-SAT's deterministic seconds.

    These count work and not time, so that a run can be repeated on any machine. After ``max_vain`` simulated neighbours
    of the best plan in a row of which none is faster, the search ends; None for never.
    """

    evaluations: int = 3000
    simulations: int = 100
    solver_s: float = 1.0
    max_vain: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """A plan with its simulated time at a granularity of ``unit_bytes``."""

    choice: OpChoice
    schedule: OpPlan
    ticks: int
    unit_bytes: int
    proposer: Proposer


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search, beside its budget.

    Parameters
    ----------
    unit_of
        The granularity in bytes at which a schedule is simulated.
    bound_ticks
        A lower bound on any schedule; a plan close to it ends the search.
    seed
        Seed of the local search and of the solver.
    known
        Simulated templates to begin with; if there are none, all templates are tried, at every chunk count.
    prelaunched
        Whether to try copy engines with prelaunched commands though ``explore`` does not name them. They make every
        schedule quicker, serial ones too; beside a baseline without them that would look like overlap.
    """

    unit_of: Callable[[OpPlan], int]
    bound_ticks: int = 1
    seed: int = 0
    known: tuple[SimulatedPlan, ...] = ()
    prelaunched: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All simulated plans, the fastest first; of equally fast ones templates first, then the one with fewer steps.

    ``reproducible`` says that the same seed and budget find the same plans again. ``stopped`` says why the search
    ended before its budget was spent, empty if it did not; ``failures`` are the parts of the search that failed.
    """

    plans: tuple[SimulatedPlan, ...]
    seed: int
    evaluations: int
    simulations: int
    reproducible: bool
    stopped: str = ""
    failures: tuple[Failure, ...] = ()

    @property
    def best_template(self) -> SimulatedPlan | None:
        """The fastest of the templates with their usual options."""
        return next((plan for plan in self.plans if plan.proposer is Proposer.TEMPLATE), None)

    @property
    def best_bespoke(self) -> SimulatedPlan | None:
        """The fastest plan that is no template with its usual options."""
        return next((plan for plan in self.plans if plan.proposer is not Proposer.TEMPLATE), None)


# Plans whose estimate is above this multiple of the best known time are not pursued. Over the scenarios of
# benchmarks/schedules.py estimates are between 0.84 and 1.18 of the simulated time.
MAX_ESTIMATE_RATIO = 1.3


@dataclass(slots=True)
class Proposals:
    """Feasible plans, each with the part of the portfolio that was the first to propose it."""

    estimator: PlanEstimator
    proposer_of: dict[OpChoice, Proposer] = field(default_factory=dict)

    def add(self, proposer: Proposer, choice: OpChoice, up_to: float = 1.0) -> bool:
        """Estimate ``choice`` and keep it if feasible; false once the share ``up_to`` of the evaluations is spent."""
        if self.estimator.spent or self.estimator.count >= up_to * self.estimator.limit:
            return False
        if self.estimator.ticks(choice) < INFEASIBLE:
            self.proposer_of.setdefault(choice, proposer)
        return True

    def add_known(self, proposer: Proposer, choices: Iterable[OpChoice]) -> None:
        """Keep the feasible ones of ``choices``, which have been estimated."""
        for choice in choices:
            if self.estimator.known[choice] < INFEASIBLE:
                self.proposer_of.setdefault(choice, proposer)

    def ranked(self) -> list[OpChoice]:
        """Return all plans, the best by estimate first."""
        return sorted(self.proposer_of, key=self.estimator.ticks)

    def batched(self) -> list[OpChoice]:
        """Return the plans with batches, the best by estimate first."""
        return [choice for choice in self.ranked() if choice.parts]

    def different(self, count: int) -> list[OpChoice]:
        """Return the best plans with batches, one for each set of batches; at most half of them have cut batches."""
        best = dict[Batches, OpChoice]()
        for choice in self.batched():
            best.setdefault(batches_of(choice), choice)
        cut = [choice for choice in best.values() if is_cut(choice)]
        uncut = [choice for choice in best.values() if not is_cut(choice)]
        return sorted([*cut[: count // 2], *uncut[: count // 2]], key=self.estimator.ticks)

    def likely(self, simulated: Iterable[SimulatedPlan]) -> list[OpChoice]:
        """Return the plans that may be the fastest, the best by estimate first."""
        ranked = self.ranked()
        known = [*(plan.ticks for plan in simulated), *map(self.estimator.ticks, ranked[:1])]
        limit = MAX_ESTIMATE_RATIO * min(known, default=INFEASIBLE)
        return [choice for choice in ranked if self.estimator.ticks(choice) <= limit]

    def to_simulate(self, simulated: Iterable[SimulatedPlan], count: int) -> list[tuple[OpChoice, Proposer]]:
        """Return ``count`` likely plans: the best of each proposer, engine and number of streams, then the best of all.

        Estimates err, by proposer and engine in the same direction; so up to half of the plans are chosen by these.
        """
        likely, of_proposer, of_kind = self.likely(simulated), dict[Proposer, OpChoice](), dict[object, OpChoice]()
        for choice in likely:
            proposer = self.proposer_of[choice]
            of_proposer.setdefault(proposer, choice)
            of_kind.setdefault((proposer, choice.engine, choice.streams), choice)
        varied = dict.fromkeys([*of_proposer.values(), *sorted(of_kind.values(), key=self.estimator.ticks)])
        chosen = list(dict.fromkeys([*list(varied)[: count // 2], *likely]))[:count]
        return [(choice, self.proposer_of[choice]) for choice in chosen]


@dataclass(slots=True)
class PlanSimulator:
    """Simulates choices, each once and at most ``limit`` of them; a stop keeps what was simulated before it.

    ``unit_of`` returns the granularity for a schedule. ``count`` is the number of simulations that succeeded here;
    ``tried`` also holds the choices whose simulation failed. ``plans`` may hold others that were simulated before. A
    plan that takes ``enough_ticks`` or less ends the search.
    """

    scenario: OpCase
    pool: Workers
    limit: int
    unit_of: Callable[[OpPlan], int]
    progress: Counted
    enough_ticks: float = 0.0
    stopped: bool = False
    count: int = 0
    plans: dict[OpChoice, SimulatedPlan] = field(default_factory=dict)
    tried: set[OpChoice] = field(default_factory=set)
    begun: dict[OpChoice, Begun] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many more choices may be simulated."""
        return 0 if self.stopped or self.enough else self.limit - len(self.tried)

    @property
    def enough(self) -> bool:
        """Whether a plan takes ``enough_ticks`` or less."""
        return min((plan.ticks for plan in self.plans.values()), default=math.inf) <= self.enough_ticks

    def is_new(self, choice: OpChoice) -> bool:
        """Whether ``choice`` was not simulated yet, with or without success."""
        return choice not in self.plans and choice not in self.tried

    def begin(self, choices: Iterable[OpChoice]) -> None:
        """Begin to simulate new choices that may be wanted; it has no effect but to have their results earlier."""
        for choice in choices:
            if self.is_new(choice) and choice not in self.begun:
                schedule = build_op_plan(self.scenario, choice)
                job = SimulationJob(self.scenario, schedule, self.unit_of(schedule))
                (self.begun[choice],) = self.pool.begin([job])

    def simulate(self, choices: Sequence[tuple[OpChoice, Proposer]]) -> None:
        """Simulate the first of the new ``choices``, as many as the limit allows."""
        new = list({choice: proposer for choice, proposer in choices if self.is_new(choice)}.items())[: self.left]
        self.begin(choice for choice, _ in new)
        for choice, proposer in new:
            if not self.stopped and not self.enough:
                self._finish(choice, proposer)

    def drop_begun(self) -> None:
        """Leave out what was begun and is not wanted."""
        for begun in self.begun.values():
            begun.drop()
        self.begun.clear()

    def _finish(self, choice: OpChoice, proposer: Proposer) -> None:
        begun = self.begun.pop(choice)
        (result,) = self.pool.finish([begun])
        self.stopped = self.pool.stopped
        if result is not None:
            ticks, unit_bytes = result.makespan_ticks, result.unit_bytes
            self.plans[choice] = SimulatedPlan(choice, begun.job.schedule, ticks, unit_bytes, proposer)
            self.count += 1
        self.tried.add(choice)
        self.progress(self.count, self.limit)

    def ranked(self) -> list[SimulatedPlan]:
        """Return all simulated plans, the fastest first; of equally fast ones the simpler."""

        def rank(plan: SimulatedPlan) -> tuple[int, bool, int, str]:
            bespoke = plan.proposer is not Proposer.TEMPLATE
            return plan.ticks, bespoke, len(plan.schedule.steps), plan.schedule.expression

        return sorted(self.plans.values(), key=rank)
