"""Advice within a time: the best found until then, however little that is, and kept only if it is complete."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.stages import either, lateness
from magus.advisor.candidates import predicted
from magus.advisor.candidates.candidate import Candidate
from magus.advisor.candidates.predicted import BATCH, predicted_candidates
from magus.advisor.solver import enumerate_space
from magus.compiler.ir import NamedSchedule, Scenario, never
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore.memo.memo import Store, memoizing
from tests.helpers.scenarios.scenarios import ag_gemm

SCENARIO = ag_gemm(512, 2048, 2048, ranks=4)


def test_with_no_time_schedules_are_proposed_and_nothing_is_simulated() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(SCENARIO), AdviceOptions(within_s=1e-9))

    assert advice.interrupted and any(one.provenance is not None for one in advice.candidates)
    assert all(one.simulated_ticks is None for one in advice.candidates)
    assert advice.recommended.interval_us is not None and advice.recommended.best_us <= advice.serial.best_us


def test_a_hurried_answer_without_simulation_is_marked_and_not_kept(tmp_path: Path) -> None:
    advisor, options = Advisor.load(), AdviceOptions(verify=False)

    with memoizing(Store(tmp_path)):
        hurried = advisor.recommend(Scenario.of_one(SCENARIO), replace(options, within_s=1e-9))
        whole = advisor.recommend(Scenario.of_one(SCENARIO), replace(options, within_s=100.0))

    assert hurried.interrupted and not whole.interrupted
    assert {one.expression for one in hurried.candidates} < {one.expression for one in whole.candidates}
    assert whole.recommended.best_us <= hurried.recommended.best_us


@pytest.mark.slow
def test_proposals_are_simulated_before_the_space_is_ranked() -> None:
    heard: list[str] = []

    Advisor.load().recommend(Scenario.of_one(SCENARIO), progress=lambda stage, done, total: heard.append(stage))

    assert heard.index("propose") < heard.index("simulate") < heard.index("enumerate")


def test_a_stop_after_the_first_simulations_answers_with_them() -> None:
    heard: list[str] = []
    progress = lambda stage, done, total: heard.append(stage)  # noqa: E731

    advice = Advisor.load().recommend(
        Scenario.of_one(SCENARIO), progress=progress, should_stop=lambda: "enumerate" in heard
    )

    assert advice.interrupted and advice.serial.simulated_ticks is not None
    simulated = [one for one in advice.candidates if one.simulated_ticks is not None]
    assert any(not one.is_serial for one in simulated) and advice.recommended in simulated


def test_with_no_time_and_no_proposals_the_baseline_is_ranked() -> None:
    advice = Advisor.load().recommend(Scenario.of_one(SCENARIO), AdviceOptions(within_s=1e-9, bespoke=0))

    assert advice.interrupted and advice.candidates and all(one.is_serial for one in advice.candidates)
    assert all(one.simulated_ticks is None for one in advice.candidates)
    assert advice.verdict is Verdict.SERIAL and advice.why_serial == "no overlap schedule was ranked in time"
    assert advice.notes[0] == "stopped after 1e-09 s: this is the best of what was found until then"


@pytest.mark.slow
def test_with_enough_time_the_advice_is_the_same() -> None:
    advisor, options = Advisor.load(), AdviceOptions(top=2, bespoke=0)
    free, timed = (
        advisor.recommend(Scenario.of_one(SCENARIO), options),
        advisor.recommend(Scenario.of_one(SCENARIO), AdviceOptions(2, True, 0, 1, 1e6)),
    )

    assert not timed.interrupted and timed.notes == free.notes == ()
    assert [one.expression for one in timed.candidates] == [one.expression for one in free.candidates]
    assert timed.recommended.expression == free.recommended.expression
    assert timed.recommended.simulated_ticks == free.recommended.simulated_ticks is not None


def test_what_is_ranked_before_it_is_late_are_the_shortest_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    space = enumerate_space(SCENARIO).structures
    ranked, batches = predicted._ranked, list[int]()

    def counted(*args: Any, **options: Any) -> Iterator[Candidate]:
        yield from ranked(*args, **options)
        batches.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(predicted, "_ranked", counted)
        few = predicted_candidates(SCENARIO, space, lambda: len(batches) >= 2)
    every = predicted_candidates(SCENARIO, space)

    assert len(few) < len(every) and sum(not one.is_serial for one in few) >= BATCH
    chunks = [one.choice.chunks for one in few if one.choice is not None]
    left_out = {one.expression for one in every} - {one.expression for one in few}
    assert max(chunks) <= min(one.choice.chunks for one in every if one.choice and one.expression in left_out)
    known = {one.expression: one.predicted_us for one in every}
    assert [one.predicted_us for one in few] == pytest.approx([known[one.expression] for one in few], rel=1e-9)


@pytest.mark.slow
def test_advice_that_was_cut_short_is_not_kept_and_complete_advice_answers_at_once(tmp_path: Path) -> None:
    advisor, options = Advisor.load(), AdviceOptions(top=1, bespoke=0)
    with memoizing(Store(tmp_path)):
        assert advisor.recommend(Scenario.of_one(SCENARIO), AdviceOptions(1, True, 0, 1, 1e-9)).interrupted
        complete = advisor.recommend(Scenario.of_one(SCENARIO), options)
        again = advisor.recommend(Scenario.of_one(SCENARIO), AdviceOptions(1, True, 0, 1, 1e-9))

    assert not complete.interrupted and not again.interrupted
    assert again.recommended.expression == complete.recommended.expression


def test_either_stop_counts() -> None:
    late = lateness(1e-12)
    assert lateness(None) is never
    assert either(lambda: False, late)() and either(lambda: True, lambda: False)()
    assert not either(lambda: False, lambda: False)()


def test_a_simulated_baseline_alone_does_not_hide_what_was_proposed() -> None:
    advisor = Advisor.load()
    done: list[int] = []

    def progress(stage: str, finished: int, total: int) -> None:
        if stage == "simulate":
            done.append(finished)

    scenario = ag_gemm(4096, 8192, 8192)
    advice = advisor.recommend(Scenario.of_one(scenario), progress=progress, should_stop=lambda: 1 in done)

    assert advice.interrupted and not advice.recommended.is_serial


def test_a_bespoke_schedule_of_the_file_stays_what_the_file_declares() -> None:
    advisor = Advisor.load()
    found = advisor.recommend(Scenario.of_one(SCENARIO), AdviceOptions(verify=False))
    bespoke = next(one.choice for one in found.candidates if one.choice is not None and one.choice.parts)

    declared = replace(SCENARIO, schedules=(NamedSchedule("mine", bespoke),))
    advice = advisor.recommend(Scenario.of_one(declared), AdviceOptions(verify=False))

    (mine,) = [one for one in advice.candidates if one.choice == bespoke]
    assert mine.provenance is None
