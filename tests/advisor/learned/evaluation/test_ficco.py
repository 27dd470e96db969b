"""FiCCO's heuristic: its choices, its rule branch by branch, its fit, and the comparison with the estimate."""

import numpy as np
import pytest

from magus.advisor.training import ficco
from magus.advisor.training import ficco as module
from magus.advisor.training.ficco import (
    ALL_SPLITS,
    ANY,
    ESTIMATE,
    EXACT,
    FOUR,
    HETERO_FUSED,
    HETERO_UNFUSED,
    MESH,
    RULE,
    STATIC,
    UNIFORM_1D,
    UNIFORM_2D,
    FiccoRule,
    HeldOut,
    fit_rule,
    four_choices,
    four_scores,
    sizes_of,
)
from magus.advisor.training.table import LabelTable
from magus.compiler.planning.build import reject_choice
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


def test_all_splits_are_judged_together(table: LabelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ficco, "NUM_QUANTILES", 3)
    monkeypatch.setattr(module, "SPLITS", (HeldOut("scenario"), HeldOut("size", "prefill"), HeldOut("gpu", "none")))

    scores = four_scores(table, limit=1, seed=0, workers=1)

    assert {score.split for score in scores} >= {"size prefill", ALL_SPLITS}
    assert not any(score.split == "gpu none" for score in scores)
    together = {(score.fabric, score.way): score for score in scores if score.split == ALL_SPLITS}
    assert {way for _, way in together} == {RULE, STATIC, ESTIMATE} and (ANY, RULE) in together
    for fabric in {fabric for fabric, _ in together}:
        assert fabric in (MESH, ANY)
        estimate, rule = together[fabric, ESTIMATE], together[fabric, RULE]
        assert estimate.exact >= rule.exact and estimate.mean_loss <= rule.mean_loss
        assert rule.exact == 1 or rule.loss_when_wrong > EXACT
