"""Plans of kernels other than a GEMM beside a collective: what templates write is right, and what is wrong is found."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    Kernels,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    TileGroup,
    Transfer,
    Wait,
    inner_size,
    moved_rows,
    tile_cols,
    tile_rows,
)
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import ScheduleError, build_op_plan, declared, reject_choice
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import examples, thinned
from tests.helpers.scenarios.workloads import TEXTS, choices_of, text_of, workload_of
from tests.helpers.some import some

DMA = EngineChoice(EngineKind.DMA, 3)
RING, TO_HEADS, TO_ROWS, COMBINE = "AG+attention", "A2A+attention", "attention+A2A", "grouped_gemm+A2A"


def schedule_of(name: str, template: str, chunks: int = 8, streams: int = 1) -> tuple[OpCase, OpPlan]:
    scenario = workload_of(name)
    return scenario, build_op_plan(scenario, OpChoice(template, chunks, DMA, streams))


def changed(schedule: OpPlan, name: str, **fields: object) -> OpPlan:
    """The schedule with a step that is otherwise."""
    steps = tuple(replace(step, **fields) if step.name == name else step for step in schedule.steps)  # type: ignore[arg-type]
    return replace(schedule, steps=steps)


@pytest.mark.parametrize("name", TEXTS)
def test_templates_have_no_faults_and_compute_and_move_everything_once(name: str) -> None:
    scenario = workload_of(name)
    workload, n, seen = scenario.shape, scenario.num_ranks, Counter[str]()
    moved = workload.moved
    assert moved is not None
    stages = workload.stages
    tiles = [sum(tile_rows(one, n, owner) for owner in range(n)) * tile_cols(one) * inner_size(one) for one in stages]
    remote = sum(moved_rows(workload, n, owner) for owner in range(1, n)) * moved.cols
    remote *= 1 + (workload.pattern is Pattern.GEMM_AR)  # sums go on to all

    for choice in choices_of(scenario):
        schedule = build_op_plan(scenario, choice)

        assert check_plan(scenario, schedule) == (), schedule.expression
        groups = [step for step in schedule.steps if isinstance(step, TileGroup)]
        made = [0] * len(stages)
        for group in groups:
            made[group.kernel] += sum(r.rows.size * r.cols.size * group.k.size for r in group.regions)
        assert made == tiles
        moves = [step.region for step in schedule.steps if isinstance(step, Transfer)]
        assert remote == sum(region.rows.size * region.cols.size for region in moves)
        seen[choice.template] += 1
    rows_stay = workload.pattern.consumes and TO_HEADS in name
    assert len(seen) == (2 if rows_stay else 6), seen


@pytest.mark.parametrize("template", ["shard_p2p", "uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d"])
def test_queries_of_an_exchange_need_all_rows(template: str) -> None:
    scenario = workload_of(TO_HEADS)
    error = reject_choice(scenario, OpChoice(template, 4 if template == "shard_p2p" else 8, DMA))

    assert error is not None and error.code is Code.MGS511
    assert "the keys of all rows" in str(error) and error.hint == "uniform_fused_2d cuts heads"


def test_columns_are_cut_by_heads() -> None:
    error = reject_choice(workload_of(RING), OpChoice("uniform_fused_2d", 32, DMA))

    assert error is not None and error.code is Code.MGS512
    assert str(error) == "512 columns do not divide into 8 equal chunks of a multiple of 128"
    assert error.hint == "chunks=8, 16 would do"


def test_kernels_that_add_to_one_output_stay_in_one_stream() -> None:
    scenario = workload_of(RING)

    error = reject_choice(scenario, OpChoice("hetero_unfused_1d", 8, DMA, 4))
    assert error is not None and error.hint == "streams=1"
    assert reject_choice(scenario, OpChoice("hetero_unfused_1d", 8, DMA, 1)) is None
    assert reject_choice(workload_of(TO_ROWS), OpChoice("hetero_unfused_1d", 8, DMA, 4)) is None


@pytest.mark.parametrize("name", [RING, COMBINE])
def test_a_persistent_kernel_is_a_gemm(name: str) -> None:
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    choice = OpChoice("hetero_fused_1d", 8, DMA, tactics=tactics)

    with pytest.raises(ScheduleError, match=f"the tiles of one GEMM, {name.replace('+', '.')} has none"):
        build_op_plan(workload_of(name), choice)


@pytest.mark.parametrize("name", [TO_ROWS, COMBINE, "GEMM+A2A"])
def test_what_a_kernel_makes_is_put(name: str) -> None:
    choice = OpChoice("hetero_fused_1d", 8, DMA, tactics=ExecutionOptions(Direction.GET))
    error = reject_choice(workload_of(name), choice)

    assert error is not None and error.code is Code.MGS511 and "put by the rank that computes them" in str(error)


def test_parts_of_an_output_wait_for_each_other_and_add() -> None:
    scenario, schedule = schedule_of(RING, "hetero_fused_1d")

    def faults(step: str, **fields: object) -> set[Code]:
        return {fault.code for fault in check_plan(scenario, changed(schedule, step, **fields))}

    assert faults("g1", accumulate=False) == {Code.MGS507}
    assert faults("own", accumulate=True) == {Code.MGS507}
    assert Code.MGS508 in faults("g1", stream=1)


def test_heads_of_gathered_keys_are_outputs_of_their_own() -> None:
    scenario, schedule = schedule_of(RING, "uniform_fused_2d")

    assert check_plan(scenario, changed(schedule, "g1", stream=1)) == ()
    assert {fault.code for fault in check_plan(scenario, changed(schedule, "g1", accumulate=True))} == {Code.MGS507}


def test_heads_stay_whole_and_queries_have_all_keys() -> None:
    for name, fields, said in (
        (RING, {"k": IndexRange(0, 64)}, "cuts a head of keys, which is 128 columns"),
        (TO_HEADS, {"k": IndexRange(0, 64)}, "cuts a head of keys, which is 256 columns"),
    ):
        scenario, schedule = schedule_of(name, "uniform_fused_2d")
        messages = [fault.message for fault in check_plan(scenario, changed(schedule, "g0", **fields))]
        assert f"g0 {said}" in messages
    group = next(step for step in schedule.steps if isinstance(step, TileGroup))
    fault, *_ = check_plan(scenario, changed(schedule, "g0", regions=group.regions[1:]))
    assert (fault.code, fault.message) == (
        Code.MGS509,
        "g0 has 768 of 1024 rows, and a query needs the keys of all of them",
    )


def test_rows_leave_after_they_are_computed_and_to_where_they_belong() -> None:
    scenario, schedule = schedule_of(COMBINE, "hetero_fused_1d")
    (put,) = [step for step in schedule.steps if step.name == "x0_1"]
    assert isinstance(put, Transfer)

    early = check_plan(scenario, changed(schedule, "x0_1", after=()))
    assert [fault.code for fault in early] == [Code.MGS508] and "before they are computed" in early[0].message
    astray = check_plan(scenario, changed(schedule, "x0_1", region=replace(put.region, owner=2)))
    assert Code.MGS509 in {fault.code for fault in astray}
    got = check_plan(scenario, changed(schedule, "x0_1", direction=Direction.GET, region=replace(put.region, owner=0)))
    assert any("put by the rank that computes it" in fault.message for fault in got)


@pytest.mark.parametrize(
    ("name", "template", "staging"),
    [
        (RING, "serial", 3 * 256 * 512 * 2),
        (RING, "hetero_fused_1d", 3 * 256 * 512 * 2 + 8 * 256 * (64 + 2) * 4),
        (RING, "uniform_fused_2d", 3 * 256 * 512 * 2),
        ("A2A+grouped_gemm", "hetero_fused_1d", 640 * 128 * 2),
        ("A2A+grouped_gemm", "uniform_fused_2d", 640 * 128 * 2 + 1024 * 256 * 4),
        (TO_ROWS, "hetero_fused_1d", 1024 * 8 * 64 * 2),
    ],
)
def test_staging(name: str, template: str, staging: int) -> None:
    """What arrives; the output in fp32 with two numbers a row where keys add to it; what is computed to be sent."""
    chunks = 4 if template == "serial" else 8

    assert build_op_plan(workload_of(name), OpChoice(template, chunks, DMA)).staging_bytes == staging


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", thinned(TEXTS, 3))
def test_a_plan_written_out_is_the_same_plan(name: str) -> None:
    scenario, head = workload_of(name), text_of(name)
    for choice in some(choices_of(scenario, (2,))):
        schedule = build_op_plan(scenario, choice)
        again = compile_text(head + plan_text(scenario, schedule, "written")).scenario().case
        found = declared(again, again.schedules[0])
        assert found.steps == schedule.steps and found.staging_bytes == schedule.staging_bytes


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["A2A+grouped_gemm", "grouped_gemm+A2A", "GEMM+A2A"])
@examples(12)
@given(sent=st.lists(st.sampled_from([0, 0, 4, 8, 12, 40, 100]), min_size=4, max_size=4).filter(lambda r: any(r[1:])))
def test_blocks_of_any_size(name: str, sent: list[int]) -> None:
    """Own rows or those of a peer may be none: there is no step for them then."""
    text = text_of(name, sent=sent)
    scenario = compile_text(text).scenario().case
    for choice in some(choices_of(scenario)):
        schedule = build_op_plan(scenario, choice)
        assert check_plan(scenario, schedule) == (), choice
        puts = {step.peer for step in schedule.steps if isinstance(step, Transfer)}
        assert puts == {peer for peer in range(1, 4) if sent[peer]}
