"""The bespoke search as a stage of advice: from candidates simulated so far to some with chunks of their own."""

from collections.abc import Callable
from importlib.metadata import version

from ...compiler.ir import (
    TICKS_PER_US,
    Adds,
    Choice,
    Counted,
    Scenario,
    Schedule,
    ShouldStop,
    cutting_of,
)
from ...compiler.planning.build import build_schedule
from ...compiler.templates.bespoke import PATTERNS
from ..candidates.advice import Candidate, SearchProvenance
from ..candidates.shortlist import shortlist_unit
from ..estimate.makespan import estimate_ticks
from ..workers import Workers
from .batches import Batches, batches_of
from .explain import why_bespoke
from .portfolio import optimize
from .result import Proposer, SearchBudget, SearchResult, SimulatedPlan

# About three seconds on one core.
DEFAULT_EVALUATIONS = 400
# So many of the fastest are shown.
OFFERED = 2
SEED = 0


def budget_of(evaluations: int) -> SearchBudget:
    """A budget in the proportions of the stage."""
    return SearchBudget(evaluations, simulations=max(4, evaluations // 25), solver_s=evaluations / 2000)


def is_searched(scenario: Scenario) -> bool:
    """Whether to search: where GEMMs overlap a collective, alike at all ranks, if the file names no templates.

    Attention is left to templates: heads and keys are cut by other rules than rows and columns.
    """
    asked, workload = scenario.explore.values("schedules"), scenario.workload
    compute, cutting = workload.compute, cutting_of(workload)
    multiplies = compute is not None and compute.tiled and cutting.head == 1
    # Batches of different rows do not lie side by side.
    cuts = workload.pattern in PATTERNS and cutting.adds is not Adds.BLOCKS
    fits = multiplies and cuts and not workload.loads and scenario.system.fabric.symmetric
    return fits and (not asked or "bespoke" in asked)


def bespoke_candidates(
    scenario: Scenario,
    candidates: list[Candidate],
    budget: SearchBudget,
    *,
    pool: Workers,
    together: int,
    should_stop: ShouldStop,
    progress: Counted,
) -> tuple[list[Candidate], tuple[str, ...]]:
    """(the fastest bespoke schedules that were simulated, if they beat every template; what failed in the search)."""
    known = [_found(candidate) for candidate in candidates if not candidate.is_serial and candidate.choice is not None]
    limit = scenario.explore.staging_limit_bytes
    outcome = optimize(
        scenario,
        budget,
        _units(scenario),
        seed=SEED,
        pool=pool,
        together=together,
        known=[found for found in known if found is not None],
        should_stop=should_stop,
        progress=progress,
    )
    template = outcome.best_template
    better = [
        found
        for found in outcome.found
        if found.stage is not Proposer.TEMPLATE
        and (template is None or found.ticks < template.ticks)
        and (limit is None or found.schedule.staging_bytes <= limit)
    ]
    # Of plans that differ in streams or engines alone the fastest is enough.
    fastest = {_kind(found.choice): found for found in reversed(better)}
    offered = [found for found in better if fastest[_kind(found.choice)] is found][:OFFERED]
    return [_candidate(scenario, outcome, found) for found in offered], outcome.faults


def _kind(choice: Choice) -> tuple[str, str, Batches]:
    return choice.template, choice.algorithm, batches_of(choice)


def sentence_of(candidate: Candidate) -> str | None:
    """What is bespoke about ``candidate``, None if nothing is."""
    if candidate.provenance is None:
        return None
    said = [f"{what} ({loss:.1%} slower without)" for what, loss in candidate.provenance.why]
    has_parts = candidate.choice is not None and bool(candidate.choice.parts)
    what = "No template has these chunks" if has_parts else "The usual values of its knobs are slower"
    freedoms = ", ".join(said) or "the sizes of its chunks together"
    return f"{what}; found by {candidate.provenance.found_by}. What pays: {freedoms}."


def _units(scenario: Scenario) -> Callable[[Schedule], int]:
    return lambda schedule: shortlist_unit(scenario, schedule)


def _found(candidate: Candidate) -> SimulatedPlan | None:
    """A simulated candidate as what the search begins with."""
    if candidate.simulated_ticks is None or candidate.unit_bytes is None or candidate.choice is None:
        return None
    stage = Proposer.TEMPLATE
    return SimulatedPlan(candidate.choice, candidate.schedule, candidate.simulated_ticks, candidate.unit_bytes, stage)


def _candidate(scenario: Scenario, outcome: SearchResult, found: SimulatedPlan) -> Candidate:
    template = outcome.best_template

    def ticks_of(choice: Choice) -> float:
        return estimate_ticks(scenario, build_schedule(scenario, choice)).makespan_ticks

    why = why_bespoke(scenario, found.choice, template.choice, ticks_of) if template is not None else ()
    provenance = SearchProvenance(
        found.stage.value,
        outcome.seed,
        outcome.evaluations,
        outcome.simulations,
        outcome.reproducible,
        version("ortools"),
        why,
    )
    predicted = ticks_of(found.choice) / TICKS_PER_US
    name = found.schedule.expression
    return Candidate(name, found.choice, found.schedule, False, predicted, found.ticks, found.unit_bytes, provenance)
