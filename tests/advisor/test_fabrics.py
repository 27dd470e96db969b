"""Fabrics that are not the same from every rank: the bound holds, and the estimate is of the right size."""

from collections.abc import Callable
from itertools import product

import pytest

from magus.advisor.bounds.lower_bound import lower_bound
from magus.advisor.estimate.makespan import estimate_ticks
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.simcore import simulate_op
from tests.helpers.marks import thinned
from tests.helpers.scenarios.fabrics import UNEVEN
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather
from tests.helpers.some import some


def choices(scenario: OpCase) -> list[OpChoice]:
    n = scenario.num_ranks
    found = [
        OpChoice(template, n * pieces, EngineChoice(kind, count))
        for template, pieces in (("serial", 1), ("shard_p2p", 1), ("uniform_fused_1d", 2), ("hetero_fused_1d", 2))
        for kind, count in ((EngineKind.DMA, 2), (EngineKind.SM, 16))
    ]
    return [choice for choice in found if reject_choice(scenario, choice) is None]


# Each third has every fabric and every pattern.
@pytest.mark.quick(1)
@pytest.mark.parametrize("case", thinned(product((ag_gemm, gemm_rs, lone_gather), UNEVEN), 5))
def test_no_schedule_beats_the_bound(case: tuple[Callable[..., OpCase], str]) -> None:
    make, (ranks, fabric) = case[0], UNEVEN[case[1]]
    sizes = (128 * ranks, 128 * ranks, 1024) if make is not lone_gather else (256 * ranks, 4096)
    scenario = make(*sizes, ranks=ranks, fabric=fabric)
    for choice in some(choices(scenario)):
        bound = lower_bound(scenario, (choice.engine.kind,)).ticks
        found = simulate_op(scenario, build_op_plan(scenario, choice), unit_bytes=16384).makespan_ticks
        assert 0 < bound <= found, choice


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", thinned(UNEVEN, 4))
def test_an_estimate_is_within_a_factor_of_two(name: str) -> None:
    ranks, fabric = UNEVEN[name]
    scenario = ag_gemm(256 * ranks, 256 * ranks, 1024, ranks=ranks, fabric=fabric)
    for choice in some(choices(scenario)):
        schedule = build_op_plan(scenario, choice)
        found = simulate_op(scenario, schedule, unit_bytes=16384).makespan_ticks
        assert 0.5 * found <= estimate_ticks(scenario, schedule) <= 2 * found, choice
