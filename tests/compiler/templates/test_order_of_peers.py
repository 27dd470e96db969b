"""In which order ranks serve their peers."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    OpCase,
    OpChoice,
    PeerOrder,
    Transfer,
)
from magus.compiler.planning.build import build_op_plan, expression_of
from magus.compiler.resolve.schedules.from_text import read_choice
from magus.compiler.verify.check import check_plan
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs

DMA = EngineChoice(EngineKind.DMA, 3)
TEMPLATES = ("shard_p2p", "uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d", "uniform_fused_2d")
UNEVEN = """use "nvidia/h100"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on s {
  x = tensor bf16[1024, 1024]; w = tensor bf16[1024, 2048] shard cols
  y = gemm(all_to_all(x, rows=[128, 512, 64, 320]), w)
}
"""


def peers(
    scenario: OpCase, template: str, order: PeerOrder, rank: int = 0, tactics: ExecutionOptions | None = None
) -> list[int]:
    """Peers of the transfers of the first piece, in the order of issue."""
    chunks = 4 if template == "shard_p2p" else 8
    choice = OpChoice(template, chunks, DMA, 1, tactics or ExecutionOptions(), order=order)
    schedule = build_op_plan(scenario, choice)
    assert check_plan(scenario, schedule) == ()
    return [step.peer for step in schedule.steps_of(rank) if isinstance(step, Transfer)][:3]


@pytest.mark.parametrize("scenario", [ag_gemm(512, 1024, 1024, ranks=4), gemm_rs(512, 1024, 1024, ranks=4)])
@pytest.mark.parametrize("template", TEMPLATES)
def test_nearest_first_last_first_or_all_the_same_first(scenario: OpCase, template: str) -> None:
    assert peers(scenario, template, PeerOrder.ROTATED) == [1, 2, 3]
    assert peers(scenario, template, PeerOrder.REVERSED) == [3, 2, 1]
    for rank in range(4):
        served = [(rank + peer) % 4 for peer in peers(scenario, template, PeerOrder.ABSOLUTE, rank)]
        assert served == [each for each in range(4) if each != rank]


@pytest.mark.parametrize("template", TEMPLATES[:4])
def test_by_the_rows_of_an_uneven_all_to_all(template: str) -> None:
    scenario = compile_text(UNEVEN).scenario("w").case

    assert peers(scenario, template, PeerOrder.SMALL_FIRST) == [2, 3, 1]
    assert peers(scenario, template, PeerOrder.LARGE_FIRST) == [1, 3, 2]
    # From r + k come the rows that it sends 4 - k further.
    assert peers(scenario, template, PeerOrder.SMALL_FIRST, tactics=ExecutionOptions(Direction.GET)) == [2, 1, 3]


@pytest.mark.parametrize("order", PeerOrder)
@pytest.mark.parametrize("depth", [0, 2])
def test_order_and_depth_are_read_as_they_are_printed(order: PeerOrder, depth: int) -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    choice = OpChoice("hetero_fused_1d", 16, DMA, 1, ExecutionOptions(Direction.GET), order=order, depth=depth)

    text = expression_of(choice)

    assert read_choice(scenario, text) == choice
    assert ("order=" in text, "depth=" in text) == (order is not PeerOrder.ROTATED, depth > 0)
