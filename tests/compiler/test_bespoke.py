"""bespoke: parts of any sizes as text and as plans, every row once, and what is wrong with parts said."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magus.compiler.codes import Code
from magus.compiler.diagnostics import CompileError
from magus.compiler.expression import expression_of
from magus.compiler.plan import ScheduleError, build_schedule, problem_of, why_illegal
from magus.compiler.plan_check import check_plan
from magus.compiler.scenario import Pattern, Scenario
from magus.compiler.schedule import Choice, Direction, EngineChoice, EngineKind, Reduction, Tactics, TileGroup, Transfer
from magus.compiler.schedule_text import read_choice, resolve_schedule
from magus.compiler.templates.bespoke import MAX_PARTS, PATTERNS, block_rows, shortened, spelled
from magus.simcore import simulate
from tests.advisor.drawing import SYSTEMS, scenario_of

DMA3 = EngineChoice(EngineKind.DMA, 3)
RANKS = 4
SPLIT = (128, 400, 48, 448)


def _scenario(pattern: Pattern) -> Scenario:
    """A small one; the all_to_all is uneven."""
    scenario = scenario_of(pattern, SYSTEMS[1], RANKS, 1024, 512, 512)
    split = SPLIT if pattern is Pattern.A2A_GEMM else ()
    return replace(scenario, workload=replace(scenario.workload, split=split))


SCENARIOS = {pattern: _scenario(pattern) for pattern in PATTERNS}


def drawn_parts(scenario: Scenario, tactics: Tactics, seed: int) -> tuple[tuple[int, ...], ...]:
    """Parts at random, of which some have no rows of some blocks."""
    rng = random.Random(seed)
    count, columns = rng.randint(1, 6), list[list[int]]()
    for rows in block_rows(problem_of(scenario, Choice("bespoke", RANKS, DMA3, tactics=tactics))):
        edges = [0, *sorted(rng.randint(0, rows) for _ in range(count - 1)), rows]
        columns.append([high - low for low, high in pairwise(edges)])
    return shortened(part for part in zip(*columns, strict=True) if any(part))


@given(st.sampled_from(PATTERNS), st.integers(0, 10**6), st.integers(1, 3), st.booleans(), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_any_parts_make_a_sound_plan_that_its_text_rebuilds(
    pattern: Pattern, seed: int, streams: int, get: bool, lanes: int
) -> None:
    scenario = SCENARIOS[pattern]
    tactics = Tactics(direction=Direction.GET if get and not pattern.sums else Direction.PUT)
    parts = drawn_parts(scenario, tactics, seed)
    choice = Choice("bespoke", RANKS, DMA3, streams, tactics, lanes=lanes, parts=parts)

    schedule = build_schedule(scenario, choice)

    assert check_plan(scenario, schedule) == ()
    assert resolve_schedule(scenario, schedule.expression) == schedule
    assert read_choice(scenario, expression_of(choice)) == choice


@pytest.mark.parametrize("pattern", PATTERNS)
def test_equal_parts_are_the_template_tick_for_tick(pattern: Pattern) -> None:
    scenario = replace(SCENARIOS[pattern], workload=replace(SCENARIOS[pattern].workload, split=()))
    parts = [[256, 0], [0, 128], [0, 128]]
    text = f"bespoke(parts={parts[::-1] if pattern.sums else parts}, engine=dma(3), streams=1)"

    ours, theirs = (
        simulate(scenario, resolve_schedule(scenario, each))
        for each in (text, "hetero_fused_1d(chunks=8, engine=dma(3))")
    )

    assert ours.makespan_ticks == theirs.makespan_ticks


def test_batches_carry_what_the_parts_say() -> None:
    scenario = SCENARIOS[Pattern.AG_GEMM]
    parts = ((64, 0, 256, 16), (192, 256, 0, 240))

    schedule = build_schedule(scenario, Choice("bespoke", RANKS, DMA3, 1, parts=parts))

    groups = [step for step in schedule.steps if isinstance(step, TileGroup)]
    moved = {step.name: step.region.rows.size for step in schedule.steps if isinstance(step, Transfer)}
    assert [sum(region.rows.size for region in group.regions) for group in groups] == [336, 688]
    assert moved == {"x0_2": 256, "x0_3": 16, "x1_1": 256, "x1_3": 240}


def test_sums_follow_the_batch_that_completes_their_rows_at_all_peers() -> None:
    scenario = SCENARIOS[Pattern.GEMM_RS]
    parts = ((0, 128, 64, 64), (256, 128, 192, 192))

    schedule = build_schedule(scenario, Choice("bespoke", RANKS, DMA3, 1, parts=parts))

    sums = [step for step in schedule.steps if isinstance(step, Reduction)]
    assert [str(step.region.rows) for step in sums] == ["0:64", "64:256"]
    assert set(sums[0].after) == {"g1", "s_x0_1", "s_x0_2", "s_x0_3"}


def test_lanes_give_each_peer_an_engine() -> None:
    scenario = SCENARIOS[Pattern.A2A_GEMM]
    parts = ((SPLIT[0], 200, 24, 224), (0, 200, 24, 224))

    steps = build_schedule(scenario, Choice("bespoke", RANKS, DMA3, 1, lanes=3, parts=parts)).steps

    assert all(step.lane == step.peer - 1 for step in steps if isinstance(step, Transfer))


def test_without_parts_the_own_shard_is_apart() -> None:
    scenario = SCENARIOS[Pattern.GEMM_AR]

    steps = build_schedule(scenario, Choice("bespoke", RANKS, DMA3, 1)).steps

    first, last = (step for step in steps if isinstance(step, TileGroup))
    assert {region.owner for region in first.regions} == {1, 2, 3}
    assert {region.owner for region in last.regions} == {0}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (((256, 0), (0, 128)), "the parts have 128 rows of the block for peer 1, which has 256"),
        (((255, 256),), "the parts have 255 rows of the own block, which has 256"),
        (((256, 1, 2),), "a part says the rows of 4 blocks, [256, 1, 2] says 3"),
        (((256, 256), (0, 0)), "part [0, 0] has no rows"),
        (((256, -1), (0, 257)), "part [256, -1] has no rows"),
        (((0, 0, 0, 1),) * (MAX_PARTS + 1), f"there are {MAX_PARTS + 1} parts"),
    ],
)
def test_parts_that_do_not_make_up_the_shards_are_refused(parts: tuple[tuple[int, ...], ...], message: str) -> None:
    error = why_illegal(SCENARIOS[Pattern.AG_GEMM], Choice("bespoke", RANKS, DMA3, parts=parts))

    assert error is not None
    assert error.code is Code.MGS514
    assert str(error) == message
    assert error.hint


def test_lanes_are_engines_of_the_pool() -> None:
    with pytest.raises(ScheduleError) as caught:
        build_schedule(SCENARIOS[Pattern.AG_GEMM], Choice("bespoke", RANKS, DMA3, lanes=4))

    assert caught.value.code is Code.MGS401


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("bespoke(parts=[])", "MGS116"),
        ("bespoke(parts=[256, 256])", "MGS116"),
        ("bespoke(parts=[[]])", "MGS116"),
        ("bespoke(parts=[[-1, 2]])", "MGS307"),
        ("bespoke(parts=[[1.5, 2]])", "MGS309"),
        ("bespoke(lanes=0)", "MGS307"),
        ("serial(parts=[[256, 256]])", "MGS201"),
        ("shard_p2p(lanes=2)", "MGS201"),
    ],
)
def test_what_cannot_be_read_is_a_diagnostic(text: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        resolve_schedule(SCENARIOS[Pattern.AG_GEMM], text)

    assert code in str(caught.value)


def test_parts_are_for_bespoke_alone() -> None:
    error = why_illegal(SCENARIOS[Pattern.AG_GEMM], Choice("serial", RANKS, DMA3, parts=((256, 256),)))

    assert error is not None and error.code is Code.MGS511


@given(st.lists(st.tuples(*(st.integers(0, 9) for _ in range(4))), max_size=5))
def test_short_parts_say_the_same(parts: list[tuple[int, ...]]) -> None:
    assert spelled(shortened(parts), 4) == tuple(parts)
