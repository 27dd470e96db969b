"""Advice on a graph as it is shown: what the file declares, then what is searched, with the runs of both."""

from dataclasses import replace

import pytest

from magus.advisor.graphs import advised as graph_advised
from magus.advisor.graphs.advised import advised, with_advice
from magus.advisor.graphs.answer import GraphAnswer
from magus.advisor.layers.advice import GraphAdvice, GraphCandidate
from magus.advisor.options import AdviceOptions
from magus.compiler.ir import Cancelled, GraphScenario, ShouldStop
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore import RunTooLarge
from tests.helpers.tui import graphs
from tests.helpers.tui.graphs import BEST, SERIAL, WHOLE

pytestmark = pytest.mark.usefixtures("compiled_core")
HERE = AdviceOptions(workers=1)


def advice_of(scenario: GraphScenario) -> GraphAdvice:
    """Advice that was made by hand: a schedule of its own, which is best, and one that was only estimated."""
    known = {each.expression: each for each in graphs.answer().candidates}
    best, serial = known[BEST], known[SERIAL]
    assert best.result is not None and serial.result is not None
    joint = GraphCandidate(replace(best.choice, name="joint"), "searched", 10, best.result)
    guess = GraphCandidate(replace(best.choice, name="guess"), "known", serial.result.makespan_ticks)
    base = GraphCandidate(serial.choice, "no overlap", 20, serial.result, is_baseline=True)
    found = (joint, base, guess)
    return GraphAdvice(
        scenario, Verdict.OVERLAP, joint, base, found, (), ("u is not cut",), graphs.answer().bound, 1, "dma(3)", 7
    )


def test_declared_and_searched_schedules_stand_in_one_ranking() -> None:
    answer = with_advice(graphs.answer(), advice_of(graphs.layer()))

    assert [each.expression for each in answer.candidates] == [BEST, "joint", SERIAL, WHOLE, "guess"]
    assert answer.recommended.expression == "joint" and answer.searched == 7 and not answer.interrupted
    assert answer.recommended.run is not None and answer.recommended.run.expression == "joint"
    guess = next(each for each in answer.candidates if each.expression == "guess")
    assert guess.run is None and guess.best_us == guess.predicted_us == answer.serial.best_us
    assert answer.reasons[0] == "u is not cut." and "Copies of u" in " ".join(answer.reasons)


def test_a_search_that_fails_leaves_what_the_file_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> GraphAdvice:
        raise RunTooLarge("too many ops")

    monkeypatch.setattr(graph_advised, "recommend_graph", fail)
    answer = advised(graphs.layer(), HERE)

    assert answer.recommended.expression == BEST and not answer.interrupted
    assert any("the search for a joint schedule" in mark and "too many ops" in mark for mark in answer.marks)


def test_a_search_that_is_stopped_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[GraphAnswer] = []

    def stopped(*_: object, should_stop: ShouldStop, **__: object) -> GraphAdvice:
        raise Cancelled

    monkeypatch.setattr(graph_advised, "recommend_graph", stopped)
    answer = advised(graphs.layer(), HERE, answered=told.append)

    assert answer.interrupted and answer.recommended.expression == BEST
    assert [each.interrupted for each in told] == [True] * len(told) and len(told) >= 2
