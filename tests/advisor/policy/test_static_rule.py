"""FiCCO's heuristic: its choices, its inputs and its fit."""

from dataclasses import replace

import numpy as np
import pytest

from magus.advisor.learned.boosted_trees import picked
from magus.advisor.policy.distill import (
    FEATURES,
    FOUR,
    STATIC_FEATURES,
    fitted_tree,
    four_choices,
    rates_of,
)
from magus.compiler.ir import Kernels
from magus.compiler.planning.build import reject_choice
from tests.helpers.oracle.lowering import on_gpu
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs


def test_the_four_schedules_have_a_piece_for_each_rank() -> None:
    scenario = ag_gemm(4096, 8192, 8192)

    choices = four_choices(scenario)

    assert tuple(choice.template for choice in choices) == FOUR
    assert {choice.chunks for choice in choices} == {scenario.num_ranks**2}
    assert len({choice.engine for choice in choices}) == 1
    assert all(reject_choice(scenario, choice) is None for choice in choices)
    assert four_choices(gemm_rs(4096, 8192, 8192)) == ()
    assert four_choices(ag_gemm(8 * 9, 8192, 8192)) == ()  # 9 rows of a shard are not 8 pieces


def test_the_rule_looks_at_what_the_paper_names() -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    gemm = scenario.shape.gemm
    assert gemm is not None

    rates = rates_of(scenario, gemm)
    found = dict(zip(FEATURES, rates.ratios(gemm.m, gemm.n, gemm.k), strict=True))

    traffic = 2 * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    balance = scenario.gpu.peak(gemm.dtype) / scenario.gpu.hbm.peak_bytes_per_s
    assert (found["traffic_bytes"], found["m_over_k"]) == (traffic, gemm.m / gemm.k)
    assert found["over_balance"] == pytest.approx(2 * gemm.m * gemm.n * gemm.k / traffic / balance)


def test_a_fit_finds_a_rule_that_made_the_labels_by_its_own_inputs() -> None:
    random = np.random.default_rng(1)
    ratios = np.exp(random.uniform(-3, 3, (400, len(FEATURES))))
    rows, intensity, traffic = (ratios[:, FEATURES.index(name)] for name in STATIC_FEATURES)
    picks = np.where(intensity < 0.5, np.where(rows < 0.25, 3, 1), np.where(traffic < 1.0, 3, 0))
    ticks = np.full((400, 4), 1.1)
    ticks[np.arange(400), picks] = 1.0

    static, other = (fitted_tree(ratios, ticks, static=each) for each in (True, False))

    by_static, by_other = (np.array([picked(each, row) for row in ratios]) for each in (static, other))
    assert (by_static == picks).mean() > 0.95 > (by_other == picks).mean()


def test_kernels_of_one_slice_share_the_sms_where_the_gpu_permits() -> None:
    scenario = ag_gemm(4096, 8192, 8192)
    gpu = scenario.gpu
    permits = on_gpu(scenario, replace(gpu, gemm=replace(gpu.gemm, fewest_sms=8)))

    assert four_choices(scenario, sharing=True) == four_choices(scenario) == four_choices(permits)
    unfused = four_choices(permits, sharing=True)[FOUR.index("hetero_unfused_1d")]
    assert (unfused.streams, unfused.tactics.kernel) == (7, Kernels.SHARING)
    assert reject_choice(permits, unfused) is None
