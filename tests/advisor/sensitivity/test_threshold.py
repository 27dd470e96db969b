"""The rows at which the answer flips: where the search looks, and what it says."""

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.export import advice_document
from magus.advisor.candidates.advice import Threshold
from magus.advisor.candidates.predicted import predicted_candidates
from magus.advisor.sensitivity import threshold
from magus.advisor.sensitivity.threshold import LEAST_ROWS, MOST_ROWS, PRECISION, threshold_of
from magus.compiler.ir import EngineChoice, EngineKind, Explore, OpChoice, Pattern, Scenario
from magus.compiler.planning.knobs.engine import default_engine
from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.text.render import advice_text, threshold_sentence
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, lone_gather
from tests.helpers.some import some

GEMM = exploring(scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 1024, 512, 512), Explore())


def found(monkeypatch: pytest.MonkeyPatch, pays_from: int, pays_until: int = 1 << 30) -> Threshold:
    """What is found where overlap pays from ``pays_from`` rows on, up to ``pays_until``."""

    def pays(scenario: Scenario, finals: object) -> bool:
        gemm = scenario.case.shape.gemm
        assert gemm is not None
        return pays_from <= gemm.m < pays_until

    monkeypatch.setattr(threshold, "overlap_pays", pays)
    overlapping = OpChoice("hetero_fused_1d", 4, default_engine(GEMM.system))
    answer = threshold_of(GEMM, predicted_candidates(GEMM, (overlapping,)), pays(Scenario.of_one(GEMM), None), None)
    assert answer is not None
    return answer


@pytest.mark.parametrize("flip", [20, 200, 1000, 1024, 3000, 40_000])
def test_the_flip_next_to_the_rows_is_found(flip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = found(monkeypatch, flip)
    fewer, more = answer.tried

    assert answer.pays_above and answer.rows == more and not answer.simulated
    assert fewer < flip <= more, "the verdicts on both sides were looked at"
    assert more - fewer <= max(GEMM.num_ranks, more * PRECISION)
    assert fewer % GEMM.num_ranks == more % GEMM.num_ranks == 0


def test_overlap_may_cease_to_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = found(monkeypatch, 0, pays_until=5000)

    assert not answer.pays_above and answer.tried[0] < 5000 <= answer.tried[1]
    assert threshold_sentence(answer).startswith("Overlap does not pay from M = ")


@pytest.mark.parametrize(("pays_from", "pays", "text"), [(0, True, "pays at every M"), (1 << 30, False, "at any M")])
def test_without_a_flip_it_says_what_was_tried(
    pays_from: int, pays: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = found(monkeypatch, pays_from)

    assert answer == Threshold(None, pays, False, (LEAST_ROWS, MOST_ROWS))
    assert text in threshold_sentence(answer) and "65,536" in threshold_sentence(answer)


@pytest.mark.slow
def test_advice_of_both_sides_agrees() -> None:
    explore = Explore.of(chunks=(4, 8), engine=(EngineChoice(EngineKind.DMA, 3),))
    scenario, advisor = exploring(ag_gemm(1024, 2048, 4096, ranks=4), explore), Advisor.load()

    advice = advisor.recommend(Scenario.of_one(scenario), AdviceOptions(bespoke=0, threshold=True))

    limit = advice.threshold
    assert limit is not None and limit.rows is not None and limit.simulated
    assert advice_document(advice)["threshold"] == {
        "rows": limit.rows,
        "pays_above": limit.pays_above,
        "checked": "simulated",
        "tried": list(limit.tried),
    }
    assert threshold_sentence(limit) in advice_text(advice, 8)
    for rows in some(limit.tried):
        there = advisor.recommend(
            Scenario.of_one(exploring(ag_gemm(rows, 2048, 4096, ranks=4), explore)), AdviceOptions(bespoke=0)
        )
        overlaps = there.verdict is not Verdict.SERIAL and not there.recommended.is_serial
        assert overlaps is ((rows == limit.rows) is limit.pays_above)


def test_there_is_none_where_rows_cannot_change_or_nobody_asks() -> None:
    advisor = Advisor.load()

    alone = advisor.recommend(Scenario.of_one(lone_gather(256, 256)), AdviceOptions(verify=False, threshold=True))
    unasked = advisor.recommend(Scenario.of_one(GEMM), AdviceOptions(verify=False))

    assert alone.threshold is None and unasked.threshold is None
    assert advice_document(unasked)["threshold"] is None
