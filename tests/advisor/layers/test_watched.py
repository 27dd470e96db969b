"""Advice on a layer for those who watch: what the file declares, then what is searched, with the runs of both."""

from dataclasses import replace

import pytest

from magus.advisor.answer.stages import AdviceOptions, Watcher
from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import ScheduleOrigin, by_time, joint_candidate
from magus.advisor.layers import recommend
from magus.advisor.layers.recommend import recommend_workload
from magus.compiler.ir import Cancelled
from magus.simcore import RunTooLarge
from tests.helpers.tui import graphs
from tests.helpers.tui.graphs import BEST, SERIAL, WHOLE

pytestmark = pytest.mark.usefixtures("compiled_core")
HERE = AdviceOptions(workers=1)


def searched(*_: object) -> Advice:
    """Advice that was made by hand: a schedule of its own, which is best, and one that was only estimated."""
    done = graphs.answer()
    best, serial = (next(each for each in done.candidates if each.expression == name) for name in (BEST, SERIAL))
    assert best.result is not None
    joint = joint_candidate(replace(best.joint, name="joint"), ScheduleOrigin.SEARCHED, "searched", 10)
    joint = replace(joint.with_result(best.result), simulated_ticks=best.ticks * 3 // 4)  # beyond what is resolved
    guess = joint_candidate(replace(best.joint, name="guess"), ScheduleOrigin.KNOWN, "known", serial.ticks)
    found = by_time([joint, serial, guess])
    return replace(done, recommended=joint, candidates=tuple(found), reasons=("u is not cut.",), searched=7)


@pytest.mark.slow
def test_declared_and_searched_schedules_stand_in_one_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommend, "_searched", searched)
    reported: list[Advice] = []
    advice = recommend_workload(graphs.layer(), HERE, Watcher(answered=reported.append))

    assert [each.expression for each in advice.candidates] == [
        "joint",
        BEST,
        SERIAL,
        WHOLE,
        "guess",
    ]
    assert advice.recommended.expression == "joint" and advice.searched == 7 and not advice.interrupted
    guess = advice.named("guess")
    assert guess is not None and guess.result is None and guess.best_us == guess.predicted_us == advice.serial.best_us
    assert advice.reasons == ("u is not cut.",)
    assert reported and all(each.interrupted for each in reported)


def estimated(*_: object) -> Advice:
    """The same, where the best was not simulated whole."""
    done = searched()
    guess = joint_candidate(replace(done.recommended.joint, name="joint"), ScheduleOrigin.SEARCHED, "searched", 10)
    others = (each for each in done.candidates if each.expression != "joint")
    return replace(done, recommended=guess, candidates=tuple(by_time([guess, *others])))


def test_the_verdict_is_decided_again_with_what_was_simulated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommend, "_searched", estimated)
    advice = recommend_workload(graphs.layer(), HERE, Watcher(answered=lambda reported: None))

    assert advice.recommended.expression == BEST and not advice.recommended.is_estimate
    assert advice.speedup == advice.serial.best_us / advice.recommended.best_us
    assert {op.name for op in advice.ops} == {op.name for op in graphs.layer().workload.ops}


def test_a_search_that_fails_leaves_what_the_file_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Advice:
        raise RunTooLarge("too many ops")

    monkeypatch.setattr(recommend, "_searched", fail)
    advice = recommend_workload(graphs.layer(), HERE, Watcher(answered=lambda advice: None))

    assert advice.recommended.expression == BEST and not advice.interrupted
    assert any("the search for a joint schedule" in mark and "too many ops" in mark for mark in advice.marks)


def test_a_search_that_is_stopped_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> Advice:
        raise Cancelled

    monkeypatch.setattr(recommend, "_searched", stopped)
    reported: list[Advice] = []
    advice = recommend_workload(graphs.layer(), HERE, Watcher(answered=reported.append))

    assert advice.interrupted and advice.recommended.expression == BEST
    assert [each.interrupted for each in reported] == [True] * len(reported) and len(reported) >= 2
    assert "u" in {op.name for op in advice.ops} and "y moves under" in " ".join(advice.reasons)
