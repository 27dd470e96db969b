"""A record: one drawn scenario with every plan that a full search simulated, winners and losers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ...compiler.ir import Choice, EngineKind, Scenario
from ...compiler.planning.build import build_schedule
from ...compiler.planning.expression import expression_of
from ...compiler.templates import BASELINE
from ..bespoke import Proposer, SearchOptions, SimulatedPlan, optimize
from ..bespoke.stage import DEFAULT_EVALUATIONS, budget_of, is_searched
from ..bounds.lower_bound import lower_bound
from ..candidates.candidate import Candidate
from ..candidates.predicted import predicted_candidates
from ..candidates.shortlist import shortlist_unit, simulate_shortlist, simulate_variants
from ..candidates.variations import forms_of
from ..estimate.makespan import estimate_ticks
from ..solver import enumerate_space
from ..workers import SimulationJob, Workers
from .families import Drawn, ScenarioFamily

TOP = 8
# Schedules of which all execution options are tried together, beside the serial one.
NUM_VARIED = 3
# Estimated plans for each one that is simulated.
PER_SIMULATION = 25
# Options whose estimate is above this multiple of the best known time are not simulated.
MAX_ESTIMATE_RATIO = 1.3


@dataclass(frozen=True, slots=True)
class Tried:
    """A simulated plan; ``estimate_ticks`` is the step-level estimate of it."""

    expression: str
    proposer: str
    ticks: int
    unit_bytes: int
    estimate_ticks: float


@dataclass(frozen=True, slots=True)
class Record:
    """What a full search found in scenario ``idx`` of a seed; ``baseline`` is the expression of the serial schedule."""

    seed: int
    idx: int
    family: ScenarioFamily
    bound_ticks: int
    baseline: str
    plans: tuple[Tried, ...]


def record_of(drawn: Drawn) -> Record:
    """Search ``drawn`` for longer than advice does, then try execution options jointly; in this process."""
    scenario, pool = drawn.scenario, Workers()
    candidates = _simulated_space(scenario, pool)
    bound = lower_bound(scenario).ticks
    known = tuple(_plan(candidate) for candidate in candidates if candidate.choice and candidate.simulated_ticks)
    plans = known
    if is_searched(scenario):
        options = SearchOptions(lambda schedule: shortlist_unit(scenario, schedule), bound, known=_overlapping(known))
        budget = replace(budget_of(DEFAULT_EVALUATIONS, scenario.num_ranks, PER_SIMULATION), max_vain=None)
        found = optimize(scenario, budget, options, pool=pool)
        plans = tuple({plan.choice: plan for plan in (*known, *found.plans)}.values())
    plans = (*plans, *_with_joint_options(scenario, plans, pool))
    serial = min((c for c in candidates if c.is_serial and c.simulated_ticks), key=lambda c: c.best_us)
    return Record(drawn.seed, drawn.idx, drawn.family, bound, serial.expression, tuple(map(_tried(scenario), plans)))


def _simulated_space(scenario: Scenario, pool: Workers) -> list[Candidate]:
    """Return the candidates of advice without a bespoke search."""
    space = enumerate_space(scenario)
    candidates = predicted_candidates(scenario, space.structures)
    candidates = simulate_shortlist(pool, scenario, candidates, TOP, lambda stage, done, total: None)
    return simulate_variants(pool, scenario, candidates, lambda stage, done, total: None)


def _plan(candidate: Candidate) -> SimulatedPlan:
    assert candidate.choice and candidate.simulated_ticks and candidate.unit_bytes, "simulated templates"
    ticks, unit_bytes = candidate.simulated_ticks, candidate.unit_bytes
    return SimulatedPlan(candidate.choice, candidate.schedule, ticks, unit_bytes, Proposer.TEMPLATE)


def _overlapping(plans: Iterable[SimulatedPlan]) -> tuple[SimulatedPlan, ...]:
    return tuple(plan for plan in plans if plan.choice.template != BASELINE.name)


def _with_joint_options(
    scenario: Scenario, plans: tuple[SimulatedPlan, ...], pool: Workers
) -> tuple[SimulatedPlan, ...]:
    """Simulate the serial schedule and the fastest others with all execution options together."""
    limit = MAX_ESTIMATE_RATIO * min(plan.ticks for plan in plans)
    known, new = {plan.choice for plan in plans}, dict[Choice, SimulationJob]()
    for choice in joint_options(scenario, plans):
        if choice not in known and choice not in new:
            schedule = build_schedule(scenario, choice)
            if choice.template == BASELINE.name or estimate_ticks(scenario, schedule).makespan_ticks <= limit:
                new[choice] = SimulationJob(scenario, schedule, shortlist_unit(scenario, schedule))
    results = pool.run(list(new.values()))
    return tuple(
        SimulatedPlan(choice, job.schedule, result.makespan_ticks, result.unit_bytes, Proposer.OPTIONS)
        for (choice, job), result in zip(new.items(), results, strict=True)
        if result is not None
    )


def joint_options(scenario: Scenario, plans: Iterable[SimulatedPlan]) -> Iterable[Choice]:
    """Yield the fastest serial and the fastest other schedules with all execution options together."""
    ranked = sorted((plan for plan in plans if not plan.choice.engine.by_library), key=lambda plan: plan.ticks)
    serial = [plan.choice for plan in ranked if plan.choice.template == BASELINE.name]
    others = dict.fromkeys(plan.choice for plan in ranked if plan.choice.template != BASELINE.name)
    by_sm = next((choice for choice in serial if choice.engine.kind is EngineKind.SM), None)
    for base in (*list(others)[:NUM_VARIED], *serial[:1], by_sm):
        yield from forms_of(scenario, base)


def _tried(scenario: Scenario) -> Callable[[SimulatedPlan], Tried]:
    def tried(plan: SimulatedPlan) -> Tried:
        library = plan.choice.engine.by_library
        estimate = plan.ticks if library else estimate_ticks(scenario, plan.schedule).makespan_ticks
        return Tried(expression_of(plan.choice), plan.proposer.value, plan.ticks, plan.unit_bytes, float(estimate))

    return tried
