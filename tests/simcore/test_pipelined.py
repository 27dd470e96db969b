"""Kernels beside each algorithm, lowered: equal to the oracle on every core, and as fast as they should be."""

from dataclasses import replace
from itertools import product

import pytest

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Fabric,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import thinned
from tests.helpers.oracle.lowering import differs_from_oracle, makespan
from tests.helpers.scenarios.fabrics import rails
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, gemm_rs, h100, ring, switch
from tests.helpers.scenarios.workloads import TEXTS, workload_of

DMA, SM = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 4)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
PATTERNS = (Pattern.AG_GEMM, Pattern.A2A_GEMM, Pattern.GEMM_RS, Pattern.GEMM_AR)


def able(fabric: Fabric) -> Fabric:
    assert fabric.switch is not None
    return replace(fabric, switch=replace(fabric.switch, multicast=True, reduces=True))


pytestmark = pytest.mark.usefixtures("compiled_core")
FABRICS = {"switch": able(switch()), "mesh": full_mesh(), "ring": ring(), "rails": rails(2)}


def scenario_of(pattern: Pattern, fabric: Fabric, size: int = 128, ranks: int = 4) -> OpCase:
    make = gemm_rs if pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR) else ag_gemm
    made = make(size, size, size, ranks=ranks, gpu=h100(), fabric=fabric)
    return replace(made, shape=replace(made.shape, pattern=pattern))


# Each fifth: every fabric, with a pattern of its own.
@pytest.mark.quick(2)
@pytest.mark.parametrize("case", thinned(product(reversed(FABRICS), PATTERNS), 5))
def test_every_core_equals_the_oracle(case: tuple[str, Pattern]) -> None:
    fabric, pattern = case
    scenario, tried = scenario_of(pattern, FABRICS[fabric]), 0
    for algorithm, (engine, tactics) in product(ALGORITHM_BY_NAME, ((DMA, ExecutionOptions()), (SM, PERSISTENT))):
        choice = OpChoice("pipelined", 8, engine, tactics=tactics, algorithm=algorithm)
        if reject_choice(scenario, choice) is None:
            schedule, tried = build_op_plan(scenario, choice), tried + 1
            assert check_plan(scenario, schedule) == ()
            assert differs_from_oracle(scenario, schedule, 2048, fold=False) == [], schedule.expression
    assert tried


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_with_direct_it_takes_as_long_as_hetero_fused_1d(pattern: Pattern) -> None:
    scenario = scenario_of(pattern, full_mesh(), 512)
    mine = build_op_plan(scenario, OpChoice("pipelined", 8, DMA, algorithm="direct"))
    theirs = build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, DMA))

    assert makespan(scenario, mine) == makespan(scenario, theirs)


def test_on_one_link_each_way_a_ring_of_whole_blocks_is_shard_p2p_with_less_traffic() -> None:
    """Blocks take one link at a time instead of up to n / 2, and both directions bring twice as much."""
    scenario = scenario_of(Pattern.AG_GEMM, ring(), 4096, 8)

    times = {
        name: makespan(scenario, build_op_plan(scenario, OpChoice(template, 8, DMA, algorithm=algorithm)), 1 << 16)
        for name, template, algorithm in (
            ("p2p", "shard_p2p", ""),
            ("ring", "pipelined", "ring"),
            ("both ways", "pipelined", "double_ring"),
        )
    }

    assert times["both ways"] < 0.75 * times["ring"] < 0.75 * times["p2p"]


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS], ids=lambda pattern: pattern.name)
def test_across_nodes_blocks_that_cross_once_beat_those_that_cross_for_each_rank(pattern: Pattern) -> None:
    scenario = scenario_of(pattern, rails(4), 8192, 8)

    def ticks(template: str, algorithm: str = "", pieces: int = 1) -> int:
        choice = OpChoice(template, 8 * pieces, EngineChoice(EngineKind.DMA, 7), algorithm=algorithm)
        return makespan(scenario, build_op_plan(scenario, choice), 1 << 18)

    hierarchical = ticks("serial", "hierarchical")
    assert ticks("pipelined", "hierarchical", 2) < 0.9 * hierarchical
    assert ticks("pipelined", "double_ring", 2) < 0.9 * hierarchical
    assert hierarchical < 0.6 * ticks("serial") < 0.6 * ticks("shard_p2p")


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", TEXTS)
def test_kernels_other_than_a_gemm_are_pipelined_too(name: str) -> None:
    """But for attention behind an all_to_all, whose queries need the keys of all rows."""
    scenario, tried = workload_of(name, ranks=2, m=512), 0
    for algorithm, pieces in product(ALGORITHM_BY_NAME, (1, 2)):
        choice = OpChoice("pipelined", 2 * pieces, DMA, algorithm=algorithm)
        if reject_choice(scenario, choice) is None:
            schedule, tried = build_op_plan(scenario, choice), tried + 1
            assert check_plan(scenario, schedule) == ()
            assert differs_from_oracle(scenario, schedule, 4096, fold=False) == [], schedule.expression
    assert (tried == 0) == name.startswith("A2A+attention")
