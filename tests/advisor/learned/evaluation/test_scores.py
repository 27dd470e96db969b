"""Scores of answers by hand: regret, harm, false serial and coverage; and the tables of a terminal."""

from dataclasses import replace

import pytest

from magus.advisor.learned.pipeline import Found
from magus.advisor.training.evaluate import (
    ALL_SPLITS,
    Evaluation,
    FourScore,
    SplitScore,
    evaluation_document,
    evaluation_text,
    interval_score,
    mean_of,
    split_scores,
)
from magus.advisor.training.table import LabelTable
from magus.advisor.training.ways import MODEL, WAYS, Answers, TimedAnswer

FAST = TimedAnswer(1000, is_serial=False, is_reported=True, error=0.0, simulations=0, seconds=0.01)


def answers_of(model: TimedAnswer, serial_ticks: float = 1500.0) -> Answers:
    """The answers of a model beside ways that all find the best schedule."""
    return Answers(0, dict.fromkeys(WAYS, FAST) | {MODEL: model}, serial_ticks)


def score_of(table: LabelTable, model: TimedAnswer, serial_ticks: float = 1500.0) -> SplitScore:
    """The score of the model in one scenario with a search that found 1005 ticks and a baseline of 1200."""
    labels = replace(table.labels[0], found=Found(1000.0, 1005.0, 1005.0, 1200.0))
    return next(iter(split_scores("a", [labels], [answers_of(model, serial_ticks)])))


def test_regret_is_over_the_best_of_search_and_ways(table: LabelTable) -> None:
    score = score_of(table, replace(FAST, ticks=1008))

    assert score.mean_regret == pytest.approx(0.008)
    assert (score.within_half, score.within_one, score.harm, score.false_serial) == (0.0, 1.0, 0.0, 0.0)
    slow = replace(FAST, ticks=1202)
    assert (score_of(table, slow).harm, score_of(table, slow).reported_harm) == (1.0, 1.0)
    assert score_of(table, replace(slow, is_reported=False)).reported_harm == 0.0


@pytest.mark.parametrize(
    ("ticks", "is_serial", "least_serial", "false"),
    [
        (1020, True, 1020.0, 1.0),
        (1020, False, 1020.0, 0.0),  # slow, but it overlaps
        (1005, True, 1005.0, 0.0),  # overlap gains less than a percent
        (1020, True, 1002.0, 0.0),  # another serial schedule is as fast as the best one
    ],
)
def test_an_answer_without_overlap_is_false_where_overlap_alone_is_faster(
    table: LabelTable, ticks: int, is_serial: bool, least_serial: float, false: float
) -> None:
    assert score_of(table, replace(FAST, ticks=ticks, is_serial=is_serial), least_serial).false_serial == false


def test_coverage_counts_answers_that_have_an_interval() -> None:
    errors = (-0.03, -0.01, 0.0, 0.02, None)

    (score,) = interval_score("a", [answers_of(replace(FAST, error=error)) for error in errors], (-0.02, 0.01))

    assert (score.scenarios, score.covered) == (4, 0.5)
    assert score.width == pytest.approx(0.03, abs=1e-3)
    assert not list(interval_score("a", [answers_of(replace(FAST, error=None))], (-0.02, 0.01)))


def test_the_mean_is_over_splits() -> None:
    one = SplitScore("a", MODEL, 10, 0.5, 0.6, 0.7, 0.02, 0.1, 0.0, 0.0, 0.25, 0.0, 0.01)

    both = mean_of([one, replace(one, split="b", within_half=0.7, false_serial=0.75, scenarios=5)])

    assert (both.split, both.scenarios, both.within_one) == ("mean", 15, 0.6)
    assert both.within_half == pytest.approx(0.6) and both.false_serial == 0.5


def test_tables_fit_a_terminal_and_the_document_has_all_scores(table: LabelTable) -> None:
    scores = tuple(split_scores("model DeepSeek-V3", [table.labels[2]], [answers_of(FAST)]))
    intervals = tuple(interval_score("model DeepSeek-V3", [answers_of(FAST)], (-0.02, 0.01)))
    four = (FourScore("all fabrics", ALL_SPLITS, "FiCCO's rule", 40, 0.725, 0.064, 0.0178),)
    evaluation = Evaluation(scores, intervals, four)

    text = evaluation_text(evaluation)

    assert max(map(len, text.splitlines())) <= 80
    assert all(way in text for way in WAYS) and "mean of unseen families" in text
    assert "all fabrics, FiCCO's rule" in text and "6.4%" in text
    document = evaluation_document(evaluation)
    assert document["schema"] == "magus-evaluate/1" and set(document) == {"schema", "scores", "intervals", "four"}
