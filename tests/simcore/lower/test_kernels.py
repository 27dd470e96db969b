"""Kernels as ops: launched and persistent ones, what launches cost, and short kernels against their closed form."""

from dataclasses import replace

import numpy as np
import pytest

from magus.compiler.ir import (
    TICKS_PER_US,
    Cache,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Gpu,
    IndexRange,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    OpPlan,
    Reduction,
    Region,
    Sync,
    TileGroup,
    Transfer,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.templates import BY_NAME
from magus.simcore import simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.kernels.dispatch import split_by_weight, split_units
from magus.simcore.kernels.gemm import gemm_work, ticks_for
from magus.simcore.lower.state import split_evenly_together
from magus.simcore.program.program import OpKind
from tests.helpers.oracle.lowering import (
    UNIT,
    differs_from_oracle,
    done_at,
    lower_op,
    lowered_run,
    makespan,
    on_gpu,
    plan,
)
from tests.helpers.scenarios.scenarios import KIB, MIB, ag_gemm, gemm_rs, h100, lone_gemm, mi300x

PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
FUSED = ("uniform_fused_1d", "uniform_fused_2d", "hetero_fused_1d")


def overlapped(scenario: OpCase, template: str, tactics: ExecutionOptions, pieces: int = 4) -> OpPlan:
    """A template cut into ``pieces`` a shard, by DMA, under ``tactics``."""
    n = scenario.num_ranks
    engine = EngineChoice(EngineKind.DMA, n - 1)
    cut = n * (pieces if BY_NAME[template].cuts_shards else 1)
    choice = OpChoice(template, cut, engine, BY_NAME[template].default_streams)
    return replace(build_op_plan(scenario, choice), tactics=tactics)


def rows(gpu: Gpu, num_groups: int, cols: int = 2048, m: int = 4096) -> tuple[OpCase, OpPlan]:
    """A GEMM on one GPU as ``num_groups`` groups of rows under a persistent kernel."""
    scenario, size = lone_gemm(m, cols, 2048, gpu=gpu), m // num_groups
    groups = [
        TileGroup(f"g{i}", (Region(0, IndexRange(i * size, (i + 1) * size), IndexRange(0, cols)),), IndexRange(0, 2048))
        for i in range(num_groups)
    ]
    return scenario, plan(*groups, compute_sms=gpu.sms, tactics=PERSISTENT)


@pytest.mark.parametrize("gpu", [mi300x(), h100()], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("num_groups", [1, 4, 16])
def test_a_persistent_kernel_alone_takes_the_closed_form_of_the_whole(gpu: Gpu, num_groups: int) -> None:
    scenario, schedule = rows(gpu, num_groups)
    gemm = scenario.shape.gemm
    assert gemm is not None
    whole, free = gemm_work(gpu, gemm, gpu.sms, static_order=True), gemm_work(gpu, gemm, gpu.sms)

    assert makespan(scenario, schedule) == pytest.approx(whole.alone_ticks, rel=0.02)
    assert simulate_op(scenario, schedule).dil == pytest.approx(whole.alone_ticks / free.alone_ticks, abs=0.01)


def test_units_are_dealt_by_operations_and_all_of_them() -> None:
    assert split_units(103, [1, 1, 2]) == [26, 26, 51]
    assert split_units(10, [7] * 5) == [2] * 5
    assert split_units(3, [1] * 5) == [1] * 5
    assert sum(split_units(304, [3, 1, 4, 1, 5, 9])) == 304
    assert split_by_weight(7, [1, 1, 1]) == [2, 2, 3]
    scenario, schedule = rows(h100(), 8)
    kernels = [ops.kernel for ops in lower_op(scenario, schedule, unit_bytes=UNIT).steps if ops.kernel is not None]
    gemm = scenario.shape.gemm
    assert gemm is not None
    whole = gemm_work(h100(), gemm, h100().sms, static_order=True)
    for of in ("num_units", "l2_hit_bytes", "hbm_read_bytes", "hbm_write_bytes"):
        assert sum(getattr(kernel, of) for kernel in kernels) == getattr(whole, of)


def test_units_of_an_sm_run_in_order_and_one_by_one() -> None:
    scenario, schedule = rows(h100(), 4, m=16384)
    lowered, finished = lowered_run(scenario, schedule)
    units = np.concatenate([np.arange(ops.work.start, ops.work.stop) for ops in lowered.steps])
    sms = schedule.compute_sms

    assert len(units) > 3 * sms
    assert (finished.op_start[units[sms:]] >= finished.op_done[units[:-sms]]).all()
    assert (lowered.program.op_kind == OpKind.LAUNCH).sum() == 1


@pytest.mark.parametrize("template", FUSED)
def test_a_chunk_that_is_late_holds_up_what_comes_after_it(template: str) -> None:
    scenario = ag_gemm(2048, 4096, 2048, ranks=4)
    launched = simulate_op(scenario, overlapped(scenario, template, ExecutionOptions()))
    for wait in (Wait.EVENT, Wait.POLL, Wait.MONITOR):
        found = simulate_op(scenario, overlapped(scenario, template, replace(PERSISTENT, wait=wait)))
        assert found.dil is not None and launched.dil is not None
        assert 0.99 < found.dil < launched.dil
        assert found.makespan_ticks > max(found.comm_ticks, launched.comm_ticks)


def test_a_copy_waits_for_the_tiles_of_its_group_alone() -> None:
    scenario = gemm_rs(8192, 4096, 4096, ranks=4, gpu=h100())
    schedule = overlapped(scenario, "uniform_fused_1d", PERSISTENT)
    lowered, finished = lowered_run(scenario, schedule)
    groups = [ops for ops in lowered.steps if isinstance(ops.step, TileGroup)]
    ends = [int(finished.op_done[ops.done]) for ops in groups]
    first_copy = min(int(finished.op_start[ops.work.start]) for ops in lowered.steps if isinstance(ops.step, Transfer))
    sums = [ops for ops in lowered.steps if isinstance(ops.step, Reduction)]

    assert first_copy == ends[0] < ends[-1]
    assert min(int(finished.op_start[ops.work.start]) for ops in sums) > max(ends)


@pytest.mark.quick(1)
@pytest.mark.parametrize("wait", [Wait.POLL, Wait.MONITOR])
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
def test_waiting_for_each_tile_is_never_faster_than_for_each_chunk(make, wait: Wait) -> None:  # type: ignore[no-untyped-def]
    scenario = make(8192, 4096, 4096, ranks=4, gpu=h100())
    for template in FUSED:
        by_chunk, by_tile = (
            makespan(scenario, overlapped(scenario, template, replace(PERSISTENT, wait=wait, per=per)))
            for per in (WaitPer.CHUNK, WaitPer.TILE)
        )
        assert by_tile >= by_chunk


def test_slices_of_the_inner_dimension_add_to_the_output() -> None:
    scenario = ag_gemm(2048, 4096, 2048, ranks=4)
    schedule = overlapped(scenario, "uniform_fused_2d", PERSISTENT)
    gemm = scenario.shape.gemm
    assert gemm is not None
    whole = gemm_work(scenario.gpu, gemm, schedule.compute_sms)
    kernels = [ops.kernel for ops in lower_op(scenario, schedule, unit_bytes=UNIT).steps if ops.kernel is not None]
    output = gemm.m * gemm.n * 2

    assert sum(kernel.hbm_write_bytes for kernel in kernels) == len(kernels) * output
    assert sum(kernel.hbm_read_bytes for kernel in kernels) == whole.hbm_read_bytes + (len(kernels) - 1) * output


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
@pytest.mark.parametrize(
    "tactics",
    [PERSISTENT, replace(PERSISTENT, wait=Wait.MONITOR, per=WaitPer.TILE), replace(PERSISTENT, wait=Wait.EVENT)],
    ids=["poll", "monitor", "event"],
)
def test_persistent_kernels_equal_the_oracle(make, tactics: ExecutionOptions, fold: bool) -> None:  # type: ignore[no-untyped-def]
    scenario = make(256, 512, 256, ranks=2)
    schedule = replace(overlapped(scenario, "uniform_fused_1d", tactics, 2), compute_sms=8)

    assert differs_from_oracle(scenario, schedule, 8192, fold=fold) == []


@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
def test_one_rank_of_a_persistent_plan_stands_for_all(make) -> None:  # type: ignore[no-untyped-def]
    scenario = make(512, 1024, 1024, ranks=4)
    for wait in Wait:
        schedule = overlapped(scenario, "hetero_fused_1d", replace(PERSISTENT, wait=wait))
        one, every = (run(lower_op(scenario, schedule, unit_bytes=8192, fold=fold).program) for fold in (True, False))
        assert one.makespan_ticks == every.makespan_ticks


def graph_of(scenario: OpCase, schedule: OpPlan, launch: LaunchMode) -> OpPlan:
    return replace(schedule, tactics=ExecutionOptions(launch=launch))


def test_a_graph_launches_sums_and_waiting_kernels_at_its_own_cost() -> None:
    scenario = ag_gemm(256, 512, 512, ranks=2)
    block = Region(0, IndexRange(0, 128), IndexRange(0, 512))
    put = Transfer("x", Direction.PUT, block, 1, "s")
    waits = TileGroup("g", (Region(1, IndexRange(0, 128), IndexRange(0, 256)),), IndexRange(0, 512), after=("s",))
    summed = gemm_rs(256, 512, 512, ranks=2)
    total = Reduction("r", Region(0, IndexRange(0, 128), IndexRange(0, 512)), 2)
    cost = TICKS_PER_US // 4
    for base, steps, usual in (
        (scenario, (put, waits), scenario.gpu.launch.event_ticks),
        (summed, (total,), scenario.gpu.launch.kernel_ticks),
    ):
        quick = on_gpu(base, replace(base.gpu, sync=Sync(graph_launch_ticks=cost)))
        schedule = plan(*steps)
        stream, graph = (makespan(quick, graph_of(quick, schedule, launch)) for launch in LaunchMode)
        assert stream - graph == usual - cost
        assert makespan(base, graph_of(base, schedule, LaunchMode.GRAPH)) == stream


@pytest.mark.parametrize(
    "shape", [(64, 256, 64), (16, 4096, 128), (11, 51200, 128), (256, 4096, 64), (1792, 7168, 64), (300, 1000, 100)]
)
@pytest.mark.parametrize("gpu", [mi300x(), h100()], ids=lambda gpu: gpu.name)
def test_a_short_kernel_does_not_pay_the_latency_of_memory_twice(gpu: Gpu, shape: tuple[int, int, int]) -> None:
    scenario = lone_gemm(*shape, gpu=gpu)
    work = gemm_work(gpu, scenario.shape.gemm, gpu.sms)
    schedule = build_op_plan(scenario, OpChoice("serial", 1, EngineChoice(EngineKind.DMA, 1)))

    found = makespan(scenario, schedule)
    latency = gpu.l2.latency_ticks + gpu.hbm.latency_ticks

    # A launch that is shorter than the latencies cannot make up for them.
    assert found >= 0.98 * work.alone_ticks
    if work.start_ticks > 2 * work.waves * latency:
        assert found == pytest.approx(work.alone_ticks, rel=0.02)


def beside_a_hungry_kernel(gpu: Gpu) -> tuple[OpCase, OpPlan]:
    """Copies by SMs beside a kernel that asks for more than memory gives."""
    scenario = ag_gemm(256, 8192, 8192, ranks=2, gpu=gpu)
    put = Transfer("x", Direction.PUT, Region(0, IndexRange(0, 128), IndexRange(0, 8192)), 1, "s")
    kernel = TileGroup("g", (Region(0, IndexRange(0, 128), IndexRange(0, 4096)),), IndexRange(0, 8192))
    return scenario, plan(put, kernel, sms=16, compute_sms=gpu.sms - 16)


def test_a_copy_gets_a_larger_share_of_memory_beside_sms_that_look_less_far_ahead() -> None:
    scarce = replace(h100(), hbm=replace(h100().hbm, achieved_bytes_per_s=600 * 10**9))
    scarce = replace(scarce, sm_copy=replace(scarce.sm_copy, outstanding_bytes=16 * KIB))
    times = []
    for look_ahead in (None, 64 * KIB, 8 * KIB):
        gpu = replace(scarce, hbm=replace(scarce.hbm, look_ahead_bytes=look_ahead))
        lowered, finished = lowered_run(*beside_a_hungry_kernel(gpu))
        times.append((done_at(lowered, finished, "x"), done_at(lowered, finished, "g")))

    copies, kernels = zip(*times, strict=True)
    assert copies[0] > 1.2 * copies[1] > 1.2 * copies[2]
    assert max(kernels) < 1.1 * min(kernels)  # memory is as busy as before


def test_what_sms_have_under_way_is_dealt_to_their_reads_and_writes() -> None:
    gpu = replace(h100(), hbm=replace(h100().hbm, look_ahead_bytes=32 * KIB))
    scenario, schedule = beside_a_hungry_kernel(gpu)
    program = lower_op(scenario, schedule, unit_bytes=UNIT).program
    stages = program.stage_op[program.flow_stage]
    (first, *_) = np.flatnonzero(program.op_kind == OpKind.TILE)
    windows = program.flow_window_units[stages == first]

    assert windows.min() >= 1
    assert 32 <= windows.sum() < 32 + len(windows)
    far = replace(gpu, hbm=replace(gpu.hbm, look_ahead_bytes=1 << 40))
    assert not lower_op(on_gpu(scenario, far), schedule, unit_bytes=UNIT).program.flow_window_units.any()


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    scenario, schedule = beside_a_hungry_kernel(h100())
    far = replace(h100(), hbm=replace(h100().hbm, look_ahead_bytes=64 * MIB))

    assert makespan(on_gpu(scenario, far), schedule) == makespan(scenario, schedule)


@pytest.mark.parametrize("fold", [True, False])
def test_kernels_with_another_l2_and_a_limit_equal_the_oracle(fold: bool) -> None:
    gpu = h100()
    gpu = replace(
        gpu,
        l2=replace(gpu.l2, size_bytes=64 * KIB),
        gemm=replace(gpu.gemm, fitted_l2=(50 * MIB, 1), tiles=((64, 64),)),
        hbm=replace(gpu.hbm, look_ahead_bytes=64 * KIB),
        mall=Cache(2 * MIB, 1, 4 * 10**12, TICKS_PER_US // 10),
    )
    scenario = ag_gemm(512, 1024, 512, ranks=2, gpu=gpu)
    schedule = replace(overlapped(scenario, "uniform_fused_1d", ExecutionOptions(), 2), compute_sms=8)
    kernels = [ops.kernel for ops in lower_op(scenario, schedule, unit_bytes=8192).steps if ops.kernel is not None]

    assert any(kernel.mall_read_bytes for kernel in kernels)
    assert differs_from_oracle(scenario, schedule, 8192, fold=fold) == []


def test_what_another_l2_misses_is_not_part_of_the_fitted_start() -> None:
    """Memory that is slow makes the kernel longer by what it reads more, not shorter at its start."""
    times, works = [], []
    for size in (50 * MIB, MIB):
        gpu = replace(h100(), l2=replace(h100().l2, size_bytes=size))
        gpu = replace(gpu, gemm=replace(gpu.gemm, fitted_l2=(50 * MIB, 1)))
        gpu = replace(gpu, hbm=replace(gpu.hbm, achieved_bytes_per_s=500 * 10**9))
        scenario = lone_gemm(16384, 8192, 1024, gpu=gpu)
        schedule = build_op_plan(scenario, OpChoice("serial", 1, EngineChoice(EngineKind.DMA, 1)))
        times.append(makespan(scenario, schedule, 16384))
        works.append(gemm_work(gpu, scenario.shape.gemm, gpu.sms))

    more = ticks_for(works[1].hbm_read_bytes - works[0].hbm_read_bytes, 500 * 10**9)
    traffic = ticks_for(works[1].hbm_read_bytes + works[1].hbm_write_bytes, 500 * 10**9)
    assert works[1].missed_bytes > 0 and more > 0
    assert times[1] > traffic > times[0]


@pytest.mark.parametrize("size", [131072, 262144])
def test_a_kernel_of_many_waves_takes_as_long_in_units_larger_than_its_tiles_move(size: int) -> None:
    case = lone_gemm(32768, 16384, 256, gpu=h100())
    work = gemm_work(case.gpu, case.shape.gemm, case.gpu.sms)
    schedule = build_op_plan(case, OpChoice("serial", 1, EngineChoice(EngineKind.DMA, 1)))
    fine, coarse = (simulate_op(case, schedule, unit_bytes=each).makespan_ticks for each in (8192, size))

    assert work.waves > 30
    assert work.hbm_read_bytes < size * work.num_units
    assert coarse == pytest.approx(fine, rel=0.005)


def test_a_total_of_fewer_than_there_are_workers_is_spread_over_all_of_them() -> None:
    runs = split_evenly_together((3, 20), 9, waves=3)

    each = [share for count, share in runs for _ in range(count)]
    assert [first for first, _ in each] == [0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert sum(second for _, second in each) == 20
    assert {second for _, second in each} == {2, 3}


SHARING = ExecutionOptions(kernel=Kernels.SHARING)


def unfused(tactics: ExecutionOptions, streams: int, rows: int = 4096, fewest_sms: int = 8) -> tuple[OpCase, OpPlan]:
    """A kernel for each slice and peer of AG+GEMM on MI300X in a mesh."""
    scenario = ag_gemm(rows, 2048, 8192, ranks=4)
    gpu = replace(scenario.gpu, gemm=replace(scenario.gpu.gemm, fewest_sms=fewest_sms))
    scenario = on_gpu(scenario, gpu)
    choice = OpChoice("hetero_unfused_1d", 16, EngineChoice(EngineKind.DMA, 3), streams, tactics)
    return scenario, build_op_plan(scenario, choice)


def test_kernels_that_run_beside_each_other_take_less_with_tiles_for_their_share() -> None:
    whole, shared = (makespan(*unfused(tactics, 3), unit_bytes=8192) for tactics in (ExecutionOptions(), SHARING))

    assert 1.05 * shared < whole


def test_a_kernel_has_the_tile_for_its_part_of_what_streams_compute() -> None:
    scenario, schedule = unfused(SHARING, 3)

    steps = lower_op(scenario, schedule, unit_bytes=8192).steps
    kernels = {ops.step.name: ops.kernel for ops in steps if ops.rank == 0 and isinstance(ops.step, TileGroup)}

    gemm = scenario.shape.gemm
    assert gemm is not None
    piece, own = replace(gemm, m=256), replace(gemm, m=1024)
    sms = scenario.gpu.sms
    assert kernels["g1_1"] == gemm_work(scenario.gpu, piece, sms // 3, shared=True)
    assert kernels["own"] == gemm_work(scenario.gpu, own, sms * 4 // 6, shared=True)


def test_no_kernel_is_had_for_fewer_sms_than_a_profile_says() -> None:
    scenario, schedule = unfused(SHARING, 12, fewest_sms=100)

    steps = lower_op(scenario, schedule, unit_bytes=8192).steps
    (kernel,) = (ops.kernel for ops in steps if ops.rank == 0 and ops.step.name == "g1_1")

    gemm = scenario.shape.gemm
    assert gemm is not None
    assert kernel == gemm_work(scenario.gpu, replace(gemm, m=256), 100, shared=True)


@pytest.mark.quick(1)
@pytest.mark.parametrize("fold", [True, False])
def test_kernels_that_share_the_sms_equal_the_oracle(fold: bool) -> None:
    assert differs_from_oracle(*unfused(SHARING, 3, rows=1024), 8192, fold=fold) == []
