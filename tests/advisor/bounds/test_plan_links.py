"""No run of a plan is shorter than its busiest link needs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from magus.advisor.bounds.link_loads import busiest_link_ticks
from magus.advisor.solver import enumerate_space
from magus.compiler.ir import TICKS_PER_SECOND, EngineChoice, EngineKind, EngineMode, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from tests.helpers.marks import thinned
from tests.helpers.scenarios.fabrics import UNEVEN, nic, rails
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs
from tests.helpers.some import some

DMA = EngineChoice(EngineKind.DMA, 2)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", thinned(UNEVEN, 3))
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
def test_no_run_is_shorter(make: Callable[..., OpCase], name: str) -> None:
    num_ranks, fabric = UNEVEN[name]
    scenario = make(64 * num_ranks, 64 * num_ranks, 512, ranks=num_ranks, fabric=fabric)
    choices = enumerate_space(scenario).choices
    for choice in some(choices[:: 1 + len(choices) // 3]):
        schedule = build_op_plan(scenario, choice)

        least = busiest_link_ticks(scenario, schedule)
        assert 0 < least <= simulate_op(scenario, schedule, unit_bytes=4096).makespan_ticks, schedule.expression


def test_each_rank_sends_all_it_has_over_its_own_nic_or_a_share() -> None:
    scenario = ag_gemm(64 * 32, 512, 512, ranks=32, fabric=rails(8))
    shard = 64 * 512 * 2  # bytes
    link = nic()

    def ticks(shards: int) -> int:
        return shards * shard * TICKS_PER_SECOND // link.achieved_bytes_per_s

    def least(algorithm: str) -> int:
        return busiest_link_ticks(scenario, build_op_plan(scenario, OpChoice("serial", 32, DMA, algorithm=algorithm)))

    assert least("") == ticks(24)  # to every rank of three other nodes, by its own rail
    assert ticks(3) <= least("hierarchical") < ticks(4)  # to one rank of each; then the links of the node are busier


def test_the_plan_of_the_library_is_not_known() -> None:
    scenario = ag_gemm(64 * 8, 512, 512)
    direct = build_op_plan(scenario, OpChoice("serial", 8, DMA))
    library = replace(direct, engine=EngineChoice(EngineKind.SM, 16, EngineMode.LIBRARY))

    assert busiest_link_ticks(scenario, direct) > busiest_link_ticks(scenario, library) == 0
