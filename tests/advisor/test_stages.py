"""Whatever a stage of advice raises, what was found before it is the answer, with a note."""

from dataclasses import replace

import pytest

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.answer.stages import Stages
from magus.advisor.candidates.advice import Advice
from magus.advisor.questions import one_op as advice_run
from magus.advisor.questions import one_op as confirming
from magus.advisor.work.workers import Failure, FailureKind, failure_sentences
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Cancelled,
    EngineChoice,
    EngineKind,
    Explore,
    NamedSchedule,
    OpCase,
    OpChoice,
    Rejection,
    Scenario,
    WrittenPlan,
)
from magus.compiler.planning.build import ScheduleError, build_op_plan, expression_of
from magus.simcore import EngineUnavailable, RunTooLarge
from tests.helpers.scenarios.scenarios import ag_gemm, exploring

DMA = EngineChoice(EngineKind.DMA, 7)
SCENARIO = exploring(ag_gemm(4096, 4096, 8192), Explore.of(chunks=(8, 16), engine=(DMA,)))
ERRORS = (ValueError("on purpose"), RunTooLarge("too large"), ScheduleError(Rejection(Code.MGS514, "no such parts")))


@pytest.mark.quick(1)
@pytest.mark.parametrize("stage", ["enumerate_space", "predicted_candidates", "lower_bound"])
def test_without_a_stage_before_simulation_there_is_an_answer(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = advised_without(stage, monkeypatch, bespoke=0)

    assert advice.serial.simulated_ticks is not None
    assert (advice.bound is None) is (stage == "lower_bound")
    assert (advice.gap_to_bound is None) is (stage == "lower_bound")


CHOICE = OpChoice("uniform_fused_1d", 16, DMA)
DECLARED = replace(SCENARIO, schedules=(NamedSchedule("mine", CHOICE),))


@pytest.mark.slow
def test_without_predictions_what_the_file_declares_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = WrittenPlan(DMA, build_op_plan(SCENARIO, OpChoice("shard_p2p", 8, DMA)).steps)
    scenario = replace(DECLARED, schedules=(*DECLARED.schedules, NamedSchedule("by_hand", plan)))

    advice = advised_without("predicted_candidates", monkeypatch, bespoke=0, scenario=scenario)

    simulated = {each.expression: each.choice for each in advice.candidates if each.simulated_ticks is not None}
    assert simulated[expression_of(CHOICE)] == CHOICE and simulated["by_hand"] is None
    assert advice.recommended.expression != advice.serial.expression


def test_without_predictions_and_the_shortlist_the_finalists_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    without_shortlist(monkeypatch)
    advice = advised_without("predicted_candidates", monkeypatch, bespoke=0, scenario=DECLARED)

    assert advice.serial.simulated_ticks is not None
    assert advice.recommended.expression == expression_of(CHOICE) and advice.speedup > 1.05


@pytest.mark.parametrize("scenario", [SCENARIO, DECLARED])
def test_where_no_stage_finds_a_time_the_reasons_are_reported(
    scenario: OpCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_shortlist(monkeypatch)
    monkeypatch.setattr(confirming, "affordable_unit", fail)

    with pytest.raises(RuntimeError, match=r"the ranking failed.*the shortlist failed.*the confirmation failed"):
        advised_without("predicted_candidates", monkeypatch, bespoke=0, scenario=scenario)


def without_shortlist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice_run, "simulate_shortlist", fail)
    monkeypatch.setattr(advice_run, "simulate_variants", fail)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["simulate_variants", "bespoke_candidates", "affordable_unit"])
def test_without_a_later_stage_the_shortlist_answers(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = advised_without(stage, monkeypatch, bespoke=40)

    assert advice.recommended.simulated_ticks is not None and advice.serial.simulated_ticks is not None
    assert advice.speedup > 1.05
    assert (advice.result is None) is (stage == "affordable_unit")


def test_without_any_simulation_predictions_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice_run, "is_searched", lambda scenario: False)
    advice = advised_without("simulate_shortlist", monkeypatch, bespoke=0)

    assert advice.recommended.predicted_us is not None
    assert advice.confidence_reason


def fail(*args: object, **options: object) -> None:
    raise ValueError("on purpose")


def advised_without(stage: str, monkeypatch: pytest.MonkeyPatch, bespoke: int, scenario: OpCase = SCENARIO) -> Advice:
    """Advice of which one stage fails; the notes name it."""
    monkeypatch.setattr(confirming if stage == "affordable_unit" else advice_run, stage, fail)
    advice = Advisor.load().recommend(Scenario.of_one(scenario), AdviceOptions(bespoke=bespoke))

    assert any("on purpose" in note and "a fault of Magus" in note for note in advice.notes)
    assert set(advice.notes) <= set(advice.marks)
    assert not advice.interrupted
    return advice


@pytest.mark.parametrize("error", ERRORS)
def test_what_failed_is_reported(error: Exception) -> None:
    stages = Stages()

    assert stages.run("a stage", lambda: fail_with(error), "before") == "before"
    (note,) = failure_sentences(stages.failures)
    assert note.startswith("a stage failed and was left out: ") and str(error) in note
    assert ("a fault of Magus" in note) is (type(error) is ValueError)


def test_what_is_no_failure_goes_on() -> None:
    with pytest.raises(EngineUnavailable):
        Stages().run("a stage", lambda: fail_with(EngineUnavailable("install numba")), None)
    with pytest.raises(KeyboardInterrupt):
        Stages().run("a stage", lambda: fail_with(KeyboardInterrupt()), None)


def fail_with(error: BaseException) -> str:
    raise error


def test_after_a_stop_no_stage_is_begun() -> None:
    stops = iter((False, False, True))
    stages = Stages(lambda: next(stops))

    assert stages.run("first", lambda: 1, 0) == 1
    assert stages.run("second", lambda: 2, 0) == 0
    assert stages.interrupted
    assert stages.run("third", lambda: 3, 0) == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("stage", ["simulate", "bespoke", "confirm"])
def test_ctrl_c_keeps_what_was_found(stage: str) -> None:
    pressed = False

    def press(name: str, done: int, total: int) -> None:
        nonlocal pressed
        if name == stage and done == 1 and not pressed:
            pressed = True
            raise KeyboardInterrupt

    advice = Advisor.load().recommend(
        Scenario.of_one(SCENARIO), AdviceOptions(bespoke=40), progress=press, should_stop=lambda: pressed
    )

    assert advice.interrupted and advice.notes[0].startswith("stopped early")
    assert advice.serial.simulated_ticks is not None
    # With the baseline alone simulated, what was proposed is the answer.
    assert not advice.recommended.is_serial and advice.recommended.is_estimate is (stage == "simulate")


def test_before_anything_is_ranked_there_is_nothing_to_keep() -> None:
    def press(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Advisor.load().recommend(Scenario.of_one(SCENARIO), progress=press)
    with pytest.raises(Cancelled):
        Advisor.load().recommend(Scenario.of_one(SCENARIO), should_stop=lambda: True)


def test_failed_simulations_are_reported_once_for_each_kind() -> None:
    failures = [
        Failure("b", FailureKind.FAULT, "ValueError: odd"),
        Failure("a", FailureKind.TOO_LARGE, "1e10 line-hops"),
        Failure("c", FailureKind.TOO_LARGE, "2e10 line-hops"),
    ]

    assert list(failure_sentences(failures)) == [
        "too large to simulate: a, and 1 more: 1e10 line-hops",
        "a fault of Magus: b: ValueError: odd",
    ]
