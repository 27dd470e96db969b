"""The whole search: simulated times decide, budgets and stops are kept to, and the same seed finds the same."""

from dataclasses import replace

import pytest

from magus.advisor.bespoke import (
    Proposer,
    SearchBudget,
    SearchOptions,
    SearchResult,
    SimulatedPlan,
    optimize,
    why_bespoke,
)
from magus.advisor.bespoke.result import PlanSimulator
from magus.advisor.bespoke.search import Search
from magus.advisor.bounds.lower_bound import lower_bound
from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.work.workers import open_workers
from magus.compiler.ir import EngineChoice, EngineKind, EngineMode, OpCase, OpChoice, OpPlan, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.compiler.templates.bespoke import PATTERNS
from magus.simcore import simulate_op
from tests.helpers.marks import first
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

SMALL = SearchBudget(evaluations=80, simulations=12, solver_s=0.02)
DMA3 = EngineChoice(EngineKind.DMA, 3)
UNIT = 8192


def unit_of(schedule: OpPlan) -> int:
    return UNIT


OPTIONS = SearchOptions(unit_of)


def small(pattern: Pattern, size: int = 512) -> OpCase:
    return scenario_of(pattern, SYSTEMS[1], 4, size, size, size)


@pytest.fixture(scope="module")
def outcome() -> SearchResult:
    return optimize(small(Pattern.AG_GEMM), SMALL, OPTIONS)


@pytest.fixture(scope="module")
def templates(outcome: SearchResult) -> tuple[SimulatedPlan, ...]:
    """What a search knows after its first stage, which takes longer than all others."""
    return tuple(plan for plan in outcome.plans if plan.proposer is Proposer.TEMPLATE)


@pytest.mark.slow
def test_what_workers_begin_ahead_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = list[int]()

    def drop(simulator: PlanSimulator) -> None:
        left_out.append(len(simulator.begun))
        simulator.begun.clear()

    monkeypatch.setattr(PlanSimulator, "drop_begun", drop)
    budget = replace(SMALL, evaluations=400)
    problem = small(Pattern.AG_GEMM, 384)
    alone = optimize(problem, budget, OPTIONS)
    with open_workers(3, threads=True) as pool:
        assert optimize(problem, budget, OPTIONS, pool=pool) == alone
    assert any(plan.proposer is Proposer.REFINED for plan in alone.plans)
    assert left_out[0] == 0 < left_out[1], "the incumbent changed while others were begun"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", first([each for each in PATTERNS if each is not Pattern.AG_GEMM], 1))
def test_it_is_never_worse_than_its_best_template(pattern: Pattern) -> None:
    bound_ticks = lower_bound(small(pattern, 256)).ticks
    outcome = optimize(small(pattern, 256), SMALL, replace(OPTIONS, bound_ticks=bound_ticks))

    assert outcome.best_template is not None
    assert outcome.plans[0].ticks <= outcome.best_template.ticks
    assert bound_ticks <= outcome.plans[0].ticks


@pytest.mark.slow
def test_times_are_the_simulators(outcome: SearchResult) -> None:
    scenario = small(Pattern.AG_GEMM)

    for found in (outcome.plans[0], outcome.plans[-1]):
        schedule = build_op_plan(scenario, found.choice)
        assert simulate_op(scenario, schedule, unit_bytes=UNIT).makespan_ticks == found.ticks
        assert schedule == found.schedule
    assert [found.ticks for found in outcome.plans] == sorted(found.ticks for found in outcome.plans)


def test_the_budget_is_kept(outcome: SearchResult) -> None:
    assert outcome.evaluations <= SMALL.evaluations + 6  # a round of refinement that has begun is finished
    assert outcome.simulations == len(outcome.plans) <= SMALL.simulations
    assert outcome.reproducible and not outcome.stopped


@pytest.mark.slow
def test_neighbours_in_a_row_that_are_no_faster_end_the_search() -> None:
    refined = {}
    for most in (None, 1, 3):
        budget = replace(SMALL, evaluations=200, simulations=40, max_vain=most)
        found = optimize(small(Pattern.AG_GEMM, 256), budget, OPTIONS).plans
        refined[most] = [plan for plan in found if plan.proposer is Proposer.REFINED]

    assert len(refined[1]) < len(refined[3]) < len(refined[None])
    assert {plan.choice for plan in refined[3]} <= {plan.choice for plan in refined[None]}


@pytest.mark.slow
def test_the_same_seed_finds_the_same(outcome: SearchResult) -> None:
    assert optimize(small(Pattern.AG_GEMM), SMALL, OPTIONS) == outcome


def test_several_stages_have_their_turn(outcome: SearchResult) -> None:
    assert {Proposer.TEMPLATE, Proposer.DP} <= {found.proposer for found in outcome.plans}
    assert outcome.best_bespoke is not None


def test_what_was_found_before_a_stop_is_kept() -> None:
    done = 0

    def count(simulated: int, total: int) -> None:
        nonlocal done
        done = simulated

    outcome = optimize(small(Pattern.AG_GEMM), SMALL, OPTIONS, should_stop=lambda: done >= 3, progress=count)

    assert outcome.simulations == 3 == len(outcome.plans)
    assert not outcome.reproducible
    assert outcome.stopped == "it was asked to stop"
    assert outcome.plans[0] == min(outcome.plans, key=lambda found: found.ticks)


def test_an_interrupt_that_the_caller_knows_of_keeps_what_was_found(templates: tuple[SimulatedPlan, ...]) -> None:
    scenario, pressed = small(Pattern.AG_GEMM), False

    def interrupt(done: int, total: int) -> None:
        nonlocal pressed
        if done == 3:
            pressed = True
            raise KeyboardInterrupt

    options = replace(OPTIONS, known=templates)
    outcome = optimize(scenario, SMALL, options, progress=interrupt, should_stop=lambda: pressed)

    assert len(outcome.plans) == len(templates) + 3
    assert not outcome.reproducible and outcome.stopped
    with pytest.raises(KeyboardInterrupt):
        optimize(scenario, SMALL, options, progress=interrupt)


STAGES = (
    "_propose_options",
    "_propose_batches",
    "_propose_variants",
    "_solve",
    "_anneal",
    "_simulate_proposals",
    "_simulate_options",
    "_refine",
)


@pytest.mark.quick(2)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_is_left_out(
    stage: str, templates: tuple[SimulatedPlan, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(search: object) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(Search, stage, fail)
    outcome = optimize(small(Pattern.AG_GEMM), SMALL, replace(OPTIONS, known=templates))

    (failure,) = outcome.failures
    assert failure.reason.startswith("ValueError: on purpose")
    assert outcome.best_template is not None and outcome.plans


def test_known_templates_are_not_simulated_again() -> None:
    scenario, choice = small(Pattern.AG_GEMM), OpChoice("hetero_fused_1d", 8, DMA3)
    schedule = build_op_plan(scenario, choice)
    ticks = simulate_op(scenario, schedule, unit_bytes=UNIT).makespan_ticks
    known = SimulatedPlan(choice, schedule, ticks, UNIT, Proposer.TEMPLATE)

    outcome = optimize(scenario, SMALL, replace(OPTIONS, known=(known,)))

    assert [found for found in outcome.plans if found.proposer is Proposer.TEMPLATE] == [known]
    assert outcome.simulations == len(outcome.plans) - 1


@pytest.mark.slow
def test_commands_written_before_are_tried_where_requested_for(
    outcome: SearchResult, templates: tuple[SimulatedPlan, ...]
) -> None:
    """They would make a plan that does not overlap quicker too."""
    scenario = small(Pattern.AG_GEMM)
    prelaunched = EngineChoice(EngineKind.DMA, 4, EngineMode.PRELAUNCHED)

    def modes(outcome: SearchResult) -> set[EngineMode]:
        return {plan.choice.engine.mode for plan in outcome.plans}

    assert modes(outcome) == {EngineMode.OWN}
    prelaunching = replace(OPTIONS, known=templates, prelaunched=True)
    assert EngineMode.PRELAUNCHED in modes(optimize(scenario, SMALL, prelaunching))
    named = replace(scenario, explore=scenario.explore.asking("engine", (prelaunched,)))
    assert modes(optimize(named, SMALL, OPTIONS)) == {EngineMode.PRELAUNCHED}


def test_a_template_at_the_bound_ends_the_search() -> None:
    scenario, choice = small(Pattern.AG_GEMM), OpChoice("hetero_fused_1d", 8, DMA3)
    bound = SimulatedPlan(choice, build_op_plan(scenario, choice), 1, UNIT, Proposer.TEMPLATE)

    options = replace(OPTIONS, known=(bound,), bound_ticks=lower_bound(scenario).ticks)
    outcome = optimize(scenario, SMALL, options)

    assert outcome.plans == (bound,)
    assert outcome.stopped == "a template is within 1 % of the lower bound"


def test_why_takes_each_freedom_away() -> None:
    scenario = small(Pattern.AG_GEMM, 1024)

    def ticks_of(choice: OpChoice) -> float:
        return estimate_ticks(scenario, build_op_plan(scenario, choice))

    template = OpChoice("hetero_fused_1d", 8, DMA3)
    plain = OpChoice("bespoke", 4, DMA3, 1, parts=((256, 0), (0, 128), (0, 128)))
    lopsided = replace(plain, parts=((256, 0), (0, 16), (0, 240)))

    cut = replace(plain, slices=((), (512, 512), ()), columns=((), (), (128, 128)))

    assert why_bespoke(scenario, plain, template, ticks_of) == ()
    said = why_bespoke(scenario, cut, template, lambda each: 1.0 if each == cut else 1.5 - (not each.slices) / 4)
    assert said == (("bands of columns", 0.5), ("slices of the inner dimension", 0.25))
    said = why_bespoke(scenario, lopsided, template, lambda each: 2.0 if each == plain else 1.0)
    assert said == (("chunks of unequal size", 1.0),)
