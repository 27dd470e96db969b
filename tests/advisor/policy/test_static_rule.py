"""FiCCO's heuristic: its choices, its rule branch by branch, and its fit."""

from dataclasses import replace

import numpy as np
import pytest

from magus.advisor.policy.build import (
    FOUR,
    HETERO_FUSED,
    HETERO_UNFUSED,
    UNIFORM_1D,
    UNIFORM_2D,
    FiccoRule,
    fit_rule,
    four_choices,
    sizes_of,
)
from magus.compiler.ir import Kernels
from magus.compiler.planning.build import reject_choice
from tests.helpers.oracle.lowering import on_gpu
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs

RULE_OF_HAND = FiccoRule(intensity=500.0, few_rows=0.25, many_rows=4.0, traffic=1e8)


def test_the_four_schedules_have_a_piece_for_each_rank() -> None:
    scenario = ag_gemm(4096, 8192, 8192)

    choices = four_choices(scenario)

    assert tuple(choice.template for choice in choices) == FOUR
    assert {choice.chunks for choice in choices} == {scenario.num_ranks**2}
    assert len({choice.engine for choice in choices}) == 1
    assert all(reject_choice(scenario, choice) is None for choice in choices)
    assert four_choices(gemm_rs(4096, 8192, 8192)) == ()
    assert four_choices(ag_gemm(8 * 9, 8192, 8192)) == ()  # 9 rows of a shard are not 8 pieces


def test_sizes_are_those_of_the_gemm_of_one_rank() -> None:
    gemm = ag_gemm(4096, 8192, 8192).shape.gemm
    assert gemm is not None

    intensity, rows, traffic = sizes_of(gemm)

    elements = gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n
    assert (traffic, rows) == (2 * elements, gemm.m / gemm.k)
    assert intensity == pytest.approx(2 * gemm.m * gemm.n * gemm.k / (2 * elements))


@pytest.mark.parametrize(
    ("sizes", "pick"),
    [
        ((499.0, 0.25, 1e9), UNIFORM_2D),
        ((499.0, 0.26, 1e9), HETERO_FUSED),
        ((500.0, 4.1, 1e9), HETERO_UNFUSED),
        ((500.0, 4.0, 9e7), UNIFORM_2D),
        ((500.0, 4.0, 1e8), UNIFORM_1D),
    ],
)
def test_the_rule_by_hand(sizes: tuple[float, float, float], pick: int) -> None:
    assert RULE_OF_HAND.picks(np.array([sizes])).tolist() == [pick]


def test_a_fit_finds_a_rule_that_made_the_labels() -> None:
    random = np.random.default_rng(1)
    sizes = np.exp(random.uniform(np.log([50, 0.02, 1e6]), np.log([5000, 50, 1e10]), (120, 3)))
    picks = RULE_OF_HAND.picks(sizes)
    ticks = np.full((120, 4), 1.1)
    ticks[np.arange(120), picks] = 1.0

    rule = fit_rule(sizes, ticks)

    assert (rule.picks(sizes) == picks).mean() > 0.9


def test_kernels_of_one_slice_share_the_sms_where_the_gpu_permits() -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    gpu = scenario.gpu
    permits = on_gpu(scenario, replace(gpu, gemm=replace(gpu.gemm, fewest_sms=8)))

    assert four_choices(scenario, sharing=True) == four_choices(scenario) == four_choices(permits)
    unfused = four_choices(permits, sharing=True)[HETERO_UNFUSED]
    assert (unfused.streams, unfused.tactics.kernel) == (7, Kernels.SHARING)
    assert reject_choice(permits, unfused) is None
