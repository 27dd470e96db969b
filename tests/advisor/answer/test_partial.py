"""Answers on the way: what would be answered now, as candidates are ranked and simulated."""

from dataclasses import replace
from pathlib import Path

import pytest

from magus.advisor import AdviceOptions, Advisor, keep_results
from magus.advisor.candidates.advice import Advice, AnswerSource
from magus.advisor.sensitivity import threshold
from magus.compiler.ir import EngineChoice, EngineKind, Explore, Scenario
from magus.simcore.memo.memo import use
from tests.helpers.scenarios.scenarios import ag_gemm, exploring

OPTIONS = AdviceOptions(top=3, bespoke=10)
SCENARIO = exploring(ag_gemm(1024, 2048, 4096), Explore.of(chunks=(8, 16), engine=(EngineChoice(EngineKind.DMA, 7),)))


@pytest.fixture(scope="module")
def reported() -> tuple[list[Advice], Advice]:
    partial: list[Advice] = []
    final = Advisor.load().recommend(Scenario.of_one(SCENARIO), OPTIONS, answered=partial.append)
    return partial, final


def simulated(advice: Advice) -> int:
    return sum(candidate.simulated_ticks is not None for candidate in advice.candidates)


def test_the_first_answer_is_the_models_and_later_ones_are_simulated(reported: tuple[list[Advice], Advice]) -> None:
    partial, final = reported

    assert partial[0].source is AnswerSource.MODEL
    assert simulated(partial[0]) == 0
    assert partial[-1].source is AnswerSource.SIMULATION
    assert simulated(partial[-1]) > 2
    assert all(advice.interrupted and advice.result is None for advice in partial)
    assert not final.interrupted


def test_the_last_answer_on_the_way_has_the_candidates_of_the_final_one(reported: tuple[list[Advice], Advice]) -> None:
    partial, final = reported

    assert {each.expression for each in partial[-1].candidates} == {each.expression for each in final.candidates}


def test_what_is_confirmed_is_reported_before_the_threshold_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "LEAST_ROWS", 256)
    monkeypatch.setattr(threshold, "MOST_ROWS", 1024)  # that it is looked for is enough here
    partial: list[Advice] = []
    options = replace(OPTIONS, bespoke=0, top=1, threshold=True)
    small = exploring(ag_gemm(512, 2048, 2048, ranks=4), Explore.of(schedules=("hetero_fused_1d",), chunks=(8,)))
    final = Advisor.load().recommend(Scenario.of_one(small), options, answered=partial.append)
    last = partial[-1]

    assert final.threshold is not None and last.threshold is None and last.interrupted
    assert (last.result, last.bound) == (final.result, final.bound) and final.result is not None
    assert (last.recommended, last.verdict) == (final.recommended, final.verdict)


@pytest.mark.slow
def test_watching_changes_no_answer(reported: tuple[list[Advice], Advice]) -> None:
    again = Advisor.load().recommend(Scenario.of_one(SCENARIO), OPTIONS)

    assert replace(again, timing=reported[1].timing) == reported[1]


@pytest.mark.slow
def test_a_kept_answer_is_reported_once_and_whole(tmp_path: Path) -> None:
    keep_results(tmp_path)
    try:
        first = Advisor.load().recommend(Scenario.of_one(SCENARIO), OPTIONS)
        partial: list[Advice] = []
        again = Advisor.load().recommend(Scenario.of_one(SCENARIO), OPTIONS, answered=partial.append)
    finally:
        use(None)

    assert again == first
    assert partial == []
