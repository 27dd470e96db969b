"""FiCCO's heuristic, compared with the estimate."""

import pytest

from magus.advisor.policy.distill import EXACT
from magus.advisor.training import evaluate as module
from magus.advisor.training.evaluate import ALL_SPLITS, ANY, ESTIMATE, MESH, RULE, STATIC, HeldOut, four_scores
from magus.advisor.training.table import LabelTable


def test_all_splits_are_judged_together(table: LabelTable, monkeypatch: pytest.MonkeyPatch) -> None:
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
