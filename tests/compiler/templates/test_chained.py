"""Plans of two kernels: put together from those of one, and every wait in them is needed."""

from dataclasses import replace

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import (
    Adds,
    EngineChoice,
    EngineKind,
    GemmShape,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Step,
    TileGroup,
    Transfer,
    cutting_of,
    inner_size,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.staging import staging_bytes
from magus.compiler.templates.base import chained
from magus.compiler.verify.check import check_plan
from magus.simcore.kernels.dispatch import compute_shape
from magus.simcore.kernels.gemm import group_shape
from tests.helpers.scenarios.workloads import TEXTS, choices_of, workload_of
from tests.helpers.some import some

DMA = EngineChoice(EngineKind.DMA, 3)
CHAINS = [name for name in TEXTS if "+A2A+" in name]
SIDE = "GEMM+A2A+GEMM side by side"


def schedule_of(name: str, template: str, pieces: int = 1) -> tuple[OpCase, OpPlan]:
    scenario = workload_of(name)
    return scenario, build_op_plan(scenario, OpChoice(template, scenario.num_ranks * pieces, DMA))


def without(step: Step, name: str) -> Step:
    return replace(step, after=tuple(other for other in step.after if other != name))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CHAINS)
def test_each_wait_is_needed(name: str) -> None:
    """But for those that only keep transfers one after the other."""
    scenario = workload_of(name)
    for choice in some(choices_of(scenario, (2,))):
        schedule = build_op_plan(scenario, choice)
        waits = [(place, step, wait) for place, step in enumerate(schedule.steps) for wait in step.after]
        for place, step, wait in some(waits):
            if isinstance(step, Transfer) and wait.startswith("x"):
                continue
            steps = (*schedule.steps[:place], without(step, wait), *schedule.steps[place + 1 :])
            found = {fault.code for fault in check_plan(scenario, replace(schedule, steps=steps))}
            assert found & {Code.MGS508, Code.MGS507, Code.MGS513}, (choice, step.name, wait)


@pytest.mark.parametrize("name", CHAINS)
def test_transfers_are_those_of_the_first_kernel_and_kernels_those_of_each(name: str) -> None:
    scenario = workload_of(name)
    for choice in some(choices_of(scenario, (2,))):
        steps = build_op_plan(scenario, choice).steps
        first, then = (build_op_plan(stage, choice).steps for stage in scenario.stages)

        assert tuple(step for step in steps if step.name in {each.name for each in first}) == first
        second = [step for step in steps if isinstance(step, TileGroup) and step.kernel == 1]
        alone = [step for step in then if isinstance(step, TileGroup)]
        assert [(g.name, g.regions, g.k, g.accumulate) for g in second] == [
            (f"then_{g.name}", g.regions, g.k, g.accumulate) for g in alone
        ]
        assert min(g.stream for g in second) > max(g.stream for g in first if isinstance(g, TileGroup))
        assert len(steps) == len(first) + len(second)


def test_the_own_block_comes_from_the_first_kernel() -> None:
    _, schedule = schedule_of("GEMM+A2A+GEMM", "hetero_fused_1d", 2)
    waits = {step.name: step.after for step in schedule.steps if isinstance(step, TileGroup)}

    assert waits["own"] == () and waits["then_own"] == ("own",)
    assert set(waits["then_g1"]) == {"s_x1_1", "s_x1_2", "s_x1_3"}


def test_blocks_side_by_side_are_one_inner_dimension() -> None:
    scenario, schedule = schedule_of(SIDE, "hetero_fused_1d", 2)
    n, then = scenario.num_ranks, scenario.shape.then
    assert then is not None and isinstance(then.kernel, GemmShape)
    stage = scenario.shape.stage(1)
    assert cutting_of(stage).adds is Adds.BLOCKS and inner_size(stage) * n == then.kernel.k

    second = [step for step in schedule.steps if isinstance(step, TileGroup) and step.kernel == 1]
    shapes = [group_shape(scenario, group) for group in second]

    own, *others = shapes
    assert (own.m, own.k) == (then.kernel.m, then.kernel.k // n)
    assert [(shape.m, shape.k) for shape in others] == [(then.kernel.m // 2, then.kernel.k * (n - 1) // n)] * 2
    assert sum(shape.flops for shape in shapes) == then.kernel.flops
    assert [group.accumulate for group in second] == [False, True, True]


def test_blocks_side_by_side_run_one_after_the_other_unless_all_are_taken_at_once() -> None:
    scenario = workload_of(SIDE)
    error = reject_choice(scenario, OpChoice("hetero_unfused_1d", 8, DMA, 4))
    assert error is not None and error.hint == "streams=1"
    assert reject_choice(scenario, OpChoice("hetero_unfused_1d", 8, DMA, 1)) is None
    at_once, apart = (schedule_of(SIDE, template, 2)[1] for template in ("uniform_fused_1d", "hetero_fused_1d"))

    assert not any(step.accumulate for step in at_once.steps if isinstance(step, TileGroup))
    sums = apart.staging_bytes - at_once.staging_bytes
    then = scenario.shape.then
    assert then is not None and isinstance(then.kernel, GemmShape) and sums == then.kernel.accumulator_bytes


def test_a_group_of_unequal_rows_of_blocks_side_by_side_is_refused() -> None:
    scenario, schedule = schedule_of(SIDE, "uniform_fused_1d", 2)
    group = next(step for step in schedule.steps if step.name == "then_g0")
    assert isinstance(group, TileGroup)
    first = replace(group.regions[0], rows=IndexRange(0, group.regions[0].rows.size // 2))
    steps = tuple(
        replace(group, regions=(first, *group.regions[1:])) if step.name == group.name else step
        for step in schedule.steps
    )

    codes = {fault.code for fault in check_plan(scenario, replace(schedule, steps=steps))}
    assert codes == {Code.MGS509}


def test_what_is_made_and_what_comes_are_held() -> None:
    scenario = workload_of("GEMM+A2A+GEMM")
    moved, n = scenario.shape.moved, scenario.num_ranks
    assert moved is not None
    sent = sum(scenario.shape.split) * moved.cols * moved.dtype.bytes_of(1)
    own = scenario.shape.split[0] * moved.cols * moved.dtype.bytes_of(1)

    assert n == 4 and staging_bytes(scenario, slices_inner=False) == sent + (sent - own)


def test_kernels_of_two_kinds_have_their_own_shapes() -> None:
    scenario, schedule = schedule_of("attention+A2A+GEMM", "uniform_fused_1d", 2)
    kinds = {
        step.kernel: type(compute_shape(scenario, step)).__name__
        for step in schedule.steps
        if isinstance(step, TileGroup)
    }

    assert kinds == {0: "AttentionShape", 1: "GemmShape"}


def test_nothing_of_one_kernel_alone_is_changed() -> None:
    steps = schedule_of("GEMM+A2A", "hetero_fused_1d", 2)[1].steps

    assert chained(steps, ()) == steps


def test_waves_are_of_different_rows() -> None:
    waves = OpChoice("pipelined", 8, DMA, algorithm="direct", waves=2)
    error = reject_choice(workload_of(SIDE), waves)

    assert error is not None and error.code is Code.MGS511 and error.hint == "leave waves out"
    scenario = workload_of("GEMM+A2A+GEMM")
    assert check_plan(scenario, build_op_plan(scenario, waves)) == ()
