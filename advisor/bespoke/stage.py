"""The bespoke search as a stage of advice: from simulated candidates to bespoke ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from ...compiler.ir import (
    TICKS_PER_US,
    Adds,
    Cancelled,
    CopyProtocol,
    Counted,
    OpCase,
    OpChoice,
    ShouldStop,
    cutting_of,
    heeding,
)
from ...compiler.planning.build import build_op_plan, reject_choice
from ...compiler.templates.bespoke import PATTERNS, Part
from ..candidates.candidate import Candidate, ScheduleOrigin, SearchProvenance
from ..candidates.shortlist import NUM_OFFERED, shortlist_unit
from ..estimate.makespan import estimate_ticks
from ..work.workers import Failure, SimulationJob, Workers
from .batches import Batches, RowBatch, batches_of, in_whole_tiles, only_own, shares, whole_rows, with_batches
from .neighbours import PlanEstimator
from .result import PlanSimulator, Proposals, Proposer, SearchBudget, SearchOptions, SearchResult, SimulatedPlan
from .search import Search

NUM_WHOLE = 2
"""Plans, the fastest first, beside which one in whole tiles is simulated."""
MIN_REPORTED_LOSS = 0.005
"""Least share of the time that a feature must save to be reported."""


def why_bespoke(
    scenario: OpCase, choice: OpChoice, template: OpChoice, ticks_of: Callable[[OpChoice], float]
) -> tuple[tuple[str, float], ...]:
    """Return (bespoke feature of ``choice``, loss without it as a share of the time), the largest loss first.

    ``template`` is the best choice with equal chunks, ``ticks_of`` returns the time of a choice. Features that cannot
    be removed alone are left out.
    """
    ticks = ticks_of(choice)
    removed = _without_features(scenario, choice, template)
    legal = ((feature, other) for feature, other in removed if reject_choice(scenario, other) is None)
    losses = ((feature, ticks_of(other) / ticks - 1) for feature, other in legal)
    reported = ((feature, loss) for feature, loss in losses if loss >= MIN_REPORTED_LOSS)
    return tuple(sorted(reported, key=lambda feature_loss: -feature_loss[1]))


def _without_features(scenario: OpCase, choice: OpChoice, template: OpChoice) -> Iterator[tuple[str, OpChoice]]:
    """Yield (feature, ``choice`` without it) for each feature that ``choice`` uses."""
    if choice.parts:
        yield from _without_cuts(scenario, choice)
    if choice.streams > 1:
        yield "kernels side by side", replace(choice, streams=1)
    if choice.lanes:
        yield "an engine for each link", replace(choice, lanes=0)
    if choice.waves > 1:
        yield "several waves in a kernel", replace(choice, waves=1)
    if choice.sums > 1:
        yield "sums side by side", replace(choice, sums=1)
    tactics = choice.tactics
    if tactics.kernel is not template.tactics.kernel:
        usual = replace(tactics, kernel=template.tactics.kernel, wait=template.tactics.wait, per=template.tactics.per)
        yield f"kernel {tactics.kernel.value}", replace(choice, tactics=usual)
    if choice.engine != template.engine:
        # Only copies by SMs have a protocol.
        simple = replace(tactics, protocol=CopyProtocol.SIMPLE)
        yield f"engine {choice.engine}", replace(choice, engine=template.engine, lanes=0, tactics=simple)


def _without_cuts(scenario: OpCase, choice: OpChoice) -> Iterator[tuple[str, OpChoice]]:
    """Yield (feature, ``choice`` without it) for the features of its batches."""
    whole, batches = whole_rows(scenario), batches_of(choice)
    for feature, other in (
        ("own shard as filler", _with_own_batch(batches, whole, last=scenario.shape.pattern.produces)),
        ("chunks of unequal size", _with_equal_chunks(batches, whole)),
        ("unequal amounts per link", _with_equal_shares(batches, whole)),
        ("slices of the inner dimension", tuple(replace(batch, slices=()) for batch in batches)),
        ("bands of columns", tuple(replace(batch, columns=()) for batch in batches)),
    ):
        if other != batches:
            yield feature, with_batches(choice, other)


def _with_own_batch(batches: Batches, whole: Part, *, last: bool) -> Batches:
    """Put the own block into a batch of its own, before or after all others."""
    own = RowBatch(only_own(whole[0], len(whole)))
    others = tuple(replace(batch, rows=(0, *batch.rows[1:])) for batch in batches if any(batch.rows[1:]))
    return tuple(batch for batch in ((*others, own) if last else (own, *others)) if any(batch.rows))


def _with_equal_chunks(batches: Batches, whole: Part) -> Batches:
    """Divide every remote block equally among the batches with remote rows; keep the own rows."""
    used = [int(any(batch.rows[1:])) for batch in batches]
    return _with_rows(batches, [shares(rows, used) for rows in whole[1:]])


def _with_equal_shares(batches: Batches, whole: Part) -> Batches:
    """Give each batch the same share of every remote block; keep the own rows."""
    totals = [sum(batch.rows[1:]) for batch in batches]
    return _with_rows(batches, [shares(rows, totals) for rows in whole[1:]])


def _with_rows(batches: Batches, columns: list[list[int]]) -> Batches:
    """Replace the rows of the peers."""
    remote = zip(*columns, strict=True)
    return tuple(replace(batch, rows=(batch.rows[0], *rows)) for batch, rows in zip(batches, remote, strict=True))


def optimize(
    scenario: OpCase,
    budget: SearchBudget,
    options: SearchOptions,
    *,
    pool: Workers | None = None,
    should_stop: ShouldStop = lambda: False,
    progress: Counted = lambda done, total: None,
) -> SearchResult:
    """Return the best schedules that the budget finds for ``scenario``, which overlaps a GEMM and a collective.

    A stage that fails is left out. If Ctrl-C interrupts the search and ``should_stop`` returns true, the search ends
    with the plans simulated so far. ``pool`` runs the simulations, this process if there is none.
    """
    pool = pool or Workers(should_stop=should_stop)
    simulator = PlanSimulator(scenario, pool, budget.simulations, options.unit_of, progress)
    simulator.plans |= {plan.choice: plan for plan in options.known}
    estimator = PlanEstimator(scenario, budget.evaluations, should_stop)
    random = Random(f"bespoke {options.seed}")
    search = Search(scenario, budget, options, estimator, simulator, Proposals(estimator), random)
    ended = ""
    try:
        with heeding(should_stop):
            ended = search.run()
    except Cancelled:
        simulator.stopped = True
    except KeyboardInterrupt:
        if not should_stop():
            raise
        simulator.stopped = True
    cut_short = simulator.stopped or should_stop()
    return SearchResult(
        plans=tuple(simulator.ranked()),
        seed=options.seed,
        evaluations=estimator.count,
        simulations=simulator.count,
        reproducible=not cut_short,
        stopped="it was asked to stop" if cut_short else ended,
        failures=tuple(search.failures),
    )


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


def is_searched(scenario: OpCase) -> bool:
    """Whether to search: GEMMs overlap a collective, ranks are alike, and the file explores all templates or bespoke.

    Attention is left to templates: heads and keys are cut by other rules than rows and columns.
    """
    explored, shape = scenario.explore.values("schedules"), scenario.shape
    compute, cutting = shape.compute, cutting_of(shape)
    multiplies = compute is not None and compute.tiled and cutting.head == 1
    # Where results are blocks of rows that are added up, batches of different rows are not adjacent.
    cuts = shape.pattern in PATTERNS and cutting.adds is not Adds.BLOCKS
    fits = multiplies and cuts and not shape.loads and scenario.network.symmetric
    return fits and (not explored or "bespoke" in explored)


def bespoke_candidates(
    scenario: OpCase,
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
    offered += _in_whole_tiles(scenario, offered[:NUM_WHOLE], result.plans, pool)
    return [_candidate(scenario, result, plan) for plan in offered], result.failures


def _in_whole_tiles(
    scenario: OpCase, offered: Sequence[SimulatedPlan], known: Sequence[SimulatedPlan], pool: Workers
) -> list[SimulatedPlan]:
    """Return the plans next to those ``offered`` that cut no tile, simulated: what that costs decides between them."""
    choices = [(plan, in_whole_tiles(scenario, plan.choice)) for plan in offered]
    near = {choice: plan for plan, choice in choices if choice is not None}
    found = {plan.choice: plan for plan in known if plan.choice in near}
    new = {choice: build_op_plan(scenario, choice) for choice in near if choice not in found}
    jobs = [SimulationJob(scenario, schedule, near[choice].unit_bytes) for choice, schedule in new.items()]
    for choice, job, result in zip(new, jobs, pool.run(jobs), strict=True):
        if result is not None:
            plan = near[choice]
            found[choice] = replace(plan, choice=choice, schedule=job.schedule, ticks=result.makespan_ticks)
    limit, offered_choices = scenario.explore.staging_limit_bytes, {plan.choice for plan in offered}
    fits = (plan for plan in found.values() if limit is None or plan.schedule.staging_bytes <= limit)
    return [plan for plan in fits if plan.choice not in offered_choices]


def _structure(choice: OpChoice) -> tuple[str, str, Batches]:
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


def _candidate(scenario: OpCase, result: SearchResult, plan: SimulatedPlan) -> Candidate:
    from importlib.metadata import version  # which takes longer than most imports, and not all advice needs it

    template = result.best_template

    def ticks_of(choice: OpChoice) -> float:
        return estimate_ticks(scenario, build_op_plan(scenario, choice))

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
