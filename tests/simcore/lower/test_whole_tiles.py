"""Rows finer than a tile: groups of a persistent kernel that share a tile wait for each other."""

from dataclasses import replace

import pytest

from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    OpPlan,
    TileGroup,
    Transfer,
    Wait,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates import ALL_TEMPLATES
from magus.simcore import RunOptions, RunOutcome, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.lower.one_kernel import in_whole_tiles
from tests.helpers.marks import thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, switch

UNIT = 4096
SM = EngineChoice(EngineKind.SM, 8)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)


def one_tile(scenario: OpCase, rows: int, cols: int = 64) -> OpCase:
    """The GPU of ``scenario`` with a single tile."""
    gpu = scenario.gpu
    gpu = replace(gpu, gemm=replace(gpu.gemm, tiles=((rows, cols),), pair_tiles=()))
    return replace(scenario, system=replace(scenario.system, gpu=gpu))


def plan(scenario: OpCase, template: str, chunks: int, options: ExecutionOptions = PERSISTENT) -> OpPlan:
    return build_op_plan(scenario, OpChoice(template, chunks, SM, tactics=options))


def gathering(rows_of_tile: int) -> OpCase:
    return one_tile(ag_gemm(256, 512, 512, ranks=4, fabric=switch()), rows_of_tile)  # shards of 64 rows


def scattering(rows_of_tile: int) -> OpCase:
    return one_tile(gemm_rs(256, 512, 512, ranks=4, fabric=switch()), rows_of_tile)


@pytest.mark.parametrize("make", [gathering, scattering])
def test_rows_of_whole_tiles_wait_for_nothing_more(make) -> None:  # type: ignore[no-untyped-def]
    scenario = make(64)
    schedule = plan(scenario, "shard_p2p", 4)

    assert in_whole_tiles(scenario, schedule).steps == schedule.steps


def test_launched_kernels_choose_their_own_tiles() -> None:
    scenario = gathering(256)
    schedule = plan(scenario, "shard_p2p", 4, ExecutionOptions())

    assert in_whole_tiles(scenario, schedule) is schedule


def test_a_tile_begins_when_all_shards_in_it_are_there() -> None:
    scenario = gathering(128)
    schedule = plan(scenario, "shard_p2p", 4)
    groups = [step for step in in_whole_tiles(scenario, schedule).steps if isinstance(step, TileGroup)]
    before = {step.name: step for step in schedule.steps if isinstance(step, TileGroup)}

    waits = [set(group.after) for group in groups]
    assert len(groups) == 4
    for group, waiting in zip(groups, waits, strict=True):
        assert waiting >= set(before[group.name].after)
    # Tiles hold the shards of two owners, the rank's own and the next, then the two after them.
    owners = {group.regions[0].owner: waiting for group, waiting in zip(groups, waits, strict=True)}
    assert owners[0] == owners[1]
    assert owners[2] == owners[3]
    assert owners[0] != owners[2]


def test_what_a_tile_computes_leaves_when_all_of_it_is_done() -> None:
    scenario = scattering(256)
    schedule = plan(scenario, "shard_p2p", 4)
    groups = {step.name for step in schedule.steps if isinstance(step, TileGroup)}
    sends = [step for step in in_whole_tiles(scenario, schedule).steps if isinstance(step, Transfer)]

    assert len(sends) == 3
    assert all(groups <= set(send.after) for send in sends)


@pytest.mark.parametrize(("rows", "waits"), [(32, 1), (64, 2), (256, 8)])
def test_transfers_wait_for_as_many_groups_as_share_their_tiles(rows: int, waits: int) -> None:
    scenario = one_tile(gemm_rs(2048, 1024, 1024, ranks=8, fabric=switch()), rows)  # shards of 256 rows
    schedule = plan(scenario, "hetero_unfused_1d", 64)  # in pieces of 32
    sends = [step for step in in_whole_tiles(scenario, schedule).steps if isinstance(step, Transfer)]

    assert {len(step.after) for step in sends} == {waits}


CASES = [
    (scenario, choice)
    for scenario in (gathering(256), scattering(256))
    for template in ALL_TEMPLATES
    for choice in (OpChoice(template.name, chunks, SM, tactics=PERSISTENT) for chunks in (4, 8, 16))
    if reject_choice(scenario, choice) is None
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("case", thinned(CASES, 3))
def test_no_plan_comes_to_a_deadlock_and_all_cores_agree(case: tuple[OpCase, OpChoice]) -> None:
    scenario, choice = case
    schedule = build_op_plan(scenario, choice)
    folded, every = (
        simulate_op(scenario, schedule, unit_bytes=UNIT, options=RunOptions(fold)) for fold in (True, False)
    )
    program = lower_op(scenario, schedule, unit_bytes=UNIT).program

    assert folded.outcome is RunOutcome.DONE
    assert folded.makespan_ticks == every.makespan_ticks
    assert folded.timeline.of_rank(0) == every.timeline.of_rank(0)
    assert differences(program, run(program), Oracle(program).run()) == []


def test_several_templates_have_persistent_kernels() -> None:
    assert len({choice.template for _, choice in CASES}) >= 3
