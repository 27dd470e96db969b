"""Sweeps of graphs: which schedules are compared where, and the rules that follow."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import ScheduleOrigin, joint_candidate
from magus.advisor.policy.workload_sweep import WorkloadSweep, block_of, said_of, workload_swept
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Cancelled,
    EngineChoice,
    EngineKind,
    HandOff,
    OpMode,
    Rejection,
    Scenario,
    Schedule,
    Settings,
    WrittenPlan,
)
from magus.compiler.planning.build import ScheduleError, expression_of_schedule
from magus.compiler.resolve.schedules.from_text import SERIAL
from tests.helpers.layer_advice import advice_by_hand
from tests.helpers.scenarios.mlp_backward import backward

A = Schedule("joint", order=("dh", "du"))
B = Schedule("joint", low=("d_wup",))
TIMES: dict[int, dict[str, int | None]] = {
    1024: {"serial": 100, "a": 90, "b": 92},
    2048: {"serial": 200, "a": 161, "b": 160},
    4096: {"serial": 400, "a": 380, "b": 300},
    8192: {"serial": 800, "a": None, "b": 800},
}
"""By rows: the ticks of each schedule."""
BEST = {1024: A, 2048: B, 4096: B, 8192: SERIAL}


def word(choice: Schedule) -> str:
    said = expression_of_schedule(choice)
    return {expression_of_schedule(A): "a", expression_of_schedule(B): "b"}.get(said, "serial")


@pytest.fixture(scope="module")
def scenarios() -> Mapping[int, Scenario]:
    return {m: backward(m=m) for m in TIMES}


def rows_of(scenario: Scenario) -> int:
    return next(tensor.rows for tensor in scenario.workload.tensors if tensor.name == "dy")


def advise(scenario: Scenario) -> Advice:
    m = rows_of(scenario)
    best = BEST[m]
    return advice_by_hand(scenario, best, TIMES[m][word(best)] or 0, TIMES[m]["serial"] or 0)


def simulate(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
    assert word(choice) not in ("serial", word(advice.recommended.joint)), "what is known is not simulated again"
    return TIMES[rows_of(scenario)][word(choice)]


def swept(scenarios: Mapping[int, Scenario], tolerance: float = 0.02) -> WorkloadSweep:
    points: list[tuple[Settings, Scenario]] = [((("M", str(m)),), one) for m, one in scenarios.items()]
    return workload_swept(points, advise, simulate, tolerance=tolerance)


def test_each_schedule_is_timed_at_each_point(scenarios: Mapping[int, Scenario]) -> None:
    sweep = swept(scenarios)

    assert [choice.name for choice in sweep.schedules] == ["serial", "joint_1", "joint_2"]
    assert [point.schedule for point in sweep.points] == ["joint_1", "joint_2", "joint_2", "serial"]
    assert [dict(point.ticks) for point in sweep.points] == [
        {"serial": 100, "joint_1": 90, "joint_2": 92},
        {"serial": 200, "joint_1": 161, "joint_2": 160},
        {"serial": 400, "joint_1": 380, "joint_2": 300},
        {"serial": 800, "joint_2": 800},
    ]


def test_rules_are_as_few_as_the_tolerance_allows(scenarios: Mapping[int, Scenario]) -> None:
    def rules(tolerance: float) -> list[tuple[str, str, str]]:
        return [(dict(r.first)["M"], dict(r.last)["M"], r.schedule) for r in swept(scenarios, tolerance).rules]

    assert rules(0.0) == [("1024", "1024", "joint_1"), ("2048", "8192", "joint_2")]
    assert rules(0.01) == [("1024", "2048", "joint_1"), ("4096", "8192", "joint_2")]
    assert rules(0.03) == [("1024", "8192", "joint_2")]
    (rule,) = swept(scenarios, 0.03).rules
    assert rule.gain == (1.0, 400 / 300)
    assert rule.loss == pytest.approx(92 / 90 - 1)


def test_where_no_overlap_does_it_is_the_rule(scenarios: Mapping[int, Scenario]) -> None:
    sweep = swept({8192: scenarios[8192]})

    assert sweep.rules == (), "one point is no range"
    assert [point.schedule for point in sweep.points] == ["serial"]
    both = swept({m: scenarios[m] for m in (4096, 8192)}, tolerance=0.4)
    assert [rule.schedule for rule in both.rules] == ["serial"]


def test_the_document(scenarios: Mapping[int, Scenario]) -> None:
    document = swept(scenarios).document()

    assert document["schema"] == "magus-graph-sweep/1" and document["scenario"] == "back"
    blocks = {each["name"]: each["block"] for each in document["schedules"]}
    assert blocks["serial"] is None
    assert blocks["joint_1"] == "schedule joint_1 for back {\n  order dh, du\n}\n"
    assert document["points"][0]["gain"] == pytest.approx(100 / 90)
    assert document["rules"][-1]["last"] == {"M": "8192"}


def test_names_of_the_file_are_kept_and_not_taken(scenarios: Mapping[int, Scenario]) -> None:
    one = scenarios[1024]
    declared = replace(one, schedules=(replace(B, name="mine"), replace(B, name="joint_1", handoff=HandOff.WHOLE)))

    def by_file(scenario: Scenario) -> Advice:
        advice = advise(scenario)
        own = joint_candidate(replace(B, name="mine"), ScheduleOrigin.DECLARED, ticks=advice.recommended.ticks)
        return replace(advice, recommended=own) if scenario is declared else advice

    sweep = workload_swept(
        [((("M", "1024"),), one), ((("M", "1"),), declared)], by_file, lambda scenario, choice, advice: None
    )

    assert [choice.name for choice in sweep.schedules] == ["serial", "joint_2", "mine"]


def test_a_schedule_in_outline_is_known_by_its_name() -> None:
    outlined = Schedule("mine", (OpMode("dh", WrittenPlan(EngineChoice(EngineKind.DMA, 3), ())),))

    assert (said_of(outlined), block_of(outlined, "back")) == ("mine", None)
    assert block_of(SERIAL, "back") is None


def test_what_fails_leaves_the_others_without_rules(scenarios: Mapping[int, Scenario]) -> None:
    def fails(scenario: Scenario) -> Advice:
        if rows_of(scenario) == 2048:
            raise ScheduleError(Rejection(Code.MGS402, "too large"))
        return advise(scenario)

    points: list[tuple[Settings, Scenario]] = [((("M", str(m)),), one) for m, one in scenarios.items()]
    sweep = workload_swept(points, fails, simulate)

    assert len(sweep.points) == 3 and sweep.rules == ()
    assert [dict(settings) for settings, _ in sweep.failed] == [{"M": "2048"}]


def test_a_sweep_that_is_stopped_has_what_was_found(scenarios: Mapping[int, Scenario]) -> None:
    def stopped(scenario: Scenario) -> Advice:
        if rows_of(scenario) > 1024:
            raise Cancelled
        return advise(scenario)

    points: list[tuple[Settings, Scenario]] = [((("M", str(m)),), one) for m, one in scenarios.items()]
    sweep = workload_swept(points, stopped, simulate)

    assert sweep.interrupted and [point.schedule for point in sweep.points] == ["joint_1"]
    with pytest.raises(Cancelled):
        workload_swept(points[1:], stopped, simulate)
