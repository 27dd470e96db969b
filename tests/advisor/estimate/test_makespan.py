import math
from dataclasses import replace

import pytest

from magus.advisor.estimate.fluid import FluidLink, SlotPool
from magus.advisor.estimate.makespan import estimate_ticks
from magus.compiler.ir import TICKS_PER_US, EngineChoice, EngineKind, ExecutionOptions, Kernels, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.simcore import simulate_op
from tests.helpers.marks import thinned
from tests.helpers.scenarios import scenarios as make
from tests.helpers.work import calls_of

DMA, SM = EngineKind.DMA, EngineKind.SM

SCENARIOS = {
    "mesh": make.ag_gemm(512, 14336, 4096),
    "mesh, scatter": make.gemm_rs(512, 4096, 14336),
    "switch": make.ag_gemm(512, 14336, 4096, gpu=make.h100()),
    "switch, scatter": make.gemm_rs(512, 4096, 14336, gpu=make.h100()),
    "ring": make.ag_gemm(512, 8192, 2048, ranks=4, fabric=make.ring()),
    "one-way ring": make.gemm_rs(512, 2048, 8192, ranks=4, fabric=make.ring(both_ways=False)),
}


def choices_of(scenario: OpCase) -> list[OpChoice]:
    n = scenario.num_ranks
    shapes = [("serial", n, 1), ("shard_p2p", n, 1), ("uniform_fused_1d", 2 * n, 1), ("hetero_fused_1d", 4 * n, 1)]
    shapes += [("hetero_unfused_1d", 2 * n, 4), ("hetero_unfused_1d", 2 * n, 1), ("uniform_fused_2d", 4 * n, 1)]
    engines = [EngineChoice(DMA, 1), EngineChoice(DMA, n - 1), EngineChoice(SM, 8), EngineChoice(SM, 32)]
    found = [OpChoice(name, chunks, engine, streams) for name, chunks, streams in shapes for engine in engines]
    return [choice for choice in found if reject_choice(scenario, choice) is None]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", thinned(SCENARIOS, 2))
def test_estimate_is_near_the_simulation(name: str) -> None:
    scenario = SCENARIOS[name]

    errors = []
    for choice in choices_of(scenario):
        schedule = build_op_plan(scenario, choice)
        simulated = simulate_op(scenario, schedule, unit_bytes=4096).makespan_ticks
        errors.append(abs(math.log(simulated / estimate_ticks(scenario, schedule))))

    assert sorted(errors)[len(errors) // 2] < 0.03
    assert max(errors) < 0.3


def test_serial_on_an_idle_mesh_is_exact_to_a_thousandth() -> None:
    scenario = SCENARIOS["mesh"]
    schedule = build_op_plan(scenario, OpChoice("serial", 8, EngineChoice(DMA, 7)))

    found = estimate_ticks(scenario, schedule)

    assert found == pytest.approx(simulate_op(scenario, schedule).makespan_ticks, rel=1e-3)


@pytest.mark.parametrize(
    "scenario", [make.lone_gather(1024, 4096), make.lone_scatter(1024, 4096), make.lone_gemm(1024, 1024, 1024)]
)
def test_estimate_of_half_a_workload(scenario: OpCase) -> None:
    schedule = build_op_plan(scenario, OpChoice("serial", scenario.num_ranks, EngineChoice(DMA, 7)))

    found = estimate_ticks(scenario, schedule)

    assert found == pytest.approx(simulate_op(scenario, schedule).makespan_ticks, rel=0.03)


def test_a_faster_link_never_hurts_a_serial_schedule() -> None:
    slow = make.ag_gemm(4096, 8192, 8192, fabric=make.full_mesh(make.xgmi()))
    fast = make.ag_gemm(4096, 8192, 8192, fabric=make.full_mesh(make.nvlink()))
    choice = OpChoice("serial", 8, EngineChoice(DMA, 7))

    times = [estimate_ticks(one, build_op_plan(one, choice)) for one in (slow, fast)]

    assert times[1] < times[0]


@pytest.mark.parametrize("chunks", [64, 256])
def test_work_of_an_estimate_grows_with_the_steps(chunks: int) -> None:
    scenario = make.ag_gemm(4096, 14336, 4096)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", chunks, EngineChoice(DMA, 7)))
    estimate_ticks(scenario, schedule)  # what is kept for the next

    assert calls_of(lambda: estimate_ticks(scenario, schedule)) < 150 * len(schedule.steps)


def test_link_queues_what_comes_faster_than_it_serves() -> None:
    link = FluidLink()
    link.feed(0.0, 1.5)
    link.feed(10.0, 1.5)
    assert (link.backlog, link.outflow) == (5.0, 1.0)

    link.feed(12.0, -3.0)
    assert link.backlog == 9.0

    link.feed(30.0, 0.5)
    assert (link.backlog, link.outflow) == (0.0, 0.5)


def test_slots_run_kernels_in_the_order_they_are_ready() -> None:
    pool = SlotPool(4)
    assert pool.deal(0.0, 10, 5.0)[:2] == (0.0, 15.0)  # waves of 4, 4 and 2
    assert pool.deal(1.0, 3, 1.0)[:2] == (10.0, 12.0)  # two slots are free from 10 on, and the third unit follows at 11
    pool.delay(15.0, 7.0)
    assert pool.deal(2.0, 4, TICKS_PER_US)[0] >= 11.0


def test_rows_that_hold_an_engine_and_tiles_for_a_share_of_the_sms_are_estimated_as_they_are_simulated() -> None:
    scenario = SCENARIOS["mesh"]
    gpu = scenario.gpu
    rows = replace(gpu, dma=replace(gpu.dma, packet_ticks=TICKS_PER_US // 2), gemm=replace(gpu.gemm, fewest_sms=8))
    scenario = replace(scenario, system=replace(scenario.system, gpu=rows))
    sharing = ExecutionOptions(kernel=Kernels.SHARING)
    columns = OpChoice("uniform_fused_2d", 32, EngineChoice(DMA, 7))
    slices = OpChoice("hetero_unfused_1d", 16, EngineChoice(DMA, 7), 7, sharing)

    for choice in (columns, slices):
        schedule = build_op_plan(scenario, choice)
        simulated = simulate_op(scenario, schedule, unit_bytes=4096).makespan_ticks
        assert estimate_ticks(scenario, schedule) == pytest.approx(simulated, rel=0.03)
