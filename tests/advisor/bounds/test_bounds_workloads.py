"""No schedule of a kernel that is no GEMM beside a collective beats the lower bound, and the bound is not idle."""

import random

import pytest

from magus.advisor import Advisor
from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler.ir import TICKS_PER_US, EngineKind, Scenario, TileGroup
from magus.compiler.planning.build import build_op_plan, expression_of
from magus.simcore import RunOutcome, simulate_op
from magus.simcore.kernels.dispatch import compute_work, least_bytes, least_sm_ticks
from tests.helpers.marks import first, thinned
from tests.helpers.scenarios.drawn import draw_choices
from tests.helpers.scenarios.workloads import TEXTS, choices_of, workload_of


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", first(range(4), 1))
@pytest.mark.parametrize("name", TEXTS)
def test_no_schedule_beats_the_bound(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    ranks = rng.choice((2, 4, 8))
    rows, width, system = ranks * rng.choice((64, 128, 512)), rng.choice((64, 128)), rng.randrange(3)
    scenario = workload_of(name, ranks, rows, width, system, uneven=rng.random() < 0.5)
    bounds = {kind: lower_bound(scenario, (kind,)).ticks for kind in EngineKind}
    choices, done = draw_choices(rng, scenario, 6), 0

    for choice in choices:
        result = simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=rng.choice((1024, 4096)))
        if result.outcome is RunOutcome.DONE:  # persistent kernels may leave no SM to copies that share theirs
            done += 1
            assert result.makespan_ticks >= bounds[choice.engine.kind] > 0, expression_of(choice)
    assert done


@pytest.mark.parametrize("name", thinned(TEXTS, 3))
def test_no_cut_takes_less_than_the_least(name: str) -> None:
    """SM time and memory traffic of the kernels of every template, with all SMs for each."""
    for system, width in ((0, 64), (1, 128)):
        scenario = workload_of(name, m=2048, d=width, system=system)
        sm_ticks, num_bytes = least_sm_ticks(scenario), least_bytes(scenario)
        assert sm_ticks > 0 and num_bytes > 0
        for choice in choices_of(scenario, (1, 2, 4, 16)):
            steps = build_op_plan(scenario, choice).steps
            works = [compute_work(scenario, step, scenario.gpu.sms) for step in steps if isinstance(step, TileGroup)]
            assert sum(work.num_units * work.unit_ticks for work in works) >= sm_ticks, choice
            moved = sum(work.hbm_read_bytes + work.mall_read_bytes + work.hbm_write_bytes for work in works)
            assert moved >= num_bytes, choice


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "binding", "most"),
    [
        ("AG+attention", "work", 1.45),
        ("attention+A2A causal", "work", 1.6),
        ("GEMM+A2A", "links", 1.6),
    ],
)
def test_the_bound_of_a_large_problem_is_near_a_good_schedule(name: str, binding: str, most: float) -> None:
    scenario = workload_of(name, ranks=8, m=65536, d=128)
    bound = lower_bound(scenario)
    times = [
        simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=262144).makespan_ticks
        for choice in choices_of(scenario, (1, 2))
        if choice.engine.kind is EngineKind.DMA
    ]

    assert bound.binding == binding
    assert 1 <= min(times) / bound.ticks < most


@pytest.mark.slow
def test_the_bound_of_a_large_grouped_gemm_is_near_what_a_search_finds(compiled_core: None) -> None:
    """Each kernel of experts starts in 8 us, so that templates, which have one for each piece, are 1.68 times it."""
    scenario = workload_of("A2A+grouped_gemm", ranks=8, m=65536, d=128)
    advice = Advisor.load().recommend(Scenario.of_one(scenario))
    bound = lower_bound(scenario)

    assert bound.binding == "links"
    assert 1 <= advice.recommended.best_us * TICKS_PER_US / bound.ticks < 1.35
