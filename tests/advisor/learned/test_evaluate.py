"""The evaluation: regrets over the best known, by families that are held out; and the training from records."""

from dataclasses import replace

import pytest

from magus.advisor.learned.boosted_trees import ModelError
from magus.advisor.learned.model_file import load
from magus.advisor.learned.pipeline import Found
from magus.advisor.training import evaluate as four
from magus.advisor.training import evaluate as module
from magus.advisor.training import ways as baselines
from magus.advisor.training.evaluate import HeldOut, evaluate, evaluation_text
from magus.advisor.training.families import draw
from magus.advisor.training.record import Record
from magus.advisor.training.table import ANYWHERE, Labels, LabelTable
from magus.advisor.training.train import fingerprint, found_by, make_table, winners_of, with_catalogue
from magus.advisor.training.ways import MODEL, WAYS
from tests.helpers.corpus import serial_record


def record(idx: int) -> Record:
    return serial_record(draw(3, idx))


def test_the_shipped_model_is_of_this_code() -> None:
    model, card = load()

    assert card.fingerprint == fingerprint(model.names), (
        "situations, features or the simulator changed since the proposals were learned: make their table and train"
    )
    assert min(len(model.before.structures), len(model.after.structures)) > 100


def test_winners_are_the_fastest_plans_by_estimate() -> None:
    one = record(5)

    (winner,) = winners_of(one)

    assert (winner.idx, winner.structure.knobs.template) == (5, "serial")
    assert winner in with_catalogue([winner])
    assert sum(each.idx == ANYWHERE for each in with_catalogue([winner])) > 100
    (plan,) = one.plans
    assert found_by(one) == Found(plan.estimate_ticks, *3 * (plan.ticks,), plan.estimate_ticks)


def test_a_table_needs_records_of_one_seed() -> None:
    with pytest.raises(ModelError, match="magus corpus"):
        make_table([])
    with pytest.raises(ModelError, match="one seed"):
        make_table([record(0), replace(record(1), seed=4)])


def test_every_way_is_scored_on_what_is_held_out(table: LabelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "NUM_STATIC", 2)
    splits = (HeldOut("scenario"), HeldOut("size", "decode"))
    monkeypatch.setattr(module, "SPLITS", splits)
    monkeypatch.setattr(four, "SPLITS", splits)
    searched = tuple(_with_search(labels) if labels.family.size == "decode" else labels for labels in table.labels)

    found = evaluate(replace(table, labels=searched), limit=2)

    assert {score.way for score in found.scores} == set(WAYS)
    assert {score.split for score in found.scores} == {"one scenario in 4", "size decode"}
    assert all(score.mean_regret >= 0 and score.scenarios >= 1 for score in found.scores)
    best = [score for score in found.scores if score.way == "model, 2 simulations"]
    alone = [score for score in found.scores if score.way == MODEL]
    assert best and all(two.mean_regret <= one.mean_regret for two, one in zip(best, alone, strict=True))
    assert {score.split for score in found.intervals} <= {"one scenario in 4", "size decode"}
    assert found.four and "model, 2 simulations" in evaluation_text(found)


def _with_search(labels: Labels) -> Labels:
    return replace(labels, found=Found(1e12, 1e12, 1e12, 1e12))
