"""bespoke: parts of any sizes as text and as plans, every row once, and what is wrong with parts said."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.codes import Code
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Reduction,
    TileGroup,
    Transfer,
    Wait,
    inner_size,
    tile_cols,
)
from magus.compiler.planning.build import ScheduleError, build_op_plan, expression_of, reject_choice
from magus.compiler.planning.staging import template_input
from magus.compiler.resolve.schedules.from_text import read_choice, resolve_schedule
from magus.compiler.templates.bespoke import MAX_PARTS, PATTERNS, block_rows, shortened, spelled
from magus.compiler.text.diagnostics import CompileError
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers.marks import examples
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.drawn_plans import draw_cuts
from tests.helpers.some import some

DMA3 = EngineChoice(EngineKind.DMA, 3)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
RANKS = 4
SPLIT = (128, 400, 48, 448)


def _scenario(pattern: Pattern) -> OpCase:
    """A small one; an all_to_all is uneven."""
    scenario = scenario_of(pattern, SYSTEMS[1], RANKS, 1024, 512, 512)
    split = SPLIT if pattern.exchanges else ()
    return replace(scenario, shape=replace(scenario.shape, split=split))


SCENARIOS = {pattern: _scenario(pattern) for pattern in PATTERNS}


def drawn_parts(scenario: OpCase, tactics: ExecutionOptions, seed: int) -> tuple[tuple[int, ...], ...]:
    """Parts at random, of which some have no rows of some blocks."""
    rng = random.Random(seed)
    count, columns = rng.randint(1, 6), list[list[int]]()
    for rows in block_rows(template_input(scenario, OpChoice("bespoke", RANKS, DMA3, tactics=tactics))):
        edges = [0, *sorted(rng.randint(0, rows) for _ in range(count - 1)), rows]
        columns.append([high - low for low, high in pairwise(edges)])
    return shortened(part for part in zip(*columns, strict=True) if any(part))


@given(
    st.sampled_from(PATTERNS), st.integers(0, 10**6), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 3)
)
@examples(80)
def test_any_parts_make_a_sound_plan_that_its_text_rebuilds(
    pattern: Pattern, seed: int, streams: int, get: bool, persistent: bool, lanes: int
) -> None:
    scenario = SCENARIOS[pattern]
    direction = Direction.GET if get and not pattern.produces else Direction.PUT
    tactics = replace(PERSISTENT if persistent else ExecutionOptions(), direction=direction)
    parts, rng = drawn_parts(scenario, tactics, seed), random.Random(seed)
    sizes = inner_size(scenario.shape), tile_cols(scenario.shape)
    slices, columns = (draw_cuts(rng, len(parts), size) for size in sizes)
    choice = OpChoice(
        "bespoke", RANKS, DMA3, streams, tactics, lanes=lanes, parts=parts, slices=slices, columns=columns
    )

    schedule = build_op_plan(scenario, choice)

    assert check_plan(scenario, schedule) == ()
    assert resolve_schedule(scenario, schedule.expression) == schedule
    assert read_choice(scenario, expression_of(choice)) == choice


@pytest.mark.parametrize("pattern", PATTERNS)
def test_equal_parts_are_the_template_tick_for_tick(pattern: Pattern) -> None:
    scenario = replace(SCENARIOS[pattern], shape=replace(SCENARIOS[pattern].shape, split=()))
    parts = [[256, 0], [0, 128], [0, 128]]
    text = f"bespoke(parts={parts[::-1] if pattern.produces else parts}, engine=dma(3), streams=1)"

    ours, theirs = (
        simulate_op(scenario, resolve_schedule(scenario, each))
        for each in (text, "hetero_fused_1d(chunks=8, engine=dma(3))")
    )

    assert ours.makespan_ticks == theirs.makespan_ticks


def test_batches_carry_what_the_parts_say() -> None:
    scenario = SCENARIOS[Pattern.AG_GEMM]
    parts = ((64, 0, 256, 16), (192, 256, 0, 240))

    schedule = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 1, parts=parts))

    groups = [step for step in schedule.steps if isinstance(step, TileGroup)]
    moved = {step.name: step.region.rows.size for step in schedule.steps if isinstance(step, Transfer)}
    assert [sum(region.rows.size for region in group.regions) for group in groups] == [336, 688]
    assert moved == {"x0_2": 256, "x0_3": 16, "x1_1": 256, "x1_3": 240}


def test_sums_follow_the_batch_that_completes_their_rows_at_all_peers() -> None:
    scenario = SCENARIOS[Pattern.GEMM_RS]
    parts = ((0, 128, 64, 64), (256, 128, 192, 192))

    schedule = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 1, parts=parts))

    sums = [step for step in schedule.steps if isinstance(step, Reduction)]
    assert [str(step.region.rows) for step in sums] == ["0:64", "64:256"]
    assert set(sums[0].after) == {"g1", "s_x0_1", "s_x0_2", "s_x0_3"}


def test_slices_are_delivered_one_by_one_and_added_up() -> None:
    scenario = SCENARIOS[Pattern.AG_GEMM]
    parts, slices = ((256, 0), (0, 256)), ((), (128, 384))

    schedule = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 2, parts=parts, slices=slices))

    groups = {step.name: step for step in schedule.steps if isinstance(step, TileGroup)}
    moved = [step for step in schedule.steps if isinstance(step, Transfer)]
    assert [(str(group.k), group.stream, group.accumulate) for group in groups.values()] == [
        *(("0:512", 0, False), ("0:128", 1, False), ("128:512", 1, True))
    ]
    assert {str(step.region.cols) for step in moved} == {"0:128", "128:512"}
    assert set(groups["g1k1"].after) == {f"s_x1k1_{peer}" for peer in (1, 2, 3)}
    whole = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 2, parts=parts))
    assert schedule.staging_bytes - whole.staging_bytes == 1024 * 128 * 4  # the output, in fp32 until it is whole


@pytest.mark.parametrize("pattern", [each for each in PATTERNS if each.produces])
def test_slices_of_a_persistent_kernel_may_end_in_any_order_and_copies_wait_for_each(pattern: Pattern) -> None:
    parts = ((0, 256), (256, 0))
    scenario = replace(SCENARIOS[pattern], shape=replace(SCENARIOS[pattern].shape, split=()))
    size = inner_size(scenario.shape)
    base = OpChoice("bespoke", RANKS, DMA3, 2, parts=parts, slices=((64, size - 64), ()))
    after = [("g0k1",), ("g0k0", "g0k1")]

    for tactics, expected in some(zip((ExecutionOptions(), PERSISTENT), after, strict=True)):
        schedule = build_op_plan(scenario, replace(base, tactics=tactics))
        waits = {step.name: step.after for step in schedule.steps if isinstance(step, Transfer)}
        assert waits["x0_1"] == expected
        assert check_plan(scenario, schedule) == ()


def test_bands_leave_when_they_are_made_and_are_summed_apart() -> None:
    scenario = SCENARIOS[Pattern.GEMM_AR]
    parts, columns = ((0, 256), (256, 0)), ((128, 384), (128, 192, 192))

    steps = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 2, parts=parts, columns=columns)).steps

    made = {step.name: (str(step.region.cols), step.after) for step in steps if isinstance(step, Transfer)}
    sums = [step for step in steps if isinstance(step, Reduction)]
    assert made["x0c0_1"] == ("0:128", ("g0c0",)) and made["x0c1_1"] == ("128:512", ("g0c1",))
    assert [str(step.region.cols) for step in sums] == ["0:128", "128:512"]
    assert set(sums[1].after) == {"g1c1", "g1c2", "s_x0c1_1", "s_x0c1_2", "s_x0c1_3"}
    assert made["y0c128_1"] == ("128:512", ("r0c128",))


def test_lanes_give_each_peer_an_engine() -> None:
    scenario = SCENARIOS[Pattern.A2A_GEMM]
    parts = ((SPLIT[0], 200, 24, 224), (0, 200, 24, 224))

    steps = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 1, lanes=3, parts=parts)).steps

    lanes = {(step.peer, step.lane) for step in steps if isinstance(step, Transfer)}
    assert lanes == {(peer, peer - 1) for peer in range(1, RANKS)}


def test_without_parts_the_own_shard_is_apart() -> None:
    scenario = SCENARIOS[Pattern.GEMM_AR]

    steps = build_op_plan(scenario, OpChoice("bespoke", RANKS, DMA3, 1)).steps

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
    error = reject_choice(SCENARIOS[Pattern.AG_GEMM], OpChoice("bespoke", RANKS, DMA3, parts=parts))

    assert error is not None
    assert error.code is Code.MGS514
    assert str(error) == message
    assert error.hint


Cuts = tuple[tuple[int, ...], ...]


@pytest.mark.parametrize(
    ("slices", "columns", "message"),
    [
        (((256, 256),), (), "slices are said of 1 parts, there are 2"),
        (((), (256, 128)), (), "slices [256, 128] do not make up 512"),
        (((), (512,)), (), "slices [512] are one piece"),
        (((), (100, 412)), (), "slices [100, 412] are not multiples of 64"),
        ((), ((128, 0), ()), "columns [128, 0] do not make up 128"),
        ((), ((1,) * 128, ()), "the parts are cut into 129 kernels"),
    ],
)
def test_cuts_that_do_not_make_up_a_part_are_refused(slices: Cuts, columns: Cuts, message: str) -> None:
    parts = ((256, 0), (0, 256))
    choice = OpChoice("bespoke", RANKS, DMA3, parts=parts, slices=slices, columns=columns)

    error = reject_choice(SCENARIOS[Pattern.AG_GEMM], choice)

    assert error is not None and error.code is Code.MGS514
    assert str(error) == message
    assert error.hint


@pytest.mark.parametrize(("template", "code"), [("bespoke", Code.MGS514), ("serial", Code.MGS511)])
def test_cuts_are_those_of_parts(template: str, code: Code) -> None:
    for choice in (
        OpChoice(template, RANKS, DMA3, slices=((256, 256),)),
        OpChoice(template, RANKS, DMA3, columns=((64, 64),)),
    ):
        error = reject_choice(SCENARIOS[Pattern.AG_GEMM], choice)
        assert error is not None and error.code is code


def test_lanes_are_engines_of_the_pool() -> None:
    with pytest.raises(ScheduleError) as caught:
        build_op_plan(SCENARIOS[Pattern.AG_GEMM], OpChoice("bespoke", RANKS, DMA3, lanes=4))

    assert caught.value.rejection.code is Code.MGS401


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("bespoke(parts=[])", "MGS116"),
        ("bespoke(parts=[256, 256])", "MGS116"),
        ("bespoke(parts=[[]])", "MGS116"),
        ("bespoke(parts=[[-1, 2]])", "MGS307"),
        ("bespoke(parts=[[1.5, 2]])", "MGS309"),
        ("bespoke(lanes=0)", "MGS307"),
        ("bespoke(parts=[[256, 256]], slices=[])", "MGS116"),
        ("bespoke(parts=[[256, 256]], slices=[512])", "MGS116"),
        ("bespoke(parts=[[256, 256]], columns=[[64, 64.5]])", "MGS309"),
        ("serial(columns=[[64, 64]])", "MGS201"),
        ("serial(parts=[[256, 256]])", "MGS201"),
        ("shard_p2p(lanes=2)", "MGS201"),
    ],
)
def test_what_cannot_be_read_is_a_diagnostic(text: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        resolve_schedule(SCENARIOS[Pattern.AG_GEMM], text)

    assert code in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("parts=[[1.5, 2]]", "rows of a part is a whole number"),
        ("slices=[[64.5, 64]]", "a slice is a whole number"),
        ("columns=[[64 KiB, 64]]", "a band of columns is a plain number"),
    ],
)
def test_what_a_size_is_of_is_said(argument: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        read_choice(SCENARIOS[Pattern.AG_GEMM], f"bespoke({argument})")


def test_parts_are_for_bespoke_alone() -> None:
    error = reject_choice(SCENARIOS[Pattern.AG_GEMM], OpChoice("serial", RANKS, DMA3, parts=((256, 256),)))

    assert error is not None and error.code is Code.MGS511


@given(st.lists(st.tuples(*(st.integers(0, 9) for _ in range(4))), max_size=5))
def test_short_parts_say_the_same(parts: list[tuple[int, ...]]) -> None:
    assert spelled(shortened(parts), 4) == tuple(parts)
