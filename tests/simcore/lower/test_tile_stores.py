"""Stores from tiles: what each tile stores, what waits for it, how far an SM runs ahead, and all cores alike."""

from dataclasses import replace

import numpy as np
import pytest

from magus.compiler import compile_text
from magus.compiler.ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Kernels,
    Late,
    OpCase,
    OpChoice,
    Pattern,
    Reduction,
    TileGroup,
    Transfer,
    Variability,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.knobs.engine import tiles_engine
from magus.compiler.templates import ALL_TEMPLATES
from magus.simcore import Result, RunOptions, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.lower.steps import LoweredPart
from magus.simcore.program.program import OpKind, TrafficClass
from tests.helpers.marks import thinned
from tests.helpers.oracle.lowering import assert_all_agree, lower_op
from tests.helpers.scenarios.scenarios import full_mesh, gemm_rs, h100, nvlink, switch
from tests.helpers.some import some

UNIT, COARSE = 1024, 4096
PER_CHUNK = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
PER_TILE = replace(PER_CHUNK, per=WaitPer.TILE)
SHARED = EngineChoice(EngineKind.SM, 8, EngineMode.SHARED)


def scattering(rows: int = 1024, ranks: int = 4) -> OpCase:
    return gemm_rs(rows, 512, 1024, ranks=ranks, fabric=switch())


def reducing(scenario: OpCase) -> OpCase:
    return replace(scenario, shape=replace(scenario.shape, pattern=Pattern.GEMM_AR))


def on_few_sms(rows: int) -> OpCase:
    """Kernels of several waves."""
    scenario = scattering(rows)
    return replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, sms=8)))


def lowered(scenario: OpCase, options: ExecutionOptions = PER_TILE, unit_bytes: int = UNIT) -> LoweredPart:
    return lowered_as(scenario, choice_of(scenario, options), unit_bytes)


def lowered_as(scenario: OpCase, choice: OpChoice, unit_bytes: int = UNIT) -> LoweredPart:
    return lower_op(scenario, build_op_plan(scenario, choice), unit_bytes=unit_bytes)


def simulated(scenario: OpCase, choice: OpChoice, *, fold: bool = True) -> Result:
    return simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=UNIT, options=RunOptions(fold))


def summing(operation: str) -> OpCase:
    """A workload of few SMs on a switch that sums."""
    head = 'use "nvidia/h100"\nsystem s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    tensors = "x = tensor bf16[512, 512] shard cols; w = tensor bf16[512, 256] shard rows"
    found = compile_text(f"{head}workload one on s {{ {tensors}; y = {operation}(gemm(x, w)) }}\n").scenario().case
    return replace(found, system=replace(found.system, gpu=replace(found.gpu, sms=4)))


CASES = [
    (scenario, choice)
    for scenario in (
        summing("reduce_scatter"),
        summing("all_reduce"),
        scattering(),
        scattering(rows=128),
        gemm_rs(512, 256, 512, ranks=4, fabric=full_mesh()),
        reducing(gemm_rs(512, 256, 512, ranks=4, fabric=switch())),
    )
    for template in ALL_TEMPLATES
    for options in (PER_CHUNK, PER_TILE)
    for choice in (
        OpChoice(template.name, chunks, tiles_engine(scenario.gpu), 1, options, algorithm)
        for chunks in (4, 16)
        for algorithm in ("", "direct", "ring", "one_shot", "double_tree", "nvls")
    )
    if reject_choice(scenario, choice) is None
]


@pytest.mark.quick(4)
@pytest.mark.parametrize("case", thinned(CASES, 20))
def test_every_plan_that_is_allowed_runs_and_all_cores_agree(case: tuple[OpCase, OpChoice]) -> None:
    assert_all_agree(*case)


def test_several_templates_and_patterns_are_among_them() -> None:
    assert len({choice.template for _, choice in CASES}) >= 4
    assert {choice.algorithm for _, choice in CASES} >= {"", "direct", "one_shot", "nvls"}


@pytest.mark.parametrize("options", [PER_CHUNK, PER_TILE])
def test_as_many_bytes_cross_the_links_as_by_copies_and_none_are_read_for_it(options: ExecutionOptions) -> None:
    scenario = scattering()
    tiles, copies = (
        simulated(scenario, OpChoice("hetero_unfused_1d", 4, engine, 1, options))
        for engine in (tiles_engine(scenario.gpu), SHARED)
    )
    away = 3 * 256 * 512 * 2  # of the four row blocks three leave, by each rank

    def ticks(result: Result, server: str, rate: int) -> tuple[float, float]:
        (load,) = (each for each in result.servers if each.name == server and each.rank == 0)
        return load.compute_ticks * rate / TICKS_PER_SECOND, load.comm_ticks * rate / TICKS_PER_SECOND

    link, memory = scenario.system.fabric.link.achieved_bytes_per_s, scenario.gpu.hbm.achieved_bytes_per_s
    assert ticks(tiles, "up", link)[1] == pytest.approx(away, rel=0.01)
    assert ticks(copies, "up", link)[1] == pytest.approx(away, rel=0.01)
    # A copy is read at home, where the tile has written it, and written at its owner.
    (tiles_here, tiles_there), (copies_here, copies_there) = (ticks(each, "hbm", memory) for each in (tiles, copies))
    assert copies_there - tiles_there == pytest.approx(away, rel=0.02)
    assert copies_here - tiles_here == pytest.approx(away, rel=0.02)


@pytest.mark.parametrize("cols", [512, 1])
def test_each_tile_sets_a_flag_at_each_destination(cols: int) -> None:
    scenario = gemm_rs(4096, cols, 1024, ranks=4, fabric=switch())
    plan = lowered(scenario, unit_bytes=scenario.gpu.line_bytes)
    program = plan.program
    transfers = [ops for ops in plan.steps if isinstance(ops.step, Transfer)]
    tiles = {ops.step.name: len(ops.work) for ops in plan.steps if not isinstance(ops.step, Transfer)}
    of_op = program.stage_op[program.flow_stage]
    flags = np.bincount(of_op[program.flow_traffic == TrafficClass.FLAGS], minlength=program.num_ops)

    assert len(transfers) == 3
    for ops in transfers:
        (kernel,) = ops.step.after
        assert flags[list(ops.work)].sum() == tiles[kernel]
        assert flags[list(ops.work)].max() == 1


def test_work_groups_of_a_gemv_each_have_rows_for_all_ranks() -> None:
    scenario = gemm_rs(4096, 1, 1024, ranks=4, fabric=switch())
    groups = [ops for ops in lowered(scenario).steps if not isinstance(ops.step, Transfer | Reduction)]

    assert len(groups) == 4
    assert {len(ops.work) for ops in groups} == {scenario.gpu.sms}


def test_a_tile_stores_when_it_is_done_and_not_when_its_group_is() -> None:
    plan = lowered(on_few_sms(8192))
    done = run(plan.program)
    first = next(ops for ops in plan.steps if isinstance(ops.step, Transfer))
    group = next(ops for ops in plan.steps if ops.step.name == first.step.after[0])

    assert done.op_start[list(first.work)].min() < done.op_done[group.done]
    for tile, stores in zip(group.work, np.array(first.work).reshape(-1, 3), strict=True):
        assert (done.op_start[stores] >= done.op_done[tile]).all()


def test_an_sm_waits_before_the_tile_after_the_next_until_what_it_stored_has_arrived() -> None:
    scenario = on_few_sms(8192)
    slow = replace(scenario.system.fabric, link=replace(scenario.system.fabric.link, achieved_bytes_per_s=10**10))
    plan = lowered(replace(scenario, system=replace(scenario.system, fabric=slow)), PER_CHUNK)
    done = run(plan.program)
    stored = {ops.step.after[0]: ops.work for ops in plan.steps if isinstance(ops.step, Transfer)}
    tiles = [ops for ops in plan.steps if ops.step.name in stored]
    order = [op for ops in tiles for op in ops.work]
    stores = np.array([stored[ops.step.name] for ops in tiles]).reshape(len(order), 3)[:, :2]

    ahead = 2 * scenario.gpu.sms
    assert len(order) > ahead
    for number, later in enumerate(order[ahead:]):
        assert done.op_start[later] >= done.op_done[stores[number]].max()


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("options", [PER_CHUNK, PER_TILE])
def test_no_sm_waits_for_a_store_of_which_later_kernels_hold_the_rest_of_the_tile(
    operation: str, options: ExecutionOptions
) -> None:
    scenario = summing(operation)
    # Chunks of 32 rows, of which several share a tile; the plan names all kernels before the first transfer.
    choice = OpChoice("forest", 16, tiles_engine(scenario.gpu), 1, options)
    plan = lowered_as(scenario, choice)
    stores = {op for ops in some(ops for ops in plan.steps if isinstance(ops.step, Transfer)) for op in ops.work}
    kernels = some(ops for ops in plan.steps if isinstance(ops.step, TileGroup))
    units = {op for ops in kernels for op in ops.work}
    program = plan.program
    before = np.repeat(np.arange(program.num_ops), np.diff(program.op_next_ptr))
    waits = {(before, after) for before, after in zip(before.tolist(), program.op_next.tolist(), strict=True)}

    assert len(kernels) > 8
    assert not any(before in stores and after in units for before, after in waits)


def test_an_sm_sends_to_one_rank_after_the_other() -> None:
    scenario = reducing(on_few_sms(4096))
    gpu = replace(scenario.gpu, sm_copy=replace(scenario.gpu.sm_copy, bytes_per_s=10**9))
    scenario = replace(scenario, system=replace(scenario.system, gpu=gpu))
    result = simulated(scenario, OpChoice("serial", 4, tiles_engine(gpu), 1, PER_TILE, "one_shot"))
    sent = 3 * 4096 * 512 * 2  # all of the partial sums to each of the others

    assert result.makespan_ticks >= sent * TICKS_PER_SECOND // (gpu.sms * 10**9)


def test_what_a_rank_sums_itself_it_writes_at_home() -> None:
    scenario = reducing(gemm_rs(1024, 512, 1024, ranks=2, fabric=switch()))
    tiles, copies = (
        simulated(scenario, OpChoice("serial", 2, engine, 1, PER_TILE, "one_shot"))
        for engine in (tiles_engine(scenario.gpu), SHARED)
    )

    assert tiles.traffic.hbm_write_bytes == copies.traffic.hbm_write_bytes


def test_sums_are_part_of_the_kernel_and_come_after_all_tiles() -> None:
    plan = lowered(scattering(), PER_CHUNK)
    done = run(plan.program)
    launches = plan.program.op_kind == OpKind.LAUNCH
    (total,) = (ops for ops in plan.steps if isinstance(ops.step, Reduction))
    tiles = [ops for ops in plan.steps if not isinstance(ops.step, Transfer | Reduction)]

    assert launches.sum() == 1
    assert done.op_done[total.done] > max(done.op_done[ops.done] for ops in tiles)


def test_a_unit_of_a_sum_looks_for_the_flags_of_its_own_tiles() -> None:
    plan = lowered(on_few_sms(16384))
    program = plan.program
    (total,) = (ops for ops in plan.steps if isinstance(ops.step, Reduction))
    setters = np.repeat(np.arange(program.num_ops), np.diff(program.op_sets_ptr))
    looked_for = [set(setters[program.op_sets == op].tolist()) for op in total.work]
    transfers = [set(ops.work) for ops in plan.steps if isinstance(ops.step, Transfer)]

    assert len(looked_for) > 1
    assert len(transfers) == 3
    assert set.union(*looked_for) == set.union(*transfers)
    for flags in looked_for:
        # Of each peer its part, and at an edge the tile of which it sums a part.
        assert all(len(flags & sent) <= len(sent) / len(looked_for) + 3 for sent in transfers)


def test_a_sum_of_the_switch_begins_when_the_tiles_of_all_ranks_are_there() -> None:
    scenario = summing("all_reduce")
    choice = OpChoice("serial", 4, tiles_engine(scenario.gpu), 1, PER_CHUNK, "nvls")
    late = replace(scenario.system, variability=Variability(late=(Late(2, 50 * TICKS_PER_US),)))
    makespans = [
        simulated(replace(scenario, system=system), choice).makespan_ticks for system in (scenario.system, late)
    ]

    # All of it but the launch, which the others have waited for anyway.
    assert makespans[1] - makespans[0] >= 50 * TICKS_PER_US - scenario.gpu.launch.kernel_ticks


def test_looking_tile_by_tile_takes_no_longer() -> None:
    scenario = on_few_sms(16384)
    chunk, tile = (simulated(scenario, choice_of(scenario, options)) for options in (PER_CHUNK, PER_TILE))

    assert tile.makespan_ticks <= chunk.makespan_ticks


def choice_of(scenario: OpCase, options: ExecutionOptions) -> OpChoice:
    return OpChoice("hetero_unfused_1d", scenario.num_ranks, tiles_engine(scenario.gpu), 1, options)


def test_coarser_units_give_nearly_the_same_time() -> None:
    # A tile stores 32 KiB and more at a time.
    scenario = gemm_rs(4096, 4096, 4096, gpu=h100(), fabric=switch(nvlink()))
    schedule = build_op_plan(scenario, choice_of(scenario, PER_TILE))
    times = [simulate_op(scenario, schedule, unit_bytes=unit).makespan_ticks for unit in (128, 1024, 4096, 16384)]

    assert times[1:] == pytest.approx([times[0]] * 3, rel=0.05)
