"""Files of plans carried out with numpy: every rank ends with what the serial computation gives, in any order."""

import random

import pytest

from magus.compiler.ir import Pattern
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.triton import PATTERNS, triton_text, unwritable
from tests.helpers.marks import thinned
from tests.helpers.scenarios.drawn import SYSTEMS, draw_choices, scenario_of
from tests.helpers.some import some
from tests.helpers.targets.gemm_world import World, plan_of
from tests.helpers.work import calls_of


@pytest.mark.quick(8)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.value)
@pytest.mark.parametrize("seed", thinned(range(30), 10))
def test_drawn_schedules_are_exact_or_refused(pattern: Pattern, ranks: int, seed: int) -> None:
    rng = random.Random(seed)
    sizes = (20 * ranks, 24 * ranks, 256) if pattern.consumes else (20 * ranks, 256, 8 * ranks)
    scenario = scenario_of(pattern, SYSTEMS[seed % 2], ranks, *sizes)
    for choice in some(draw_choices(rng, scenario, 3)):
        plan = build_op_plan(scenario, choice)
        unfit = unwritable(scenario, plan)
        try:
            text = triton_text(scenario, plan)
        except ScheduleError as error:
            assert error.rejection.code.name == "MGS541" and error.rejection.hint and unfit == error.rejection
            continue
        assert unfit is None
        world = World(plan_of(text), scenario, rng.choice((16, 32)), rng.choice((1, 3, 8)))
        for epoch in (1, 2):
            world.fill()
            world.run(epoch, rng.randrange)
            assert world.exact, choice


@pytest.mark.parametrize(
    "expression",
    [
        "bespoke(parts=[[32, 16], [0, 16]], slices=[[], [128, 128]], engine=dma(3), streams=2, lanes=3)",
        "bespoke(parts=[[32, 32]], columns=[[16, 24]], engine=dma(3))",
        "uniform_fused_1d(chunks=16, engine=dma(3), transfer=get, depth=2)",
        "pipelined(chunks=16, engine=dma(3), streams=2, waves=3)",
        "pipelined(chunks=16, engine=dma(3), algorithm=halving_doubling)",
        "shard_p2p(engine=sm(8), order=absolute)",
        "hetero_fused_1d(chunks=16, engine=dma(3), kernel=persistent, wait=poll)",
    ],
)
def test_what_schedules_can_say(expression: str) -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 128, 160, 256)
    world = World(plan_of(triton_text(scenario, resolve_schedule(scenario, expression))), scenario, 16, 5)

    world.fill()
    world.run(1, random.Random(1).randrange)

    assert world.exact


@pytest.mark.parametrize("algorithm", ["ring", "double_ring", "halving_doubling", "double_tree", "one_shot", "direct"])
def test_sums_by_every_algorithm(algorithm: str) -> None:
    scenario = scenario_of(Pattern.GEMM_AR, SYSTEMS[1], 4, 64, 128, 64)
    schedule = resolve_schedule(scenario, f"serial(engine=sm(8), algorithm={algorithm})")
    plan = plan_of(triton_text(scenario, schedule))
    for seed in range(4):
        world = World(plan, scenario, 16, 3)
        world.fill()
        world.run(1, random.Random(seed).randrange)
        assert world.exact


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS], ids=lambda pattern: pattern.value)
def test_whether_a_file_can_be_written_is_known_without_writing_that_of_each_rank(pattern: Pattern) -> None:
    """Answers say so, of a thousand ranks too, where each rank has a thousand arrivals."""
    scenario = scenario_of(pattern, SYSTEMS[1], 96, 16 * 96, 3 * 96, 16 * 96)
    plan = resolve_schedule(scenario, "pipelined(chunks=96, engine=dma(3), algorithm=ring)")

    # The programs of all ranks take two million.
    assert calls_of(lambda: unwritable(scenario, plan)) < 200_000
