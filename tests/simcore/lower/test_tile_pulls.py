"""Pulls of tiles: what crosses the links, what units wait for, when an SM pulls, and all cores alike."""

from dataclasses import replace

import pytest

from magus.compiler.ir import (
    TICKS_PER_SECOND,
    Direction,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.planning.knobs.engine import tiles_engine
from magus.compiler.templates import ALL_TEMPLATES
from magus.simcore import Result, simulate_op
from tests.helpers.marks import thinned
from tests.helpers.oracle.lowering import assert_all_agree
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, switch

UNIT, COARSE = 1024, 4096
PER_CHUNK = ExecutionOptions(Direction.GET, kernel=Kernels.PERSISTENT, wait=Wait.POLL)
PER_TILE = replace(PER_CHUNK, per=WaitPer.TILE)


def gathering(rows: int = 1024, sms: int = 132, mesh: bool = False) -> OpCase:
    scenario = ag_gemm(rows, 512, 1024, ranks=4, fabric=full_mesh() if mesh else switch())
    return replace(scenario, system=replace(scenario.system, gpu=replace(scenario.gpu, sms=sms)))


def exchanging(scenario: OpCase) -> OpCase:
    return replace(scenario, shape=replace(scenario.shape, pattern=Pattern.A2A_GEMM))


def simulated(scenario: OpCase, options: ExecutionOptions, template: str = "hetero_fused_1d") -> Result:
    choice = OpChoice(template, 4, tiles_engine(scenario.gpu), 1, options)
    return simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=UNIT)


CASES = [
    (scenario, choice)
    for scenario in (gathering(), gathering(128), gathering(512, 8, mesh=True), exchanging(gathering(512, 8)))
    for template in ALL_TEMPLATES
    for options in (PER_CHUNK, PER_TILE, replace(PER_TILE, wait=Wait.EVENT), replace(PER_TILE, wait=Wait.MONITOR))
    for choice in (OpChoice(template.name, chunks, tiles_engine(scenario.gpu), 1, options) for chunks in (4, 16))
    if reject_choice(scenario, choice) is None
]


@pytest.mark.quick(4)
@pytest.mark.parametrize("case", thinned(CASES, 16))
def test_every_plan_that_is_allowed_runs_and_all_cores_agree(case: tuple[OpCase, OpChoice]) -> None:
    assert_all_agree(*case)


def test_several_templates_are_among_them() -> None:
    assert {choice.template for _, choice in CASES} >= {"uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d"}
    assert {scenario.shape.pattern for scenario, _ in CASES} == {Pattern.AG_GEMM, Pattern.A2A_GEMM}


def test_each_row_crosses_once_and_is_read_where_it_lies() -> None:
    scenario = gathering()
    result, rate = simulated(scenario, PER_TILE), scenario.gpu.hbm.achieved_bytes_per_s
    by_name = {load.name: load for load in result.servers if load.rank == 0}
    away, link = 3 * 256 * 1024 * 2, scenario.system.fabric.link.achieved_bytes_per_s

    assert by_name["up"].comm_ticks * link / TICKS_PER_SECOND == pytest.approx(away, rel=0.01)
    assert by_name["hbm"].comm_ticks * rate / TICKS_PER_SECOND == pytest.approx(2 * away, rel=0.01)


def test_a_unit_waits_for_its_rows_alone() -> None:
    scenario = gathering(4096, 2)
    fast = replace(scenario.gpu, sm_copy=replace(scenario.gpu.sm_copy, bytes_per_s=10**11))
    link = replace(scenario.system.fabric.link, achieved_bytes_per_s=10**11)
    fabric = replace(scenario.system.fabric, link=link)
    even = replace(scenario, system=replace(scenario.system, gpu=fast, fabric=fabric))  # as long to pull as to compute

    assert simulated(even, PER_TILE).makespan_ticks < 0.9 * simulated(even, PER_CHUNK).makespan_ticks


def test_an_sm_pulls_no_faster_than_it_copies() -> None:
    scenario = gathering(2048, 4)
    slow = replace(scenario.gpu, sm_copy=replace(scenario.gpu.sm_copy, bytes_per_s=10**9))
    pulled = 3 * 512 * 1024 * 2
    result = simulated(replace(scenario, system=replace(scenario.system, gpu=slow)), PER_TILE)

    least = pulled * TICKS_PER_SECOND // (4 * 10**9)
    assert least < result.makespan_ticks < 1.5 * least
