"""What proposes plans: shapes, dynamic programming, moves and CP-SAT keep all rows, and the cost models hold."""

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.bespoke.batches import (
    GRAIN,
    OWN_UNITS,
    Batches,
    Costs,
    RowBatch,
    batches_of,
    costs_of,
    dp_batches,
    kernel_ticks,
    lengths_of,
    shapes,
    shares,
    whole_batches,
    whole_rows,
    with_batches,
)
from magus.advisor.bespoke.cp_sat import MAX_BATCHES, as_batches, solved_parts, uniform_choices
from magus.advisor.bespoke.neighbours import INFEASIBLE, PlanEstimator, neighbour
from magus.advisor.bespoke.search import anneal
from magus.advisor.solver.model import BatchProblem, solve_batches
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates.bespoke import PATTERNS, Parts, shortened
from magus.simcore import simulate_op
from tests.helpers.marks import examples
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.some import some

DMA3 = EngineChoice(EngineKind.DMA, 3)
RANKS = 4
SPLIT = (128, 400, 48, 448)


def scenario_with(pattern: Pattern, system: int = 1) -> OpCase:
    """A small one; the all_to_all is uneven."""
    scenario = scenario_of(pattern, SYSTEMS[system], RANKS, 1024, 1024, 1024)
    return replace(scenario, shape=replace(scenario.shape, split=SPLIT if pattern is Pattern.A2A_GEMM else ()))


def bespoke(parts: Parts, streams: int = 1) -> OpChoice:
    return OpChoice("bespoke", RANKS, DMA3, streams, parts=shortened(parts))


def of_batches(batches: Batches) -> OpChoice:
    return with_batches(OpChoice("bespoke", RANKS, DMA3), batches)


@given(st.integers(0, 5000), st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_shares_keep_all_rows(rows: int, weights: list[int]) -> None:
    found = shares(rows, weights)

    assert sum(found) == (rows if any(weights) else 0)
    assert min(found) >= 0


@pytest.mark.quick(6)
@pytest.mark.parametrize("system", [0, 1, 2])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_proposal_is_a_legal_plan(pattern: Pattern, system: int) -> None:
    scenario = scenario_with(pattern, system)
    found = (*shapes(scenario), *dp_batches(scenario, DMA3))

    for batches in found:
        assert reject_choice(scenario, of_batches(batches)) is None
    assert any(batch.columns if pattern.produces else batch.slices for batches in found for batch in batches)


@given(st.sampled_from(PATTERNS), st.integers(0, 10**6))
def test_batches_are_what_a_choice_says(pattern: Pattern, seed: int) -> None:
    batches = random.Random(seed).choice(shapes(scenario_with(pattern)))

    assert batches_of(of_batches(batches)) == batches
    assert of_batches((*batches, RowBatch((0,) * RANKS, (64, 64)))) == of_batches(batches)


@given(st.sampled_from(PATTERNS), st.integers(0, 10**6))
@examples(30)
def test_moves_keep_all_rows(pattern: Pattern, seed: int) -> None:
    scenario, rng = scenario_with(pattern), random.Random(seed)
    choice = of_batches(rng.choice(shapes(scenario)))

    for _ in range(30):
        choice = neighbour(rng, choice, (DMA3, EngineChoice(EngineKind.SM, 16)), lengths_of(scenario))
        assert reject_choice(scenario, choice) is None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_moves_cut_what_lets_copies_be_finer(pattern: Pattern) -> None:
    scenario, rng = scenario_with(pattern), random.Random(0)
    choice, sliced, banded = bespoke((whole_rows(scenario),)), 0, 0

    for _ in range(100):
        choice = neighbour(rng, choice, (DMA3,), lengths_of(scenario))
        sliced, banded = sliced + bool(choice.slices), banded + bool(choice.columns)

    assert 0 < sliced < 100
    assert banded < 100 and (banded > 0) is pattern.produces


@pytest.mark.parametrize("pattern", PATTERNS)
def test_parts_of_a_template_take_as_long_as_the_template(pattern: Pattern) -> None:
    scenario = scenario_of(pattern, SYSTEMS[1], RANKS, 1024, 1024, 1024)
    compared = 0
    for choice in uniform_choices(scenario, max_pieces=2):
        batches = as_batches(scenario, choice)
        if batches is None or choice.engine != DMA3 or choice.template == "hetero_unfused_1d":
            continue
        if choice.template == "shard_p2p":  # which copies one shard at a time
            continue
        ours, theirs = (
            simulate_op(scenario, build_op_plan(scenario, each), unit_bytes=4096).makespan_ticks
            for each in (of_batches(batches), choice)
        )
        assert ours == theirs, choice
        compared += 1
    assert compared == 4


def test_the_sweep_has_every_chunk_count_that_divides() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], RANKS, 4 * 96, 512, 512)

    pieces = {each.chunks // RANKS for each in uniform_choices(scenario) if each.template == "hetero_fused_1d"}

    assert pieces == {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}


def exhaustive_end(costs: Costs, first: int, batches: int) -> int:
    """The earliest end over all cuts of the grid, by trying them; slices keep the rest of the own block."""
    ends = []
    for inner in combinations(range(1, costs.grid), batches - 1):
        at, edges = costs.kernel(first, 0), (0, *inner, costs.grid)
        for j in range(1, batches + 1):
            filler = OWN_UNITS - first if j == 1 or not costs.by_rows else 0
            kernel = costs.kernel(filler, edges[j] - edges[j - 1]) + costs.event
            at = max(at, costs.arrived(edges[j], j)) + kernel
        ends.append(at)
    return min(ends)


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("first", [0, 2, 4])
def test_dynamic_programming_finds_the_best_cuts(first: int, by_rows: bool) -> None:
    from magus.advisor.bespoke.batches import _ends

    costs = costs_of(scenario_with(Pattern.AG_GEMM), DMA3, by_rows=by_rows)
    costs = replace(costs, grid=8, moved=tuple(range(0, 9 * 10**8, 10**8)))
    ends, _ = _ends(costs, first)

    for batches in (1, 2, 3, 4):
        assert ends[batches][costs.grid] == exhaustive_end(costs, first, batches)


def test_kernel_times_are_those_of_the_simulator() -> None:
    scenario = scenario_with(Pattern.AG_GEMM)
    schedule = build_op_plan(scenario, OpChoice("serial", RANKS, DMA3))

    alone = simulate_op(scenario, schedule, unit_bytes=4096).compute_ticks

    assert kernel_ticks(scenario, DMA3, 0) == 0
    assert kernel_ticks(scenario, DMA3, 1024) == pytest.approx(alone + scenario.gpu.gemm.start_ticks, rel=0.001)


def test_the_evaluator_is_near_the_simulator_and_counts_what_it_tries() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], RANKS, 4096, 2048, 2048)
    evaluate = PlanEstimator(scenario, limit=3)
    choice = bespoke(((1024, 0), (0, 384), (0, 640)), streams=2)

    simulated = simulate_op(scenario, build_op_plan(scenario, choice)).makespan_ticks

    assert evaluate.ticks(choice) == pytest.approx(simulated, rel=0.02)
    assert evaluate.ticks(choice) == evaluate.ticks(choice)
    assert evaluate.ticks(bespoke(((1, 1),))) == INFEASIBLE
    assert evaluate.count == 2 and not evaluate.spent


def test_annealing_keeps_to_its_budget_and_gives_the_same_again() -> None:
    scenario = scenario_with(Pattern.AG_GEMM)
    start = bespoke(((256, 0), (0, 256)))

    found = []
    for _ in range(2):
        evaluate = PlanEstimator(scenario, limit=10**6)
        found.append(anneal(evaluate, start, 40, random.Random(7), (DMA3,)))
        assert evaluate.count <= 41
        assert evaluate.ticks(found[-1]) <= evaluate.ticks(start)

    assert found[0] == found[1]


TINY = BatchProblem(
    blocks=(2, 2, 2),
    kernel=(0, 30, 40, 50, 60, 80, 90),
    link=(0, 1),
    copy=(20, 10),
    setup=5,
    latency=2,
    event=1,
    engines=2,
    start=((0, 2, 2), (2, 0, 0)),
    bound=1,
)


def end_of(problem: BatchProblem, batches: Parts) -> int:
    """When a batching ends, if every link and engine is there for each peer."""
    at, links = 0, [0, 0]
    for own, *rows in batches:
        ready = 0
        for k, grains in enumerate(rows):
            if grains:
                links[k] += problem.setup + problem.copy[k] * grains
                ready = max(ready, links[k] + problem.latency + problem.event)
        at = max(at, ready) + problem.kernel[own + sum(rows)]
    return at


def test_the_solver_finds_the_best_of_all_batchings() -> None:
    counts = range(3)
    every = [((own, one, two), (2 - own, 2 - one, 2 - two)) for own in counts for one in counts for two in counts]
    best = min(end_of(TINY, batches) for batches in every)

    found = solve_batches(TINY, seed=0, limit=5.0)

    assert end_of(TINY, found[0]) == best
    assert end_of(TINY, TINY.start) > best


def test_the_solver_gives_the_same_again_and_keeps_all_rows() -> None:
    scenario = scenario_with(Pattern.A2A_GEMM)
    start = whole_batches(batch.rows for batch in dp_batches(scenario, DMA3)[0])
    assert len(start) <= MAX_BATCHES

    once, twice = (solved_parts(scenario, of_batches(start), 1, 3, 0.05, lambda: False) for _ in range(2))

    assert once == twice
    assert once and all(reject_choice(scenario, bespoke(parts)) is None for parts in once)


def test_proposals_are_in_grains() -> None:
    scenario = scenario_with(Pattern.AG_GEMM)

    assert all(rows % GRAIN == 0 for batches in some(shapes(scenario)) for batch in batches for rows in batch.rows)
