"""The bound against plans of uneven batches, and on tiny problems against the best of all of them."""

import random
from collections.abc import Iterator
from itertools import product
from statistics import mean

import pytest

from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler import compile_text
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Gpu,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
    WrittenPlan,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from magus.simcore.program.program import RunOutcome
from tests.helpers.marks import first
from tests.helpers.scenarios.drawn import SYSTEMS, draw_choices, draw_scenario, scenario_of
from tests.helpers.scenarios.drawn_plans import all_batches, draw_bespoke, draw_grid, draw_uneven
from tests.helpers.scenarios.scenarios import h100, lone_gemm, mi300x

PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
OVERLAPPED = (Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR, Pattern.A2A_GEMM)


def bespoke_ratios(seed: int, plans: int) -> Iterator[float]:
    """Simulated time over the bound for the engine, of plans drawn for one scenario."""
    rng = random.Random(f"uneven {seed}")
    ranks = rng.choice((2, 4, 8))
    scenario = draw_uneven(rng, rng.choice(SYSTEMS if ranks > 2 else SYSTEMS[:3]), ranks)
    for _ in range(plans):
        schedule = draw_bespoke(rng, scenario)
        result = schedule and simulate_op(scenario, schedule, unit_bytes=rng.choice((1024, 4096, 16384)))
        # Persistent kernels in several streams may hold all SMs that copies need.
        if schedule and result and result.outcome is RunOutcome.DONE:
            yield result.makespan_ticks / lower_bound(scenario, (schedule.engine.kind,)).ticks


@pytest.mark.parametrize("seed", first(range(8), 1))
def test_no_uneven_plan_beats_the_bound(seed: int) -> None:
    ratios = list(bespoke_ratios(seed, 4))

    assert ratios and min(ratios) >= 1


@pytest.mark.parametrize("seed", first(range(8), 1))
@pytest.mark.parametrize("gpu", first([h100(), mi300x()], 1), ids=["H100", "MI300X"])
def test_no_kernels_side_by_side_beat_the_bound(gpu: Gpu, seed: int) -> None:
    rng = random.Random(seed)
    m, n, k = (64 * rng.choice((2, 4, 8, 16, 24)) for _ in range(3))
    scenario = lone_gemm(m, n, k, gpu=gpu)
    gemm, engine = scenario.shape.gemm, EngineChoice(EngineKind.DMA, 1)
    assert gemm is not None
    for _ in range(3):
        schedule = build_op_plan(scenario, WrittenPlan(engine, draw_grid(rng, gemm)), "plan")
        assert check_plan(scenario, schedule) == ()
        ticks = simulate_op(scenario, schedule, unit_bytes=rng.choice((1024, 16384))).makespan_ticks
        assert ticks >= lower_bound(scenario).ticks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 124))
def test_no_plan_of_a_campaign_beats_the_bound(seed: int) -> None:
    ratios = list(bespoke_ratios(seed, 8))
    rng = random.Random(f"campaign {seed}")
    for pattern in (rng.choice(list(Pattern)), rng.choice(OVERLAPPED)):
        scenario = draw_scenario(rng, pattern)
        for choice in draw_choices(rng, scenario, 6):
            result = simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=rng.choice((256, 4096, 65536)))
            if result.outcome is RunOutcome.DONE:
                ratios.append(result.makespan_ticks / lower_bound(scenario, (choice.engine.kind,)).ticks)

    assert ratios and min(ratios) >= 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("rows", [(1008, 16), (16, 1008), (1023, 1)])
def test_blocks_that_are_nearly_all_or_nothing_are_bounded(rows: tuple[int, int]) -> None:
    text = f"x = tensor bf16[1024, 512]; w = tensor bf16[512, 1024]; y = gemm(all_to_all(x, rows={list(rows)}), w)"
    system = 'use "amd/mi300x"\nsystem s { gpus 2 x MI300X; fabric full_mesh(xgmi) }'
    scenario = compile_text(f"{system}\nworkload one on s {{ {text} }}\n").scenario().case
    schedule = build_op_plan(scenario, OpChoice("serial", 2, EngineChoice(EngineKind.DMA, 2)))

    assert 0 < lower_bound(scenario).ticks <= simulate_op(scenario, schedule, unit_bytes=16384).makespan_ticks


def best_of_all(scenario: OpCase, blocks: int) -> int:
    """The fastest of all sequences of batches of whole row blocks, of launched kernels and of persistent ones."""
    n, found = scenario.num_ranks, list[int]()
    moved = scenario.shape.moved
    assert moved is not None
    grain = moved.rows // n // blocks
    for batches, tactics in product(all_batches((blocks, blocks)), (ExecutionOptions(), PERSISTENT)):
        parts = tuple((own * grain, each * grain) for own, each in batches)
        choice = OpChoice("bespoke", n, EngineChoice(EngineKind.DMA, 7), 1, tactics, parts=parts)
        if reject_choice(scenario, choice) is None:
            found.append(simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=65536).makespan_ticks)
    return min(found)


def gap_of_the_best(pattern: Pattern, system: str, ranks: int) -> float:
    """Of a problem with two row blocks in every shard: how far the best of all batches and orders is from the bound."""
    scenario = scenario_of(pattern, system, ranks, ranks * 2 * 512, ranks * 1024, ranks * 1024)
    return best_of_all(scenario, 2) / lower_bound(scenario, (EngineKind.DMA,)).ticks - 1


@pytest.mark.slow
@pytest.mark.parametrize("pattern", first([Pattern.AG_GEMM, Pattern.GEMM_RS], 1), ids=lambda pattern: pattern.value)
def test_the_best_of_all_orders_is_near_the_bound(pattern: Pattern) -> None:
    assert 0 <= gap_of_the_best(pattern, SYSTEMS[0], 2) < 1


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("system", SYSTEMS[:2], ids=["switch", "mesh"])
def test_the_best_of_all_orders_is_near_the_bound_everywhere(system: str, ranks: int) -> None:
    gaps = [gap_of_the_best(pattern, system, ranks) for pattern in OVERLAPPED]

    assert min(gaps) >= 0
    assert mean(gaps) < 1
