"""The bespoke search as a stage of advice: from simulated candidates to bespoke ones."""

from collections.abc import Sequence

from ...compiler.ir import (
    TICKS_PER_US,
    Adds,
    Choice,
    Counted,
    Scenario,
    cutting_of,
)
from ...compiler.planning.build import build_schedule
from ...compiler.templates.bespoke import PATTERNS
from ..candidates.candidate import Candidate, ScheduleOrigin, SearchProvenance
from ..candidates.shortlist import NUM_OFFERED, shortlist_unit
from ..estimate.makespan import estimate_ticks
from ..failures import Failure
from ..workers import Workers
from .batches import Batches, batches_of
from .explain import why_bespoke
from .portfolio import optimize
from .result import Proposer, SearchBudget, SearchOptions, SearchResult, SimulatedPlan

# About three seconds on one core.
DEFAULT_EVALUATIONS = 400
# Estimated plans for each one that is simulated, and simulations of neighbours in a row after which the search ends if
# none was faster. With 25 and no such end the best of 60 drawn scenarios was as fast, for 60 % more simulations.
PER_SIMULATION, MAX_VAIN = 40, 2
# Plans of up to so many ranks are estimated in milliseconds; those of more are longer in proportion.
FEW_RANKS = 16
SEED = 0


def budget_of(evaluations: int, num_ranks: int, per_simulation: int = PER_SIMULATION) -> SearchBudget:
    """Return the budget of the stage for ``evaluations`` estimated plans of a few ranks, fewer for longer plans.

    One for ``per_simulation`` of them is simulated, and four at least.
    """
    evaluations = max(1, evaluations * FEW_RANKS // max(FEW_RANKS, num_ranks))
    simulations = max(4, evaluations // per_simulation)
    return SearchBudget(evaluations, simulations, solver_s=evaluations / 2000, max_vain=MAX_VAIN)


def is_searched(scenario: Scenario) -> bool:
    """Whether to search: GEMMs overlap a collective, ranks are alike, and the file explores all templates or bespoke.

    Attention is left to templates: heads and keys are cut by other rules than rows and columns.
    """
    explored, workload = scenario.explore.values("schedules"), scenario.workload
    compute, cutting = workload.compute, cutting_of(workload)
    multiplies = compute is not None and compute.tiled and cutting.head == 1
    # Where results are blocks of rows that are added up, batches of different rows are not adjacent.
    cuts = workload.pattern in PATTERNS and cutting.adds is not Adds.BLOCKS
    fits = multiplies and cuts and not workload.loads and scenario.network.symmetric
    return fits and (not explored or "bespoke" in explored)


def bespoke_candidates(
    scenario: Scenario,
    candidates: Sequence[Candidate],
    budget: SearchBudget,
    bound_ticks: int,
    *,
    pool: Workers,
    progress: Counted,
) -> tuple[list[Candidate], tuple[Failure, ...]]:
    """Return (the fastest bespoke schedules if they beat every template, the parts of the search that failed)."""
    plans = (_simulated_plan(candidate) for candidate in candidates if not candidate.is_serial)
    known = tuple(plan for plan in plans if plan is not None)
    options = SearchOptions(lambda schedule: shortlist_unit(scenario, schedule), bound_ticks, SEED, known)
    result = optimize(scenario, budget, options, pool=pool, should_stop=pool.should_stop, progress=progress)
    template, limit = result.best_template, scenario.explore.staging_limit_bytes
    better = [
        plan
        for plan in result.plans
        if plan.proposer is not Proposer.TEMPLATE
        and (template is None or plan.ticks < template.ticks)
        and (limit is None or plan.schedule.staging_bytes <= limit)
    ]
    # Plans that differ only in streams or engines are one offer: the fastest of them.
    fastest = {_structure(plan.choice): plan for plan in reversed(better)}
    offered = [plan for plan in better if fastest[_structure(plan.choice)] is plan][:NUM_OFFERED]
    return [_candidate(scenario, result, plan) for plan in offered], result.failures


def _structure(choice: Choice) -> tuple[str, str, Batches]:
    return choice.template, choice.algorithm, batches_of(choice)


def sentence_of(candidate: Candidate) -> str | None:
    """Return what is bespoke about ``candidate``, None if it is not bespoke."""
    if candidate.provenance is None:
        return None
    features = [f"{feature} ({loss:.1%} slower without)" for feature, loss in candidate.provenance.why]
    has_parts = candidate.choice is not None and bool(candidate.choice.parts)
    claim = "No template has these chunks" if has_parts else "The usual values of its knobs are slower"
    what_pays = ", ".join(features) or "the sizes of its chunks together"
    return f"{claim}; found by {candidate.provenance.found_by}. What pays: {what_pays}."


def _simulated_plan(candidate: Candidate) -> SimulatedPlan | None:
    """Return a simulated candidate as a plan to begin the search with."""
    if candidate.simulated_ticks is None or candidate.unit_bytes is None or candidate.choice is None:
        return None
    ticks, unit_bytes = candidate.simulated_ticks, candidate.unit_bytes
    proposer = Proposer.LEARNED if candidate.choice.parts else Proposer.TEMPLATE
    return SimulatedPlan(candidate.choice, candidate.schedule, ticks, unit_bytes, proposer)


def _candidate(scenario: Scenario, result: SearchResult, plan: SimulatedPlan) -> Candidate:
    from importlib.metadata import version  # which takes longer than most imports, and not all advice needs it

    template = result.best_template

    def ticks_of(choice: Choice) -> float:
        return estimate_ticks(scenario, build_schedule(scenario, choice)).makespan_ticks

    provenance = SearchProvenance(
        found_by=plan.proposer.value,
        seed=result.seed,
        evaluations=result.evaluations,
        simulations=result.simulations,
        reproducible=result.reproducible,
        solver=version("ortools"),
        why=() if template is None else why_bespoke(scenario, plan.choice, template.choice, ticks_of),
    )
    return Candidate(
        plan.schedule.expression,
        plan.choice,
        plan.schedule,
        ScheduleOrigin.BESPOKE,
        predicted_us=ticks_of(plan.choice) / TICKS_PER_US,
        simulated_ticks=plan.ticks,
        unit_bytes=plan.unit_bytes,
        provenance=provenance,
    )
